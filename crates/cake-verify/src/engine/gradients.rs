//! The inputs of a backward case, and the canonical bits of its outputs, from `cake_core::sums::plain` as well.

use cake_core::sums::{plain, rms};
use cake_core::{Dtype, Element};
use half::bf16;
use half::slice::HalfBitsSliceExt;
use rayon::prelude::*;

use super::expected::{Expected, filled, floats};
use crate::cases::BackwardCase;
use crate::cases::random::Random;

/// Inputs, and what should come of them.
#[derive(Clone, Debug)]
pub struct Gradients<R = GradientRow> {
    /// Weight and rows.
    pub rows: Expected<R>,
    /// What `dw` holds before the call, if it is added to, as f32 bits; each is a bf16 when `dw` is.
    pub old: Option<Vec<u32>>,
    /// What it holds after, likewise.
    pub dw: Option<Vec<u32>>,
}

/// A row of inputs and its canonical output, in bits.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // named as the arguments
pub struct GradientRow {
    pub x: Vec<u16>,
    pub dy: Vec<u16>,
    pub dh: Option<Vec<u16>>,
    /// The one that the call is given, or else computes.
    pub rstd: u32,
    pub dx: Vec<u16>,
}

impl Gradients {
    /// Of a case.
    pub fn of(case: &BackwardCase, seed: u64) -> Gradients {
        let layouts = case.norm.layouts;
        let rstd = case.norm.rstd.then_some(layouts.rstd);
        let shown = [Some(layouts.x), Some(layouts.dy), case.dh().then_some(layouts.dh), rstd];
        let rows = Expected::gather(&case.norm, seed, shown, |keys, weight| distinct_row(case, seed, keys, weight));
        let dtype = case.dw.unwrap_or(Dtype::F32);
        let old = case.accumulate.then(|| random_weight_gradient(seed, case.norm.spec.width, dtype));
        Gradients { rows, old, dw: None }.computed(case)
    }

    /// One row of these as a call of its own.
    pub fn alone(&self, case: &BackwardCase, row: usize) -> Gradients {
        Gradients { rows: self.rows.alone(row), old: self.old.clone(), dw: None }.computed(case)
    }

    /// With the canonical `dw`.
    fn computed(self, case: &BackwardCase) -> Gradients {
        self.summed(case.norm.spec.width, case.dw, |GradientRow { x, dy, rstd, .. }, column| {
            let xhat = rms::xhat(bf16::from_bits(x[column]), f32::from_bits(*rstd));
            (bf16::from_bits(dy[column]).to_f32(), xhat)
        })
    }
}

impl<R: Clone + Send + Sync> Gradients<R> {
    /// With the canonical `dw` of a dtype, if there is one: the row tree of the terms that `term` makes of a row.
    pub(super) fn summed(
        self,
        width: u32,
        dtype: Option<Dtype>,
        term: impl Fn(&R, usize) -> (f32, f32) + Sync,
    ) -> Gradients<R> {
        let rows = &self.rows;
        let of_column = |column: usize, dtype| {
            let root = plain::row_tree(rows.of_row.len(), |t| term(rows.row(t), column));
            let old = self.old.as_ref().map(|old| f32::from_bits(old[column]));
            stored(dtype, rms::accumulate(old, root))
        };
        let of_columns = |dtype| (0..width as usize).into_par_iter().map(|column| of_column(column, dtype)).collect();
        Gradients { dw: dtype.map(of_columns), ..self }
    }
}

// What the random numbers of a tensor are for: those of `x` have no bits there.
pub(super) const DY: u64 = 1 << 60;
const DH: u64 = 2 << 60;
const OLD: u64 = 3 << 60;
pub(super) const Z: u64 = 4 << 60;

/// A number as a `dw` of some dtype stores it, as f32 bits.
pub(super) fn stored(dtype: Dtype, value: f32) -> u32 {
    match dtype {
        Dtype::Bf16 => <bf16 as Element>::from_f32(value).to_f32().to_bits(),
        _ => value.to_bits(),
    }
}

/// What a `dw` that is added to holds before.
pub(super) fn random_weight_gradient(seed: u64, width: u32, dtype: Dtype) -> Vec<u32> {
    let mut random = Random::new(seed, &[OLD]);
    (0..width).map(|_| stored(dtype, random.normal())).collect()
}

fn distinct_row(
    case: &BackwardCase,
    seed: u64,
    [x_row, dy_row, dh_row, rstd_row]: [u64; 4],
    weight: Option<&[u32]>,
) -> GradientRow {
    let (width, layouts) = (case.norm.spec.width as usize, case.norm.layouts);
    let filled = |values, seed, row, layout| filled(values, seed, row, width, layout);
    let x_of = |row| filled(case.norm.values, seed, row, layouts.x);
    let x = x_of(x_row);
    let rstd = if case.norm.rstd { GIVEN * own_rstd(case, &x_of(rstd_row)) } else { own_rstd(case, &x) };
    let mut row = GradientRow {
        dy: filled(case.gradients, seed ^ DY, dy_row, layouts.dy),
        dh: case.dh().then(|| filled(case.gradients, seed ^ DH, dh_row, layouts.dh)),
        rstd: rstd.to_bits(),
        x,
        dx: Vec::new(),
    };
    row.compute(weight, case.norm.spec.offset);
    row
}

/// An `rstd` that is given is this many times the row's own: a program that computes it again shows.
pub(super) const GIVEN: f32 = 1.5;

fn own_rstd(case: &BackwardCase, x: &[u16]) -> f32 {
    rstd_of::<bf16>(x.reinterpret_cast(), case.norm.eps)
}

/// The canonical `rstd` of a row.
pub(super) fn rstd_of<E: Element>(x: &[E], eps: f32) -> f32 {
    rms::rstd(plain::sum_of_squares(x), x.len(), eps)
}

impl GradientRow {
    /// Fills in the canonical `dx`.
    pub fn compute(&mut self, weight: Option<&[u32]>, offset: bool) {
        let (dy, x): (&[bf16], &[bf16]) = (self.dy.reinterpret_cast(), self.x.reinterpret_cast());
        let dh: Option<&[bf16]> = self.dh.as_ref().map(|dh| dh.reinterpret_cast());
        let (weight, rstd) = (weight.map(floats), f32::from_bits(self.rstd));
        let mut dx = vec![bf16::ZERO; x.len()];
        plain::backward_row(dy, x, weight.as_deref(), rms::offset(offset), rstd, dh, &mut dx);
        self.dx = dx.iter().map(|dx| dx.to_bits()).collect();
    }
}
