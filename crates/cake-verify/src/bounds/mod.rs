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
//! | `dx`   | the nearest bf16 of anything within the errors of its steps | see [`BackwardRow`] |
//! | `dw`   | `k + 9 + L` roundings of the sum of the terms' sizes, then one to its type | see [`dw`], [`combined`] |
//!
//! The bounds are intervals, computed in MPFR from the exact values: where a step may overflow or underflow, an end of
//! the interval does, and where an end of the interval is no number, NaN is allowed; where both are none, it is asked
//! for. Nothing is allowed beyond the roundings that docs/numerics.md names.
//!
//! The sums of the backward have terms of either sign, so that a distance from the exact value is added up step by step
//! instead. Distances are `f64`; `SLACK` covers their own roundings. Where a step may overflow, or meets an infinity,
//! anything is allowed; where it meets a NaN, only that.

pub mod gate;

use rug::Float;

use crate::reference::number::{self, Format, PRECISION, nearest, power_of_two};
use crate::reference::rmsnorm::{Gradient, Statistics};

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

    /// Anything.
    const ANYTHING: Allowed = Allowed { low: f64::NEG_INFINITY, high: f64::INFINITY, nan: Nan::Allowed };

    /// NaN alone.
    const NOT_A_NUMBER: Allowed = Allowed { nan: Nan::Required, ..Allowed::ANYTHING };

    /// Anything up to `distance` from `exact`, rounded.
    fn around(exact: &Float, distance: f64, format: Format) -> Allowed {
        let distance = distance * SLACK;
        let (low, high) = (Float::with_val(PRECISION, exact - distance), Float::with_val(PRECISION, exact + distance));
        Allowed::between(&low, &high, format)
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
    /// One that a call is given.
    pub fn given(rstd: &Float) -> Rstd {
        Rstd { low: rstd.clone(), high: rstd.clone() }
    }

    /// How far from `exact` it may be.
    fn distance(&self, exact: &Float) -> f64 {
        let above = Float::with_val(PRECISION, &self.high - exact).to_f64();
        above.max(Float::with_val(PRECISION, exact - &self.low).to_f64())
    }

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
    rstd_of(&exact.sum_of_squares, 0.0, width, eps)
}

