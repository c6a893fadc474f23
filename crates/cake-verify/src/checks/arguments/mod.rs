//! Bad calls are refused before anything is launched: with the right variant, naming the argument, and nothing written.

mod accepted;
mod backward;
mod changes;
mod combine;
mod gate;
mod refusals;
mod workspaces;

use cake_core::{Dtype, Error, Op, Place, Plan};
use cake_rmsnorm::{BackwardSpec, CombineDw, CombineSpec, ForwardPlan, RmsNormBackward, RmsNormForward, Spec};

use super::operator::Operator;
use super::{Context, Task};
use crate::cases::gate::GateCase;
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::call::Arguments;
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::engine::target::Target;
use crate::report::Tally;

const CHECK: &str = "arguments";

/// A call that must be refused.
struct Refusal<C: Subject> {
    /// What is wrong with it.
    name: &'static str,
    /// The case that it starts from.
    case: fn() -> C,
    /// Makes it wrong.
    change: fn(&mut C::Call<'_>, Place),
    /// The variant of the error and the argument that it names.
    expected: (&'static str, &'static str),
}

/// A task for each kind of fault, and one for what must not be refused.
pub fn tasks() -> impl Iterator<Item = Task> {
    let forward = refusals::KINDS.iter().map(|(kind, refusals)| refused(format!("arguments/{kind}"), refusals));
    let backward = refused("arguments/backward".into(), backward::REFUSALS);
    let combine = refused("arguments/combine".into(), combine::REFUSALS);
    let accepted = Task::new("arguments/accepted", "slices that touch no common byte are refused", accepted::judge)
        .of(Operator::Rmsnorm);
    let plans = Task::new("arguments/plans", "a plan is made that no program serves", judge_plans);
    let gates =
        [refused("arguments/gate".into(), gate::FORWARD), refused("arguments/gate_backward".into(), gate::BACKWARD)];
    forward.chain(gates).chain([backward, combine, accepted, plans, workspaces::task()])
}

fn refused<C: Subject>(name: String, refusals: &'static [Refusal<C>]) -> Task {
    const WHY: &str = "a wrong argument is believed: memory is read or written that is not the caller's";
    let prefix = name.clone();
    Task::new(name, WHY, move |context| {
        let mut tally = Tally::default();
        for refusal in refusals {
            let what = format!("{prefix}: {}", refusal.name);
            tally.judge_result(CHECK, &what, refuse(refusal, &context.target, context.seed));
        }
        tally
    })
    .of(Operator::of::<C::Op>())
}

/// The case that refusals start from; two leading dimensions, so that there are strides to get wrong.
fn good(form: Form) -> Case {
    Case { lead: vec![3, 4], ..Case::new(12, 64).form(form) }
}

fn refuse<C: Subject>(refusal: &Refusal<C>, target: &Target, seed: u64) -> Result<(), String> {
    let case = (refusal.case)();
    let setup = Setup::new(&case, target, seed).map_err(text)?;
    let spec = case.spec();
    let plan = target.plan::<C::Op>(&spec).map_err(text)?;
    let mut call = setup.call();
    (refusal.change)(&mut call, target.place());
    // Asked first without running anything: what is not refused would write where it must not.
    let error = call.check(&spec, &setup.lane).err().ok_or("was not refused")?;
    expect(&error, refusal.expected)?;
    match call.run(&plan, &setup.lane) {
        Ok(()) => return Err(format!("was refused by the check, but ran: {error}")),
        Err(ran) => expect(&ran, refusal.expected)?,
    }
    nothing_written(&setup)
}

fn nothing_written(setup: &Setup<impl Subject>) -> Result<(), String> {
    let outputs = setup.outputs().map_err(text)?;
    let written = setup.writes(outputs).into_iter().chain(setup.input_changes().map_err(text)?).next();
    written.map_or(Ok(()), |difference| Err(format!("refused, but wrote {difference}")))
}

fn text(error: Error) -> String {
    error.to_string()
}

fn expect(error: &Error, (variant, argument): (&str, &str)) -> Result<(), String> {
    let found = name(error);
    if found == (variant, argument.to_string()) {
        return Ok(());
    }
    Err(format!("expected Error::{variant} of {argument}, got Error::{} of {}: {error}", found.0, found.1))
}

/// The variant of an error, and the argument that it names.
fn name(error: &Error) -> (&'static str, String) {
    let (variant, argument) = match error {
        Error::NullPointer { argument, .. } => ("NullPointer", *argument),
        Error::Misaligned { argument, .. } => ("Misaligned", *argument),
        Error::Extent { argument, .. } => ("Extent", *argument),
        Error::NegativeStride { argument, .. } => ("NegativeStride", *argument),
        Error::Dtype { argument, .. } => ("Dtype", *argument),
        Error::Rank { argument, .. } => ("Rank", *argument),
        Error::Strides { argument, .. } => ("Strides", *argument),
        Error::AddressRange { argument, .. } => ("AddressRange", *argument),
        Error::Shape { argument, .. } => ("Shape", *argument),
        Error::Size { argument, .. } => ("Size", *argument),
        Error::Value { argument, .. } => ("Value", *argument),
        Error::Missing { argument, .. } => ("Missing", *argument),
        Error::Unexpected { argument, .. } => ("Unexpected", *argument),
        Error::Place { argument, .. } => ("Place", *argument),
        Error::SelfOverlap { argument, .. } => ("SelfOverlap", *argument),
        Error::Foreign { argument, .. } => ("Foreign", *argument),
        Error::WorkspaceShort { .. } => ("WorkspaceShort", "workspace"),
        Error::Overlap { output, other, .. } => return ("Overlap", format!("{output} over {other}")),
        Error::Program { name, .. } => return ("Program", name.clone()),
        _ => return ("other", error.to_string()),
    };
    (variant, argument.to_string())
}

/// Plans that must not be made, and calls on the wrong side.
fn judge_plans(context: &Context) -> Tally {
    let mut tally = Tally::default();
    let (good_spec, target) = (Spec::new(64), &context.target);
    let specs = [
        ("width 0", Spec::new(0), ("Size", "width")),
        ("f16 weight", Spec { weight: Some(Dtype::F16), ..good_spec }, ("Dtype", "weight")),
        ("offset without weight", Spec { weight: None, offset: true, ..good_spec }, ("Missing", "weight")),
    ];
    for (what, norm, expected) in specs {
        tally.judge_result(CHECK, what, not_made(target.plan::<RmsNormForward>(&norm), expected));
        let what = format!("backward: {what}");
        let plan = target.plan::<RmsNormBackward>(&BackwardSpec::new(norm));
        tally.judge_result(CHECK, &what, not_made(plan, expected));
    }
    let both = BackwardSpec::new(good_spec);
    let specs = [
        ("f16 dw", BackwardSpec { dw: Some(Dtype::F16), ..both }, ("Dtype", "dw")),
        (
            "dw without a weight",
            BackwardSpec { norm: Spec { weight: None, ..good_spec }, ..both },
            ("Unexpected", "dw"),
        ),
        ("adding to no dw", BackwardSpec { dw: None, accumulate: true, ..both }, ("Missing", "dw")),
        ("no output", BackwardSpec { dx: false, dw: None, ..both }, ("Missing", "dx")),
        ("no SM", BackwardSpec { max_sms: Some(0), ..both }, ("Size", "max_sms")),
    ];
    for (what, spec, expected) in specs {
        tally.judge_result(CHECK, what, not_made(target.plan::<RmsNormBackward>(&spec), expected));
    }
    let join = CombineSpec { width: 64, dw: Dtype::F32, accumulate: false };
    let specs = [
        ("joins of width 0", CombineSpec { width: 0, ..join }, ("Size", "width")),
        ("joins into f16", CombineSpec { dw: Dtype::F16, ..join }, ("Dtype", "dw")),
    ];
    for (what, spec, expected) in specs {
        tally.judge_result(CHECK, what, not_made(target.plan::<CombineDw>(&spec), expected));
    }
    judge_gate_plans(&mut tally, target);
    if let Target::Cuda(device) = target {
        let unknown = ForwardPlan::forced(device, good_spec, "rmsnorm_fwd_h63_row");
        tally.judge_result(CHECK, "unknown program", not_made(unknown, ("Program", "rmsnorm_fwd_h63_row")));
        let forward = good(Form::COMMON[0]);
        tally.judge_result(CHECK, "sides", wrong_side(&BackwardCase::of(forward.clone()), target, context.seed));
        tally.judge_result(CHECK, "sides", wrong_side(&forward, target, context.seed));
        tally.judge_result(CHECK, "sides", wrong_side(&GateCase::new(3, 64), target, context.seed));
    }
    tally
}

/// The same of the gated norm.
fn judge_gate_plans(tally: &mut Tally, target: &Target) {
    use cake_silu_gate::{BackwardSpec, SiluGateBackward, SiluGateForward, Spec};
    let specs = [
        ("gates of width 0", Spec::new(0), ("Size", "width")),
        ("gates with an f16 weight", Spec { weight: Dtype::F16, ..Spec::new(64) }, ("Dtype", "weight")),
    ];
    for (what, norm, expected) in specs {
        tally.judge_result(CHECK, what, not_made(target.plan::<SiluGateForward>(&norm), expected));
        let plan = target.plan::<SiluGateBackward>(&BackwardSpec::new(norm));
        tally.judge_result(CHECK, &format!("backward: {what}"), not_made(plan, expected));
    }
    let all = BackwardSpec::new(Spec::new(64));
    let specs = [
        ("gates with an f16 dw", BackwardSpec { dw: Some(Dtype::F16), ..all }, ("Dtype", "dw")),
        ("gates adding to no dw", BackwardSpec { dw: None, accumulate: true, ..all }, ("Missing", "dw")),
        ("gates on no SM", BackwardSpec { max_sms: Some(0), ..all }, ("Size", "max_sms")),
    ];
    for (what, spec, expected) in specs {
        tally.judge_result(CHECK, what, not_made(target.plan::<SiluGateBackward>(&spec), expected));
    }
}

fn not_made<O: Op>(plan: Result<Plan<O>, Error>, expected: (&str, &str)) -> Result<(), String> {
    match plan {
        Ok(_) => Err("was made".into()),
        Err(error) => expect(&error, expected),
    }
}

/// A device plan asked to run on the host, and a host plan on a stream.
fn wrong_side<C: Subject>(case: &C, target: &Target, seed: u64) -> Result<(), String> {
    let setup = Setup::new(case, target, seed).map_err(text)?;
    let (call, spec) = (setup.call(), case.spec());
    let plan = target.plan::<C::Op>(&spec).map_err(text)?;
    let on_host = call.lend(&setup.lane, |args| plan.run_host(args));
    expect(&on_host.err().ok_or("a device plan ran on the host")?, ("Place", "plan"))?;
    let on_stream = call.queue(&Plan::host(spec).map_err(text)?, &setup.lane);
    expect(&on_stream.err().ok_or("a host plan ran on a stream")?, ("Place", "stream"))?;
    nothing_written(&setup)
}
