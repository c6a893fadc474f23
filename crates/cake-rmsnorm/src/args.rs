//! What a caller passes.

use cake_core::{Dtype, TensorView, TensorViewMut};

/// What a plan fixes. Activations (x, y, residual, h) are BF16, statistics FP32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
