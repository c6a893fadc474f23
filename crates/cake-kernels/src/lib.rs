//! Every CUDA kernel of Cake: the sources under `cuda/`, the list of what is compiled from them, and the images.
//!
//! A kernel is a row of a list ([`rmsnorm`]) that names a schedule, a file under `cuda/`, and a geometry. Nothing here
//! says when a kernel is used: that is the route tables' business, in the operators' crates.

#[cfg(feature = "build")]
pub mod build;
mod images;
mod names;
pub mod probe;
pub mod rmsnorm;

pub use images::{OPS, image, kernels};

use cake_core::{Kernel, Program};

/// The same schedule and geometry for each fusion.
#[derive(Debug)]
pub struct Forms {
    /// Without a residual.
    pub plain: Program,
    /// With a residual.
    pub residual: Program,
}

impl Forms {
    /// All six kernels: each fusion with each kind of weight.
    pub fn kernels(&'static self) -> impl Iterator<Item = &'static Kernel> {
        [&self.plain, &self.residual].into_iter().flat_map(Program::all)
    }
}
