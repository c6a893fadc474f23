//! A forward call as a caller would describe it.

use cake_core::Result;
use cake_rmsnorm::{Forward, ForwardPlan};

use super::memory::Argument;
use super::target::Lane;

/// The arguments of a call, before any check.
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

    /// Queues the call.
    pub fn queue(&self, plan: &ForwardPlan, lane: &Lane) -> Result<()> {
        match lane {
            Lane::Host => plan.run_host(self.views()?),
            Lane::Cuda(stream) => plan.run(stream, self.views()?),
        }
    }

    /// Runs the call and waits.
    pub fn run(&self, plan: &ForwardPlan, lane: &Lane) -> Result<()> {
        self.queue(plan, lane)?;
        lane.synchronize()
    }
}
