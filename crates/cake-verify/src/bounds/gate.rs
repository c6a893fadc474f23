//! Allowed error of the gated norm: the steps of docs/silu-gate.md, each with its rounding.
//!
//! | value | distance |
//! |-------|----------|
//! | `s`   | 1 ulp, of subnormals too; none but its own where z is beyond the clamps | tests/sigmoid.rs looks at every z |
//! | gate  | that of `s`, 1 rounding of the product with z | |
//! | slope | those of `1 - s`, of the FMA with z, and of the product with `s` | |
//!
//! The rest are products of what came before, 1 rounding each, as in the norm.

use rug::Float;

use super::{Allowed, BackwardRow, ETA, Rounded, Rstd, Term, may_overflow, rstd_of};
use crate::reference::gate::{Gate, Row};
use crate::reference::number::{Format, ulp_exponent};
use crate::reference::rmsnorm::{Gradient, Statistics};

/// Where every smaller z has a sigmoid of 0, and every larger one of 1.
pub const SATURATED: (f32, f32) = (-104.0, 18.0);

/// What the columns of a row have in common.
#[derive(Debug)]
pub struct GateRow<'a> {
    row: &'a Row,
    /// Distances of gates and slopes.
    gates: Vec<[Rounded; 2]>,
    /// Of what is normalised.
    normed: Vec<Rounded>,
}

impl<'a> GateRow<'a> {
    /// Of an exact row.
    pub fn new(row: &'a Row) -> GateRow<'a> {
        let gates: Vec<[Rounded; 2]> = row.gates.iter().map(|gate| gate_and_slope(gate, row.form.sigmoid)).collect();
        let normed = row.normed.iter().zip(&row.x).zip(&gates);
        let normed = normed.map(|((exact, x), [gate, _])| match row.form.first {
            true => times(Rounded::exact(x), *gate, exact),
            false => Rounded::exact(exact),
        });
        let normed = normed.collect();
        GateRow { row, gates, normed }
    }

    /// What `rstd` may be, computed from the row.
    pub fn rstd(&self, exact: &Statistics, eps: f32) -> Rstd {
        let off: f64 = self.normed.iter().map(|u| u.product(*u)).sum();
        match exact.sum_of_squares.is_finite() {
            true => rstd_of(&exact.sum_of_squares, off, self.normed.len(), eps),
            false => rstd_of(&exact.sum_of_squares, 0.0, self.normed.len(), eps),
        }
    }

    /// `y` in column `i`, which is `exact`.
    pub fn y(&self, i: usize, exact: &Float, rstd: &Float, may_be: &Rstd, w: &Float) -> Allowed {
        if exact.is_nan() {
            return Allowed::NOT_A_NUMBER;
        }
        let [rstd_off, w_off] = [Rounded { off: may_be.distance(rstd), ..Rounded::exact(rstd) }, Rounded::exact(w)];
        let xhat = Float::with_val(super::PRECISION, &self.row.normed[i] * rstd);
        let n = Float::with_val(super::PRECISION, &xhat * w);
        let xhat = times(self.normed[i], rstd_off, &xhat);
        let n = times(xhat, w_off, &n);
        let y = if self.row.form.first { n } else { times(n, self.gates[i][0], exact) };
        around(exact, [self.gates[i][0], self.normed[i], xhat, n, y])
    }

    /// The backward of the row; `gradient` and `dy` are exact.
    pub fn backward(
        &'a self,
        gradient: &'a Gradient,
        dy: &'a [Float],
        w: &'a [Float],
        rstd: &Float,
        may_be: &Rstd,
    ) -> GateBackwardRow<'a> {
        let rstd = Rounded { off: may_be.distance(rstd), ..Rounded::exact(rstd) };
        let columns = 0..dy.len();
        let upstream: Vec<Rounded> = columns.clone().map(|i| self.upstream(i, &dy[i])).collect();
        let xhat = columns.clone().map(|i| times(self.normed[i], rstd, &gradient.xhat[i])).collect();
        let g = columns.map(|i| times(upstream[i], Rounded::exact(&w[i]), &gradient.g[i])).collect();
        let mut norm = BackwardRow::of(gradient, rstd, xhat, g);
        let largest = upstream.iter().chain(&self.normed).map(|v| v.most()).fold(0.0, f64::max);
        if may_overflow([largest]) {
            norm.every.get_or_insert(Allowed::ANYTHING);
        }
        GateBackwardRow { of: self, norm, dy, w }
    }

