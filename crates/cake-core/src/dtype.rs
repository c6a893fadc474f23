//! Element types: what a tensor may hold, and how an element becomes an `f32` and back.

use half::{bf16, f16};
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// bfloat16: 8 bits of exponent, 8 of precision.
    Bf16,
    /// IEEE binary16: 5 bits of exponent, 11 of precision.
    F16,
    /// IEEE binary32.
    F32,
}

impl Dtype {
    /// `bf16`, `f16` or `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
            Dtype::F32 => "f32",
        }
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bf16 | Dtype::F16 => 2,
            Dtype::F32 => 4,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A host type whose values are the elements of a tensor.
///
/// Sealed: unsafe code relies on an element being a plain number of the size that `DTYPE` says.
///
/// The conversions are branch-free, so that loops over them become vector code; `half`'s own conversions of `f16` ask
/// the CPU at every element.
pub trait Element: sealed::Number + Copy + Send + Sync + 'static {
    /// The name of this type in a tensor's description.
    const DTYPE: Dtype;
    /// The exact value; a NaN stays a NaN.
    fn to_f32(self) -> f32;
    /// The nearest value, ties to even, overflow to infinity; a NaN stays a NaN.
    fn from_f32(value: f32) -> Self;
}

mod sealed {
    pub trait Number {}
    impl Number for f32 {}
    impl Number for half::bf16 {}
    impl Number for half::f16 {}
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> bf16 {
        let bits = value.to_bits();
        // A carry out of the significand moves on to the next exponent, and from the last one to infinity.
        let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        bf16::from_bits(if value.is_nan() { quiet } else { nearest } as u16)
    }
}

impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let (sign, magnitude) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
        // 2^(127-15) moves the bias; the product is exact, for subnormals too.
        let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
        f32::from_bits(sign | if magnitude >= 0x7c00 << 13 { magnitude | 0x7f80_0000 } else { finite })
    }

    #[inline(always)]
    fn from_f32(value: f32) -> f16 {
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        // The ulp of 0.5 is 2^-24, the smallest f16: the addition rounds to a whole number of them.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let rounded = if magnitude < 113 << 23 { subnormal } else { normal };
        let overflow = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        f16::from_bits((sign | if magnitude >= 143 << 23 { overflow } else { rounded }) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        let named = [Dtype::Bf16, Dtype::F16, Dtype::F32].map(|d| (d.to_string(), d.size()));
        assert_eq!(named, [("bf16".into(), 2), ("f16".into(), 2), ("f32".into(), 4)]);
    }

    #[test]
    fn every_half_converts_as_in_half() {
        for bits in 0..=u16::MAX {
            same(bf16::from_bits(bits).to_f32(), Element::to_f32(bf16::from_bits(bits)));
            same(f16::from_bits(bits).to_f32(), Element::to_f32(f16::from_bits(bits)));
        }
    }

    /// Every value, every midpoint between neighbours, and the f32 on each side of both.
    #[test]
    fn every_rounding_decision_is_as_in_half() {
        for bits in 0..=u16::MAX {
            let bf16_steps = [0u32, 0x8000].map(|low| u32::from(bits) << 16 | low);
            let f16_steps = {
                let value = f16::from_bits(bits).to_f32();
                let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
                // 65520 is the midpoint between the largest f16 and what would follow it.
                let beyond = 65520f32.copysign(value);
                [value, if next.is_finite() { (value + next) / 2.0 } else { beyond }].map(f32::to_bits)
            };
            for step in bf16_steps.into_iter().chain(f16_steps) {
                for bits in [step.wrapping_sub(1), step, step.wrapping_add(1)] {
                    let value = f32::from_bits(bits);
                    same(bf16::from_f32(value).to_f32(), <bf16 as Element>::from_f32(value).to_f32());
                    same(f16::from_f32(value).to_f32(), <f16 as Element>::from_f32(value).to_f32());
                }
            }
        }
    }

    fn same(expected: f32, actual: f32) {
        let equal = expected.to_bits() == actual.to_bits() || expected.is_nan() && actual.is_nan();
        assert!(equal, "expected {expected:e} = {:#010x}, got {actual:e}", expected.to_bits());
    }
}
