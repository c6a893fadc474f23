//! The gate: docs/silu-gate.md in the repository specifies each step, and says why the result is one bit pattern
//! everywhere. All arithmetic is `f32`, each operation rounded once.

use cake_core::Element;
use cake_core::sums::with_fma;
use half::bf16;

use crate::Activation;

/// `1 / (1 + exp(-z))`, within 0.8 ulp for every BF16 number; a NaN for a NaN.
#[inline(always)]
pub fn sigmoid(z: bf16) -> f32 {
    sigmoid_by(z, |d| 1.0 / d)
}

/// The same by any reciprocal that is off by 8 ulp or less: the same bits, whatever it is.
#[inline(always)]
pub fn sigmoid_by(z: bf16, reciprocal: impl Fn(f32) -> f32) -> f32 {
    let z = Element::to_f32(z).clamp(-104.0, 40.0);
    // -z / ln 2 = n + f: the sum with MAGIC is rounded to a whole number, which its last bits hold.
    let shifted = z.mul_add(-LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let f = z.mul_add(-LOG2_E_REST, z.mul_add(-LOG2_E, -n));
    let [lower @ .., highest] = &POLYNOMIAL;
    let m = lower.iter().rev().fold(*highest, |sum, coefficient| sum.mul_add(f, *coefficient));
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(ONE.to_bits())); // 2^n * ONE
    // near + far is ONE * (1 + exp(-z)), in twice the precision.
    let near = power.mul_add(m, power + ONE);
    let far = power.mul_add(m, (power - near) + ONE);
    let r = reciprocal(near);
    let rest = (-far).mul_add(r, (-near).mul_add(r, 1.0));
    r.mul_add(rest, r) * ONE
}

/// 1 / ln 2 as an f32, and what it lacks.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
const LOG2_E_REST: f32 = f32::from_bits(0x32a5_7060);

/// 1.5 * 2^23: the last bit of a sum with it counts ones.
const MAGIC: f32 = 12_582_912.0;

/// Of `2^f - 1` for f within 0.5 of 0, lowest power first.
const POLYNOMIAL: [f32; 7] = [
    f32::from_bits(0x2d80_0000),
    f32::from_bits(0x3f31_7218),
    f32::from_bits(0x3e75_fdf0),
    f32::from_bits(0x3d63_57b6),
    f32::from_bits(0x3c1d_952a),
    f32::from_bits(0x3aaf_8448),
    f32::from_bits(0x3922_09c5),
];

/// 2^-64, which keeps every number between the clamps normal.
const ONE: f32 = f32::from_bits((127 - 64) << 23);

impl Activation {
    /// The gate, for `s = sigmoid(z)`.
    #[inline(always)]
    pub fn gate(self, z: bf16, s: f32) -> f32 {
        match self {
            Activation::Silu => Element::to_f32(z) * s,
            Activation::Sigmoid => s,
        }
    }

    /// Its derivative, likewise.
    #[inline(always)]
    pub fn slope(self, z: bf16, s: f32) -> f32 {
        match self {
            Activation::Silu => s * Element::to_f32(z).mul_add(1.0 - s, 1.0),
            Activation::Sigmoid => s * (1.0 - s),
        }
    }

    /// The gates of a row.
    pub(crate) fn gates(self, z: &[bf16], gates: &mut [f32]) {
        with_fma(
            #[inline(always)]
            || z.iter().zip(gates).for_each(|(z, gate)| *gate = self.gate(*z, sigmoid(*z))),
        );
    }

    /// The gates of a row, and their derivatives.
    pub(crate) fn gates_and_slopes(self, z: &[bf16], gates: &mut [f32], slopes: &mut [f32]) {
        with_fma(
            #[inline(always)]
            || {
                for ((z, gate), slope) in z.iter().zip(gates).zip(slopes) {
                    let s = sigmoid(*z);
                    (*gate, *slope) = (self.gate(*z, s), self.slope(*z, s));
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silu(z: f32) -> f32 {
        let z = <bf16 as Element>::from_f32(z);
        Activation::Silu.gate(z, sigmoid(z))
    }

    #[test]
    fn the_gate_is_defined_for_every_z() {
        assert_eq!(sigmoid(bf16::ZERO), 0.5);
        assert_eq!(sigmoid(bf16::INFINITY), 1.0);
        assert_eq!(sigmoid(bf16::NEG_INFINITY), 0.0);
        assert!(sigmoid(bf16::NAN).is_nan());
        // Beyond -88.7 exp(-z) is no f32; exp(-100) is 26.5 times the smallest one.
        assert_eq!(sigmoid(bf16::from_f32_const(-100.0)).to_bits(), 27);
        assert_eq!(silu(-3e38), -0.0);
        for z in [40.0, 1e4, 3e38].map(bf16::from_f32) {
            assert_eq!(silu(z.to_f32()), z.to_f32());
        }
        assert!(silu(f32::NEG_INFINITY).is_nan());
    }
}
