//! Several GPUs, or one in a process of its own: each call works on its own device whatever is current, leaves the other
//! devices alone, and refuses what is not there.

use cake_core::{Device, Dtype, Error, Place, Plan};

use super::fresh::Work;
use super::{Context, Task};
use crate::cases::gate::{GateBackwardCase, GateCase};
use crate::cases::{BackwardCase, Case, CombineCase, Form};
use crate::engine::call::Arguments;
use crate::engine::driver::{Current, active_contexts, current_context, reach};
use crate::engine::memory::Argument;
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::engine::target::Target;
use crate::report::Tally;

const CHECK: &str = "devices";

/// One for two GPUs, one for a fresh process.
pub fn tasks() -> [Task; 2] {
    let judge = |context: &Context| {
        let mut tally = Tally::default();
        match pair(context) {
            Ok(pair) => judge_pair(context, &pair, &mut tally),
            Err(reason) => tally.skip(CHECK, format!("two devices: {reason}")),
        }
        tally
    };
    let (mixed, alone) = ("a call runs elsewhere than its tensors are", "calls on one GPU make a context on another");
    [Task::new("devices/two", mixed, judge).device().alone(), Task::single(CHECK, "devices/alone", alone, ask).device()]
}

fn judge_pair(context: &Context, pair: &Pair, tally: &mut Tally) {
    tally.judge_result(CHECK, "first use by threads", first_use(context, pair));
    tally.judge_result(CHECK, "in turns", take_turns(context, pair));
    tally.judge_result(CHECK, "mixed arguments", refuse_mixed(context, pair));
    match use_peer_memory(context, pair) {
        Ok(false) => tally.skip(CHECK, format!("{} cannot reach {}", pair[0].place(), pair[1].place())),
        result => tally.judge_result(CHECK, "memory in reach", result.map(drop)),
    }
}

type Pair = [Target; 2];

/// The device that is judged, and another one.
fn pair(context: &Context) -> Result<Pair, String> {
    let own = context.target.device().ok_or("needs a GPU")?;
    let count = Device::count().map_err(text)?;
    let other = (0..count).find(|&ordinal| ordinal != own.info().ordinal).ok_or("needs a second GPU, one is here")?;
    Ok([context.target.clone(), Target::Cuda(Device::new(other).map_err(text)?)])
}

fn device(target: &Target) -> &Device {
    target.device().expect("a pair of GPUs")
}

/// Every operator on both devices in turns, with the first one's context current, and for `dw` with few SMs of the second.
fn take_turns(context: &Context, pair: &Pair) -> Result<(), String> {
    let turns = Turns { seed: context.seed, pair, _current: Current::primary(device(&pair[0]))? };
    let rows = 500;
    for case in Form::COMMON.map(|form| Case::new(rows, 6144).form(form)) {
        turns.take(&[case.clone(), case.clone()])?;
        let backward = BackwardCase::of(case);
        turns.take(&[backward.clone(), BackwardCase { max_sms: Some(16), ..backward }])?;
    }
    let gate = GateCase::new(rows, 128);
    turns.take(&[gate.clone(), gate])?;
    let gate = GateBackwardCase::new(rows, 128);
    turns.take(&[gate.clone(), GateBackwardCase { max_sms: Some(16), ..gate }])?;
    let combine = CombineCase { norm: Case::new(5, 6144), dw: Dtype::F32, accumulate: false };
    turns.take(&[combine.clone(), combine])
}

struct Turns<'a> {
    seed: u64,
    pair: &'a Pair,
    _current: Current,
}

