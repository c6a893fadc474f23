//! What tensors hold: families of rows and weights, each with its reason.

use cake_core::Element;
use half::bf16;

use super::random::Random;

/// A family of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Normal, scale 1.
    Normal,
    /// Normal, scale 1e-3.
    Small,
    /// Normal, scale 1e3.
    Large,
    /// Numbers around the smallest ones of bf16 and of the squares.
    Tiny,
    /// Sums of squares on both sides of the overflow.
    Huge,
    /// `residual` close to `-x`, or equal to it.
    Cancelling,
    /// One channel at 3e4, the rest between 0.01 and 1.
    Outlier,
    /// Zero rows between normal ones, of either sign.
    ZeroRows,
    /// A NaN in one row, an infinity in the next, both in a third; the others are normal.
    NotNumbers,
    /// Every element 1 + 2^-7.
    Equal,
    /// One element at 100 times the rest, wandering through the columns.
    Spiky,
    /// Every bf16 there is, in random order.
    AnyBits,
    /// For a gate: from where it is linear to where it vanishes, by way of where its exponential is no f32.
    Steep,
    /// All zeros.
    Zero,
}

impl Values {
    /// Every family and why it is tried.
    pub const ALL: [(Values, &'static str); 12] = [
        (Values::Normal, "what a model holds"),
        (Values::Small, "eps weighs as much as the mean"),
        (Values::Large, "eps is lost in the mean"),
        (Values::Tiny, "squares are subnormal or vanish; a flush to zero or an approximate root shows"),
        (Values::Huge, "the sum of squares overflows for some rows and not for their neighbours"),
        (Values::Cancelling, "statistics must come from the rounded h, not from x and residual"),
        (Values::Outlier, "a statistic kept in the input's precision is ruined by one channel"),
        (Values::ZeroRows, "0 * inf where eps is 0; zeros of both signs keep their sign"),
        (Values::NotNumbers, "NaN and Inf stay in their row, and are not swallowed"),
        (Values::Equal, "a sum in low precision stalls; every square is inexact in bf16"),
        (Values::Spiky, "one term dominates the sum, wherever the fold puts it"),
        (Values::AnyBits, "whatever bits come"),
    ];

    /// Every family of a gate's input and why it is tried.
    pub const GATES: [(Values, &'static str); 6] = [
        (Values::Normal, "what a model holds"),
        (Values::Large, "the gate is 0 or the identity"),
        (Values::Steep, "exp(-z) overflows, the sigmoid is subnormal or vanishes, z is clamped"),
        (Values::Zero, "z = 0: the slope is a half"),
        (Values::NotNumbers, "NaN and infinities in z stay in their element of y, and in their row of dx"),
        (Values::AnyBits, "whatever bits come"),
    ];

    /// Fills distinct row `row` of `x` and, where the form has one, of `residual`.
    pub fn fill(self, seed: u64, row: u64, x: &mut [u16], residual: Option<&mut [u16]>) {
        let mut random = Random::new(seed, &[self as u64, row]);
        for (i, x) in x.iter_mut().enumerate() {
            *x = self.element(&mut random, row, i as u64);
        }
        self.touch_up(&mut random, row, x);
        let Some(residual) = residual else { return };
        for (i, (r, &x)) in residual.iter_mut().zip(&*x).enumerate() {
            *r = match self {
                Values::Cancelling => cancelling(&mut random, x, row),
                Values::ZeroRows if row % 3 == 1 => x,
                _ => self.element(&mut random, row ^ 1, i as u64),
            };
        }
    }

    fn element(self, random: &mut Random, row: u64, i: u64) -> u16 {
        let sign = if random.bits() & 1 == 0 { 1.0 } else { -1.0 };
        round(match self {
            Values::Normal | Values::NotNumbers | Values::Cancelling => random.normal(),
            Values::Spiky => random.normal(),
            Values::Small => random.normal() * 1e-3,
            Values::Large => random.normal() * 1e3,
            // bf16 subnormals; numbers with subnormal squares; numbers with small normal squares; and all of them.
            Values::Tiny => {
                let kind = if row % 4 == 3 { i % 3 } else { row % 4 };
                sign * (0.5 + random.unit()) * [2e-39, 1e-22, 3e-19][kind as usize]
            }
            // One square below 2^128, a sum on either side, every square beyond, the largest bf16.
            Values::Huge => sign * (0.5 + random.unit()) * [1e17, 5e17, 4e18, 3e19, 2e38][(row % 5) as usize],
            Values::Outlier => sign * (0.01 + 0.99 * random.unit()),
            Values::ZeroRows if row % 3 == 1 => sign * 0.0,
            Values::ZeroRows => random.normal(),
            Values::Equal => 1.0 + 1.0 / 128.0,
            Values::AnyBits => return random.bits() as u16,
            Values::Steep => {
                const STEEP: [f32; 16] = [
                    0.0, 17.0, 18.0, 40.0, 41.0, 87.0, 88.5, 89.0, 100.0, 103.5, 104.0, 105.0, 1e4, 3e38, 1e-38, 1.278,
                ];
                sign * STEEP[random.below(16) as usize]
            }
            Values::Zero => sign * 0.0,
        })
    }

    fn touch_up(self, random: &mut Random, row: u64, x: &mut [u16]) {
        let any = random.below(x.len() as u64) as usize;
        match self {
            Values::Outlier => x[17 % x.len()] = round(3e4),
            Values::Spiky => x[any] = round(100.0),
            Values::NotNumbers if row % 4 == 1 => x[any] = NAN,
            Values::NotNumbers if row % 4 == 2 => x[any] = if row % 8 == 2 { INFINITY } else { INFINITY | SIGN },
            Values::NotNumbers if row % 4 == 3 && row % 8 == 3 => {
                x[any] = INFINITY;
                x[0] = NAN;
            }
            _ => {}
        }
    }
}

/// `-x`, or next to it, or far below it.
fn cancelling(random: &mut Random, x: u16, row: u64) -> u16 {
    match (row % 3, random.below(4)) {
        (0, _) | (_, 0) => x ^ SIGN,
        (1, _) => (x ^ SIGN).wrapping_add(1),
        _ => round(random.normal() * 1e-6),
    }
}

/// A family of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Uniform between 0.5 and 1.5 (around 0 with an offset).
    Usual,
    /// Zeros of both signs, negative, large, small and subnormal numbers among them.
    Mixed,
    /// Numbers that `1 + w` rounds in bf16 but not in FP32, or cancels.
    Offset,
    /// NaN and infinities in some columns.
    NotNumbers,
}

impl Weights {
    /// Every family and why it is tried.
    pub const ALL: [(Weights, &'static str); 4] = [
        (Weights::Usual, "what a model holds"),
        (Weights::Mixed, "zeros, signs and scales are the weight's own, not assumed"),
        (Weights::Offset, "1 + w is added in FP32: bf16 would lose 2^-9, and w = -1 must give 0"),
        (Weights::NotNumbers, "a bad column stays in its column"),
    ];

    /// The weight as f32 bits, each of them a bf16 when `narrow`.
    pub fn fill(self, seed: u64, offset: bool, narrow: bool, weight: &mut [u32]) {
        let mut random = Random::new(seed, &[100 + self as u64]);
        for (i, w) in weight.iter_mut().enumerate() {
            let usual = random.unit() + if offset { -0.5 } else { 0.5 };
            let value = match (self, i % 8) {
                (Weights::Mixed, 0) => 0.0,
                (Weights::Mixed, 1) => -0.0,
                (Weights::Mixed, 2) => -usual,
                (Weights::Mixed, 3) => 100.0,
                (Weights::Mixed, 4) => 1e-3,
                (Weights::Mixed, 5) => 1e-40,
                (Weights::Offset, 0) => 15.8125,
                (Weights::Offset, 1) => 1.0 / 512.0,
                (Weights::Offset, 2) => -1.0,
                (Weights::Offset, 3) => -1.0 + 1.0 / 256.0,
                (Weights::Offset, 4) => 1e-9,
                (Weights::NotNumbers, 1) if i % 16 == 1 => f32::NAN,
                (Weights::NotNumbers, 3) => f32::INFINITY,
                (Weights::NotNumbers, 5) => f32::NEG_INFINITY,
                _ => usual,
            };
            *w = if narrow { u32::from(round(value)) << 16 } else { value.to_bits() };
        }
    }
}

fn round(value: f32) -> u16 {
    <bf16 as Element>::from_f32(value).to_bits()
}

const SIGN: u16 = 0x8000;
const INFINITY: u16 = 0x7f80;
const NAN: u16 = 0x7fc1;
