//! The same call gives the same bits, again and again, while the device is busy with other work.

use cake_core::{Buffer, Result, Stream};

use super::{Context, Task};
use crate::cases::{Case, Form};
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::report::Tally;

const CHECK: &str = "repeats";

/// A task for each width.
pub fn tasks() -> impl Iterator<Item = Task> {
    const WHY: &str = "a race between warps or CTAs shows in some runs only";
    [(128, 4099), (2048, 1031), (6144, 517), (16384, 257)].into_iter().map(|(width, rows)| {
        Task::new(format!("repeats/h{width}"), WHY, move |context| {
            let mut tally = Tally::default();
            for form in Form::COMMON {
                let case = Case::new(context.profile.pick(rows / 16, rows), width).form(form);
                tally.judge_result(CHECK, &case.to_string(), repeat(context, &case));
            }
            tally
        })
    })
}

fn repeat<C: Subject>(context: &Context, case: &C) -> Result<(), String> {
    let text = |error: cake_core::Error| error.to_string();
    let setup = Setup::new(case, &context.target, context.seed).map_err(text)?;
    let disturbance = Disturbance::new(context).map_err(text)?;
    for way in context.target.plans::<C::Op>(&case.spec()).map_err(text)?.iter() {
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
