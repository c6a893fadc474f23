//! Some rows of a case's outputs against MPFR.

mod gate;

use cake_core::Dtype;
use rug::Float;

use crate::bounds::{self, Allowed, BackwardRow, Rstd, Term};
use crate::cases::{BackwardCase, Case, CombineCase};
use crate::engine::compare::{shown, value};
use crate::engine::expected::Expected;
use crate::engine::setup::{Outputs, Setup};
use crate::engine::shards::Shards;
use crate::engine::subject::Subject;
use crate::reference::number::{self, Format, PRECISION, ulps};
use crate::reference::rmsnorm::{self, Weight};
use crate::report::Tally;

/// A case whose outputs have exact values.
pub trait Accuracy: Subject {
    /// Judges about so many elements of the outputs.
    fn accuracy(tally: &mut Tally, setup: &Setup<Self>, outputs: &Outputs, elements: usize);
}

impl Accuracy for Case {
    fn accuracy(tally: &mut Tally, setup: &Setup, outputs: &Outputs, elements: usize) {
        let (case, width) = (&setup.case, setup.case.spec.width as usize);
        let weight = effective(case, &setup.expected);
        let columns = some_columns(width, elements);
        for row in some_rows(case, elements / width) {
            let inputs = setup.expected.row(row);
            let mut judge = Judge { setup, outputs, row, ordinary: true, bad: 0, first: None };
            // The statistics are those of the stored h.
            let mut normalised = inputs.x.clone();
            if let Some(residual) = &inputs.residual {
                for &column in &columns {
                    let exact = rmsnorm::h(inputs.x[column], residual[column]);
                    judge.output(tally, "h", column, Dtype::Bf16, bounds::h(&exact), &exact);
                }
                for (column, x) in normalised.iter_mut().enumerate() {
                    *x = setup.bits(outputs, "h", row, column).unwrap_or_default() as u16;
                }
            }
            let statistics = rmsnorm::statistics(&normalised, case.eps);
            let rstd = bounds::rstd(&statistics, width, case.eps);
            let allowed = rstd.allowed();
            judge.output(tally, "rstd", 0, Dtype::F32, allowed, &statistics.rstd);
            judge.ordinary = allowed.is_narrow(Format::F32);
            for &column in &columns {
                let (x, w) = (normalised[column], &weight[column]);
                let exact = rmsnorm::y(x, &statistics.rstd, w);
                judge.output(tally, "y", column, Dtype::Bf16, bounds::y(x, &rstd, w), &exact);
            }
            judge.finish(tally);
        }
    }
}

impl Accuracy for BackwardCase {
    fn accuracy(tally: &mut Tally, setup: &Setup<BackwardCase>, outputs: &Outputs, elements: usize) {
        let (case, rows) = (&setup.case, &setup.expected.rows);
        let (norm, width) = (&case.norm, case.norm.spec.width as usize);
        if case.dx {
            let weight = effective(norm, rows);
            let columns = some_columns(width, elements);
            for row in some_rows(norm, elements / width) {
                let inputs = rows.row(row);
                let (rstd, may_be) = rstd(case, &inputs.x, inputs.rstd);
                let exact = rmsnorm::gradient(&inputs.dy, &inputs.x, &weight, &rstd);
                let bound = BackwardRow::new(&exact, &rstd, &may_be, norm.spec.offset);
                let mut judge = Judge { setup, outputs, row, ordinary: true, bad: 0, first: None };
                for &column in &columns {
                    let (dx, dh) = (exact.dx(column, &rstd), inputs.dh.as_ref().map(|dh| dh[column]));
                    let allowed = bound.dx(column, &dx, dh);
                    let exact = dh.map_or(dx.clone(), |dh| dx + number::bf16(dh));
                    judge.output(tally, "dx", column, Dtype::Bf16, allowed, &exact);
                }
                judge.finish(tally);
            }
        }
        let Some(dtype) = case.dw else { return };
        let mut times = vec![0; rows.distinct.len()];
        rows.of_row.iter().for_each(|&row| times[row as usize] += 1);
        let of_rows: Vec<(Float, Rstd)> = rows.distinct.iter().map(|row| rstd(case, &row.x, row.rstd)).collect();
        let distinct = || rows.distinct.iter().zip(&times).zip(&of_rows);
        let mut judge = Judge { setup, outputs, row: 0, ordinary: true, bad: 0, first: None };
        for column in some_columns(width, (elements / rows.distinct.len().max(1)).max(1)) {
            let old = setup.expected.old.as_ref().map(|old| number::f32(old[column]));
            let terms = distinct().map(|((row, &times), (rstd, _))| (times, row.dy[column], row.x[column], rstd));
            let exact = rmsnorm::dw(&old.unwrap_or_else(|| Float::new(PRECISION)), terms);
            let terms = distinct()
                .map(|((row, &times), (rstd, may_be))| Term::new(times, row.dy[column], row.x[column], rstd, may_be));
            let allowed = bounds::dw(&exact, case.accumulate, terms, format(dtype));
            judge.output(tally, "dw", column, dtype, allowed, &exact);
        }
        judge.finish(tally);
    }
}

