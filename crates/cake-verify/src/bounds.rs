//! Allowed error, output by output, each with its derivation.
//!
//! `u = 2^-24`: an f32 operation multiplies its exact result by some `1 + d`, `|d| <= u`. Below the normal numbers a
//! product or quotient is off by at most `eta = 2^-150` instead (sums there are exact).
//!
//! | output | allowed | why |
//! |--------|---------|-----|
//! | `h`    | the nearest bf16 of `x + residual` | see [`h`] |
//! | `rstd` | `(D + 7) / 2 + 2` roundings of relative size `u` | see [`rstd`] |
//! | `y`    | the nearest bf16 of anything within 3 more roundings | see [`y`] |
//!
//! The bounds are intervals, computed in MPFR from the exact values: where a step may overflow or underflow, an end of
//! the interval does, and where an end of the interval is no number, NaN is allowed; where both are none, it is asked
//! for. Nothing is allowed beyond the roundings that docs/numerics.md names.

use rug::Float;

use crate::reference::number::{self, Format, PRECISION, nearest, power_of_two};
use crate::reference::rmsnorm::Statistics;

/// What an output may be: anything from `low` to `high`, or NaN as the flags say. The ends are numbers of the output's
/// format, and exact as `f64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowed {
    /// Smallest number.
    pub low: f64,
    /// Largest number.
    pub high: f64,
    /// Whether NaN, and whether only NaN.
    pub nan: Nan,
}

/// Whether an output may be NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nan {
    /// It may not.
    Refused,
    /// It may.
    Allowed,
    /// It must.
    Required,
}

impl Allowed {
    /// Whether `actual` is among what is allowed.
    pub fn holds(&self, actual: f64) -> bool {
        match (actual.is_nan(), self.nan) {
            (true, nan) => nan != Nan::Refused,
            (false, Nan::Required) => false,
            (false, _) => self.low <= actual && actual <= self.high,
        }
    }

    /// Whether the ends are a few roundings apart, 64 in f32 or neighbours in bf16: nothing vanished or overflowed.
    pub fn is_narrow(&self, format: Format) -> bool {
        let size = self.low.abs().max(self.high.abs());
        let (width, usual) = match format {
            Format::Bf16 => (size / 64.0, size.is_finite()),
            // An rstd of 0 is what an overflow leaves.
            Format::F32 => (size / 262_144.0, size.is_finite() && size > 0.0),
        };
        self.nan == Nan::Refused && usual && self.high - self.low <= width
    }

    fn between(low: &Float, high: &Float, format: Format) -> Allowed {
        let nan = match (low.is_nan(), high.is_nan()) {
            (false, false) => Nan::Refused,
            (true, true) => Nan::Required,
            _ => Nan::Allowed,
        };
        let low = if low.is_nan() { f64::NEG_INFINITY } else { nearest(low, format) };
        let high = if high.is_nan() { f64::INFINITY } else { nearest(high, format) };
        Allowed { low: low.min(high), high: high.max(low), nan }
    }
}

/// `h = bf16(x + residual)`, which passes through f32: exactly the nearest bf16 of the sum.
///
/// The sum of two bf16 numbers is inexact in f32 only when their exponents differ by more than 16. The smaller is then
/// less than 2^-16 of the larger, the larger is a bf16, and the sum, rounded or not, is far from the midpoint between
/// two bf16 (which is 2^-9 away, relatively, even just below a power of two). So the first rounding cannot change the
/// second. Overflow: the midpoint beyond the largest bf16 is 2^128 (1 - 2^-9), where f32 still has numbers.
pub fn h(exact: &Float) -> Allowed {
    Allowed::between(exact, exact, Format::Bf16)
}

/// The interval in which `rstd` may lie.
#[derive(Clone, Debug)]
pub struct Rstd {
    low: Float,
    high: Float,
}

impl Rstd {
    /// The interval, its ends rounded to f32.
    pub fn allowed(&self) -> Allowed {
        Allowed::between(&self.low, &self.high, Format::F32)
    }
}

/// `rstd = 1 / sqrt(fold(x * x) / H + eps)`.
///
/// - Sum of squares: a square passes through at most 4 FMAs of its chain, 1 addition of two chains, and
///   `D = ceil(log2(ceil(H / 8)))` additions of the fold. All terms are positive, so the sum has at most `D + 5`
///   roundings: a factor within `(1 +- u)^(D + 5)`. At most 2 H operations can each lose `eta` below the normals.
///   It becomes infinite exactly where the sum before the last rounding reaches 2^128 (1 - 2^-25); no intermediate
///   sum is larger than the last.
/// - Mean: the division is 1 rounding, and may lose `eta`; H beyond 2^24 is rounded itself, 1 more.
/// - `+ eps`: 1 rounding.
/// - Square root: halves what came before, 1 rounding. Reciprocal: 1 rounding.
///
/// Together `(D + 7) / 2 + 2` times `u`, about 10.5 u at H = 6144.
pub fn rstd(exact: &Statistics, width: usize, eps: f32) -> Rstd {
    let depth = width.div_ceil(8).next_power_of_two().ilog2() as i32;
    let ends = [Side::Low, Side::High].map(|side| {
        let lost = if exact.sum_of_squares.is_zero() { Float::new(PRECISION) } else { eta() };
        let sum = side.round(Float::with_val(PRECISION, &exact.sum_of_squares), depth + 5);
        let sum = overflow(side.lose(sum, Float::with_val(PRECISION, &lost * (2 * width as u64))));
        let mean = side.round(sum / width as u64, if width > 1 << 24 { 2 } else { 1 });
        let argument = overflow(side.round(side.lose(mean, lost) + eps, 1));
        let root = side.round(argument.sqrt(), 1);
        side.opposite().round(root.recip(), 1)
    });
    let [high, low] = ends;
    Rstd { low, high }
}

