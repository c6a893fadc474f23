//! Bad calls are refused before anything is launched: with the right variant, naming the argument, and nothing written.

mod accepted;
mod refusals;

use cake_core::{Dtype, Error, Op, Place};
use cake_rmsnorm::{ForwardPlan, RmsNormForward, Spec};

use super::{Context, Task};
use crate::cases::{Case, Form};
use crate::engine::call::{Arguments, Call};
use crate::engine::setup::Setup;
use crate::engine::target::Target;
use crate::report::Tally;

const CHECK: &str = "arguments";

/// A call that must be refused.
struct Refusal {
    /// What is wrong with it.
    name: &'static str,
    /// The form of the plan.
    form: Form,
    /// Makes it wrong.
    change: fn(&mut Call<'_>, Place),
    /// The variant of the error and the argument that it names.
    expected: (&'static str, &'static str),
}

/// A task for each kind of fault, and one for what must not be refused.
pub fn tasks() -> impl Iterator<Item = Task> {
    const WHY: &str = "a wrong argument is believed: memory is read or written that is not the caller's";
    let refused = refusals::KINDS.iter().map(|(kind, refusals)| {
        Task::new(format!("arguments/{kind}"), WHY, move |context| {
            let mut tally = Tally::default();
            for refusal in *refusals {
                let what = format!("{kind}: {}", refusal.name);
                tally.judge_result(CHECK, &what, refuse(refusal, &context.target, context.seed));
            }
            tally
        })
    });
    let accepted = Task::new("arguments/accepted", "slices that touch no common byte are refused", accepted::judge);
    let plans = Task::new("arguments/plans", "a plan is made that no program serves", judge_plans);
    refused.chain([accepted, plans])
}

/// The case that refusals start from; two leading dimensions, so that there are strides to get wrong.
fn good(form: Form) -> Case {
    Case { lead: vec![3, 4], ..Case::new(12, 64).form(form) }
}

fn refuse(refusal: &Refusal, target: &Target, seed: u64) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let case = good(refusal.form);
    let setup = Setup::new(&case, target, seed).map_err(text)?;
    let plan = target.plan(&case.spec).map_err(text)?;
    let mut call = setup.call();
    (refusal.change)(&mut call, target.place());
    // Asked first without running anything: what is not refused would write where it must not.
    let checked = call.views().and_then(|views| RmsNormForward::check(&case.spec, target.place(), &views));
    let error = checked.err().ok_or("was not refused")?;
    expect(&error, refusal.expected)?;
    match call.run(&plan, &setup.lane) {
        Ok(()) => return Err(format!("was refused by the check, but ran: {error}")),
        Err(ran) => expect(&ran, refusal.expected)?,
    }
    let outputs = setup.outputs().map_err(text)?;
    let written = setup.writes(outputs).into_iter().chain(setup.input_changes().map_err(text)?).next();
    written.map_or(Ok(()), |difference| Err(format!("refused, but wrote {difference}")))
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
        Error::Overlap { output, other, .. } => return ("Overlap", format!("{output} over {other}")),
        Error::Program { name, .. } => return ("Program", name.clone()),
        _ => return ("other", error.to_string()),
    };
    (variant, argument.to_string())
}

/// Plans that must not be made, and calls on the wrong side.
fn judge_plans(context: &Context) -> Tally {
    let mut tally = Tally::default();
    let good_spec = Spec::new(64);
    let specs = [
        ("width 0", Spec::new(0), ("Size", "width")),
        ("f16 weight", Spec { weight: Some(Dtype::F16), ..good_spec }, ("Dtype", "weight")),
        ("offset without weight", Spec { weight: None, offset: true, ..good_spec }, ("Missing", "weight")),
    ];
    let refused = |result: Result<ForwardPlan, Error>, expected| match result {
        Ok(_) => Err("was made".into()),
        Err(error) => expect(&error, expected),
    };
    for (what, spec, expected) in specs {
        tally.judge_result(CHECK, what, refused(context.target.plan(&spec), expected));
    }
    if let Target::Cuda(device) = &context.target {
        let unknown = ForwardPlan::forced(device, good_spec, "rmsnorm_fwd_h63_row");
        tally.judge_result(CHECK, "unknown program", refused(unknown, ("Program", "rmsnorm_fwd_h63_row")));
        tally.judge_result(CHECK, "sides", wrong_side(&context.target, context.seed));
    }
    tally
}

/// A device plan asked to run on the host, and a host plan on a stream.
fn wrong_side(target: &Target, seed: u64) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let case = good(Form::COMMON[0]);
    let setup = Setup::new(&case, target, seed).map_err(text)?;
    let views = || setup.call().views().map_err(text);
    let on_host = target.plan::<RmsNormForward>(&case.spec).map_err(text)?.run_host(views()?);
    expect(&on_host.err().ok_or("a device plan ran on the host")?, ("Place", "plan"))?;
    let stream = setup.lane.stream().ok_or("a device lane has a stream")?;
    let on_stream = ForwardPlan::host(case.spec).map_err(text)?.run(stream, views()?);
    expect(&on_stream.err().ok_or("a host plan ran on a stream")?, ("Place", "stream"))?;
    let written = setup.writes(setup.outputs().map_err(text)?);
    written.first().map_or(Ok(()), |difference| Err(format!("refused, but wrote {difference}")))
}
