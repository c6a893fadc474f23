//! The threads of the host path.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// How many forks lie between this process and the first one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in the child of a fork.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The pool of this process. A fork copies no threads, so the child of a process that has one makes its own; the copy
/// is left alone, as ending it would wait for threads that are not there.
pub(crate) fn pool() -> PyResult<&'static ThreadPool> {
    static POOL: Mutex<Option<(u32, &ThreadPool)>> = Mutex::new(None);
    let forks = FORKS.load(Ordering::Relaxed);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((owner, pool)) = *pool
        && owner == forks
    {
        return Ok(pool);
    }
    let new = ThreadPoolBuilder::new().thread_name(|index| format!("cake-{index}")).build();
    let new = new.map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let new = Box::leak(Box::new(new));
    *pool = Some((forks, new));
    Ok(new)
}
