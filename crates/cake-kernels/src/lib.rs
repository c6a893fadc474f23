//! Every CUDA kernel of Cake: the sources under `cuda/`, the list of what is compiled from them, and the images.
//!
//! A kernel is a row of a list ([`rmsnorm`], [`silu_gate`]) that names a schedule, a file under `cuda/`, and a geometry. Nothing here
//! says when a kernel is used: that is the route tables' business, in the operators' crates.

#[cfg(feature = "build")]
pub mod build;
mod images;
mod names;
pub mod probe;
pub mod rmsnorm;
pub mod silu_gate;

pub use cake_core::rows::RowTensor;
pub use images::{OPS, image, kernels};

use cake_core::{Kernel, Program};

/// The same schedule and geometry without and with a residual.
#[derive(Debug)]
pub struct Forms {
    /// Without a residual.
    pub plain: Program,
    /// With a residual.
    pub residual: Program,
}

impl Forms {
    /// All six kernels: each form with each kind of weight.
    pub fn kernels(&'static self) -> impl Iterator<Item = &'static Kernel> {
        [&self.plain, &self.residual].into_iter().flat_map(Program::all)
    }
}

/// Dynamic shared memory of the `scan` schedules for rows of `width` elements, in bytes: one FP32 for each thread and
/// level of the fold above the batches of 8 units.
pub fn scan_shared_bytes(kernel: &Kernel, width: u32) -> u32 {
    let units = width.div_ceil(8);
    let batches = units.div_ceil(8 * kernel.group).next_power_of_two();
    batches.ilog2() * kernel.threads() * 4
}