    /// The row's part in column `i` of `dw`, for so many rows.
    pub fn term(&self, i: usize, rows: usize, dy: &Float, rstd: &Float, may_be: &Rstd) -> Term {
        let rstd_off = Rounded { off: may_be.distance(rstd), ..Rounded::exact(rstd) };
        let xhat = Float::with_val(super::PRECISION, &self.row.normed[i] * rstd);
        let nan = dy.is_nan() || xhat.is_nan() || !self.row.form.first && self.row.gates[i].value.is_nan();
        let (mut gradient, xhat) = (self.upstream(i, dy), times(self.normed[i], rstd_off, &xhat));
        if may_overflow([gradient.most(), self.normed[i].most()]) {
            gradient.size = f64::INFINITY; // though a small weight or rstd may bring the product back
        }
        Term { times: rows, gradient, xhat, nan }
    }

    /// The gradient of what the weight scales.
    fn upstream(&self, i: usize, dy: &Float) -> Rounded {
        let dy_off = Rounded::exact(dy);
        if self.row.form.first {
            return dy_off;
        }
        times(dy_off, self.gates[i][0], &Float::with_val(super::PRECISION, dy * &self.row.gates[i].value))
    }
}

/// What the columns of a row of the backward have in common.
#[derive(Debug)]
pub struct GateBackwardRow<'a> {
    of: &'a GateRow<'a>,
    norm: BackwardRow<'a>,
    dy: &'a [Float],
    w: &'a [Float],
}

impl GateBackwardRow<'_> {
    /// `dx` and `dz` in column `i`, which are `exact`; `norm` is the exact gradient of what is normalised.
    pub fn outputs(&self, i: usize, norm: &Float, exact: &[Float; 2]) -> [Allowed; 2] {
        let (row, [gate, slope]) = (self.of.row, self.of.gates[i]);
        let x = Rounded::exact(&row.x[i]);
        if row.form.first {
            let [inner, du] = self.norm.steps(i, norm);
            let t = times(du, x, &Float::with_val(super::PRECISION, norm * &row.x[i]));
            let (dx, dz) = (times(du, gate, &exact[0]), times(t, slope, &exact[1]));
            let [to_x, to_z] = [around(&exact[0], [inner, du, gate, dx]), around(&exact[1], [inner, du, t, slope, dz])];
            let nan = |exact: &Float, factor: &Float| {
                self.norm
                    .every
                    .map(|every| if factor.is_nan() || exact.is_nan() { Allowed::NOT_A_NUMBER } else { every })
            };
            return [
                nan(&exact[0], &row.gates[i].value).unwrap_or(to_x),
                nan(&exact[1], &row.gates[i].slope).unwrap_or(to_z),
            ];
        }
        let n = Float::with_val(super::PRECISION, &self.norm.exact.xhat[i] * &self.w[i]);
        let t = Float::with_val(super::PRECISION, &self.dy[i] * &n);
        let n = times(self.norm.xhat[i], Rounded::exact(&self.w[i]), &n);
        let t = times(Rounded::exact(&self.dy[i]), n, &t);
        let dz = times(t, slope, &exact[1]);
        [self.norm.dx(i, norm, None), around(&exact[1], [self.norm.xhat[i], n, t, slope, dz])]
    }
}

/// Distances of the gate and of its slope.
fn gate_and_slope(exact: &Gate, sigmoid: bool) -> [Rounded; 2] {
    let z = Rounded::exact(&exact.z);
    let s_off = match exact.z.to_f32() {
        z if z <= SATURATED.0 => exact.s.to_f64(),
        z if z >= SATURATED.1 => exact.rest.to_f64(),
        _ => 2f64.powi(ulp_exponent(&exact.s, Format::F32)),
    };
    let s = Rounded { off: s_off, ..Rounded::exact(&exact.s) };
    let rest = Rounded { off: s.off, ..Rounded::exact(&exact.rest) }.rounded(1);
    if sigmoid {
        return [s, times(s, rest, &exact.slope)];
    }
    let inner = Rounded { off: z.product(rest), ..Rounded::exact(&exact.inner) }.rounded(1);
    [times(z, s, &exact.value), times(s, inner, &exact.slope)]
}

/// The rounded product of two numbers, which is `exact`; the product with an exact 0 is exact.
fn times(a: Rounded, b: Rounded, exact: &Float) -> Rounded {
    let zero = |v: Rounded| v.size == 0.0 && v.off == 0.0;
    let product = Rounded { off: a.product(b), ..Rounded::exact(exact) };
    if zero(a) && b.most().is_finite() || zero(b) && a.most().is_finite() { product } else { product.rounded(1) }
}

/// What an output may be that is `exact`, and the last of some steps; anything where one of them may overflow.
fn around<const N: usize>(exact: &Float, steps: [Rounded; N]) -> Allowed {
    if exact.is_nan() {
        return Allowed::NOT_A_NUMBER;
    }
    if may_overflow(steps.map(Rounded::most)) {
        return Allowed::ANYTHING;
    }
    Allowed::around(exact, steps[N - 1].off.max(ETA), Format::Bf16)
}
