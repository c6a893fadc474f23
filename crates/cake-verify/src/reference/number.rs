//! Between bits and exact numbers.

use rug::Float;

/// Bits of precision for every exact number. A square of a bf16 is a multiple of 2^-266 and below 2^256; the sum of
/// 2^32 of them has at most 554 bits, so that sums of squares are exact.
pub const PRECISION: u32 = 640;

/// A binary format of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 8 bits of precision, smallest normal 2^-126.
    Bf16,
    /// 24 bits of precision, smallest normal 2^-126.
    F32,
}

impl Format {
    /// Bits of precision.
    pub const fn precision(self) -> i32 {
        match self {
            Format::Bf16 => 8,
            Format::F32 => 24,
        }
    }
}

/// The value of bf16 bits.
pub fn bf16(bits: u16) -> Float {
    f32(u32::from(bits) << 16)
}

/// The value of f32 bits.
pub fn f32(bits: u32) -> Float {
    Float::with_val(PRECISION, f32::from_bits(bits))
}

/// `2^exponent`.
pub fn power_of_two(exponent: i32) -> Float {
    Float::with_val(PRECISION, Float::i_exp(1, exponent))
}

/// The distance between neighbours of a format around `value`, as an exponent of two.
pub fn ulp_exponent(value: &Float, format: Format) -> i32 {
    const LEAST_NORMAL: i32 = -126;
    // MPFR writes a number as 0.1xxx * 2^e.
    let exponent = value.get_exp().map_or(LEAST_NORMAL, |e| e - 1);
    exponent.max(LEAST_NORMAL) - (format.precision() - 1)
}

/// The nearest number of a format, ties to even, overflow to infinity. It is exact as an `f64`.
pub fn nearest(value: &Float, format: Format) -> f64 {
    if !value.is_finite() || value.is_zero() {
        return value.to_f64();
    }
    let quantum = ulp_exponent(value, format);
    let units = Float::with_val(PRECISION, value >> quantum).round_even();
    let rounded = (units << quantum).to_f64();
    if rounded.abs() >= 2f64.powi(128) { f64::INFINITY.copysign(rounded) } else { rounded }
}

/// How far `actual` is from `exact`, in ulps of `exact`; infinite where only one of them is a number.
pub fn ulps(actual: f64, exact: &Float, format: Format) -> f64 {
    if actual.is_nan() && exact.is_nan() || Float::with_val(PRECISION, actual) == *exact {
        return 0.0;
    }
    if !actual.is_finite() || !exact.is_finite() {
        return f64::INFINITY;
    }
    let distance = Float::with_val(PRECISION, Float::with_val(PRECISION, actual) - exact);
    (distance >> ulp_exponent(exact, format)).to_f64().abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bf16_is_its_own_nearest() {
        for bits in 0..=u16::MAX {
            let value = bf16(bits);
            let expected = f64::from(f32::from_bits(u32::from(bits) << 16));
            let nearest = nearest(&value, Format::Bf16);
            assert!(nearest == expected || nearest.is_nan() && expected.is_nan(), "{bits:#06x}: {nearest}");
        }
    }

    #[test]
    fn rounds_to_even_also_below_the_normals_and_overflows() {
        let ties = [
            (1.0 + 2f64.powi(-8), 1.0),
            (1.0 + 3.0 * 2f64.powi(-8), 1.0 + 2f64.powi(-6)),
            (-(1.0 + 2f64.powi(-8)) - 2f64.powi(-40), -1.0 - 2f64.powi(-7)),
            (2f64.powi(-134), 0.0),
            (3.0 * 2f64.powi(-134), 2f64.powi(-132)),
            (2f64.powi(128) - 2f64.powi(119), f64::INFINITY),
            (2f64.powi(128) - 2f64.powi(119) - 2f64.powi(100), 2f64.powi(128) - 2f64.powi(120)),
        ];
        for (value, expected) in ties {
            assert_eq!(nearest(&Float::with_val(PRECISION, value), Format::Bf16), expected, "{value:e}");
        }
    }

    #[test]
    fn counts_ulps_of_the_exact_value() {
        let one = Float::with_val(PRECISION, 1);
        assert_eq!(ulps(1.0 + 2f64.powi(-7), &one, Format::Bf16), 1.0);
        assert_eq!(ulps(1.0 - 2f64.powi(-24), &one, Format::F32), 0.5);
        assert_eq!(ulps(f64::INFINITY, &one, Format::F32), f64::INFINITY);
    }
}
