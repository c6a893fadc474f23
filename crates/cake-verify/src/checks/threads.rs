//! One device, shared plans, many threads and streams.

use cake_core::Plan;

use super::{Context, Task};
use crate::cases::gate::{GateBackwardCase, GateCase};
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;

const CHECK: &str = "threads";

/// A task for each kind of sharing.
pub fn tasks() -> [Task; 3] {
    // Alone, on the thread that runs the tasks: a worker of the pool that waited for threads which need the pool would
    // wait for ever.
    let task = |name, why, run| Task::single(CHECK, name, why, run).alone();
    [
        task("threads/shared_plans", "caches of a plan or a device race", shared_plans),
        task("threads/first_use", "two threads load an image at the same time", first_use),
        task("threads/dropped_inputs", "memory is reused while a queued call still reads it", dropped_inputs).device(),
    ]
}

const THREADS: u32 = 8;

/// Eight threads, each with its own stream, call plans of different widths that all of them share.
fn shared_plans(context: &Context) -> Result<(), String> {
    let widths = [128, 512, 1000, 2048, 4096, 6144];
    let cases: Vec<Case> =
        widths.iter().flat_map(|&width| Form::COMMON.map(|form| Case::new(37, width).form(form))).collect();
    let backward: Vec<BackwardCase> = cases.iter().cloned().map(BackwardCase::of).collect();
    share(context, &cases)?;
    share(context, &backward)?;
    let gates = [64, 128, 1000].map(|width| GateCase::new(37, width));
    share(context, &gates)?;
    share(context, &gates.map(GateBackwardCase::of))
}

fn share<C: Subject>(context: &Context, cases: &[C]) -> Result<(), String> {
    let plans = cases.iter().map(|case| context.target.plan(&case.spec()).map_err(text));
    let plans: Vec<Plan<C::Op>> = plans.collect::<Result<_, _>>()?;
    on_every_thread(|thread| {
        let own: Vec<usize> = (0..cases.len()).map(|i| (i * 5 + thread as usize) % cases.len()).collect();
        let setups = own.iter().map(|&i| Setup::new(&cases[i], &context.target, context.seed + u64::from(thread)));
        let setups: Vec<Setup<C>> = setups.collect::<Result<_, _>>().map_err(text)?;
        for call in 0..context.profile.pick(2, 1000) {
            for (setup, &i) in setups.iter().zip(&own) {
                setup.queue(&plans[i]).map_err(text)?;
            }
            // Looking at every result would let only one call at a time be in flight.
            if call % 100 == 1 {
                setups.iter().try_for_each(Setup::expect_canonical)?;
                setups.iter().try_for_each(Setup::reset).map_err(text)?;
            }
        }
        let last = |(setup, &i): (&Setup<C>, &usize)| setup.queue(&plans[i]).map_err(text);
        setups.iter().zip(&own).try_for_each(last)?;
        setups.iter().try_for_each(Setup::expect_canonical)
    })
}

/// Eight threads that use fresh plans at once.
fn first_use(context: &Context) -> Result<(), String> {
    let start = std::sync::Barrier::new(THREADS as usize);
    on_every_thread(|thread| {
        let case = Case::new(5, [128, 6144][thread as usize / 4]);
        match thread % 4 {
            0 => use_first(context, &start, &case),
            1 => use_first(context, &start, &BackwardCase::of(case)),
            2 => use_first(context, &start, &GateCase::of(case)),
            _ => use_first(context, &start, &GateBackwardCase::of(GateCase::of(case))),
        }
    })
}

fn use_first<C: Subject>(context: &Context, start: &std::sync::Barrier, case: &C) -> Result<(), String> {
    let setup = Setup::new(case, &context.target, context.seed);
    let plan = context.target.plan::<C::Op>(&case.spec());
    start.wait();
    let (setup, plan) = (setup.map_err(text)?, plan.map_err(text)?);
    setup.run(&plan).map_err(text)?;
    setup.expect_canonical()
}

/// Inputs dropped right after the call is queued, and their memory taken and overwritten by someone else.
fn dropped_inputs(context: &Context) -> Result<(), String> {
    let case = Case::new(2000, 4096);
    drop_inputs_of(context, &case)?;
    drop_inputs_of(context, &BackwardCase::of(case))?;
    drop_inputs_of(context, &GateCase::new(50_000, 128))?;
    drop_inputs_of(context, &GateBackwardCase::new(50_000, 128))
}

fn drop_inputs_of<C: Subject>(context: &Context, case: &C) -> Result<(), String> {
    let plan = context.target.plan::<C::Op>(&case.spec()).map_err(text)?;
    for round in 0..context.profile.pick(3, 20) {
        let mut setup = Setup::new(case, &context.target, context.seed + round).map_err(text)?;
        setup.queue(&plan).map_err(text)?;
        setup.drop_inputs();
        let usurper = Setup::new(case, &context.target, context.seed + 1000).map_err(text)?;
        setup.expect_canonical()?;
        drop(usurper);
    }
    Ok(())
}

fn on_every_thread(work: impl Fn(u32) -> Result<(), String> + Sync) -> Result<(), String> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().enumerate().try_for_each(|(i, thread)| match thread.join() {
            Ok(result) => result.map_err(|error| format!("thread {i}: {error}")),
            Err(_) => Err(format!("thread {i} panicked")),
        })
    })
}

fn text(error: cake_core::Error) -> String {
    error.to_string()
}
