//! Vocabulary and driver of the Cake kernels.
//!
//! | room | holds |
//! | --- | --- |
//! | [`Arch`], [`DeviceInfo`], [`Device`], [`Stream`], [`Buffer`] | which GPU, and live handles to it |
//! | [`Kernel`], [`Program`], [`Image`] | what exists: compiled entry points |
//! | [`Route`], [`RouteTable`], [`Op`], [`Plan`] | when it is used: from (device, shape) to a launch |
//! | [`Workspace`], [`GridBarrier`] | scratch memory of a stream, and the barrier whose word lies in it |
//! | [`TensorView`], [`TensorViewMut`], [`overlap`], [`rows`] | arguments, and which of them may share memory |
//! | [`bind`], [`chunks`], [`host`] | what operators on rows have in common: checks, the division of rows, the host path |
//! | [`sums`] | the canonical order of every sum, on the host |
//! | [`Error`] | the one error type |
//!
//! The crate knows no kernel and no operator. Everything except [`Device`], [`Stream`] and [`Buffer`] works without a GPU
//! and without libcuda.

mod arch;
mod barrier;
pub mod bind;
pub mod chunks;
mod device;
mod driver;
mod dtype;
mod error;
pub mod host;
mod image;
mod kernel;
mod op;
pub mod overlap;
mod plan;
mod route;
pub mod rows;
pub mod sums;
mod view;
mod workspace;

pub use arch::Arch;
pub use barrier::GridBarrier;
pub use device::{Buffer, Device, DeviceInfo, Stream};
pub use dtype::{Dtype, Element};
pub use error::{Error, Result};
pub use image::Image;
pub use kernel::{Kernel, Pass};
pub use op::{Op, Shape};
pub use plan::Plan;
pub use route::{Program, Route, RouteTable};
pub use view::{MAX_RANK, Place, RawView, TensorView, TensorViewMut};
pub use workspace::Workspace;
