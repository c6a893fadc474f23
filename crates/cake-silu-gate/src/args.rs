//! What a caller passes.

use cake_core::bind::{expect_some, expect_weight_dtype};
use cake_core::{Dtype, Error, Result, TensorView, TensorViewMut, Workspace};

/// What the gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `z * sigmoid(z)`.
    Silu,
    /// `sigmoid(z)`.
    Sigmoid,
}

/// What a plan fixes. Activations (x, z, y) are BF16, statistics FP32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Elements of a row, H >= 1; with heads, of one head.
    pub width: u32,
    /// Dtype of the weight, BF16 or FP32.
    pub weight: Dtype,
    /// What is made of `z`.
    pub activation: Activation,
    /// Multiplies `x` by the gate before it is normalised; otherwise the result of the norm.
    pub gate_first: bool,
}

impl Spec {
    /// Rows of `width` elements with a BF16 weight, normalised and then gated by SiLU; set the other fields as needed.
    pub fn new(width: u32) -> Spec {
        Spec { width, weight: Dtype::Bf16, activation: Activation::Silu, gate_first: false }
    }

    pub(crate) fn check(&self) -> Result<()> {
        expect_some("width", self.width)?;
        expect_weight_dtype("weight", self.weight)
    }

    /// The form, as kernels are named.
    pub(crate) fn form(&self) -> &'static str {
        match (self.activation, self.gate_first) {
            (Activation::Silu, false) => "",
            (Activation::Sigmoid, false) => "sigmoid",
            (Activation::Silu, true) => "first",
            (Activation::Sigmoid, true) => "first_sigmoid",
        }
    }
}

/// What a plan of the backward fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackwardSpec {
    /// The forward that it belongs to.
    pub norm: Spec,
    /// Takes `rstd` of the forward; otherwise it is computed again, so that nothing but the inputs has to be kept.
    pub rstd: bool,
    /// Computes the gradient of the weight, written as FP32 or BF16; `None` for a frozen weight.
    pub dw: Option<Dtype>,
    /// Adds to what `dw` holds: `dw = round(dw + sum)`, the addition in FP32.
    pub accumulate: bool,
    /// Adds up `dw` in the canonical order, so that it has the same bits everywhere. Otherwise the order, and with it the last
    /// bits, may differ from call to call on a GPU: no faster, for comparison. `dx` and `dz` are the same.
    pub deterministic: bool,
    /// Most SMs to occupy, for instance to leave some to communication; the same bits whatever it is.
    pub max_sms: Option<u32>,
}

impl BackwardSpec {
    /// All gradients of a forward, `dw` in FP32, without its `rstd`; set the other fields as needed.
    pub fn new(norm: Spec) -> BackwardSpec {
        let dw = Some(Dtype::F32);
        BackwardSpec { norm, rstd: false, dw, accumulate: false, deterministic: true, max_sms: None }
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.norm.check()?;
        match self.dw {
            Some(dtype) => expect_weight_dtype("dw", dtype)?,
            None if self.accumulate => {
                return Err(Error::Missing { argument: "dw", because: "the plan accumulates into it" });
            }
            None => {}
        }
        self.max_sms.map_or(Ok(()), |sms| expect_some("max_sms", sms))
    }
}

/// Arguments of the forward pass. Tensors have the same 1 to 6 leading dimensions, for instance tokens and heads, and rows
/// of H elements, at any non-negative strides, each its own; a tensor of shape `[H]` is one row.
///
/// `y` may be `x` or `z`, element for element; every other overlap of an output is refused.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Input, BF16 `[.., H]`.
    pub x: TensorView<'a>,
    /// Input of the gate, BF16 `[.., H]`; may be a slice of a projection.
    pub z: TensorView<'a>,
    /// Weight `[H]` of the plan's dtype, the same for all heads.
    pub weight: TensorView<'a>,
    /// Added to the mean of squares: finite, 0 or more.
    pub eps: f32,
    /// Output, BF16 `[.., H]`.
    pub y: TensorViewMut<'a>,
    /// Output, FP32 `[..]` (the leading dimensions, `[1]` for one row): 1 / sqrt(mean of squares + eps). Optional.
    pub rstd: Option<TensorViewMut<'a>>,
}

/// Arguments of the backward pass. Tensors have the same 1 to 6 leading dimensions and rows of H elements, at any
/// non-negative strides (0 for an expanded gradient); a tensor of shape `[H]` is one row.
///
/// `dx` may be `dy` and `dz` may be `z`, element for element; every other overlap of an output or of the workspace is
/// refused.
#[derive(Debug)]
pub struct Backward<'a> {
    /// Gradient of `y`, BF16 `[.., H]`.
    pub dy: TensorView<'a>,
    /// Input of the forward, BF16 `[.., H]`.
    pub x: TensorView<'a>,
    /// Input of the gate, BF16 `[.., H]`.
    pub z: TensorView<'a>,
    /// Weight `[H]` of the plan's dtype.
    pub weight: TensorView<'a>,
    /// FP32 `[..]` of the forward; present exactly when the plan takes it.
    pub rstd: Option<TensorView<'a>>,
    /// Used where `rstd` is absent, as in the forward: finite, 0 or more.
    pub eps: f32,
    /// Output: gradient of `x`, BF16 `[.., H]`.
    pub dx: TensorViewMut<'a>,
    /// Output: gradient of `z`, BF16 `[.., H]`.
    pub dz: TensorViewMut<'a>,
    /// Output `[H]` of the plan's dtype; present exactly when the plan computes it. Zeros where there are no rows.
    pub dw: Option<TensorViewMut<'a>>,
    /// On a GPU, for `dw`: [`workspace_bytes`](cake_core::Plan::workspace_bytes) for these rows, or more.
    pub workspace: Option<&'a mut Workspace>,
}
