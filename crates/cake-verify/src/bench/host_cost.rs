//! Host time of a call: what the thread that queues it spends, from Rust.
//!
//! Calls are timed one by one, in batches that fit into the launch queue with room to spare: a full queue would make
//! the host wait for the device, and that is another quantity.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use cake_core::Dtype;
use cake_rmsnorm::ForwardPlan;

use super::driver::Gpu;
use super::record::HostCost;
use super::rows::Row;
use super::tensors::Tensors;
use super::times::{Summary, Times};
use crate::cases::Form;

/// Calls of each kind.
pub const CALLS: u32 = 20_000;

/// Calls between two waits. The queue holds about a thousand.
const BATCH: u32 = 200;

/// Shape of the calls: one that the device finishes about as fast as the host can ask for it.
const ROWS: u64 = 16;
const WIDTH: u32 = 2048;

/// A kind of call.
struct Kind {
    name: &'static str,
    form: Form,
    rstd: bool,
}

const KINDS: [Kind; 4] = [
    Kind { name: "plain", form: Form::COMMON[0], rstd: false },
    Kind { name: "rstd", form: Form::COMMON[0], rstd: true },
    Kind { name: "residual", form: Form::COMMON[1], rstd: true },
    Kind { name: "fp32 weight", form: Form { weight: Some(Dtype::F32), ..Form::COMMON[0] }, rstd: true },
];

/// What is timed of each kind.
const PARTS: [&str; 3] = ["views and run", "views", "run"];

const CLOCK: &str = "the clock itself";
const LAUNCH: &str = "cuLaunchKernel, empty kernel";

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
    let mut add = |name: String, call: &dyn Fn() -> Result<Duration>| -> Result<()> {
        let ns = times(gpu, call).with_context(|| name.clone())?;
        found(HostCost { call: name, ns });
        Ok(())
    };
    add(CLOCK.into(), &|| Ok(timed(|| ()).0))?;
    add(LAUNCH.into(), &|| checked(timed(|| gpu.launch_empty())))?;
    for kind in &KINDS {
        let row = Row::new("", kind.form, WIDTH, vec![ROWS]);
        let tensors = Tensors::new(gpu, &row, seed)?;
        let plan = ForwardPlan::new(gpu.device(), row.spec)?;
        if let Some(wrong) = tensors.check(gpu, &plan)? {
            anyhow::bail!("{}: wrong answer: {wrong}", kind.name);
        }
        let (call, stream) = (tensors.call(kind.rstd), gpu.stream());
        let [both, views, run] = PARTS.map(|part| name(kind, part));
        add(both, &|| checked(timed(|| plan.run(stream, black_box(&call).views()?))))?;
        add(views, &|| checked(timed(|| black_box(&call).views())))?;
        add(run, &|| {
            let views = black_box(call.views()?);
            checked(timed(|| plan.run(stream, views)))
        })?;
    }
    Ok(())
}

/// Repeats a call; the first batch does not count.
fn times(gpu: &Gpu, call: &dyn Fn() -> Result<Duration>) -> Result<Summary> {
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
    fn names_are_unique() {
        let names = names();
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
