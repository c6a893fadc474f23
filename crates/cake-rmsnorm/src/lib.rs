//! RMSNorm for training, on NVIDIA GPUs and on the host, with the same bits everywhere.
//!
//! For each row of `H` elements
//!
//! ```text
//! h    = bf16(x + residual)                 residual form; h takes the place of x below
//! rstd = 1 / sqrt(sum(x * x) / H + eps)     FP32
//! y    = bf16(x * rstd * w)                 one rounding; 1 + w with an offset, 1 without a weight
//! ```
//!
//! and its gradients, with `g = dy * w` and `xhat = x * rstd`,
//!
//! ```text
//! dx = bf16(rstd * (g - xhat * sum(g * xhat) / H) [+ dh])
//! dw = sum over the rows of dy * xhat
//! ```
//!
//! The order of each sum and every rounding are a specification, `docs/numerics.md` in the repository: a result has one
//! right bit pattern, whatever computes it, and does not depend on the other rows of the call.
//!
//! ```
//! use cake_rmsnorm::{Forward, ForwardPlan, Spec, TensorView, TensorViewMut};
//! use half::bf16;
//!
//! let (rows, width) = (4, 2048);
//! let x = vec![bf16::from_f32(3.0); rows * width];
//! let weight = vec![bf16::from_f32(0.5); width];
//! let mut y = vec![bf16::ZERO; rows * width];
//! let shape = [rows as u64, width as u64];
//!
//! let plan = ForwardPlan::host(Spec::new(width as u32))?;
//! plan.run_host(Forward {
//!     x: TensorView::from_slice("x", &x, &shape)?,
//!     weight: Some(TensorView::from_slice("weight", &weight, &shape[1..])?),
//!     eps: 1e-6,
//!     residual: None,
//!     y: TensorViewMut::from_slice("y", &mut y, &shape)?,
//!     h: None,
//!     rstd: None,
//! })?;
//! assert_eq!(y[0], bf16::from_f32(0.5));
//! # Ok::<(), cake_rmsnorm::Error>(())
//! ```
//!
//! # On a GPU
//!
//! A plan made by [`ForwardPlan::new`](cake_core::Plan::new) runs on a [`Device`]; its views are made of device memory
//! by [`TensorView::from_raw`], from a [`Buffer`] or from another library's allocation. [`run`](cake_core::Plan::run)
//! queues a call on a [`Stream`] and returns: it allocates, copies and waits for nothing, so it may be captured into a
//! graph once [`warm_up`](cake_core::Plan::warm_up) has loaded the kernels. The example `cudarc_graph` shows it with
//! `cudarc` buffers, the example `workspace` the backward with memory of the caller.
//!
//! ```no_run
//! use cake_rmsnorm::{Device, ForwardPlan, Spec, Stream};
//!
//! let device = Device::new(0)?;
//! let stream = Stream::new(&device)?;
//! let plan = ForwardPlan::new(&device, Spec::new(2048))?;
//! println!("{plan}"); // the kernels that serve each number of rows
//! # Ok::<(), cake_rmsnorm::Error>(())
//! ```
//!
//! # Arguments
//!
//! | tensor | shape | dtype | |
//! | --- | --- | --- | --- |
//! | `x`, `y` | `[.., H]` | BF16 | 1 to 7 dimensions; `[H]` is one row |
//! | `weight` | `[H]` | BF16 or FP32 | as in the [`Spec`]; absent when that has none |
//! | `residual`, `h` | as `x` | BF16 | present exactly when the [`Spec`] has a residual |
//! | `rstd` | as `x` without `H`; `[1]` for one row | FP32 | optional |
//!
//! Any strides from 0 up are served in place, for each tensor its own; the elements of an output must not share
//! memory. `y` may be `x` and `h` may be `residual`, element for element. Other overlaps of an output are refused.
//! There may be 0 to 2^31 - 1 rows.
//!
//! The tensors of the backward are those of [`Backward`]: `dy`, `dx` and `dh` as `x`, `dw` as `weight`, FP32 or BF16. `dx`
//! may be `dy`. On a GPU `dw` needs a [`Workspace`] of [`workspace_bytes`](cake_core::Plan::workspace_bytes), which a
//! stream's calls share one after the other; [`workspace_bytes_on`](cake_core::Plan::workspace_bytes_on) says how many
//! without a GPU at hand:
//!
//! ```no_run
//! # use cake_rmsnorm::{BackwardPlan, BackwardSpec, Device, Spec, Stream, Workspace};
//! # let device = Device::new(0)?;
//! # let stream = Stream::new(&device)?;
//! let plan = BackwardPlan::new(&device, BackwardSpec::new(Spec::new(2048)))?;
//! let workspace = Workspace::new(&stream, plan.workspace_bytes(16384))?;
//! # Ok::<(), cake_rmsnorm::Error>(())
//! ```
//!
//! # Errors
//!
//! A call is checked before anything is queued or written. An [`Error`] names the argument, what was expected and what
//! was found: for instance [`Shape`](Error::Shape), [`Dtype`](Error::Dtype), [`Place`](Error::Place) for memory of
//! another device, [`Missing`](Error::Missing) and [`Unexpected`](Error::Unexpected) for optional tensors,
//! [`Value`](Error::Value) for `eps`, [`Overlap`](Error::Overlap), [`WarmUpNeeded`](Error::WarmUpNeeded) inside a
//! capture. A machine without a driver or with a GPU that is not served says so when the [`Device`] is made.

mod args;
mod backward;
mod combine;
mod forward;
mod host;
pub mod routes;

pub use args::{Backward, BackwardSpec, Forward, Spec};
pub use backward::RmsNormBackward;
pub use cake_core::{
    Arch, Buffer, Device, DeviceInfo, Dtype, Error, Place, Result, Stream, TensorView, TensorViewMut, Workspace,
};
pub use combine::{Combine, CombineDw, CombineSpec};
pub use forward::RmsNormForward;

/// Plan of the forward pass, see [`Forward`] for its arguments.
pub type ForwardPlan = cake_core::Plan<RmsNormForward>;

/// Plan of the backward pass, see [`Backward`] for its arguments.
pub type BackwardPlan = cake_core::Plan<RmsNormBackward>;

/// Plan that joins the weight gradients of row shards, see [`Combine`].
pub type CombinePlan = cake_core::Plan<CombineDw>;
