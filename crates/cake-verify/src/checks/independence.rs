//! A row's bits do not depend on where it stands, or among how many rows: a block size chosen from the number of rows
//! must not show.

use cake_core::{Plan, Result};

use super::operator::Operator;
use super::{Context, Task, each_program};
use crate::cases::gate::{GateBackwardCase, GateCase, GateForm};
use crate::cases::values::Values;
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::setup::{Outputs, Setup};
use crate::engine::subject::Subject;
use crate::report::ByProgram;

const CHECK: &str = "independence";

/// Numbers of rows around tiles and windows.
const ROWS: [u64; 7] = [2, 31, 255, 256, 257, 4096, 100_000];

const WIDTHS: [u32; 6] = [128, 1000, 1024, 4096, 6144, 8192];

/// A task for each width.
pub fn tasks() -> impl Iterator<Item = Task> {
    const WHY: &str = "a block size or program chosen from the number of rows shows in the bits";
    let norms = WIDTHS
        .into_iter()
        .map(|width| Task::by_program(format!("independence/h{width}"), WHY, move |context| of_width(context, width)));
    let norms = norms.map(|task| task.of(Operator::Rmsnorm));
    norms.chain([Task::by_program("independence/gate", WHY, of_gates).of(Operator::SiluGate)])
}

fn of_gates(context: &Context) -> ByProgram {
    let mut results = ByProgram::default();
    for (width, form) in [(64, 0), (128, 0), (128, 1), (128, 2), (128, 3), (512, 0), (1000, 0)] {
        for rows in ROWS.into_iter().filter(|rows| rows * u64::from(width) <= context.profile.most_elements()) {
            let case = GateCase { form: GateForm::ALL[form], ..GateCase::new(rows, width) };
            let norm = Case { rstd: false, ..case.norm.clone() };
            let backward = GateBackwardCase::of(GateCase { norm, ..case.clone() });
            results = results.merge(compare(context, &case));
            results = results.merge(compare(context, &backward));
        }
    }
    results
}

fn of_width(context: &Context, width: u32) -> ByProgram {
    let mut results = ByProgram::default();
    for form in Form::COMMON {
        for rows in ROWS {
            let elements = rows * u64::from(width);
            if elements > context.profile.most_elements().min(1 << 26) {
                continue;
            }
            let case = Case { values: Values::Normal, ..Case::new(rows, width).form(form) };
            let backward = BackwardCase::of(case.clone());
            results = results.merge(compare(context, &case));
            results = results.merge(compare(context, &backward));
        }
    }
    results
}

/// The first, middle and last row of a call against the same rows alone.
fn compare<C: Subject>(context: &Context, case: &C) -> ByProgram {
    let mut alone = case.clone();
    alone.norm_mut().lead = vec![1];
    each_program(context, CHECK, case, |many, way| {
        let text = |error: cake_core::Error| error.to_string();
        let outputs = run(many, &way.plan).map_err(text)?;
        for row in [0, case.norm().rows() as usize / 2, case.norm().rows() as usize - 1] {
            let single = Setup::with(&alone, &context.target, case.alone(&many.expected, row)).map_err(text)?;
            let own = run(&single, &way.plan).map_err(text)?;
            for (name, columns) in many.output_columns().filter(|(name, _)| *name != "dw") {
                for column in 0..columns {
                    let (among, one) = (many.bits(&outputs, name, row, column), single.bits(&own, name, 0, column));
                    if among != one {
                        return Err(format!("{name} row {row} column {column}: {among:x?}, alone {one:x?}"));
                    }
                }
            }
        }
        Ok(())
    })
}

fn run<C: Subject>(setup: &Setup<C>, plan: &Plan<C::Op>) -> Result<Outputs> {
    setup.reset()?;
    setup.run(plan)?;
    setup.outputs()
}
