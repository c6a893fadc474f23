//! What a caller passes.

use cake_core::bind::{expect_some, expect_weight_dtype};
use cake_core::{Dtype, Error, Result, TensorView, TensorViewMut, Workspace};

/// What a plan fixes. Activations (x, y, residual, h) are BF16, statistics FP32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Elements of a row, H >= 1.
    pub width: u32,
    /// Dtype of the weight, BF16 or FP32; `None` normalises without one, as a weight of ones would.
    pub weight: Option<Dtype>,
    /// Scales by `1 + weight`, added in FP32, instead of `weight`.
    pub offset: bool,
    /// Adds a residual to `x` first, and writes the sum `h`.
    pub residual: bool,
}

impl Spec {
    /// RMSNorm of rows of `width` elements with a BF16 weight; set the other fields as needed.
    pub fn new(width: u32) -> Spec {
        Spec { width, weight: Some(Dtype::Bf16), offset: false, residual: false }
    }

    pub(crate) fn check(&self) -> Result<()> {
        expect_some("width", self.width)?;
        match self.weight {
            Some(dtype) => expect_weight_dtype("weight", dtype),
            None if self.offset => Err(Error::Missing { argument: "weight", because: "the plan adds an offset to it" }),
            None => Ok(()),
        }
    }
}

/// What a plan of the backward fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackwardSpec {
    /// The forward that it belongs to; with a residual, `dh` is given and added to `dx`.
    pub norm: Spec,
    /// Takes `rstd` of the forward; otherwise it is computed again from `x` and `eps`.
    pub rstd: bool,
    /// Computes the gradient of `x`. In the residual form it is the gradient of both addends.
    pub dx: bool,
    /// Computes the gradient of the weight, written as FP32 or BF16; `None` for a frozen weight, or without one.
    pub dw: Option<Dtype>,
    /// Adds to what `dw` holds: `dw = round(dw + sum)`, the addition in FP32.
    pub accumulate: bool,
    /// Adds up `dw` in the canonical order, so that it has the same bits everywhere. Otherwise the order, and with it the last
    /// bits, may differ from call to call on a GPU: no faster, for comparison. `dx` is the same.
    pub deterministic: bool,
    /// Most SMs to occupy, for instance to leave some to communication; the same bits whatever it is.
    pub max_sms: Option<u32>,
}

impl BackwardSpec {
    /// Both gradients of a forward, `dw` in FP32 (without a weight only `dx`), with its `rstd`; set the other fields as
    /// needed.
    pub fn new(norm: Spec) -> BackwardSpec {
        let dw = norm.weight.map(|_| Dtype::F32);
        BackwardSpec { norm, rstd: true, dx: true, dw, accumulate: false, deterministic: true, max_sms: None }
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.norm.check()?;
        match self.dw {
            Some(_) if self.norm.weight.is_none() => {
                return Err(Error::Unexpected { argument: "dw", because: "the plan has no weight" });
            }
            None if self.accumulate => {
                return Err(Error::Missing { argument: "dw", because: "the plan accumulates into it" });
            }
            None if !self.dx => {
                return Err(Error::Missing { argument: "dx", because: "the plan computes no other gradient" });
            }
            Some(dtype) => expect_weight_dtype("dw", dtype)?,
            None => {}
        }
        self.max_sms.map_or(Ok(()), |sms| expect_some("max_sms", sms))
    }
}

/// Arguments of the forward pass. Tensors have the same 1 to 6 leading dimensions and rows of H elements, at any
/// non-negative strides; a tensor of shape `[H]` is one row.
///
/// `y` may be `x` and `h` may be `residual`, element for element; every other overlap of an output is refused.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Input, BF16 `[.., H]`.
    pub x: TensorView<'a>,
    /// Weight `[H]` of the plan's dtype.
    pub weight: Option<TensorView<'a>>,
    /// Added to the mean of squares: finite, 0 or more.
    pub eps: f32,
    /// Added to `x` before the statistics, BF16 `[.., H]`.
    pub residual: Option<TensorView<'a>>,
    /// Output, BF16 `[.., H]`.
    pub y: TensorViewMut<'a>,
    /// Output `bf16(x + residual)`, BF16 `[.., H]`; required exactly when the plan has a residual.
    pub h: Option<TensorViewMut<'a>>,
    /// Output, FP32 `[..]` (the leading dimensions, `[1]` for one row): 1 / sqrt(mean of squares + eps). Optional.
    pub rstd: Option<TensorViewMut<'a>>,
}

/// Arguments of the backward pass. Tensors have the same 1 to 6 leading dimensions and rows of H elements, at any
/// non-negative strides (0 for an expanded gradient); a tensor of shape `[H]` is one row.
///
/// `dx` may be `dy`, element for element; every other overlap of an output or of the workspace is refused.
#[derive(Debug)]
pub struct Backward<'a> {
    /// Gradient of `y`, BF16 `[.., H]`.
    pub dy: TensorView<'a>,
    /// Input of the forward, in the residual form `h`; BF16 `[.., H]`.
    pub x: TensorView<'a>,
    /// Weight `[H]` of the plan's dtype.
    pub weight: Option<TensorView<'a>>,
    /// FP32 `[..]` of the forward; present exactly when the plan takes it.
    pub rstd: Option<TensorView<'a>>,
    /// Used where `rstd` is absent, as in the forward: finite, 0 or more.
    pub eps: f32,
    /// Gradient of `h`, BF16 `[.., H]`; present exactly when the plan has a residual and computes `dx`.
    pub dh: Option<TensorView<'a>>,
    /// Output, BF16 `[.., H]`; present exactly when the plan computes it.
    pub dx: Option<TensorViewMut<'a>>,
    /// Output `[H]` of the plan's dtype; present exactly when the plan computes it. Zeros where there are no rows.
    pub dw: Option<TensorViewMut<'a>>,
    /// On a GPU, for `dw`: [`workspace_bytes`](cake_core::Plan::workspace_bytes) for these rows, or more.
    pub workspace: Option<&'a mut Workspace>,
}
