//! The same call gives the same bits, again and again, while the device is busy with other work.

use cake_core::{Buffer, Error, Result, Stream};

use super::operator::Operator;
use super::{Context, Task, each_program};
use crate::cases::gate::{GateBackwardCase, GateCase, GateForm};
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::call::Arguments;
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::report::ByProgram;

const CHECK: &str = "repeats";

/// Tasks for each width.
pub fn tasks() -> impl Iterator<Item = Task> {
    const WHY: &str = "a race between warps or CTAs shows in some runs only";
    let forward = [(128, 4099), (2048, 1031), (6144, 517), (16384, 257)].map(|(width, rows)| {
        Task::by_program(format!("repeats/h{width}"), WHY, move |context| {
            judge(context, Form::COMMON.map(|form| Case::new(context.profile.pick(rows / 16, rows), width).form(form)))
        })
    });
    // More chunks than CTAs, so that sums wait and meet.
    let backward = [(128, 70_001), (1000, 9001), (2048, 4099), (6144, 2053), (16384, 515)].map(|(width, rows)| {
        Task::by_program(format!("repeats/backward_h{width}"), WHY, move |context| {
            let rows = context.profile.pick(rows / 4, rows);
            judge(context, Form::COMMON.map(|form| BackwardCase::of(Case::new(rows, width).form(form))))
        })
    });
    let gates = [(64, 140_003), (128, 70_001), (512, 17_001), (1000, 9001)].map(|(width, rows)| {
        Task::by_program(format!("repeats/gate_h{width}"), WHY, move |context| {
            let rows = context.profile.pick(rows / 4, rows);
            let forms = || GateForm::ALL.into_iter().map(|form| GateCase { form, ..GateCase::new(rows, width) });
            let forward = judge(context, forms());
            forward.merge(judge(context, forms().map(GateBackwardCase::of)))
        })
    });
    let why = "sums of a larger call are taken for those of a smaller one, or the header does not rest";
    let norms = Task::by_program("repeats/workspaces", why, |context| {
        let norm = |rows, width| BackwardCase::of(Case { rstd: false, ..Case::new(rows, width) });
        merged([128, 1000, 6144].map(|width| one_workspace(context, |rows| norm(rows, width))))
    });
    let gated = Task::by_program("repeats/gate_workspaces", why, |context| {
        merged([128, 1000].map(|width| one_workspace(context, |rows| GateBackwardCase::new(rows, width))))
    });
    let norms = forward.into_iter().chain(backward).chain([norms.device()]).map(|task| task.of(Operator::Rmsnorm));
    norms.chain(gates.into_iter().chain([gated.device()]).map(|task| task.of(Operator::SiluGate)))
}

fn judge<C: Subject>(context: &Context, cases: impl IntoIterator<Item = C>) -> ByProgram {
    merged(cases.into_iter().map(|case| repeat(context, &case)))
}

fn merged(results: impl IntoIterator<Item = ByProgram>) -> ByProgram {
    results.into_iter().fold(ByProgram::default(), ByProgram::merge)
}

/// Calls of many and of few rows take turns on one workspace, which nobody sets in between.
fn one_workspace<C: Subject>(context: &Context, of_rows: impl Fn(u64) -> C) -> ByProgram {
    each_program(context, CHECK, &of_rows(4099), |many, way| {
        let setup = |rows| Setup::new(&of_rows(rows), &context.target, context.seed + rows).map_err(text);
        let others = [setup(3)?, setup(517)?, setup(1031)?];
        many.reset().map_err(text)?; // another program may have been lent more
        for few in others.iter().chain(&others) {
            many.run(&way.plan).map_err(text)?;
            few.lane.synchronize().map_err(text)?;
            few.call_in(many, &way.plan).run(&way.plan, &many.lane).map_err(text)?;
            [few, many].into_iter().try_for_each(Setup::expect_canonical)?;
        }
        Ok(())
    })
}

fn repeat<C: Subject>(context: &Context, case: &C) -> ByProgram {
    let disturbance = Disturbance::new(context);
    each_program(context, CHECK, case, |setup, way| {
        let disturbance = disturbance.as_ref().map_err(ToString::to_string)?;
        for round in 0..context.profile.pick(3, 50) {
            setup.reset().map_err(text)?;
            disturbance.start().map_err(text)?;
            setup.run(&way.plan).map_err(text)?;
            let outputs = setup.outputs().map_err(text)?;
            if let Some(difference) = setup.differences(outputs).first() {
                return Err(format!("round {round}: {difference}"));
            }
        }
        Ok(())
    })
}

/// Work that fills the memory system on another stream. Nothing on the host.
struct Disturbance(Option<(Stream, Buffer)>);

impl Disturbance {
    fn new(context: &Context) -> Result<Disturbance> {
        let Some(device) = context.target.device() else { return Ok(Disturbance(None)) };
        Ok(Disturbance(Some((Stream::new(device)?, Buffer::new(device, 256 << 20)?))))
    }

    fn start(&self) -> Result<()> {
        match &self.0 {
            Some((stream, buffer)) => (0..3).try_for_each(|i| buffer.fill(stream, i)),
            None => Ok(()),
        }
    }
}

fn text(error: Error) -> String {
    error.to_string()
}
