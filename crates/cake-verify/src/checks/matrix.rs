//! Each case of a group, by the routed plan and by every program that can serve it: bits, surroundings, accuracy.

use cake_core::{Dtype, Error, Result};
use rayon::prelude::*;

use super::{Context, Task};
use crate::bounds::{self, Allowed};
use crate::cases::Case;
use crate::cases::groups::{Group, Profile};
use crate::engine::compare::{shown, value};
use crate::engine::setup::{Outputs, Setup};
use crate::engine::target::{Target, Way};
use crate::reference::number::{Format, ulps};
use crate::reference::rmsnorm::{self, Weight};
use crate::report::Tally;

/// A task that judges a group.
pub fn task(group: Group) -> Task {
    let (name, steps) = (group.name.clone(), group.cases.len());
    let run = move |context: &Context| {
        let judge = |case: &Case| {
            let tally = judge(case, &context.target, context.seed, accuracy_elements(context.profile), group.forced);
            context.step();
            tally
        };
        // Large cases one after the other, so that memory holds them.
        let (small, large): (Vec<&Case>, Vec<&Case>) = group.cases.iter().partition(|case| case.elements() < 1 << 26);
        let small = small.into_par_iter().map(judge).reduce(Tally::default, Tally::merge);
        large.into_iter().map(judge).fold(small, Tally::merge)
    };
    Task::new(name, group.why, run).steps(steps)
}

/// Elements of a case that MPFR looks at: a microsecond each.
fn accuracy_elements(profile: Profile) -> usize {
    profile.pick(1024, 16384)
}

/// Judges one case, by every program that can serve it if `forced`.
pub fn judge(case: &Case, target: &Target, seed: u64, accuracy_elements: usize, forced: bool) -> Tally {
    let mut tally = Tally::default();
    if let Err(error) = judge_into(&mut tally, case, target, seed, accuracy_elements, forced) {
        tally.judge("bits", Some(format!("{case}: {error}")));
    }
    tally
}

fn judge_into(
    tally: &mut Tally,
    case: &Case,
    target: &Target,
    seed: u64,
    accuracy_elements: usize,
    forced: bool,
) -> Result<()> {
    let setup = Setup::new(case, target, seed)?;
    let vectors = setup.allows_vectors()?;
    let plans = target.plans(&case.spec)?;
    let ways = if forced { &plans[..] } else { &plans[..1] };
    for (i, way) in ways.iter().enumerate() {
        if i > 0 {
            setup.reset()?;
        }
        let what = || format!("[{case}] {}", way.name);
        let result = setup.call().run(&way.plan, &setup.lane);
        let outputs = setup.outputs()?;
        if case.rows() > 0 && !vectors && way.needs_vectors(&case.spec) {
            tally.judge(
                "surroundings",
                refused(way, result, &setup, outputs).map(|problem| format!("{}: {problem}", what())),
            );
            continue;
        }
        if let Err(error) = result {
            tally.judge("bits", Some(format!("{}: {error}", what())));
            continue;
        }
        if i == 0 {
            accuracy(tally, &setup, &outputs, accuracy_elements);
        }
        let differences = setup.differences(outputs);
        let (outside, inside): (Vec<_>, Vec<_>) =
            differences.into_iter().partition(|difference| difference.first.starts_with("outside"));
        tally.judge("bits", inside.first().map(|difference| format!("{}: {difference}", what())));
        tally.judge("surroundings", outside.first().map(|difference| format!("{}: {difference}", what())));
    }
    let changed = setup.input_changes()?;
    tally.judge("surroundings", changed.first().map(|change| format!("[{case}] input {change}")));
    Ok(())
}

/// What is wrong with the refusal of a call that a forced program cannot serve.
fn refused(way: &Way, result: Result<()>, setup: &Setup, outputs: Outputs) -> Option<String> {
    match result {
        Err(Error::Program { name, .. }) if name == way.name => {}
        Err(other) => return Some(format!("expected Error::Program, got {other}")),
        Ok(()) => return Some("served a layout without vectors".into()),
    }
    setup.writes(outputs).first().map(|difference| format!("refused, but wrote {difference}"))
}

