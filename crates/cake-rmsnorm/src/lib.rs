//! Fused RMSNorm for training: forward, on NVIDIA GPUs and on the host, with the same bits everywhere.

mod args;
mod forward;
mod host;
pub mod routes;

pub use args::{Forward, Spec};
pub use cake_core::{Arch, Buffer, Device, DeviceInfo, Dtype, Error, Place, Result, Stream, TensorView, TensorViewMut};
pub use forward::RmsNormForward;

/// Plan of the forward pass, see [`Forward`] for its arguments.
pub type ForwardPlan = cake_core::Plan<RmsNormForward>;
