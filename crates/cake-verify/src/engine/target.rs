//! Where cases run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cake_core::{Device, Op, Place, Program, Result, Stream};
use cake_rmsnorm::{ForwardPlan, RmsNormForward, Spec};

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

    /// A plan as a user makes it.
    pub fn plan(&self, spec: &Spec) -> Result<ForwardPlan> {
        match self {
            Target::Host => ForwardPlan::host(*spec),
            Target::Cuda(device) => ForwardPlan::new(device, *spec),
        }
    }

    /// Every plan that can serve a specification: the routed one, and one for each program. Made once for each
    /// specification: loading functions takes longer than a small case.
    pub fn plans(&self, spec: &Spec) -> Result<Arc<Vec<Way>>> {
        static PLANS: Mutex<BTreeMap<String, Arc<Vec<Way>>>> = Mutex::new(BTreeMap::new());
        let key = format!("{} {spec:?}", self.place());
        if let Some(ways) = PLANS.lock().expect("no panic under the lock").get(&key) {
            return Ok(ways.clone());
        }
        let ways = Arc::new(self.make_plans(spec)?);
        PLANS.lock().expect("no panic under the lock").insert(key, ways.clone());
        Ok(ways)
    }

    fn make_plans(&self, spec: &Spec) -> Result<Vec<Way>> {
        let mut ways = vec![Way { name: "routed".into(), program: None, plan: self.plan(spec)? }];
        if let Target::Cuda(device) = self {
            for program in RmsNormForward::programs(spec, device.info().arch) {
                let name = program.to_string();
                let plan = ForwardPlan::forced(device, *spec, &name)?;
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
pub struct Way {
    /// `routed`, or the program's name.
    pub name: String,
    /// The forced program.
    pub program: Option<&'static Program>,
    /// The plan.
    pub plan: ForwardPlan,
}

impl Way {
    /// Whether the way must refuse calls whose layout allows no vectors.
    pub fn needs_vectors(&self, spec: &Spec) -> bool {
        self.program.is_some_and(|program| RmsNormForward::kernels(spec, program).iter().any(|kernel| kernel.vectors))
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

    /// The stream of a GPU lane.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Lane::Host => None,
            Lane::Cuda(stream) => Some(stream),
        }
    }
}
