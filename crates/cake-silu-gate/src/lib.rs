//! SiLU-gated RMSNorm for training, on NVIDIA GPUs and on the host, with the same bits everywhere.
//!
//! For each row of `H` elements
//!
//! ```text
//! gate = z * sigmoid(z)                     or sigmoid(z), see Activation
//! rstd = 1 / sqrt(sum(x * x) / H + eps)     FP32
//! y    = bf16(x * rstd * w * gate)          one rounding
//! ```
//!
//! and its gradients, with `a = dy * gate`, `g = a * w` and `xhat = x * rstd`,
//!
//! ```text
//! dx = bf16(rstd * (g - xhat * sum(g * xhat) / H))
//! dz = bf16(dy * xhat * w * gate')          gate' is the derivative
//! dw = sum over the rows of a * xhat        tokens and heads together
//! ```
//!
//! With the gate first, `u = x * gate` in FP32 takes the place of `x`, and `y = bf16(u * rstd * w)`.
//!
//! The order of each sum, every rounding and the exponential are a specification, `docs/silu-gate.md` in the repository: a
//! result has one right bit pattern, whatever computes it, and does not depend on the other rows of the call.
//!
//! ```
//! use cake_silu_gate::{Forward, ForwardPlan, Spec, TensorView, TensorViewMut};
//! use half::bf16;
//!
//! let (tokens, heads, width) = (4, 2, 128);
//! let x = vec![bf16::from_f32(3.0); tokens * heads * width];
//! let z = vec![bf16::from_f32(100.0); tokens * heads * width];
//! let weight = vec![bf16::from_f32(0.5); width];
//! let mut y = vec![bf16::ZERO; tokens * heads * width];
//! let shape = [tokens as u64, heads as u64, width as u64];
//!
//! let plan = ForwardPlan::host(Spec::new(width as u32))?;
//! plan.run_host(Forward {
//!     x: TensorView::from_slice("x", &x, &shape)?,
//!     z: TensorView::from_slice("z", &z, &shape)?,
//!     weight: TensorView::from_slice("weight", &weight, &shape[2..])?,
//!     eps: 1e-6,
//!     y: TensorViewMut::from_slice("y", &mut y, &shape)?,
//!     rstd: None,
//! })?;
//! assert_eq!(y[0], bf16::from_f32(50.0));
//! # Ok::<(), cake_silu_gate::Error>(())
//! ```
//!
//! # On a GPU
//!
//! A plan made by [`ForwardPlan::new`](cake_core::Plan::new) runs on a [`Device`]; its views are made of device memory
//! by [`TensorView::from_raw`], as in the example `heads`. [`run`](cake_core::Plan::run) queues a call on a [`Stream`] and returns: it allocates,
//! copies and waits for nothing, so it may be captured into a graph once [`warm_up`](cake_core::Plan::warm_up) has loaded
//! the kernels. The backward needs a [`Workspace`] for `dw`, which a stream's calls share one after the other:
//!
//! ```no_run
//! use cake_silu_gate::{BackwardPlan, BackwardSpec, Device, Spec, Stream, Workspace};
//!
//! let device = Device::new(0)?;
//! let stream = Stream::new(&device)?;
//! let plan = BackwardPlan::new(&device, BackwardSpec::new(Spec::new(128)))?;
//! let workspace = Workspace::new(&stream, plan.workspace_bytes(16384 * 48))?;
//! # Ok::<(), cake_silu_gate::Error>(())
//! ```
//!
//! # Arguments
//!
//! | tensor | shape | dtype | |
//! | --- | --- | --- | --- |
//! | `x`, `z`, `y`, `dy`, `dx`, `dz` | `[.., H]` | BF16 | 1 to 7 dimensions; `[H]` is one row |
//! | `weight`, `dw` | `[H]` | BF16 or FP32 | as in the [`Spec`] and the [`BackwardSpec`] |
//! | `rstd` | as `x` without `H`; `[1]` for one row | FP32 | optional |
//!
//! Any strides from 0 up are served in place, for each tensor its own; the elements of an output must not share
//! memory. `y` may be `x` or `z`, `dx` may be `dy` and `dz` may be `z`, element for element. Other overlaps of an output are
//! refused. There may be 0 to 2^31 - 1 rows.
//!
//! The `dw` of row shards, not accumulated, combine by the row tree to the bits of the whole, as those of every norm here.
//!
//! # Errors
//!
//! A call is checked before anything is queued or written. An [`Error`] names the argument, what was expected and what
//! was found: for instance [`Shape`](Error::Shape), also for a weight that is not `[H]`, [`Dtype`](Error::Dtype),
//! [`Place`](Error::Place) for memory of another device, [`Missing`](Error::Missing) and [`Unexpected`](Error::Unexpected)
//! for `rstd`, `dw` and the workspace, [`Value`](Error::Value) for `eps`, [`Overlap`](Error::Overlap),
//! [`WarmUpNeeded`](Error::WarmUpNeeded) inside a capture. A machine without a driver or with a GPU that is not served
//! says so when the [`Device`] is made.

mod args;
mod backward;
mod forward;
pub mod gate;
mod host;
pub mod routes;

pub use args::{Activation, Backward, BackwardSpec, Forward, Spec};
pub use backward::SiluGateBackward;
pub use cake_core::{
    Arch, Buffer, Device, DeviceInfo, Dtype, Error, Place, Result, Stream, TensorView, TensorViewMut, Workspace,
};
pub use forward::SiluGateForward;

/// Plan of the forward pass, see [`Forward`] for its arguments.
pub type ForwardPlan = cake_core::Plan<SiluGateForward>;

/// Plan of the backward pass, see [`Backward`] for its arguments.
pub type BackwardPlan = cake_core::Plan<SiluGateBackward>;
