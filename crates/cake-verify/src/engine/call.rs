//! Calls as a caller would describe them.

use cake_core::{Op, Plan, Result, Shape};
use cake_rmsnorm::{Backward, Combine, CombineDw, Forward, RmsNormBackward, RmsNormForward};

use super::memory::{Argument, Space};
use super::target::Lane;

/// The arguments of a call, before any check.
pub trait Arguments {
    /// What is called.
    type Op: Op;

    /// Hands the views to `act`; refused when one of them is not possible.
    fn lend<R>(&self, lane: &Lane, act: impl FnOnce(<Self::Op as Op>::Args<'_>) -> Result<R>) -> Result<R>;

    /// Asks whether the call would be served, and as what.
    fn check(&self, spec: &<Self::Op as Op>::Spec, lane: &Lane) -> Result<Shape> {
        self.lend(lane, |args| Ok(Self::Op::check(spec, lane.place(), &args)?.0))
    }

    /// Queues the call.
    fn queue(&self, plan: &Plan<Self::Op>, lane: &Lane) -> Result<()> {
        self.lend(lane, |args| match lane {
            Lane::Host => plan.run_host(args),
            Lane::Cuda(stream) => plan.run(stream, args),
        })
    }

    /// Runs the call and waits.
    fn run(&self, plan: &Plan<Self::Op>, lane: &Lane) -> Result<()> {
        self.queue(plan, lane)?;
        lane.synchronize()
    }
}

/// A forward call.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as the arguments
pub struct Call<'m> {
    pub x: Argument<'m>,
    pub weight: Option<Argument<'m>>,
    pub eps: f32,
    pub residual: Option<Argument<'m>>,
    pub y: Argument<'m>,
    pub h: Option<Argument<'m>>,
    pub rstd: Option<Argument<'m>>,
}

impl<'m> Call<'m> {
    /// The views; refused when one of them is not possible.
    pub fn views(&self) -> Result<Forward<'m>> {
        Ok(Forward {
            x: self.x.view()?,
            weight: self.weight.as_ref().map(Argument::view).transpose()?,
            eps: self.eps,
            residual: self.residual.as_ref().map(Argument::view).transpose()?,
            y: self.y.view_mut()?,
            h: self.h.as_ref().map(Argument::view_mut).transpose()?,
            rstd: self.rstd.as_ref().map(Argument::view_mut).transpose()?,
        })
    }
}

impl Arguments for Call<'_> {
    type Op = RmsNormForward;

    fn lend<R>(&self, _: &Lane, act: impl FnOnce(Forward<'_>) -> Result<R>) -> Result<R> {
        act(self.views()?)
    }
}

/// A backward call.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as the arguments
pub struct BackwardCall<'m> {
    pub dy: Argument<'m>,
    pub x: Argument<'m>,
    pub weight: Option<Argument<'m>>,
    pub rstd: Option<Argument<'m>>,
    pub eps: f32,
    pub dh: Option<Argument<'m>>,
    pub dx: Option<Argument<'m>>,
    pub dw: Option<Argument<'m>>,
    pub workspace: Option<Space<'m>>,
}

impl<'m> BackwardCall<'m> {
    /// The views, without a workspace; refused when one of them is not possible.
    pub fn views(&self) -> Result<Backward<'m>> {
        Ok(Backward {
            dy: self.dy.view()?,
            x: self.x.view()?,
            weight: self.weight.as_ref().map(Argument::view).transpose()?,
            rstd: self.rstd.as_ref().map(Argument::view).transpose()?,
            eps: self.eps,
            dh: self.dh.as_ref().map(Argument::view).transpose()?,
            dx: self.dx.as_ref().map(Argument::view_mut).transpose()?,
            dw: self.dw.as_ref().map(Argument::view_mut).transpose()?,
            workspace: None,
        })
    }
}

impl Arguments for BackwardCall<'_> {
    type Op = RmsNormBackward;

    fn lend<R>(&self, lane: &Lane, act: impl FnOnce(Backward<'_>) -> Result<R>) -> Result<R> {
        let mut workspace = self.workspace.as_ref().map(|space| space.lend(lane)).transpose()?;
        act(Backward { workspace: workspace.as_mut(), ..self.views()? })
    }
}

/// A call that joins weight gradients.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as the arguments
pub struct CombineCall<'m> {
    pub shards: Argument<'m>,
    pub dw: Argument<'m>,
}

impl Arguments for CombineCall<'_> {
    type Op = CombineDw;

    fn lend<R>(&self, _: &Lane, act: impl FnOnce(Combine<'_>) -> Result<R>) -> Result<R> {
        act(Combine { shards: self.shards.view()?, dw: self.dw.view_mut()? })
    }
}
