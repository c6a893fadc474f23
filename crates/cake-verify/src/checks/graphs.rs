//! Graph capture: without warm-up a clear error, and the process goes on; with it, replays equal eager calls.

use cake_core::Error;

use super::operator::Operator;
use super::{Context, Task, each_program};
use crate::cases::gate::{GateBackwardCase, GateCase, GateForm};
use crate::cases::values::Values;
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::driver::Graph;
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::report::ByProgram;

const CHECK: &str = "graphs";

/// A task for each way to capture.
pub fn tasks() -> [Task; 4] {
    let single = |name, why, run| Task::single(CHECK, name, why, run).device().alone();
    let why = "a replay reads what the captured call left behind";
    let each = |name, run, operator| Task::by_program(name, why, run).device().alone().of(operator);
    [
        single("graphs/cold", "an image is loaded inside a capture, which poisons the context", cold),
        each("graphs/replays", replays as fn(&Context) -> ByProgram, Operator::Rmsnorm),
        each("graphs/gate_replays", gate_replays, Operator::SiluGate),
        single("graphs/no_rows", "a call of zero rows breaks a capture", no_rows),
    ]
}

/// A plan that was never warmed up, captured; then warmed up and used, then captured again.
fn cold(context: &Context) -> Result<(), String> {
    let case = Case::new(64, 6144);
    cold_of(context, &case)?;
    cold_of(context, &BackwardCase::of(Case { rstd: false, ..case }))?;
    cold_of(context, &GateCase::new(64, 128))?;
    cold_of(context, &GateBackwardCase::new(64, 128))
}

fn cold_of<C: Subject>(context: &Context, case: &C) -> Result<(), String> {
    let setup = Setup::new(case, &context.target, context.seed).map_err(text)?;
    let stream = setup.lane.stream().ok_or("needs a GPU")?;
    let plan = context.target.plan::<C::Op>(&case.spec()).map_err(text)?;
    let (_, captured) = Graph::capture(stream, || setup.queue(&plan))?;
    match captured {
        Err(Error::WarmUpNeeded { .. }) => {}
        Err(other) => return Err(format!("expected Error::WarmUpNeeded, got {other}")),
        Ok(()) => return Err("a capture without warm-up was not refused".into()),
    }
    nothing_written(&setup)?;
    setup.run(&plan).map_err(|error| format!("after the refused capture: {error}"))?;
    setup.expect_canonical()?;
    setup.reset().map_err(text)?;
    let (graph, captured) = Graph::capture(stream, || setup.queue(&plan))?;
    captured.map_err(text)?;
    graph?.launch(stream)?;
    setup.expect_canonical()
}

/// Every program: captured once, replayed with new data in the same memory.
fn replays(context: &Context) -> ByProgram {
    let mut results = ByProgram::default();
    for form in Form::COMMON {
        for width in [128, 1000, 6144] {
            let case = Case::new(300, width).form(form);
            results = results.merge(replay(context, &BackwardCase::of(case.clone())));
            results = results.merge(replay(context, &case));
        }
    }
    results
}

fn gate_replays(context: &Context) -> ByProgram {
    let mut results = ByProgram::default();
    for form in GateForm::ALL {
        for width in [128, 1000] {
            let case = GateCase { form, ..GateCase::new(300, width) };
            results = results.merge(replay(context, &case));
            results = results.merge(replay(context, &GateBackwardCase::of(case)));
        }
    }
    results
}

fn replay<C: Subject>(context: &Context, case: &C) -> ByProgram {
    each_program(context, CHECK, case, |_, way| {
        let mut setup = Setup::new(case, &context.target, context.seed).map_err(text)?;
        way.plan.warm_up().map_err(text)?;
        let graph = {
            let stream = setup.lane.stream().ok_or("needs a GPU")?;
            let (graph, captured) = Graph::capture(stream, || setup.queue(&way.plan))?;
            captured.map_err(text)?;
            graph?
        };
        nothing_written(&setup)?;
        for round in 0..10 {
            let mut other = case.clone();
            other.norm_mut().values = [Values::Normal, Values::Large, Values::NotNumbers][round % 3];
            setup.replace(other.expected(context.seed + round as u64)).map_err(text)?;
            graph.launch(setup.lane.stream().ok_or("needs a GPU")?)?;
            setup.expect_canonical().map_err(|error| format!("replay {round}: {error}"))?;
        }
        Ok(())
    })
}

/// A forward that launches nothing, and a backward that writes zeros.
fn no_rows(context: &Context) -> Result<(), String> {
    let case = Case::new(0, 6144);
    no_rows_of(context, &case)?;
    no_rows_of(context, &BackwardCase::of(case))?;
    no_rows_of(context, &GateCase::new(0, 128))?;
    no_rows_of(context, &GateBackwardCase::new(0, 128))
}

fn no_rows_of<C: Subject>(context: &Context, case: &C) -> Result<(), String> {
    let setup = Setup::new(case, &context.target, context.seed).map_err(text)?;
    let stream = setup.lane.stream().ok_or("needs a GPU")?;
    let plan = context.target.plan::<C::Op>(&case.spec()).map_err(text)?;
    plan.warm_up().map_err(text)?;
    let (graph, captured) = Graph::capture(stream, || setup.queue(&plan))?;
    captured.map_err(text)?;
    graph?.launch(stream)?;
    setup.expect_canonical()
}

fn nothing_written(setup: &Setup<impl Subject>) -> Result<(), String> {
    let outputs = setup.outputs().map_err(text)?;
    setup.writes(outputs).first().map_or(Ok(()), |difference| Err(format!("before any launch: {difference}")))
}

fn text(error: Error) -> String {
    error.to_string()
}
