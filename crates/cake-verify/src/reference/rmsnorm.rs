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
    let mut sum_of_squares = Float::with_val(PRECISION, 0);
    for &bits in row {
        sum_of_squares += number::bf16(bits).square();
    }
    let mean = Float::with_val(PRECISION, &sum_of_squares / row.len());
    let rstd = (mean + eps).sqrt().recip();
    Statistics { sum_of_squares, rstd }
}

/// `x * rstd * w`, from left to right as far as infinities and zeros are concerned.
pub fn y(x: u16, rstd: &Float, w_effective: &Float) -> Float {
    number::bf16(x) * rstd * w_effective
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
    fn a_zero_row_without_eps_has_no_answer() {
        let statistics = statistics(&[0, 0], 0.0);
        assert!(statistics.rstd.is_infinite());
        assert!(y(0, &statistics.rstd, &Float::with_val(PRECISION, 1)).is_nan());
    }
}
