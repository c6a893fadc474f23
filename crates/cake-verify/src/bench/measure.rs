//! One row: our programs, the copy and the empty kernel, checked and then timed in turns.

use anyhow::{Context as _, Result};
use cake_core::{Op, Shape};
use cake_rmsnorm::RmsNormForward;

use super::driver::Gpu;
use super::record::{Engine, Measured};
use super::rows::Row;
use super::sample::{Effort, Flush, Work, interleaved};
use super::tensors::Tensors;
use super::times::{Times, percent_of_copy, rate};
use super::{PROBE, Programs};
use crate::cases::random::DEFAULT_SEED;
use crate::engine::target::{Target, Way};

/// What a launch and two events cost.
pub fn probe(gpu: &Gpu, flush: &mut Flush, effort: Effort) -> Result<Vec<Measured>> {
    let work: [Work<'_>; 2] = [Box::new(|| Ok(())), Box::new(|| gpu.launch_empty())];
    let times = interleaved(gpu, flush, &work, effort)?;
    let measured = |(engine, times): (Engine, Times)| Measured {
        row: PROBE.into(),
        why: "what the events, and a launch between them, cost".into(),
        width: 0,
        rows: 0,
        engine,
        program: (engine == Engine::Empty).then(|| cake_kernels::probe::EMPTY.to_string()),
        ahead: 0,
        bytes: 0,
        ns: times.summary(),
        gb_per_s: None,
        percent_of_copy: None,
    };
    Ok([Engine::Nothing, Engine::Empty].into_iter().zip(times).map(measured).collect())
}

/// Ours, the copy and the empty kernel at one row. Programs with a wrong answer are named in `wrong` instead.
pub fn row(
    gpu: &Gpu,
    flush: &mut Flush,
    row: &Row,
    programs: Programs,
    effort: Effort,
    wrong: &mut Vec<String>,
) -> Result<Vec<Measured>> {
    let tensors = Tensors::new(gpu, row, DEFAULT_SEED)?;
    let vectors = tensors.allow_vectors()?;
    let shape = Shape { rows: u32::try_from(row.count()).unwrap_or(u32::MAX), vectors, in_place: false };
    let ways = Target::Cuda(gpu.device().clone()).plans(&row.spec)?;
    let wanted = |way: &&Way| match way.program {
        None => true,
        Some(_) => programs == Programs::All && way.obstacle(&row.spec, shape).is_none(),
    };
    let mut right: Vec<&Way> = Vec::new();
    for way in ways.iter().filter(wanted) {
        match tensors.check(gpu, &way.plan).with_context(|| way.name.clone())? {
            None => right.push(way),
            Some(difference) => wrong.push(format!("{row} {}: {difference}", way.name)),
        }
    }

    let call = tensors.call(true);
    let mut work: Vec<Work<'_>> = Vec::new();
    for way in &right {
        work.push(Box::new(|| Ok(way.plan.run(gpu.stream(), call.views()?)?)));
    }
    work.push(Box::new(|| tensors.copy(gpu)));
    work.push(Box::new(|| gpu.launch_empty()));
    let times = interleaved(gpu, flush, &work, effort)?;

    let copy = times[right.len()].summary().p50;
    let ours = right.iter().map(|way| ours(gpu, row, way, vectors));
    let others = [(Engine::Copy, None, 0), (Engine::Empty, None, 0)];
    let measured = |((engine, program, ahead), times): ((Engine, Option<String>, u32), Times)| {
        let ns = times.summary();
        let (moves, compared) = (engine != Engine::Empty, !matches!(engine, Engine::Empty | Engine::Copy));
        Measured {
            row: row.to_string(),
            why: row.why.into(),
            width: row.spec.width,
            rows: row.count(),
            engine,
            program,
            ahead,
            bytes: row.bytes(),
            ns,
            gb_per_s: rate(row.bytes(), ns.p50).filter(|_| moves),
            percent_of_copy: percent_of_copy(copy, ns.p50).filter(|_| compared),
        }
    };
    Ok(ours.chain(others).zip(times).map(measured).collect())
}

/// One of our ways: the program that it runs, and the rows that this fetches ahead.
fn ours(gpu: &Gpu, row: &Row, way: &Way, vectors: bool) -> (Engine, Option<String>, u32) {
    let (spec, info) = (&row.spec, gpu.device().info());
    let name = |program| RmsNormForward::kernels(spec, program)[0].to_string();
    match way.program {
        Some(program) => (Engine::Forced, Some(name(program)), 0),
        None => {
            let rows = u32::try_from(row.count()).unwrap_or(u32::MAX);
            let route =
                RmsNormForward::routes(spec, info.arch, Shape { rows, vectors, in_place: false }).route(info, rows);
            (Engine::Routed, Some(name(route.program)), route.rows_ahead(info))
        }
    }
}
