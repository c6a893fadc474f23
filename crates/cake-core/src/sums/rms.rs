//! The scalar formulas of RMSNorm. Each operation is one IEEE `f32` operation, in the order written.

use crate::dtype::Element;

/// `1 / sqrt(ss / H + eps)` for the sum of squares `ss` of a row of `width` = H elements.
#[inline(always)]
pub fn rstd(ss: f32, width: usize, eps: f32) -> f32 {
    let mean = ss / width as f32;
    1.0 / (mean + eps).sqrt()
}

/// `round((x * rstd) * w_eff)`; without a weight, `w_eff` is 1.
#[inline(always)]
pub fn scale<X: Element, Y: Element>(x: X, rstd: f32, w_eff: f32) -> Y {
    Y::from_f32(x.to_f32() * rstd * w_eff)
}

/// `round(x + residual)`.
#[inline(always)]
pub fn add<X: Element>(x: X, residual: X) -> X {
    X::from_f32(x.to_f32() + residual.to_f32())
}

/// `x * rstd`.
#[inline(always)]
pub fn xhat<X: Element>(x: X, rstd: f32) -> f32 {
    x.to_f32() * rstd
}

/// The weighted gradient `g = dy * w_eff`; without a weight, `w_eff` is 1.
#[inline(always)]
pub fn weighted<Y: Element>(dy: Y, w_eff: f32) -> f32 {
    dy.to_f32() * w_eff
}

/// The projection `c` of a row of `width` = H elements: the fold of `g * xhat`, divided by H.
#[inline(always)]
pub fn projection(fold: f32, width: usize) -> f32 {
    fold / width as f32
}

/// The input gradient, `round(rstd * fma(-xhat, c, g))`; in the residual form, `round(rstd * fma(-xhat, c, g) + dh)`.
#[inline(always)]
pub fn dx<X: Element>(g: f32, xhat: f32, c: f32, rstd: f32, dh: Option<X>) -> X {
    let dx = rstd * (-xhat).mul_add(c, g);
    X::from_f32(dh.map_or(dx, |dh| dx + dh.to_f32()))
}

/// The weight gradient as it is stored: the root of a row tree, added to what was there before if `old` is given.
/// `round(root)` or `round(old + root)`, the addition in `f32`.
#[inline(always)]
pub fn accumulate<E: Element>(old: Option<E>, root: f32) -> E {
    E::from_f32(old.map_or(root, |old| old.to_f32() + root))
}

/// What is added to every weight: 1 for weights stored as the distance from one, otherwise -0, since `w + (-0)` is `w`
/// for every `w` (`-0 + (+0)` would be `+0`).
#[inline(always)]
pub const fn offset(one_plus: bool) -> f32 {
    if one_plus { 1.0 } else { -0.0 }
}

/// Whether `eps` is acceptable: finite, and not negative.
pub const fn eps_is_valid(eps: f32) -> bool {
    eps >= 0.0 && eps < f32::INFINITY
}
