//! Each case of a group, by the routed plan and by every program that can serve it: bits, surroundings, accuracy.

use cake_core::{Error, Result};
use rayon::prelude::*;

use super::accuracy::Accuracy;
use super::operator::Operator;
use super::{Context, Task};
use crate::cases::groups::{Group, Profile};
use crate::engine::setup::{Outputs, Setup};
use crate::engine::target::{Target, Way};
use crate::report::ByProgram;

/// A task that judges a group.
pub fn task<C: Accuracy>(group: Group<C>) -> Task {
    let (name, steps) = (group.name.clone(), group.cases.len());
    let run = move |context: &Context| {
        let judge = |case: &C| {
            let results = judge(case, &context.target, context.seed, accuracy_elements(context.profile), group.forced);
            context.step();
            results
        };
        // Large cases one after the other, so that memory holds them.
        let (small, large): (Vec<&C>, Vec<&C>) = group.cases.iter().partition(|case| case.norm().elements() < 1 << 26);
        let small = small.into_par_iter().map(judge).reduce(ByProgram::default, ByProgram::merge);
        large.into_iter().map(judge).fold(small, ByProgram::merge)
    };
    Task::by_program(name, group.why, run).steps(steps).of(Operator::of::<C::Op>())
}

/// Elements of a case that MPFR looks at: a microsecond each.
fn accuracy_elements(profile: Profile) -> usize {
    profile.pick(1024, 4096)
}

/// Judges one case, by every program that can serve it if `forced`.
pub fn judge<C: Accuracy>(case: &C, target: &Target, seed: u64, accuracy_elements: usize, forced: bool) -> ByProgram {
    let mut results = ByProgram::default();
    if let Err(error) = judge_into(&mut results, case, target, seed, accuracy_elements, forced) {
        results.at(target.routed()).judge("bits", Some(format!("{case}: {error}")));
    }
    results
}

fn judge_into<C: Accuracy>(
    results: &mut ByProgram,
    case: &C,
    target: &Target,
    seed: u64,
    accuracy_elements: usize,
    forced: bool,
) -> Result<()> {
    let setup = Setup::new(case, target, seed)?;
    let (spec, shape) = (case.spec(), setup.shape()?);
    let plans = target.plans::<C::Op>(&spec)?;
    let ways = if forced { &plans[..] } else { &plans[..1] };
    for (i, way) in ways.iter().enumerate() {
        if i > 0 {
            setup.reset()?;
        }
        let tally = results.at(&way.name);
        let what = || format!("[{case}] {}", way.name);
        let result = setup.run(&way.plan);
        let outputs = setup.outputs()?;
        if way.obstacle(&spec, shape).is_some() {
            let problem = refused(way, result, &setup, outputs);
            tally.judge("surroundings", problem.map(|problem| format!("{}: {problem}", what())));
            continue;
        }
        if let Err(error) = result {
            tally.judge("bits", Some(format!("{}: {error}", what())));
            continue;
        }
        if i == 0 || case.unordered().is_some() {
            C::accuracy(tally, &setup, &outputs, accuracy_elements);
        }
        let differences = setup.differences(outputs);
        let (outside, inside): (Vec<_>, Vec<_>) =
            differences.into_iter().partition(|difference| difference.first.starts_with("outside"));
        tally.judge("bits", inside.first().map(|difference| format!("{}: {difference}", what())));
        tally.judge("surroundings", outside.first().map(|difference| format!("{}: {difference}", what())));
    }
    let changed = setup.input_changes()?;
    results.at(target.routed()).judge("surroundings", changed.first().map(|change| format!("[{case}] input {change}")));
    Ok(())
}

/// What is wrong with the refusal of a call that a forced program cannot serve.
fn refused<C: Accuracy>(way: &Way<C::Op>, result: Result<()>, setup: &Setup<C>, outputs: Outputs) -> Option<String> {
    match result {
        Err(Error::Program { name, .. }) if name == way.name => {}
        Err(other) => return Some(format!("expected Error::Program, got {other}")),
        Ok(()) => return Some("served a call that it cannot serve".into()),
    }
    setup.writes(outputs).first().map(|difference| format!("refused, but wrote {difference}"))
}
