//! Some rows of the gated norm against MPFR.

use cake_core::Dtype;
use cake_silu_gate::Activation;
use rug::Float;

use super::{Accuracy, Judge, effective, format, some_columns, some_rows};
use crate::bounds::gate::GateRow;
use crate::bounds::{self, Rstd};
use crate::cases::gate::{GateBackwardCase, GateCase, GateForm};
use crate::engine::setup::{Outputs, Setup};
use crate::reference::gate::{Form, Row};
use crate::reference::number::{self, Format, PRECISION};
use crate::reference::rmsnorm;
use crate::report::Tally;

impl Accuracy for GateCase {
    fn accuracy(tally: &mut Tally, setup: &Setup<GateCase>, outputs: &Outputs, elements: usize) {
        let (case, norm) = (&setup.case, &setup.case.norm);
        let width = norm.spec.width as usize;
        let weight = effective(norm, &setup.expected);
        let columns = some_columns(width, elements);
        for row in some_rows(norm, elements / width) {
            let inputs = setup.expected.row(row);
            let exact = Row::of(&inputs.x, &inputs.z, form(case.form));
            let bound = GateRow::new(&exact);
            let statistics = exact.statistics(norm.eps);
            let rstd = bound.rstd(&statistics, norm.eps);
            let allowed = rstd.allowed();
            let mut judge = Judge { setup, outputs, row, ordinary: true, bad: 0, first: None };
            judge.output(tally, "rstd", 0, Dtype::F32, allowed, &statistics.rstd);
            judge.ordinary = allowed.is_narrow(Format::F32);
            for &column in &columns {
                let (w, rstd_is) = (&weight[column], &statistics.rstd);
                let y = exact.y(column, rstd_is, w);
                judge.output(tally, "y", column, Dtype::Bf16, bound.y(column, &y, rstd_is, &rstd, w), &y);
            }
            judge.finish(tally);
        }
    }
}

impl Accuracy for GateBackwardCase {
    fn accuracy(tally: &mut Tally, setup: &Setup<GateBackwardCase>, outputs: &Outputs, elements: usize) {
        let (case, rows, norm) = (&setup.case, &setup.expected.rows, &setup.case.forward.norm);
        let (width, form) = (norm.spec.width as usize, form(case.forward.form));
        let weight = effective(norm, rows);
        let numbers = |bits: &[u16]| bits.iter().map(|&bits| number::bf16(bits)).collect::<Vec<Float>>();
        let columns = some_columns(width, elements);
        for row in some_rows(norm, elements / width) {
            let inputs = rows.row(row);
            let exact = Row::of(&inputs.x, &inputs.z, form);
            let bound = GateRow::new(&exact);
            let (rstd, may_be) = rstd(case, &inputs.x, &inputs.z, inputs.rstd);
            let (gradient, dy) = (exact.gradient(&inputs.dy, &weight, &rstd), numbers(&inputs.dy));
            let bound = bound.backward(&gradient, &dy, &weight, &rstd, &may_be);
            let mut judge = Judge { setup, outputs, row, ordinary: true, bad: 0, first: None };
            for &column in &columns {
                let of_norm = gradient.dx(column, &rstd);
                let exact = exact.outputs(column, &gradient, inputs.dy[column], &weight[column], &rstd);
                let [to_x, to_z] = bound.outputs(column, &of_norm, &exact);
                judge.output(tally, "dx", column, Dtype::Bf16, to_x, &exact[0]);
                judge.output(tally, "dz", column, Dtype::Bf16, to_z, &exact[1]);
            }
            judge.finish(tally);
        }

        let Some(dtype) = case.dw else { return };
        let mut times = vec![0; rows.distinct.len()];
        rows.of_row.iter().for_each(|&row| times[row as usize] += 1);
        let columns = some_columns(width, (elements / rows.distinct.len().max(1)).max(1));
        // The gates of these columns are all that counts, but for an rstd that depends on them.
        let some = |bits: &[u16]| columns.iter().map(|&column| bits[column]).collect::<Vec<u16>>();
        let exact: Vec<Row> = rows.distinct.iter().map(|row| Row::of(&some(&row.x), &some(&row.z), form)).collect();
        let bound: Vec<GateRow<'_>> = exact.iter().map(GateRow::new).collect();
        let rstds: Vec<(Float, Rstd)> = rows.distinct.iter().map(|row| rstd(case, &row.x, &row.z, row.rstd)).collect();
        let mut judge = Judge { setup, outputs, row: 0, ordinary: true, bad: 0, first: None };
        for (i, &column) in columns.iter().enumerate() {
            let old = setup.expected.old.as_ref().map(|old| number::f32(old[column]));
            let old = old.unwrap_or_else(|| Float::new(PRECISION));
            let rows = || rows.distinct.iter().zip(&times).zip(exact.iter().zip(&bound)).zip(&rstds);
            let sum = rows().fold(old, |sum, (((row, &times), (exact, _)), (rstd, _))| {
                sum + exact.upstream(i, row.dy[column]) * (rstd * exact.normed[i].clone()) * times
            });
            let terms = rows().map(|(((row, &times), (_, bound)), (rstd, may_be))| {
                bound.term(i, times, &number::bf16(row.dy[column]), rstd, may_be)
            });
            let allowed = bounds::dw(&sum, case.accumulate, terms, format(dtype));
            judge.output(tally, "dw", column, dtype, allowed, &sum);
        }
        judge.finish(tally);
    }
}

fn form(form: GateForm) -> Form {
    Form { sigmoid: form.activation == Activation::Sigmoid, first: form.first }
}

/// The exact `rstd` of a row, and what the kernel's may be: the one that the call is given, or computed.
fn rstd(case: &GateBackwardCase, x: &[u16], z: &[u16], given: u32) -> (Float, Rstd) {
    let (norm, form) = (&case.forward.norm, form(case.forward.form));
    if norm.rstd {
        let rstd = number::f32(given);
        let exactly = Rstd::given(&rstd);
        return (rstd, exactly);
    }
    let (statistics, may_be) = if form.first {
        let exact = Row::of(x, z, form);
        let statistics = exact.statistics(norm.eps);
        let may_be = GateRow::new(&exact).rstd(&statistics, norm.eps);
        (statistics, may_be)
    } else {
        let statistics = rmsnorm::statistics(x, norm.eps);
        let may_be = bounds::rstd(&statistics, x.len(), norm.eps);
        (statistics, may_be)
    };
    (statistics.rstd, may_be)
}