impl Turns<'_> {
    /// Calls whose results are the same bits, one on each device: queued together, then compared with those of the host.
    fn take<C: Subject>(&self, cases: &[C; 2]) -> Result<(), String> {
        let first = device(&self.pair[0]);
        let before = current_context(first)?;
        let unchanged = |what: &str| match current_context(first)? == before {
            true => Ok(()),
            false => Err(format!("another context is current after {what} of [{}]", cases[0])),
        };
        let made: Vec<(Setup<C>, Plan<C::Op>)> = cases
            .iter()
            .zip(self.pair)
            .map(|(case, target)| Ok((Setup::new(case, target, self.seed)?, target.plan(&case.spec())?)))
            .collect::<Result<_, Error>>()
            .map_err(text)?;
        for _ in 0..3 {
            for (setup, plan) in &made {
                setup.reset().map_err(text)?;
                setup.queue(plan).map_err(text)?;
                unchanged("a call")?;
            }
            made.iter().try_for_each(|(setup, _)| setup.expect_canonical())?;
        }
        let [(one, plan), (other, other_plan)] = &made[..] else { return Err("two setups were made".into()) };
        let expected = (one.lane.place(), other.lane.place());
        match (one.call().run(plan, &other.lane), other.call().run(other_plan, &one.lane)) {
            (
                Err(Error::Place { argument: "stream", expected: a, actual: b }),
                Err(Error::Place { argument: "stream", expected: c, actual: d }),
            ) if (a, b) == expected && (d, c) == expected => {}
            results => return Err(format!("a stream of another device: {results:?}")),
        }
        unchanged("a refused call")
    }
}

/// One argument at a time on the other device.
fn refuse_mixed(context: &Context, pair: &Pair) -> Result<(), String> {
    let case = Case::new(33, 6144).form(Form { residual: true, ..Form::COMMON[0] });
    let mixed = Mixed { seed: context.seed, pair };
    mixed.refuse::<Case>(
        &case,
        &[
            ("x", |call, far| call.x = far.x),
            ("weight", |call, far| call.weight = far.weight),
            ("residual", |call, far| call.residual = far.residual),
            ("y", |call, far| call.y = far.y),
            ("h", |call, far| call.h = far.h),
            ("rstd", |call, far| call.rstd = far.rstd),
        ],
    )?;
    mixed.refuse::<BackwardCase>(
        &BackwardCase::of(case),
        &[
            ("dy", |call, far| call.dy = far.dy),
            ("x", |call, far| call.x = far.x),
            ("weight", |call, far| call.weight = far.weight),
            ("rstd", |call, far| call.rstd = far.rstd),
            ("dh", |call, far| call.dh = far.dh),
            ("dx", |call, far| call.dx = far.dx),
            ("dw", |call, far| call.dw = far.dw),
        ],
    )?;
    mixed.refuse::<GateCase>(
        &GateCase::new(33, 128),
        &[
            ("x", |call, far| call.x = far.x),
            ("z", |call, far| call.z = far.z),
            ("weight", |call, far| call.weight = far.weight),
            ("y", |call, far| call.y = far.y),
        ],
    )?;
    mixed.refuse::<GateBackwardCase>(
        &GateBackwardCase::new(33, 128),
        &[
            ("dy", |call, far| call.dy = far.dy),
            ("x", |call, far| call.x = far.x),
            ("z", |call, far| call.z = far.z),
            ("weight", |call, far| call.weight = far.weight),
            ("dx", |call, far| call.dx = far.dx),
            ("dz", |call, far| call.dz = far.dz),
            ("dw", |call, far| call.dw = far.dw),
        ],
    )?;
    let combine = CombineCase { norm: Case::new(5, 6144), dw: Dtype::F32, accumulate: false };
    mixed.refuse::<CombineCase>(
        &combine,
        &[("shards", |call, far| call.shards = far.shards), ("dw", |call, far| call.dw = far.dw)],
    )
}

/// An argument, and how a call takes it from the same call on another device.
type Exchange<C> = (&'static str, for<'m> fn(&mut <C as Subject>::Call<'m>, <C as Subject>::Call<'m>));

struct Mixed<'a> {
    seed: u64,
    pair: &'a Pair,
}

impl Mixed<'_> {
    /// Calls on each device; the first one's context is current.
    fn refuse<C: Subject>(&self, case: &C, exchanges: &[Exchange<C>]) -> Result<(), String> {
        let first = device(&self.pair[0]);
        let _current = Current::primary(first)?;
        let before = current_context(first)?;
        for (own, other) in [(&self.pair[0], &self.pair[1]), (&self.pair[1], &self.pair[0])] {
            let [setup, far] = [own, other].map(|target| Setup::new(case, target, self.seed).map_err(text));
            let (setup, far) = (setup?, far?);
            let plan = own.plan(&case.spec()).map_err(text)?;
            let untouched = setup.outputs().map_err(text)?;
            for &(name, exchange) in exchanges {
                let mut call = setup.call();
                exchange(&mut call, far.call());
                match call.run(&plan, &setup.lane) {
                    Err(Error::Place { argument, expected, actual })
                        if (argument, expected, actual) == (name, own.place(), other.place()) => {}
                    result => return Err(format!("[{case}] {name} of {}: {result:?}", other.place())),
                }
                if current_context(first)? != before {
                    return Err(format!("another context is current after {name} of [{case}] was refused"));
                }
            }
            if setup.outputs().map_err(text)? != untouched {
                return Err(format!("[{case}] a refused call has written something"));
            }
            setup.run(&plan).map_err(text)?;
            setup.expect_canonical()?;
        }
        Ok(())
    }
}

