//! The gated RMSNorm, exactly but for the gate, which has [`GATE_PRECISION`] bits.

use std::sync::OnceLock;

use super::number::{self, PRECISION};
use super::rmsnorm::{self, Gradient, Statistics};
use rug::Float;

/// Bits of precision of the gate: far more than any output has.
pub const GATE_PRECISION: u32 = 128;

/// What the gate is, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// `sigmoid(z)`, else `z * sigmoid(z)`.
    pub sigmoid: bool,
    /// Before the norm, else after it.
    pub first: bool,
}

/// The gate of an element.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Its input.
    pub z: Float,
    /// `1 / (1 + exp(-z))`.
    pub s: Float,
    /// `1 - s`.
    pub rest: Float,
    /// `1 + z * rest`, what SiLU multiplies by `s` for its slope.
    pub inner: Float,
    /// The gate.
    pub value: Float,
    /// Its derivative.
    pub slope: Float,
}

/// The sigmoid of a number.
pub fn sigmoid(z: &Float) -> Float {
    let exp = Float::with_val(GATE_PRECISION, -z).exp();
    Float::with_val(PRECISION, (exp + 1u32).recip())
}

/// The same of bf16 bits, computed once.
fn known_sigmoid(z: u16) -> Float {
    static KNOWN: [OnceLock<Float>; 1 << 16] = [const { OnceLock::new() }; 1 << 16];
    KNOWN[usize::from(z)].get_or_init(|| sigmoid(&number::bf16(z))).clone()
}

impl Gate {
    /// Of bf16 bits.
    pub fn of(z: u16, form: Form) -> Gate {
        let (s, rest) = (known_sigmoid(z), known_sigmoid(z ^ 0x8000));
        let z = number::bf16(z);
        let inner = product(&z, &rest) + 1u32;
        let (value, slope) = match form.sigmoid {
            true => (s.clone(), product(&s, &rest)),
            false => (product(&z, &s), product(&s, &inner)),
        };
        Gate { z, s, rest, inner, value, slope }
    }
}

/// A row of the forward.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its form.
    pub form: Form,
    /// Input.
    pub x: Vec<Float>,
    /// Gates.
    pub gates: Vec<Gate>,
    /// What is normalised.
    pub normed: Vec<Float>,
}

impl Row {
    /// Of bf16 bits.
    pub fn of(x: &[u16], z: &[u16], form: Form) -> Row {
        let x: Vec<Float> = x.iter().map(|&x| number::bf16(x)).collect();
        let gates: Vec<Gate> = z.iter().map(|&z| Gate::of(z, form)).collect();
        let gated = || x.iter().zip(&gates).map(|(x, gate)| product(x, &gate.value)).collect();
        let normed = if form.first { gated() } else { x.clone() };
        Row { form, x, gates, normed }
    }

    /// The statistics of what is normalised.
    pub fn statistics(&self, eps: f32) -> Statistics {
        rmsnorm::statistics_of(self.normed.iter().cloned(), eps)
    }

    /// The output of column `i`.
    pub fn y(&self, i: usize, rstd: &Float, w: &Float) -> Float {
        let n = product(&product(&self.normed[i], rstd), w);
        if self.form.first { n } else { product(&n, &self.gates[i].value) }
    }

    /// The gradient of column `i` of what the weight scales.
    pub fn upstream(&self, i: usize, dy: u16) -> Float {
        let dy = number::bf16(dy);
        if self.form.first { dy } else { product(&dy, &self.gates[i].value) }
    }

    /// The backward of the norm.
    pub fn gradient(&self, dy: &[u16], w: &[Float], rstd: &Float) -> Gradient {
        let upstream: Vec<Float> = dy.iter().enumerate().map(|(i, &dy)| self.upstream(i, dy)).collect();
        rmsnorm::gradient_of(&upstream, &self.normed, w, rstd)
    }

    /// `dx` and `dz` of column `i`.
    pub fn outputs(&self, i: usize, gradient: &Gradient, dy: u16, w: &Float, rstd: &Float) -> [Float; 2] {
        let (dx, slope) = (gradient.dx(i, rstd), &self.gates[i].slope);
        if self.form.first {
            let dz = product(&product(&dx, &self.x[i]), slope);
            return [product(&dx, &self.gates[i].value), dz];
        }
        let n = product(&gradient.xhat[i], w);
        [dx, product(&product(&number::bf16(dy), &n), slope)]
    }
}

fn product(a: &Float, b: &Float) -> Float {
    Float::with_val(PRECISION, a * b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u16 = 0x3f80;
    const TWO: u16 = 0x4000;
    const SILU: Form = Form { sigmoid: false, first: false };

    fn near(actual: &Float, expected: f64) {
        assert!((actual.to_f64() - expected).abs() < 1e-14, "{actual} is not {expected}");
    }

    #[test]
    fn gates_worked_by_hand() {
        let zero = Gate::of(0, SILU);
        assert_eq!([zero.s, zero.value, zero.slope].map(|v| v.to_f64()), [0.5, 0.0, 0.5]);
        // 1 / (1 + e) and e / (1 + e) of the textbook.
        let one = Gate::of(ONE, SILU);
        near(&one.s, 0.731_058_578_630_004_9);
        near(&one.slope, 0.927_670_511_871_486_6);
        near(&Gate::of(ONE, Form { sigmoid: true, first: false }).slope, 0.196_611_933_241_481_85);
    }

    #[test]
    fn the_form_says_where_the_gate_stands() {
        let (x, z) = ([ONE, ONE], [0, TWO]);
        let after = Row::of(&x, &z, Form { sigmoid: true, first: false });
        let rstd = after.statistics(0.0).rstd;
        let w = Float::with_val(PRECISION, 3);
        near(&after.y(0, &rstd, &w), 1.5);
        let first = Row::of(&x, &z, Form { sigmoid: true, first: true });
        // The mean of 1/4 and s(2)^2.
        let s = 0.880_797_077_977_882_4_f64;
        near(&first.statistics(0.0).rstd, 1.0 / ((0.25 + s * s) / 2.0).sqrt());
    }

    #[test]
    fn an_infinite_z_is_what_its_products_make_of_it() {
        let infinite = Gate::of(0x7f80, SILU);
        assert!(infinite.value.is_infinite() && infinite.slope.is_nan());
        let negative = Gate::of(0xff80, SILU);
        assert!(negative.value.is_nan() && negative.slope.is_nan());
    }
}
