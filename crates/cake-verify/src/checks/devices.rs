//! Two GPUs in one process: each call works on its own device whatever is current, and mixed arguments are refused.

use cake_core::{Device, Error, Place, Plan};

use super::{Context, Task};
use crate::cases::gate::GateBackwardCase;
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::call::Arguments;
use crate::engine::driver::{Current, current_context};
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::engine::target::Target;
use crate::report::Tally;

const CHECK: &str = "devices";

/// One task.
pub fn tasks() -> [Task; 1] {
    let judge = |context: &Context| {
        let mut tally = Tally::default();
        match other_device(context) {
            Ok(other) => tally.judge_result(CHECK, "two devices", interleave(context, other)),
            Err(reason) => tally.skip(CHECK, format!("devices: {reason}")),
        }
        tally
    };
    [Task::new("devices", "a call runs on the current device instead of its tensors'", judge).device()]
}

fn other_device(context: &Context) -> Result<Device, String> {
    let own = context.target.device().ok_or("needs a GPU")?.info().ordinal;
    let count = Device::count().map_err(text)?;
    let other = (0..count).find(|&ordinal| ordinal != own).ok_or("needs a second GPU, one is here")?;
    Device::new(other).map_err(text)
}

fn interleave(context: &Context, other: Device) -> Result<(), String> {
    let first = context.target.device().ok_or("needs a GPU")?.clone();
    let _current = Current::primary(&first)?;
    let before = current_context(&first)?;
    let case = Case::new(33, 6144).form(Form::COMMON[1]);
    let targets = [Target::Cuda(first), Target::Cuda(other)];
    take_turns(&BackwardCase::of(Case { rstd: false, ..case.clone() }), &targets, context.seed)?;
    take_turns(&GateBackwardCase::new(33, 128), &targets, context.seed)?;
    let (setups, plans) = take_turns(&case, &targets, context.seed)?;
    // Tensors of one device, a plan or a stream of the other; then one tensor of the other among the rest.
    let place = targets[0].place();
    match setups[1].call().run(&plans[0], &setups[0].lane) {
        Err(Error::Place { argument: "x", expected, .. }) if expected == place => {}
        result => return Err(format!("tensors of another device: {result:?}")),
    }
    match setups[0].call().run(&plans[0], &setups[1].lane) {
        Err(Error::Place { argument: "stream", expected: Place::Cuda(_), .. }) => {}
        result => return Err(format!("a stream of another device: {result:?}")),
    }
    let mut mixed = setups[0].call();
    mixed.weight = setups[1].call().weight;
    match mixed.run(&plans[0], &setups[0].lane) {
        Err(Error::Place { argument: "weight", .. }) => {}
        result => return Err(format!("a weight of another device: {result:?}")),
    }
    match current_context(targets[0].device().ok_or("needs a GPU")?)? == before {
        true => Ok(()),
        false => Err("another context is current after the calls".into()),
    }
}

/// A call on each device in turns; its setups and plans.
#[allow(clippy::type_complexity)] // setups and plans
fn take_turns<C: Subject>(
    case: &C,
    targets: &[Target],
    seed: u64,
) -> Result<(Vec<Setup<C>>, Vec<Plan<C::Op>>), String> {
    let setups = targets.iter().map(|target| Setup::new(case, target, seed).map_err(text));
    let setups: Vec<Setup<C>> = setups.collect::<Result<_, _>>()?;
    let plans = targets.iter().map(|target| target.plan(&case.spec()).map_err(text)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..3 {
        for (setup, plan) in setups.iter().zip(&plans) {
            setup.reset().map_err(text)?;
            setup.queue(plan).map_err(text)?;
        }
        setups.iter().try_for_each(Setup::expect_canonical)?;
    }
    Ok((setups, plans))
}

fn text(error: Error) -> String {
    error.to_string()
}
