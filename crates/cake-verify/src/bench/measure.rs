//! One row: our programs, the reference and the empty kernel, checked and then timed in turns.

use anyhow::{Context as _, Result};
use cake_core::{Op, Plan, Shape, Workspace};
use cake_rmsnorm::{Backward, RmsNormBackward, RmsNormForward};
use cake_silu_gate::{SiluGateBackward, SiluGateForward};

use super::driver::Gpu;
use super::record::{Engine, Measured};
use super::rows::{Calls, Row};
use super::sample::{Effort, Flush, Work, interleaved};
use super::tensors::Tensors;
use super::times::{Times, percent_of_reference, rate};
use super::{PROBE, Programs};
use crate::cases::random::DEFAULT_SEED;

/// What a launch and two events cost.
pub fn probe(gpu: &Gpu, flush: &mut Flush, effort: Effort) -> Result<Vec<Measured>> {
    let mut work: [Work<'_>; 2] = [Box::new(|| Ok(())), Box::new(|| gpu.launch_empty())];
    let times = interleaved(gpu, flush, &mut work, effort)?;
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
        percent_of_reference: None,
    };
    Ok([Engine::Nothing, Engine::Empty].into_iter().zip(times).map(measured).collect())
}

/// Ours, the reference and the empty kernel at one row. Programs with a wrong answer are named in `wrong` instead.
pub fn row(
    gpu: &Gpu,
    flush: &mut Flush,
    row: &Row,
    programs: Programs,
    effort: Effort,
    wrong: &mut Vec<String>,
) -> Result<Vec<Measured>> {
    let tensors = Tensors::new(gpu, row, DEFAULT_SEED)?;
    let mut work: Vec<Work<'_>> = Vec::new();
    let mut labels = Vec::new();
    for mut way in ways(gpu, row, &tensors, programs)? {
        match tensors.check(gpu, &mut way.work).with_context(|| way.program.clone())? {
            None => {
                labels.push((way.engine, Some(way.program), way.ahead));
                work.push(way.work);
            }
            Some(difference) => wrong.push(format!("{row} {} {}: {difference}", way.engine, way.program)),
        }
    }
    let reference = match row.calls {
        _ if row.gate => Engine::Add,
        Calls::Forward => Engine::Copy,
        Calls::Backward | Calls::Dx | Calls::Dw => Engine::Add,
        Calls::Step => Engine::CopyAdd,
    };
    let ours = work.len();
    work.push(Box::new(|| tensors.reference(gpu)));
    work.push(Box::new(|| gpu.launch_empty()));
    labels.extend([(reference, None, 0), (Engine::Empty, None, 0)]);
    let times = interleaved(gpu, flush, &mut work, effort)?;

    let roof = times[ours].summary().p50;
    let measured = |((engine, program, ahead), times): ((Engine, Option<String>, u32), Times)| {
        let ns = times.summary();
        let (moves, compared) = (engine != Engine::Empty, program.is_some());
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
            percent_of_reference: percent_of_reference(roof, ns.p50).filter(|_| compared),
        }
    };
    Ok(labels.into_iter().zip(times).map(measured).collect())
}

/// One way of ours to compute a row: the programs that it runs, and the rows that the first of them fetches ahead.
struct Way<'t> {
    engine: Engine,
    program: String,
    ahead: u32,
    work: Work<'t>,
}

