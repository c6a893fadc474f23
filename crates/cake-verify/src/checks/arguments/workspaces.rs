//! Workspaces that must be refused: none, too small, of another stream, over a tensor. And one that is larger than needed.

use cake_core::{Error, Stream};
use cake_rmsnorm::Backward;

use super::{CHECK, expect, nothing_written, text};
use crate::cases::{BackwardCase, Case};
use crate::checks::operator::Operator;
use crate::checks::{Context, Task};
use crate::engine::call::{Arguments, BackwardCall};
use crate::engine::memory::Argument;
use crate::engine::setup::Setup;
use crate::engine::target::Lane;

/// One task.
pub(super) fn task() -> Task {
    let why = "sums are written to memory that nobody lent";
    Task::single(CHECK, "arguments/workspaces", why, judge).device().of(Operator::Rmsnorm)
}

fn judge(context: &Context) -> Result<(), String> {
    // Without `rstd` every program that computes `dw` takes a workspace.
    let case = BackwardCase::of(Case { rstd: false, ..Case::new(100, 128) });
    let setup = Setup::new(&case, &context.target, context.seed).map_err(text)?;
    let plan = context.target.plan(&case.spec()).map_err(text)?;
    let refused = |what: &str, change: fn(&mut BackwardCall<'_>), expected| {
        let mut call = setup.call_for(&plan);
        change(&mut call);
        let error = call.run(&plan, &setup.lane).err().ok_or_else(|| format!("{what}: was not refused"))?;
        expect(&error, expected).and_then(|()| nothing_written(&setup)).map_err(|problem| format!("{what}: {problem}"))
    };
    refused("none", |call| call.workspace = None, ("Missing", "workspace"))?;
    refused("a byte short", |call| space(call).bytes -= 1, ("WorkspaceShort", "workspace"))?;
    refused("null", |call| space(call).address = 0, ("NullPointer", "workspace"))?;
    refused("misaligned", |call| space(call).address += 16, ("Misaligned", "workspace"))?;
    refused("dw in it", |call| lay_at_its_end(call, |call| call.dw.as_mut()), ("Overlap", "workspace over dw"))?;
    refused("dx in it", |call| lay_at_its_end(call, |call| call.dx.as_mut()), ("Overlap", "workspace over dx"))?;
    refused("x in it", |call| lay_at_its_end(call, |call| Some(&mut call.x)), ("Overlap", "workspace over x"))?;

    let other = Stream::new(context.target.device().ok_or("needs a GPU")?).map_err(text)?;
    let call = setup.call_for(&plan);
    let foreign = call.workspace.as_ref().ok_or("the plan asks for a workspace")?;
    let mut foreign = foreign.lend(&Lane::Cuda(other)).map_err(text)?;
    let args = Backward { workspace: Some(&mut foreign), ..call.views().map_err(text)? };
    let error: Error =
        plan.run(setup.lane.stream().ok_or("needs a GPU")?, args).err().ok_or("foreign: was not refused")?;
    expect(&error, ("Foreign", "workspace"))?;
    nothing_written(&setup)?;

    // One that serves every plan is larger than this plan needs.
    setup.call().run(&plan, &setup.lane).map_err(text)?;
    setup.expect_canonical()
}

fn space<'c, 'm>(call: &'c mut BackwardCall<'m>) -> &'c mut crate::engine::memory::Space<'m> {
    call.workspace.as_mut().expect("the plan asks for a workspace")
}

/// Puts the first element of a tensor into the last bytes of the workspace.
fn lay_at_its_end<'m>(
    call: &mut BackwardCall<'m>,
    tensor: for<'c> fn(&'c mut BackwardCall<'m>) -> Option<&'c mut Argument<'m>>,
) {
    let end = space(call).address + space(call).bytes;
    tensor(call).expect("the call has the tensor").address = end - 16;
}
