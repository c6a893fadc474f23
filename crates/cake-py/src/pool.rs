//! The threads of the host path.

use std::process;
use std::sync::{Mutex, PoisonError};

use pyo3::PyResult;
use pyo3::exceptions::PyRuntimeError;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The pool of this process. A fork copies no threads, so the child of a process that has one makes its own; the copy
/// is left alone, as ending it would wait for threads that are not there.
pub(crate) fn pool() -> PyResult<&'static ThreadPool> {
    static POOL: Mutex<Option<(u32, &'static ThreadPool)>> = Mutex::new(None);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((owner, pool)) = *pool
        && owner == process::id()
    {
        return Ok(pool);
    }
    let new = ThreadPoolBuilder::new().thread_name(|index| format!("cake-{index}")).build();
    let new = new.map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let new = Box::leak(Box::new(new));
    *pool = Some((process::id(), new));
    Ok(new)
}
