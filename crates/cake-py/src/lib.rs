//! Cake for Python. Nothing is served yet.
//!
//! This crate will hold the extension module behind the Python package `cake_py`, which calls the operators on PyTorch
//! tensors, on the stream that is current there, with gradients through `torch.autograd`. PyTorch will be imported by one
//! module of the package and be no dependency of the rest.
