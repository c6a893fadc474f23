//! RMSNorm, exactly: no rounding but those of MPFR at [`PRECISION`] bits.

use super::number::{self, PRECISION};
use rug::Float;

/// The weight's bits.
#[derive(Clone, Copy, Debug)]
pub enum Weight<'a> {
    /// None: a weight of ones.
    None,
    /// One bf16 for each column.
    Bf16(&'a [u16]),
    /// One f32 for each column.
    F32(&'a [u32]),
}

impl Weight<'_> {
    /// What column `i` is multiplied by: the weight, or `1 + weight`.
    pub fn effective(self, i: usize, offset: bool) -> Float {
        let weight = match self {
            Weight::None => return Float::with_val(PRECISION, 1),
            Weight::Bf16(bits) => number::bf16(bits[i]),
            Weight::F32(bits) => number::f32(bits[i]),
        };
        if offset { weight + 1 } else { weight }
    }
}

/// `x + residual`.
pub fn h(x: u16, residual: u16) -> Float {
    number::bf16(x) + number::bf16(residual)
}

/// The statistics of a row.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Sum of the squares, exact.
    pub sum_of_squares: Float,
    /// `1 / sqrt(sum / H + eps)`.
    pub rstd: Float,
}

/// The statistics of a row of bf16 bits; in the residual form the row is `h` as it was stored.
pub fn statistics(row: &[u16], eps: f32) -> Statistics {
    statistics_of(row.iter().map(|&bits| number::bf16(bits)), eps)
}

/// The statistics of a row of numbers.
pub fn statistics_of(row: impl ExactSizeIterator<Item = Float>, eps: f32) -> Statistics {
    let width = row.len();
    let sum_of_squares = row.fold(Float::new(PRECISION), |sum, x| sum + x.square());
    let mean = Float::with_val(PRECISION, &sum_of_squares / width);
    let rstd = (mean + eps).sqrt().recip();
    Statistics { sum_of_squares, rstd }
}

/// `x * rstd * w`, from left to right as far as infinities and zeros are concerned.
pub fn y(x: u16, rstd: &Float, w_effective: &Float) -> Float {
    number::bf16(x) * rstd * w_effective
}

/// A row of the backward, column by column.
#[derive(Clone, Debug)]
pub struct Gradient {
    /// `x * rstd`.
    pub xhat: Vec<Float>,
    /// `dy * w`.
    pub g: Vec<Float>,
    /// The mean of `g * xhat`, exact but for the division.
    pub c: Float,
}

/// A row of bf16 bits `x` and `dy`; `w_effective` are the weights of its columns.
pub fn gradient(dy: &[u16], x: &[u16], w_effective: &[Float], rstd: &Float) -> Gradient {
    let numbers = |bits: &[u16]| bits.iter().map(|&bits| number::bf16(bits)).collect::<Vec<_>>();
    gradient_of(&numbers(dy), &numbers(x), w_effective, rstd)
}

/// The same of rows of numbers.
pub fn gradient_of(dy: &[Float], x: &[Float], w_effective: &[Float], rstd: &Float) -> Gradient {
    let product = |a: &Float, b: &Float| Float::with_val(PRECISION, a * b);
    let xhat: Vec<Float> = x.iter().map(|x| product(x, rstd)).collect();
    let g: Vec<Float> = dy.iter().zip(w_effective).map(|(dy, w)| product(dy, w)).collect();
    let mut sum = Float::with_val(PRECISION, 0);
    for (g, xhat) in g.iter().zip(&xhat) {
        sum += Float::with_val(PRECISION, g * xhat);
    }
    Gradient { xhat, g, c: sum / x.len() }
}

impl Gradient {
    /// `rstd * (g - xhat * c)` of column `i`.
    pub fn dx(&self, i: usize, rstd: &Float) -> Float {
        let product = Float::with_val(PRECISION, &self.xhat[i] * &self.c);
        (Float::with_val(PRECISION, &self.g[i]) - product) * rstd
    }
}

/// `old` plus the sum of `dy * x * rstd` over the rows of a column, the rows as triples with the number of times that each
/// occurs. An exact sum has no order.
pub fn dw<'a>(old: &Float, rows: impl Iterator<Item = (usize, u16, u16, &'a Float)>) -> Float {
    rows.fold(old.clone(), |sum, (times, dy, x, rstd)| sum + number::bf16(dy) * number::bf16(x) * rstd * times)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u16 = 0x3f80;
    const TWO: u16 = 0x4000;

    #[test]
    fn a_row_worked_by_hand() {
        // mean of squares (1 + 1 + 4 + 4) / 4 = 2.5, + 1.5 = 4: rstd 1/2.
        let statistics = statistics(&[ONE, ONE | 0x8000, TWO, TWO], 1.5);
        assert_eq!(statistics.sum_of_squares, 10);
        assert_eq!(statistics.rstd, 0.5);
        let w = Weight::Bf16(&[TWO]).effective(0, true);
        assert_eq!(y(TWO, &statistics.rstd, &w), 3);
        assert_eq!(h(ONE, TWO), 3);
    }

    #[test]
    fn gradients_worked_by_hand() {
        // xhat 1/2, -1/2, 1, 1 and g 1, 1, 2, 1 with weights 1: their products add up to 3, so c is 3/4.
        let (x, dy) = ([ONE, ONE | 0x8000, TWO, TWO], [ONE, ONE, TWO, ONE]);
        let rstd = Float::with_val(PRECISION, 0.5);
        let gradient = gradient(&dy, &x, &[1; 4].map(|one| Float::with_val(PRECISION, one)), &rstd);
        assert_eq!(gradient.c, 0.75);
        assert_eq!([0, 1, 2, 3].map(|i| gradient.dx(i, &rstd).to_f64()), [0.3125, 0.6875, 0.625, 0.125]);
        let old = Float::with_val(PRECISION, 10);
        assert_eq!(dw(&old, [(3, TWO, ONE, &rstd), (1, ONE, TWO | 0x8000, &rstd)].into_iter()), 12);
    }

    #[test]
    fn a_zero_row_without_eps_has_no_answer() {
        let statistics = statistics(&[0, 0], 0.0);
        assert!(statistics.rstd.is_infinite());
        assert!(y(0, &statistics.rstd, &Float::with_val(PRECISION, 1)).is_nan());
    }
}
