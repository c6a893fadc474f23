//! The same call gives the same bits, again and again, while the device is busy with other work.

use cake_core::{Buffer, Error, Result, Stream};

use super::{Context, Task};
use crate::cases::gate::{GateBackwardCase, GateCase, GateForm};
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::call::Arguments;
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::report::Tally;

const CHECK: &str = "repeats";

/// Tasks for each width.
pub fn tasks() -> impl Iterator<Item = Task> {
    const WHY: &str = "a race between warps or CTAs shows in some runs only";
    let forward = [(128, 4099), (2048, 1031), (6144, 517), (16384, 257)].map(|(width, rows)| {
        Task::new(format!("repeats/h{width}"), WHY, move |context| {
            judge(context, Form::COMMON.map(|form| Case::new(context.profile.pick(rows / 16, rows), width).form(form)))
        })
    });
    // More chunks than CTAs, so that sums wait and meet.
    let backward = [(128, 70_001), (1000, 9001), (2048, 4099), (6144, 2053), (16384, 515)].map(|(width, rows)| {
        Task::new(format!("repeats/backward_h{width}"), WHY, move |context| {
            let rows = context.profile.pick(rows / 4, rows);
            judge(context, Form::COMMON.map(|form| BackwardCase::of(Case::new(rows, width).form(form))))
        })
    });
    let gates = [(64, 140_003), (128, 70_001), (512, 17_001), (1000, 9001)].map(|(width, rows)| {
        Task::new(format!("repeats/gate_h{width}"), WHY, move |context| {
            let rows = context.profile.pick(rows / 4, rows);
            let forms = || GateForm::ALL.into_iter().map(|form| GateCase { form, ..GateCase::new(rows, width) });
            let forward = judge(context, forms());
            forward.merge(judge(context, forms().map(GateBackwardCase::of)))
        })
    });
    let why = "sums of a larger call are taken for those of a smaller one, or the header does not rest";
    let workspaces = Task::new("repeats/workspaces", why, |context| {
        let mut tally = Tally::default();
        for width in [128, 1000] {
            let gate = |rows| GateBackwardCase::new(rows, width);
            tally.judge_result(CHECK, &format!("gate h{width}"), one_workspace(context, gate));
        }
        for width in [128, 1000, 6144] {
            let norm = |rows| BackwardCase::of(Case { rstd: false, ..Case::new(rows, width) });
            tally.judge_result(CHECK, &format!("h{width}"), one_workspace(context, norm));
        }
        tally
    });
    forward.into_iter().chain(backward).chain(gates).chain([workspaces.device()])
}

fn judge<C: Subject>(context: &Context, cases: impl IntoIterator<Item = C>) -> Tally {
    let mut tally = Tally::default();
    for case in cases {
        tally.judge_result(CHECK, &case.to_string(), repeat(context, &case));
    }
    tally
}

/// Calls of many and of few rows take turns on one workspace, which nobody sets in between.
fn one_workspace<C: Subject>(context: &Context, of_rows: impl Fn(u64) -> C) -> Result<(), String> {
    let setup = |rows| Setup::new(&of_rows(rows), &context.target, context.seed + rows).map_err(text);
    let (many, others) = (setup(4099)?, [setup(3)?, setup(517)?, setup(1031)?]);
    let spec = many.case.spec();
    for way in context.target.plans::<C::Op>(&spec).map_err(text)?.iter() {
        if way.obstacle(&spec, many.shape().map_err(text)?).is_some() {
            continue;
        }
        many.reset().map_err(text)?; // another program may have been lent more
        for few in others.iter().chain(&others) {
            many.run(&way.plan).map_err(text)?;
            few.lane.synchronize().map_err(text)?;
            few.call_in(&many, &way.plan).run(&way.plan, &many.lane).map_err(text)?;
            for setup in [few, &many] {
                setup.expect_canonical().map_err(|problem| format!("{}: {problem}", way.name))?;
            }
        }
    }
    Ok(())
}

fn repeat<C: Subject>(context: &Context, case: &C) -> Result<(), String> {
    let spec = case.spec();
    let setup = Setup::new(case, &context.target, context.seed).map_err(text)?;
    let disturbance = Disturbance::new(context).map_err(text)?;
    for way in context.target.plans::<C::Op>(&spec).map_err(text)?.iter() {
        if way.obstacle(&spec, setup.shape().map_err(text)?).is_some() {
            continue;
        }
        for round in 0..context.profile.pick(3, 50) {
            setup.reset().map_err(text)?;
            disturbance.start().map_err(text)?;
            setup.run(&way.plan).map_err(text)?;
            let outputs = setup.outputs().map_err(text)?;
            if let Some(difference) = setup.differences(outputs).first() {
                return Err(format!("{} round {round}: {difference}", way.name));
            }
        }
    }
    Ok(())
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