/// Each device is first used by a thread of its own, at the same time.
fn first_use(context: &Context, pair: &Pair) -> Result<(), String> {
    let start = std::sync::Barrier::new(pair.len());
    let work = |target: &Target| -> Result<(), String> {
        let case = Case::new(300, 2048);
        start.wait();
        for round in 0..20 {
            run(target, &case, context.seed + round)?;
            run(target, &BackwardCase::of(case.clone()), context.seed + round)?;
            run(target, &GateCase::new(300, 128), context.seed + round)?;
            run(target, &GateBackwardCase::new(300, 128), context.seed + round)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = pair.each_ref().map(|target| scope.spawn(move || work(target)));
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_string())?)
    })
}

fn run<C: Subject>(target: &Target, case: &C, seed: u64) -> Result<(), String> {
    let setup = Setup::new(case, target, seed).map_err(text)?;
    setup.run(&target.plan::<C::Op>(&case.spec()).map_err(text)?).map_err(text)?;
    setup.expect_canonical()
}

/// Inputs that lie on the other device, in reach of this one, and are given as this one's memory; whether that can be.
fn use_peer_memory(context: &Context, pair: &Pair) -> Result<bool, String> {
    if !reach(device(&pair[0]), device(&pair[1]))? {
        return Ok(false);
    }
    let case = Case::new(500, 6144);
    let [setup, far] = pair.each_ref().map(|target| Setup::new(&case, target, context.seed).map_err(text));
    let (setup, far) = (setup?, far?);
    let mut call = setup.call();
    call.x = Argument { place: pair[0].place(), ..far.call().x };
    call.run(&pair[0].plan(&case.spec).map_err(text)?, &setup.lane).map_err(text)?;
    setup.expect_canonical()?;
    let backward = BackwardCase::new(500, 6144);
    let [setup, far] = pair.each_ref().map(|target| Setup::new(&backward, target, context.seed).map_err(text));
    let (setup, far) = (setup?, far?);
    let mut call = setup.call();
    call.dy = Argument { place: pair[0].place(), ..far.call().dy };
    call.run(&pair[0].plan(&backward.spec()).map_err(text)?, &setup.lane).map_err(text)?;
    setup.expect_canonical()?;
    Ok(true)
}

fn ask(context: &Context) -> Result<(), String> {
    let Place::Cuda(ordinal) = context.target.place() else { return Err("needs a GPU".into()) };
    Work::OnOneDevice { ordinal }.ask(context)
}

/// What the fresh process does: no device has a context before the first call, and afterwards only the one that was used.
pub fn on_one_device(ordinal: u32, seed: u64) -> Result<String, String> {
    let count = Device::count().map_err(text)?;
    let expect = |expected: &[u32], when: &str| match active_contexts(count)? {
        found if found == expected => Ok(()),
        found => Err(format!("{when} the devices {found:?} have a context, expected {expected:?}")),
    };
    expect(&[], "before the first use")?;
    let target = Target::Cuda(Device::new(ordinal).map_err(text)?);
    for form in Form::COMMON {
        let case = Case::new(500, 6144).form(form);
        run(&target, &case, seed)?;
        run(&target, &BackwardCase::of(case), seed)?;
    }
    run(&target, &GateCase::new(500, 128), seed)?;
    run(&target, &GateBackwardCase::new(500, 128), seed)?;
    expect(&[ordinal], "after calls on one")?;
    match current_context(device(&target))? {
        0 => Ok(format!("of {count} devices cuda:{ordinal} alone has a context")),
        _ => Err("a context was left current".into()),
    }
}

fn text(error: Error) -> String {
    error.to_string()
}
