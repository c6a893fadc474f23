//! cake-kernels