/// Judges `h`, `rstd` and `y` of some rows against MPFR.
fn accuracy(tally: &mut Tally, setup: &Setup, outputs: &Outputs, elements: usize) {
    let (case, width) = (&setup.case, setup.case.spec.width as usize);
    let f32_weight = setup.expected.weight.clone();
    let narrow: Vec<u16> = f32_weight.iter().flatten().map(|bits| (bits >> 16) as u16).collect();
    let weight = match (case.spec.weight, &f32_weight) {
        (Some(Dtype::F32), Some(bits)) => Weight::F32(bits),
        (Some(_), _) => Weight::Bf16(&narrow),
        (None, _) => Weight::None,
    };
    let columns = columns_to_look_at(width, elements);
    for row in rows_to_look_at(case, (elements / width).max(1)) {
        let inputs = setup.expected.row(row);
        // Where something may overflow or vanish, a distance from the exact value says nothing.
        let mut ordinary = true;
        let (mut bad, mut first) = (0, None);
        let mut output = |name: &'static str, column: usize, dtype, allowed: Allowed, exact: &rug::Float| {
            let Some(bits) = setup.bits(outputs, name, row, column) else { return };
            let actual = f64::from(value(dtype, bits));
            let format = if dtype == Dtype::F32 { Format::F32 } else { Format::Bf16 };
            let at = || {
                let (bits, exact) = (shown(dtype, bits), exact.to_f64());
                format!("[{case}] {name} row {row} column {column}: {bits}, exact {exact:e}")
            };
            if !allowed.holds(actual) {
                let Allowed { low, high, nan } = allowed;
                bad += 1;
                first.get_or_insert_with(|| format!("{}, allowed {low:e} to {high:e}, NaN {nan:?}", at()));
            }
            ordinary &= name != "rstd" || allowed.is_narrow(format);
            if ordinary && allowed.is_narrow(format) {
                tally.measure("accuracy", name, ulps(actual, exact, format), at);
            }
        };
        // The statistics are those of the stored h.
        let mut normalised = inputs.x.clone();
        if let Some(residual) = &inputs.residual {
            for &column in &columns {
                let exact = rmsnorm::h(inputs.x[column], residual[column]);
                output("h", column, Dtype::Bf16, bounds::h(&exact), &exact);
            }
            for (column, x) in normalised.iter_mut().enumerate() {
                *x = setup.bits(outputs, "h", row, column).unwrap_or_default() as u16;
            }
        }
        let statistics = rmsnorm::statistics(&normalised, case.eps);
        let rstd = bounds::rstd(&statistics, width, case.eps);
        output("rstd", 0, Dtype::F32, rstd.allowed(), &statistics.rstd);
        for &column in &columns {
            let (x, w) = (normalised[column], weight.effective(column, case.spec.offset));
            let exact = rmsnorm::y(x, &statistics.rstd, &w);
            output("y", column, Dtype::Bf16, bounds::y(x, &rstd, &w), &exact);
        }
        tally.judge("accuracy", first.map(|first| format!("{bad} elements of a row, first {first}")));
    }
}

/// All of a row, or so many that a fixed step finds, and the last ones.
fn columns_to_look_at(width: usize, most: usize) -> Vec<usize> {
    if width <= most {
        return (0..width).collect();
    }
    let stepped = (0..most - 32).map(|i| i * width / most);
    stepped.chain(width - 32..width).collect()
}

/// First, last, around the middle, then some that a fixed step finds.
fn rows_to_look_at(case: &Case, most: usize) -> Vec<usize> {
    let rows = case.rows() as usize;
    let chosen = [0, rows.wrapping_sub(1), rows / 2, rows / 3, 1, rows.wrapping_sub(2)];
    let stepped = (0..rows.min(64)).map(|i| i * 97 % rows.max(1));
    let mut looked_at = Vec::new();
    for row in chosen.into_iter().chain(stepped) {
        if row < rows && !looked_at.contains(&row) && looked_at.len() < most {
            looked_at.push(row);
        }
    }
    looked_at
}