/// `y = bf16(x * rstd * w)`, `w` being the weight, or `1 + weight` in f32.
///
/// From the interval of `rstd`, 3 roundings: `x * rstd`, the effective weight (none without an offset, but it costs
/// little to allow), and the product; each product may lose `eta`. Then 1 rounding to bf16, which is monotone: `y` must
/// lie between the nearest bf16 of both ends. At H = 6144 that is within 0.5 + 0.0002 ulp.
pub fn y(x: u16, rstd: &Rstd, w_effective: &Float) -> Allowed {
    let x = number::bf16(x);
    // Signs pass through unrounded, so that sizes are all there is to judge.
    let negative = x.is_sign_negative() != w_effective.is_sign_negative();
    let w = Float::with_val(PRECISION, w_effective.abs_ref());
    let x = x.abs();
    let size = |side: Side, rstd: &Float| {
        let normalised = overflow(side.multiply(&x, rstd));
        side.multiply(&normalised, &side.round(w.clone(), 1))
    };
    let (low, high) = (size(Side::Low, &rstd.low), size(Side::High, &rstd.high));
    if negative { Allowed::between(&-high, &-low, Format::Bf16) } else { Allowed::between(&low, &high, Format::Bf16) }
}

/// Which end of an interval of positive numbers is computed.
#[derive(Clone, Copy)]
enum Side {
    Low,
    High,
}

impl Side {
    fn opposite(self) -> Side {
        match self {
            Side::Low => Side::High,
            Side::High => Side::Low,
        }
    }

    /// After `n` roundings.
    fn round(self, value: Float, n: i32) -> Float {
        let u = power_of_two(-24);
        let factor = match self {
            Side::Low => 1 - u,
            Side::High => 1 + u,
        };
        (0..n).fold(value, |value, _| value * &factor)
    }

    /// After an absolute loss.
    fn lose(self, value: Float, loss: Float) -> Float {
        match self {
            Side::Low if value < loss => Float::new(PRECISION),
            Side::Low => value - loss,
            Side::High => value + loss,
        }
    }

    /// A rounded product; exact, or no number, when a factor is 0.
    fn multiply(self, a: &Float, b: &Float) -> Float {
        let product = Float::with_val(PRECISION, a * b);
        if a.is_zero() || b.is_zero() || product.is_nan() { product } else { self.lose(self.round(product, 1), eta()) }
    }
}

/// What a product or quotient below the normal numbers may lose.
fn eta() -> Float {
    power_of_two(-150)
}

/// A positive number as f32 arithmetic sees it: infinite from 2^128 (1 - 2^-25) on.
fn overflow(value: Float) -> Float {
    let threshold = power_of_two(128) - power_of_two(103);
    if value >= threshold { Float::with_val(PRECISION, rug::float::Special::Infinity) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::rmsnorm::statistics;

    const ONE: u16 = 0x3f80;

    fn allowed_y(row: &[u16], eps: f32, x: u16, w: f64) -> Allowed {
        y(x, &rstd(&statistics(row, eps), row.len(), eps), &Float::with_val(PRECISION, w))
    }

    #[test]
    fn rstd_may_be_off_by_the_stated_roundings_and_no_more() {
        let row = vec![ONE; 6144];
        let allowed = rstd(&statistics(&row, 0.0), row.len(), 0.0).allowed();
        // D = 10, so 10.5 roundings of u = one half ulp above 1, one ulp below.
        let ulp = 2f64.powi(-24);
        assert!(allowed.holds(1.0 + 10.0 * ulp) && allowed.holds(1.0 - 10.0 * ulp), "{allowed:?}");
        assert!(!allowed.holds(1.0 + 12.0 * ulp) && !allowed.holds(1.0 - 12.0 * ulp), "{allowed:?}");
        assert!(!allowed.holds(f64::NAN));
    }

    #[test]
    fn y_is_the_nearest_bf16_away_from_midpoints() {
        let allowed = allowed_y(&[ONE; 64], 0.0, ONE, 1.0 + 2f64.powi(-9));
        assert_eq!((allowed.low, allowed.high), (1.0, 1.0));
        let midpoint = allowed_y(&[ONE; 64], 0.0, ONE, -1.0 - 2f64.powi(-8));
        assert_eq!((midpoint.low, midpoint.high), (-1.0 - 2f64.powi(-7), -1.0));
    }

    #[test]
    fn overflow_of_the_sum_gives_zeros() {
        let huge = 0x7f00; // 2^127
        let allowed = rstd(&statistics(&[huge; 8], 1e-6), 8, 1e-6).allowed();
        assert_eq!((allowed.low, allowed.high, allowed.nan), (0.0, 0.0, Nan::Refused));
        assert!(allowed_y(&[huge; 8], 1e-6, huge, 1.0).holds(0.0));
        let infinite = 0x7f80;
        assert_eq!(allowed_y(&[infinite, ONE], 1e-6, infinite, 1.0).nan, Nan::Required);
        assert_eq!(allowed_y(&[infinite, ONE], 1e-6, ONE, 1.0).high, 0.0);
    }

    #[test]
    fn squares_below_the_subnormals_may_vanish() {
        let tiny = 0x0001; // 2^-133
        let allowed = rstd(&statistics(&[tiny; 8], 0.0), 8, 0.0).allowed();
        assert!(allowed.holds(f64::INFINITY), "{allowed:?}");
        assert_eq!(allowed_y(&[0; 8], 0.0, 0, 1.0).nan, Nan::Required);
        assert_eq!(allowed_y(&[0; 8], 1e-6, 0, 1.0), Allowed { low: 0.0, high: 0.0, nan: Nan::Refused });
    }
}
