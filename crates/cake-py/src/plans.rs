//! Plans kept for the life of the process, one for each place and specification.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cake_core::{Device, Error, Op, Place, Plan, Result, Stream};
use pyo3::{PyResult, Python};

use crate::error::raise;
use crate::pool::pool;
use crate::tensor::StreamAddress;

type Map<O> = HashMap<(Place, <O as Op>::Spec), Arc<Plan<O>>>;

/// The plans of one operator.
pub(crate) struct Plans<O: Op>(OnceLock<RwLock<Map<O>>>);

impl<O: Op> Plans<O>
where
    O::Spec: Copy + Eq + Hash,
{
    pub(crate) const fn new() -> Self {
        Plans(OnceLock::new())
    }

    /// The plan of a specification, made on first use.
    pub(crate) fn get(&self, place: Place, spec: O::Spec) -> Result<Arc<Plan<O>>> {
        let plans = self.0.get_or_init(Default::default);
        if let Some(plan) = plans.read().unwrap_or_else(PoisonError::into_inner).get(&(place, spec)) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(match place {
            Place::Host => Plan::host(spec)?,
            Place::Cuda(ordinal) => Plan::new(&Device::new(ordinal)?, spec)?,
        });
        Ok(plans.write().unwrap_or_else(PoisonError::into_inner).entry((place, spec)).or_insert(plan).clone())
    }

    /// Makes a call with the plan, and with the stream where the place is a GPU, without the interpreter's lock.
    pub(crate) fn run(
        &self,
        py: Python<'_>,
        place: Place,
        spec: O::Spec,
        stream: StreamAddress,
        call: impl FnOnce(&Plan<O>, Option<&Stream>) -> Result<()> + Send,
    ) -> PyResult<Result<()>> {
        py.detach(|| match place {
            Place::Host => {
                let pool = pool()?;
                Ok(self.get(place, spec).and_then(|plan| pool.install(|| call(&plan, None))))
            }
            Place::Cuda(ordinal) => Ok(self.get(place, spec).and_then(|plan| {
                let stream = stream.on(&Device::new(ordinal)?)?;
                call(&plan, Some(&stream))
            })),
        })
    }

    /// What a call came to that may have lacked workspace: 0, or the bytes that it needs for a tensor of this shape.
    pub(crate) fn lacking(&self, place: Place, spec: O::Spec, shape: &[u64], result: Result<()>) -> PyResult<u64> {
        match result {
            Err(Error::WorkspaceShort { .. } | Error::Missing { argument: "workspace", .. }) => {
                let rows = shape.iter().rev().skip(1).product::<u64>();
                let plan = self.get(place, spec).map_err(raise)?;
                Ok(plan.workspace_bytes(u32::try_from(rows).unwrap_or(u32::MAX)))
            }
            result => result.map(|()| 0).map_err(raise),
        }
    }
}