/// The routed way, and where `programs` asks for them the forced ones; a step is routed.
fn ways<'t>(gpu: &'t Gpu, row: &Row, tensors: &'t Tensors, programs: Programs) -> Result<Vec<Way<'t>>> {
    let (stream, place) = (gpu.stream(), gpu.stream().place());
    let programs = if row.calls == Calls::Step { Programs::Routed } else { programs };
    let mut ways = Vec::new();
    if let Some(call) = tensors.forward(true) {
        let (shape, _) = RmsNormForward::check(&row.spec, place, &call.views()?)?;
        ways = plans::<RmsNormForward>(gpu, &row.spec, shape, programs, |plan| {
            let call = call.clone();
            Ok(Box::new(move || Ok(plan.run(stream, call.views()?)?)))
        })?;
    }
    if let (Some(call), Some(spec)) = (tensors.backward(), row.backward()) {
        let (shape, _) = RmsNormBackward::check(&spec, place, &call.views()?)?;
        let backward = plans::<RmsNormBackward>(gpu, &spec, shape, programs, |plan| {
            let (call, mut workspace) = (call.clone(), workspace(gpu, &plan, shape.rows)?);
            Ok(Box::new(move || Ok(plan.run(stream, Backward { workspace: workspace.as_mut(), ..call.views()? })?)))
        })?;
        ways = after(ways, backward);
    }
    if let Some(call) = tensors.gate_forward() {
        let spec = row.gate_spec();
        let (shape, _) = SiluGateForward::check(&spec, place, &call.views()?)?;
        ways = plans::<SiluGateForward>(gpu, &spec, shape, programs, |plan| {
            let call = call.clone();
            Ok(Box::new(move || Ok(plan.run(stream, call.views()?)?)))
        })?;
    }
    if let Some(call) = tensors.gate_backward() {
        let spec = row.gate_backward_spec();
        let (shape, _) = SiluGateBackward::check(&spec, place, &call.views()?)?;
        let backward = plans::<SiluGateBackward>(gpu, &spec, shape, programs, |plan| {
            let (call, mut workspace) = (call.clone(), workspace(gpu, &plan, shape.rows)?);
            Ok(Box::new(move || {
                let args = cake_silu_gate::Backward { workspace: workspace.as_mut(), ..call.views()? };
                Ok(plan.run(stream, args)?)
            }))
        })?;
        ways = after(ways, backward);
    }
    Ok(ways)
}

/// The ways of a backward, each after one of a forward if the row has one.
fn after<'t>(forward: Vec<Way<'t>>, backward: Vec<Way<'t>>) -> Vec<Way<'t>> {
    match forward.is_empty() {
        true => backward,
        false => forward.into_iter().zip(backward).map(|(first, next)| first.then(next)).collect(),
    }
}

/// What a plan needs for so many rows, and no byte more.
pub fn workspace<O: Op>(gpu: &Gpu, plan: &Plan<O>, rows: u32) -> Result<Option<Workspace>> {
    let bytes = plan.workspace_bytes(rows);
    Ok((bytes > 0).then(|| Workspace::new(gpu.stream(), bytes)).transpose()?)
}

/// The plans of one call that `programs` asks for, each bound to the call by `bind`.
fn plans<'t, O: Op>(
    gpu: &Gpu,
    spec: &O::Spec,
    shape: Shape,
    programs: Programs,
    bind: impl Fn(Plan<O>) -> Result<Work<'t>>,
) -> Result<Vec<Way<'t>>> {
    let (device, info) = (gpu.device(), gpu.device().info());
    let way = |engine, program, ahead, plan| -> Result<Way<'t>> {
        Ok(Way { engine, program: O::kernels(spec, program)[0].to_string(), ahead, work: bind(plan)? })
    };
    let route = O::routes(spec, info.arch, shape).route(info, shape.rows);
    let routed = Plan::new(device, spec.clone())?;
    let mut ways = vec![way(Engine::Routed, route.program, route.rows_ahead(info), routed)?];
    if programs == Programs::All {
        let able = O::programs(spec, info.arch).into_iter();
        for program in able.filter(|program| O::obstacle(spec, program, shape).is_none()) {
            let forced = Plan::forced(device, spec.clone(), &program.to_string())?;
            ways.push(way(Engine::Forced, program, 0, forced)?);
        }
    }
    Ok(ways)
}

impl<'t> Way<'t> {
    /// Both, one after the other.
    fn then(mut self, mut next: Way<'t>) -> Way<'t> {
        let both = move || {
            (self.work)()?;
            (next.work)()
        };
        let program = format!("{} + {}", self.program, next.program);
        Way { engine: self.engine, program, ahead: self.ahead, work: Box::new(both) }
    }
}