/// The same where the squares have errors of their own, together up to `off`.
fn rstd_of(sum_of_squares: &Float, off: f64, width: usize, eps: f32) -> Rstd {
    let depth = width.div_ceil(8).next_power_of_two().ilog2() as i32;
    let ends = [Side::Low, Side::High].map(|side| {
        let lost = if sum_of_squares.is_zero() { Float::new(PRECISION) } else { eta() };
        let sum = side.lose(Float::with_val(PRECISION, sum_of_squares), Float::with_val(PRECISION, off));
        let sum = side.round(sum, depth + 5);
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

/// What the columns of a row of the backward have in common.
#[derive(Debug)]
pub struct BackwardRow<'a> {
    exact: &'a Gradient,
    rstd: Rounded,
    c: Rounded,
    xhat: Vec<Rounded>,
    g: Vec<Rounded>,
    /// What is allowed in every column, where that does not depend on the column.
    every: Option<Allowed>,
}

impl<'a> BackwardRow<'a> {
    /// From the exact row, the exact `rstd`, and what the kernel's `rstd` may be.
    ///
    /// - `xhat = x * rstd`: the distance of `rstd`, and 1 rounding. See `Rounded::product` for products.
    /// - `g = dy * w`: with an offset 1 rounding for `w`, and 1 for the product.
    /// - `c`: the distances of both factors; `D + 5` roundings of a sum that may be as large as that of the sizes, as in
    ///   [`rstd`], and `eta` for each FMA; 1 rounding for the division, 1 more for H beyond 2^24.
    pub fn new(exact: &'a Gradient, rstd: &'a Float, may_be: &Rstd, offset: bool) -> BackwardRow<'a> {
        let rstd = Rounded { size: rstd.to_f64(), off: may_be.distance(rstd) };
        let relative = if rstd.off == 0.0 { 0.0 } else { rstd.off / rstd.size };
        let of_xhat = |xhat: &Float| {
            let xhat = Rounded::exact(xhat);
            Rounded { off: xhat.size * relative, ..xhat }.rounded(1)
        };
        let of_g = |g: &Float| Rounded::exact(g).rounded(if offset { 2 } else { 1 });
        let (xhat, g) = (exact.xhat.iter().map(of_xhat).collect(), exact.g.iter().map(of_g).collect());
        BackwardRow::of(exact, rstd, xhat, g)
    }

    /// From the distances of `rstd`, `xhat` and `g`.
    fn of(exact: &'a Gradient, rstd: Rounded, xhat: Vec<Rounded>, g: Vec<Rounded>) -> BackwardRow<'a> {
        let width = exact.g.len();
        let depth = width.div_ceil(8).next_power_of_two().ilog2();
        let (mut sizes, mut distance, mut largest) = (0.0, 0.0, 0.0_f64);
        for (&g, &xhat) in g.iter().zip(&xhat) {
            sizes += g.most() * xhat.most();
            distance += g.product(xhat);
            largest = largest.max(g.most()).max(xhat.most());
        }
        let sum = Rounded { size: sizes, off: distance + roundings(depth + 5) * sizes + width as f64 * ETA };
        let mean = Rounded { size: exact.c.to_f64().abs(), off: sum.off / width as f64 };
        let c = mean.rounded(if width > 1 << 24 { 2 } else { 1 });
        let every = match exact.g.iter().chain(&exact.xhat).any(Float::is_nan) {
            true => Some(Allowed::NOT_A_NUMBER),
            false => may_overflow([largest, sum.most()]).then_some(Allowed::ANYTHING),
        };
        BackwardRow { exact, rstd, c, xhat, g, every }
    }

    /// `dx = bf16(rstd * fma(-xhat, c, g) [+ dh])` in column `i`, which is `exact` without `dh`: the distances of the
    /// factors, 1 rounding each for FMA, product and sum, then 1 to bf16.
    pub fn dx(&self, i: usize, exact: &Float, dh: Option<u16>) -> Allowed {
        let dh = dh.map(number::bf16);
        if dh.as_ref().is_some_and(Float::is_nan) {
            return Allowed::NOT_A_NUMBER;
        }
        if let Some(allowed) = self.every {
            return allowed;
        }
        let [inner, outer] = self.steps(i, exact);
        let (exact, last) = match dh {
            None => (exact.clone(), outer),
            Some(dh) => {
                let sum = Float::with_val(PRECISION, exact + &dh);
                let size = sum.to_f64().abs();
                (sum, Rounded { size, ..outer }.rounded(1))
            }
        };
        if may_overflow([inner.most(), outer.most(), last.most()]) {
            return Allowed::ANYTHING;
        }
        Allowed::around(&exact, last.off, Format::Bf16)
    }

    /// `fma(-xhat, c, g)`, and that times `rstd`, which is `exact`.
    fn steps(&self, i: usize, exact: &Float) -> [Rounded; 2] {
        let product = Float::with_val(PRECISION, &self.exact.xhat[i] * &self.exact.c);
        let inner = Rounded::exact(&Float::with_val(PRECISION, &self.exact.g[i] - &product));
        let inner = Rounded { off: self.g[i].off + self.xhat[i].product(self.c), ..inner }.rounded(1);
        let outer = Rounded { off: inner.product(self.rstd), ..Rounded::exact(exact) }.rounded(1);
        [inner, outer]
    }
}

/// A row's part in a column of `dw`: the product of a gradient and an `xhat`.
#[derive(Debug)]
pub struct Term {
    /// How many rows are the same.
    times: usize,
    gradient: Rounded,
    xhat: Rounded,
    /// Whether one of the factors is no number.
    nan: bool,
}

impl Term {
    /// `dy * (x * rstd)` of so many rows: `xhat` has the distance of what `rstd` may be from the exact one, and 1 rounding.
    pub fn new(times: usize, dy: u16, x: u16, rstd: &Float, may_be: &Rstd) -> Term {
        let (dy, x) = (number::bf16(dy), number::bf16(x));
        let xhat = Float::with_val(PRECISION, &x * rstd);
        let nan = dy.is_nan() || xhat.is_nan();
        let off = x.to_f64().abs() * may_be.distance(rstd);
        Term { times, gradient: Rounded::exact(&dy), xhat: Rounded { off, ..Rounded::exact(&xhat) }.rounded(1), nan }
    }
}

/// `dw = round(tree(dy * xhat))`, or `round(old + tree(dy * xhat))` if it is added to; `exact` is the exact value.
///
/// A term has the distances of its factors. It passes through at most 8 FMAs of its leaf, each of which may
/// lose `eta`, and `L = ceil(log2(ceil(T / 8)))` additions, of a sum that may be as large as that of the sizes. Adding to
/// `old` is 1 more, and the last is to the type of `dw`. In any order the sums of chunks are added up in FP64, and the
/// rounding of their sum takes the place of one level or more.
pub fn dw(exact: &Float, accumulate: bool, terms: impl Iterator<Item = Term>, format: Format) -> Allowed {
    let (mut rows, mut sum, mut nan) = (0, Rounded { size: 0.0, off: 0.0 }, false);
    for term in terms {
        nan |= term.nan;
        sum.size += term.times as f64 * term.gradient.most() * term.xhat.most();
        sum.off += term.times as f64 * term.gradient.product(term.xhat);
        rows += term.times;
    }
    let levels = rows.div_ceil(8).next_power_of_two().ilog2();
    let off = sum.off + roundings(8 + levels) * sum.size + rows as f64 * ETA;
    let root = Rounded { size: exact.to_f64().abs(), off };
    let last = if accumulate { root.rounded(1) } else { root };
    match nan {
        true => Allowed::NOT_A_NUMBER,
        false if may_overflow([sum.size, last.most()]) => Allowed::ANYTHING,
        false => Allowed::around(exact, last.off, format),
    }
}

/// `dw` of shards: `exact` is the exact sum of so many, `sizes` that of their sizes. `ceil(log2(shards))` additions, 1 more
/// where it is added to what was there, then 1 to the type of `dw`.
pub fn combined(exact: &Float, sizes: f64, shards: usize, accumulate: bool, format: Format) -> Allowed {
    let root = Rounded { size: exact.to_f64().abs(), off: roundings(shards.next_power_of_two().ilog2()) * sizes };
    let last = if accumulate { root.rounded(1) } else { root };
    Allowed::around(exact, last.off, format)
}

/// The size of an exact number, and how far a computed one may be from it.
#[derive(Clone, Copy, Debug)]
struct Rounded {
    size: f64,
    off: f64,
}

impl Rounded {
    /// No distance.
    fn exact(value: &Float) -> Rounded {
        Rounded { size: value.to_f64().abs(), off: 0.0 }
    }

    /// The largest size that the computed number may have.
    fn most(self) -> f64 {
        self.size + self.off
    }

    /// After `n` roundings, the last of which may be that of a product or quotient below the normal numbers.
    fn rounded(self, n: u32) -> Rounded {
        Rounded { off: self.off + roundings(n) * self.most() + ETA, ..self }
    }

    /// How far the exact product of two computed numbers may be from that of the exact ones.
    fn product(self, other: Rounded) -> f64 {
        self.size * other.off + self.off * other.most()
    }
}

/// `(1 + u)^n - 1`, or a little more.
fn roundings(n: u32) -> f64 {
    let first_order = f64::from(n) * 2f64.powi(-24);
    first_order * (1.0 + first_order)
}

/// [`eta`].
const ETA: f64 = 1.0 / (1u128 << 75) as f64 / (1u128 << 75) as f64;

/// Covers the roundings of distances: 2^-53 for each term of a sum of at most 2^31.
const SLACK: f64 = 1.0 + 1.0 / (1 << 20) as f64;

/// Whether one of some sizes may be infinite, or none, in f32 arithmetic: 2^128 (1 - 2^-25) or more.
fn may_overflow<const N: usize>(sizes: [f64; N]) -> bool {
    let threshold = 2f64.powi(128) - 2f64.powi(103);
    !sizes.into_iter().all(|size| size < threshold)
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

    const THREE: u16 = 0x4040;

    fn exact_row(dy: &[u16], x: &[u16], rstd: &Float) -> Gradient {
        crate::reference::rmsnorm::gradient(dy, x, &vec![Float::with_val(PRECISION, 1); x.len()], rstd)
    }

    #[test]
    fn dx_keeps_within_the_sum_of_its_roundings() {
        let rstd = Float::with_val(PRECISION, 1);
        let (x, dy) = ([ONE; 64], [[ONE, THREE]; 32].concat());
        let exact = exact_row(&dy, &x, &rstd);
        let row = BackwardRow::new(&exact, &rstd, &Rstd::given(&rstd), false);
        // docs/numerics.md with k = 0: u ((k + 3) |g| + (D + 3k + 11) |xhat| m), here D = 3, m = 2.
        let u = 2f64.powi(-24);
        for (i, g) in [(0, 1.0), (1, 3.0)] {
            let stated = u * (3.0 * g + 14.0 * 2.0) * (1.0 + 1e-4);
            let inner = Rounded { size: 1.0, off: row.g[i].off + row.xhat[i].product(row.c) }.rounded(1).rounded(1);
            assert!(inner.off <= stated && inner.off > stated / 3.0, "{:e} of {stated:e}", inner.off);
        }
        let allowed = row.dx(0, &exact.dx(0, &rstd), None);
        assert_eq!((allowed.low, allowed.high), (-1.0, -1.0));
        // The exact value with dh, 2^-8 beyond a bf16, is next to a midpoint of two.
        let dh = 0x3b80;
        let midpoint = row.dx(1, &exact.dx(1, &rstd), Some(dh));
        assert_eq!((midpoint.low, midpoint.high), (1.0, 1.0 + 2f64.powi(-7)));
        assert_eq!(row.dx(0, &exact.dx(0, &rstd), Some(0x7fc0)).nan, Nan::Required);
    }

    #[test]
    fn a_nan_or_an_overflow_anywhere_in_a_row_is_seen_in_each_dx() {
        let rstd = Float::with_val(PRECISION, 1);
        let of = |dy: u16| {
            let exact = exact_row(&[ONE, dy], &[ONE, ONE], &rstd);
            BackwardRow::new(&exact, &rstd, &Rstd::given(&rstd), false).dx(0, &exact.dx(0, &rstd), None).nan
        };
        assert_eq!([of(ONE), of(0x7fc0), of(0x7f80)], [Nan::Refused, Nan::Required, Nan::Allowed]);
    }

    #[test]
    fn dw_keeps_within_the_roundings_of_its_tree() {
        let rstd = Float::with_val(PRECISION, 1);
        let may_be = Rstd::given(&rstd);
        let of = |times, x, accumulate, exact: f64| {
            let term = Term::new(times, ONE, x, &rstd, &may_be);
            dw(&Float::with_val(PRECISION, exact), accumulate, [term].into_iter(), Format::F32)
        };
        // k = 0, L = 10, so 19 roundings of u = one half ulp above a power of two, one ulp below.
        let u = 2f64.powi(-24);
        let allowed = of(8192, ONE, false, 8192.0);
        assert!(allowed.holds(8192.0 * (1.0 + 18.0 * u)) && allowed.holds(8192.0 * (1.0 - 18.0 * u)), "{allowed:?}");
        assert!(!allowed.holds(8192.0 * (1.0 + 22.0 * u)) && !allowed.holds(8192.0 * (1.0 - 22.0 * u)), "{allowed:?}");
        // An old value of the other sign leaves the error of the sum alone.
        let cancelled = of(8192, ONE, true, 0.0);
        assert!(cancelled.holds(8192.0 * 18.0 * u) && !cancelled.holds(8192.0 * 22.0 * u), "{cancelled:?}");
        assert_eq!(of(0, ONE, false, 0.0), Allowed { low: 0.0, high: 0.0, nan: Nan::Refused });
        assert_eq!(of(1, 0x7fc0, false, f64::NAN).nan, Nan::Required);
        assert_eq!(of(1, 0x7f80, false, f64::INFINITY).nan, Nan::Allowed);
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