impl Accuracy for CombineCase {
    fn accuracy(tally: &mut Tally, setup: &Setup<CombineCase>, outputs: &Outputs, elements: usize) {
        let (case, Shards { shards, old, .. }) = (&setup.case, &setup.expected);
        let mut judge = Judge { setup, outputs, row: 0, ordinary: true, bad: 0, first: None };
        for column in some_columns(case.norm.spec.width as usize, (elements / shards.len().max(1)).max(1)) {
            let terms = shards.iter().map(|shard| number::f32(shard[column]));
            let old = old.as_ref().map_or_else(|| Float::new(PRECISION), |old| number::f32(old[column]));
            let exact = terms.clone().fold(old, |sum, term| sum + term);
            let sizes = terms.map(|term| term.to_f64().abs()).sum();
            let allowed = bounds::combined(&exact, sizes, shards.len(), case.accumulate, format(case.dw));
            judge.output(tally, "dw", column, case.dw, allowed, &exact);
        }
        judge.finish(tally);
    }
}

/// The exact `rstd` of a row, and what the kernel's may be: the one that the call is given, or computed from `x`.
fn rstd(case: &BackwardCase, x: &[u16], given: u32) -> (Float, Rstd) {
    if case.norm.rstd {
        let rstd = number::f32(given);
        let exactly = Rstd::given(&rstd);
        return (rstd, exactly);
    }
    let statistics = rmsnorm::statistics(x, case.norm.eps);
    let may_be = bounds::rstd(&statistics, x.len(), case.norm.eps);
    (statistics.rstd, may_be)
}

/// What each column is multiplied by.
fn effective<R>(case: &Case, expected: &Expected<R>) -> Vec<Float> {
    let narrow: Vec<u16> = expected.weight.iter().flatten().map(|bits| (bits >> 16) as u16).collect();
    let weight = match (case.spec.weight, &expected.weight) {
        (Some(Dtype::F32), Some(bits)) => Weight::F32(bits),
        (Some(_), _) => Weight::Bf16(&narrow),
        (None, _) => Weight::None,
    };
    (0..case.spec.width as usize).map(|column| weight.effective(column, case.spec.offset)).collect()
}

const fn format(dtype: Dtype) -> Format {
    match dtype {
        Dtype::F32 => Format::F32,
        _ => Format::Bf16,
    }
}

/// The judgement of a row.
struct Judge<'s, C: Subject> {
    setup: &'s Setup<C>,
    outputs: &'s Outputs,
    row: usize,
    /// Where something may overflow or vanish, a distance from the exact value says nothing.
    ordinary: bool,
    bad: usize,
    first: Option<String>,
}

impl<C: Subject> Judge<'_, C> {
    /// Judges an element of an output, if the call has that output.
    fn output(
        &mut self,
        tally: &mut Tally,
        name: &'static str,
        column: usize,
        dtype: Dtype,
        allowed: Allowed,
        exact: &Float,
    ) {
        let Some(bits) = self.setup.bits(self.outputs, name, self.row, column) else { return };
        let (actual, format) = (f64::from(value(dtype, bits)), format(dtype));
        let at = || {
            let (case, row, bits, exact) = (&self.setup.case, self.row, shown(dtype, bits), exact.to_f64());
            format!("[{case}] {name} row {row} column {column}: {bits}, exact {exact:e}")
        };
        if !allowed.holds(actual) {
            let Allowed { low, high, nan } = allowed;
            self.bad += 1;
            self.first.get_or_insert_with(|| format!("{}, allowed {low:e} to {high:e}, NaN {nan:?}", at()));
        }
        if self.ordinary && allowed.is_narrow(format) {
            tally.measure("accuracy", name, ulps(actual, exact, format), at);
        }
    }

    fn finish(self, tally: &mut Tally) {
        let bad = self.bad;
        tally.judge("accuracy", self.first.map(|first| format!("{bad} elements of a row, first {first}")));
    }
}

/// All of a row, or so many that a fixed step finds, and the last ones.
fn some_columns(width: usize, most: usize) -> Vec<usize> {
    if width <= most {
        return (0..width).collect();
    }
    let last = most.min(32);
    let stepped = (0..most - last).map(|i| i * width / most);
    stepped.chain(width - last..width).collect()
}

/// One or more: first, last, around the middle, then some that a fixed step finds.
fn some_rows(case: &Case, most: usize) -> Vec<usize> {
    let rows = case.rows() as usize;
    let chosen = [0, rows.wrapping_sub(1), rows / 2, rows / 3, 1, rows.wrapping_sub(2)];
    let stepped = (0..rows.min(64)).map(|i| i * 97 % rows.max(1));
    let mut looked_at = Vec::new();
    for row in chosen.into_iter().chain(stepped) {
        if row < rows && !looked_at.contains(&row) && looked_at.len() < most.max(1) {
            looked_at.push(row);
        }
    }
    looked_at
}
