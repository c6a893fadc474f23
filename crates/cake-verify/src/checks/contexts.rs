//! The thread's current context is the same before and after each call, also one that fails, and the primary context is
//! the one that is used.

use super::{Context, Task};
use crate::cases::gate::GateBackwardCase;
use crate::cases::{BackwardCase, Case};
use crate::engine::call::Arguments;
use crate::engine::driver::{Current, current_context};
use crate::engine::setup::Setup;
use crate::report::Tally;

const CHECK: &str = "contexts";

/// One task.
pub fn tasks() -> [Task; 1] {
    let judge = |context: &Context| {
        let mut tally = Tally::default();
        tally.judge_result(CHECK, "no context current", on_a_fresh_thread(context, false));
        tally.judge_result(CHECK, "primary context current", on_a_fresh_thread(context, true));
        tally
    };
    [Task::new("contexts", "a context is left current, and other libraries work on the wrong device", judge)
        .device()
        .alone()]
}

fn on_a_fresh_thread(context: &Context, primary: bool) -> Result<(), String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let device = context.target.device().ok_or("needs a GPU")?;
            let _current = primary.then(|| Current::primary(device)).transpose()?;
            calls(context)
        });
        thread.join().map_err(|_| "the thread panicked".to_string())?
    })
}

fn calls(context: &Context) -> Result<(), String> {
    let device = context.target.device().ok_or("needs a GPU")?;
    let before = current_context(device)?;
    let unchanged = |what: &str| match current_context(device)? == before {
        true => Ok(()),
        false => Err(format!("another context is current after {what}")),
    };
    let text = |error: cake_core::Error| error.to_string();
    let setup = Setup::new(&Case::new(3, 128), &context.target, context.seed).map_err(text)?;
    unchanged("allocations and copies")?;
    let plan = context.target.plan(&setup.case.spec).map_err(text)?;
    plan.warm_up().map_err(text)?;
    unchanged("warm_up")?;
    setup.run(&plan).map_err(text)?;
    unchanged("a call")?;
    let case = BackwardCase::of(Case { rstd: false, ..setup.case.clone() });
    let backward = Setup::new(&case, &context.target, context.seed).map_err(text)?;
    backward.run(&context.target.plan(&case.spec()).map_err(text)?).map_err(text)?;
    unchanged("a call with a workspace")?;
    let gate = Setup::new(&GateBackwardCase::new(3, 128), &context.target, context.seed).map_err(text)?;
    gate.run(&context.target.plan(&gate.case.spec()).map_err(text)?).map_err(text)?;
    unchanged("a gated call")?;
    let mut bad = setup.call();
    bad.eps = -1.0;
    if bad.run(&plan, &setup.lane).is_ok() {
        return Err("a negative eps was not refused".into());
    }
    unchanged("a refused call")?;
    if let Ok(buffer) = cake_core::Buffer::new(device, 1 << 60) {
        return Err(format!("{} bytes were allocated", buffer.bytes()));
    }
    unchanged("a failed allocation")?;
    drop(setup);
    unchanged("drops")
}
