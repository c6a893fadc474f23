//! Where cases run.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cake_core::{Device, Op, Place, Plan, Program, Result, Shape, Stream};
use cake_rmsnorm::RmsNormForward;

use crate::report::tally::{HOST, ROUTED};

/// The host, or a GPU.
#[derive(Clone, Debug)]
pub enum Target {
    /// The host implementation.
    Host,
    /// A live GPU.
    Cuda(Device),
}

impl Target {
    /// Where its tensors live.
    pub fn place(&self) -> Place {
        match self {
            Target::Host => Place::Host,
            Target::Cuda(device) => Place::Cuda(device.info().ordinal),
        }
    }

    /// The GPU.
    pub fn device(&self) -> Option<&Device> {
        match self {
            Target::Host => None,
            Target::Cuda(device) => Some(device),
        }
    }

    /// What stands for a program in reports where a plan is made as a user makes it.
    pub fn routed(&self) -> &'static str {
        match self {
            Target::Host => HOST,
            Target::Cuda(_) => ROUTED,
        }
    }

    /// A plan as a user makes it.
    pub fn plan<O: Op>(&self, spec: &O::Spec) -> Result<Plan<O>> {
        match self {
            Target::Host => Plan::host(spec.clone()),
            Target::Cuda(device) => Plan::new(device, spec.clone()),
        }
    }

    /// Every plan that can serve a specification: the routed one, and one for each program. Made once for each
    /// specification: loading functions takes longer than a small case.
    pub fn plans<O: Op>(&self, spec: &O::Spec) -> Result<Arc<Vec<Way<O>>>> {
        static PLANS: Mutex<BTreeMap<String, Arc<dyn Any + Send + Sync>>> = Mutex::new(BTreeMap::new());
        let key = format!("{} on {}: {spec:?}", O::NAME, self.place());
        let known = PLANS.lock().expect("no panic under the lock").get(&key).cloned();
        if let Some(ways) = known {
            return Ok(ways.downcast().expect("the key names the operator"));
        }
        let ways = Arc::new(self.make_plans(spec)?);
        PLANS.lock().expect("no panic under the lock").insert(key, ways.clone());
        Ok(ways)
    }

    fn make_plans<O: Op>(&self, spec: &O::Spec) -> Result<Vec<Way<O>>> {
        let mut ways = vec![Way { name: self.routed().into(), program: None, plan: self.plan(spec)? }];
        if let Target::Cuda(device) = self {
            for program in O::programs(spec, device.info().arch) {
                let name = program.to_string();
                let plan = Plan::forced(device, spec.clone(), &name)?;
                ways.push(Way { name, program: Some(program), plan });
            }
        }
        Ok(ways)
    }

    /// A queue of its own.
    pub fn lane(&self) -> Result<Lane> {
        Ok(match self {
            Target::Host => Lane::Host,
            Target::Cuda(device) => Lane::Cuda(Stream::new(device)?),
        })
    }
}

/// One way to compute a case.
pub struct Way<O: Op = RmsNormForward> {
    /// [`Target::routed`], or the program's name.
    pub name: String,
    /// The forced program.
    pub program: Option<&'static Program>,
    /// The plan.
    pub plan: Plan<O>,
}

impl<O: Op> Way<O> {
    /// Why the way must refuse calls of a shape, if it must.
    pub fn obstacle(&self, spec: &O::Spec, shape: Shape) -> Option<&'static str> {
        O::obstacle(spec, self.program?, shape).filter(|_| !O::is_idle(spec, shape))
    }
}

/// What calls of one case are queued on.
#[derive(Debug)]
pub enum Lane {
    /// Nothing: the host computes at once.
    Host,
    /// A stream.
    Cuda(Stream),
}

impl Lane {
    /// Waits for all queued work.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Lane::Host => Ok(()),
            Lane::Cuda(stream) => stream.synchronize(),
        }
    }

    /// Where tensors of its calls live.
    pub fn place(&self) -> Place {
        self.stream().map_or(Place::Host, Stream::place)
    }

    /// The stream of a GPU lane.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Lane::Host => None,
            Lane::Cuda(stream) => Some(stream),
        }
    }
}
