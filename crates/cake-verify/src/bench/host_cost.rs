//! Host time of a call: what the thread that queues it spends, from Rust.
//!
//! Calls are timed one by one, in batches that fit into the launch queue with room to spare: a full queue would make
//! the host wait for the device, and that is another quantity.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use cake_core::Dtype;
use cake_rmsnorm::{Backward, BackwardPlan, BackwardSpec, ForwardPlan};

use super::driver::Gpu;
use super::measure::workspace;
use super::record::HostCost;
use super::rows::{Calls, Row};
use super::tensors::Tensors;
use super::times::{Summary, Times};
use crate::cases::Form;

/// Calls of each kind.
pub const CALLS: u32 = 20_000;

/// Calls between two waits. The queue holds about a thousand.
const BATCH: u32 = 200;

/// Shape of the calls: one that the device finishes about as fast as the host can ask for it.
const ROWS: u32 = 16;
const WIDTH: u32 = 2048;

/// A kind of call.
struct Kind {
    name: &'static str,
    calls: Calls,
    form: Form,
    /// Whether the forward is asked for `rstd`.
    rstd: bool,
    /// Of the backward.
    max_sms: Option<u32>,
}

const PLAIN: Kind = Kind { name: "plain", calls: Calls::Forward, form: Form::COMMON[0], rstd: false, max_sms: None };

const KINDS: [Kind; 7] = [
    PLAIN,
    Kind { name: "rstd", rstd: true, ..PLAIN },
    Kind { name: "residual", form: Form::COMMON[1], rstd: true, ..PLAIN },
    Kind { name: "fp32 weight", form: Form { weight: Some(Dtype::F32), ..Form::COMMON[0] }, rstd: true, ..PLAIN },
    Kind { name: "backward", calls: Calls::Backward, ..PLAIN },
    Kind { name: "backward+res", calls: Calls::Backward, form: Form::COMMON[1], ..PLAIN },
    // Any limit takes the program for many rows: a workspace, and CTAs that are launched together.
    Kind { name: "backward max_sms", calls: Calls::Backward, max_sms: Some(u32::MAX), ..PLAIN },
];

/// What is timed of each kind.
const PARTS: [&str; 3] = ["views and run", "views", "run"];

/// A call that takes its own time.
type Timed<'c> = &'c mut dyn FnMut() -> Result<Duration>;

const CLOCK: &str = "the clock itself";
const LAUNCH: &str = "cuLaunchKernel of an empty kernel";

/// Every name of a figure.
pub fn names() -> Vec<String> {
    let kinds = KINDS.iter().flat_map(|kind| PARTS.map(|part| name(kind, part)));
    [CLOCK.into(), LAUNCH.into()].into_iter().chain(kinds).collect()
}

fn name(kind: &Kind, part: &str) -> String {
    format!("{}: {part}", kind.name)
}

/// Measures everything, and hands each figure over as soon as it is there.
pub fn measure(gpu: &Gpu, seed: u64, mut found: impl FnMut(HostCost)) -> Result<()> {
    let mut add = |name: String, call: Timed<'_>| -> Result<()> {
        let ns = times(gpu, call).with_context(|| name.clone())?;
        found(HostCost { call: name, ns });
        Ok(())
    };
    add(CLOCK.into(), &mut || Ok(timed(|| ()).0))?;
    add(LAUNCH.into(), &mut || checked(timed(|| gpu.launch_empty())))?;
    let stream = gpu.stream();
    for kind in &KINDS {
        let row = Row { calls: kind.calls, ..Row::new("", kind.form, WIDTH, vec![ROWS.into()]) };
        let tensors = Tensors::new(gpu, &row, seed)?;
        if let (Some(call), Some(full)) = (tensors.forward(kind.rstd), tensors.forward(true)) {
            let plan = ForwardPlan::new(gpu.device(), row.spec)?;
            right(kind, tensors.check(gpu, &mut || Ok(plan.run(stream, full.views()?)?))?)?;
            parts(kind, &mut add, &|| black_box(&call).views(), &mut |views| plan.run(stream, views))?;
        }
        if let (Some(call), Some(spec)) = (tensors.backward(), row.backward()) {
            let plan = BackwardPlan::new(gpu.device(), BackwardSpec { max_sms: kind.max_sms, ..spec })?;
            let mut workspace = workspace(gpu, &plan, ROWS)?;
            let mut run = |views| plan.run(stream, Backward { workspace: workspace.as_mut(), ..views });
            right(kind, tensors.check(gpu, &mut || Ok(run(call.views()?)?))?)?;
            parts(kind, &mut add, &|| black_box(&call).views(), &mut run)?;
        }
    }
    Ok(())
}

fn right(kind: &Kind, difference: Option<String>) -> Result<()> {
    difference.map_or(Ok(()), |wrong| bail!("{}: wrong answer: {wrong}", kind.name))
}

/// Measures a call, its views, and the run with views that exist.
fn parts<V>(
    kind: &Kind,
    add: &mut impl FnMut(String, Timed<'_>) -> Result<()>,
    views: &dyn Fn() -> cake_core::Result<V>,
    run: &mut dyn FnMut(V) -> cake_core::Result<()>,
) -> Result<()> {
    let [both, alone, rest] = PARTS.map(|part| name(kind, part));
    add(both, &mut || checked(timed(|| run(views()?))))?;
    add(alone, &mut || checked(timed(views)))?;
    add(rest, &mut || {
        let views = black_box(views()?);
        checked(timed(|| run(views)))
    })
}

/// Repeats a call; the first batch does not count.
fn times(gpu: &Gpu, call: Timed<'_>) -> Result<Summary> {
    let mut times = Times::new();
    for batch in 0..=CALLS / BATCH {
        for _ in 0..BATCH {
            let time = call()?;
            if batch > 0 {
                times.record(time.as_nanos() as u64);
            }
        }
        gpu.stream().synchronize()?;
    }
    Ok(times.summary())
}

/// How long some work takes, and what it returns, which the compiler may not foresee.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begin = Instant::now();
    let returned = black_box(work());
    (begin.elapsed(), returned)
}

/// The time of what did not fail.
fn checked<T, E: Into<anyhow::Error>>((time, returned): (Duration, Result<T, E>)) -> Result<Duration> {
    returned.map(|_| time).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_stand_in_csv_as_they_are() {
        let names = names();
        assert!(names.iter().all(|name| !name.contains([',', '"'])), "{names:?}");
        assert!((1..names.len()).all(|i| !names[..i].contains(&names[i])), "{names:?}");
    }

    #[test]
    fn batches_are_whole() {
        assert_eq!(CALLS % BATCH, 0);
    }

    #[test]
    fn failures_are_not_times() {
        assert!(checked(timed(|| Err::<(), _>(anyhow::anyhow!("no")))).is_err());
        assert!(checked(timed(|| Ok::<_, anyhow::Error>(1))).is_ok());
    }
}
