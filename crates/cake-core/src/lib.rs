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
//! The crate knows no kernel and no operator: `cake-rmsnorm` and `cake-silu-gate` are the crates to use, and re-export what
//! their callers need. Everything except [`Device`], [`Stream`] and [`Buffer`] works without a GPU and without libcuda.
//!
//! Shapes and strides count elements, the outermost dimension first; buffers, workspaces and offsets count bytes. A stride
//! may be 0 or more. What the sums add in which order is a specification, `docs/numerics.md` in the repository; which
//! promises of a caller unsafe code rests on is said in `docs/safety.md`.
//!
//! ```
//! use cake_core::{Error, TensorView, TensorViewMut};
//!
//! let mut data = [0f32; 12];
//! let columns = TensorView::from_slice_strided("columns", &data, &[4, 3], &[1, 4])?;
//! assert_eq!(columns.raw().shape(), [4, 3]);
//! // A view that would reach beyond its buffer does not come into being, nor an output whose elements share memory.
//! assert!(matches!(TensorView::from_slice_strided("x", &data, &[4, 3], &[4, 1]), Err(Error::Extent { .. })));
//! let twice = TensorViewMut::from_slice_strided("y", &mut data, &[4, 3], &[0, 1]);
//! assert!(matches!(twice, Err(Error::SelfOverlap { argument: "y", .. })));
//! # Ok::<(), Error>(())
//! ```

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
