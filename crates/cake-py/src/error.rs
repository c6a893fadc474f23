//! Errors as Python has them.

use cake_core::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

/// A `ValueError` for what the caller can mend in the call, a `RuntimeError` for what the machine lacks or refuses.
pub(crate) fn raise(error: Error) -> PyErr {
    let text = renamed(error.to_string());
    match error {
        Error::DriverMissing
        | Error::DriverTooOld { .. }
        | Error::NoDevice { .. }
        | Error::UnsupportedDevice { .. }
        | Error::WarmUpNeeded { .. }
        | Error::Image { .. }
        | Error::Program { .. }
        | Error::Cuda { .. } => PyRuntimeError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// Names the output of a forward as the functions in Python do.
fn renamed(text: String) -> String {
    let text = text.replace(" overlaps y (", " overlaps out (");
    match text.strip_prefix("y") {
        Some(rest) if rest.starts_with([':', ' ']) => format!("out{rest}"),
        _ => text,
    }
}
