//! Cake for Python: the extension module `cake_py._cake` behind the package in `python/cake_py`.
//!
//! It takes tensors of any library by the protocols that they share (`tensor`), keeps plans (`plans`), and calls the
//! operators: on the GPU on the stream that it is told, or that is current in the tensors' library, and for host memory
//! at once. PyTorch is not known here.

mod dlpack;
mod error;
mod plans;
mod pool;
mod query;
mod rmsnorm;
mod silu_gate;
mod tensor;

/// Private: the functions take every argument by position, and `cake_py` gives them their names.
#[pyo3::pymodule(gil_used = false)]
mod _cake {
    #[pymodule_export]
    use crate::pool::forked;
    #[pymodule_export]
    use crate::query::{devices, driver_version, is_capturing, is_supported, routes};
    #[pymodule_export]
    use crate::rmsnorm::{backward, combine, forward, warm_up, workspace_bytes};
    #[pymodule_export]
    use crate::silu_gate::{gate_backward, gate_forward, gate_warm_up, gate_workspace_bytes};

    #[allow(non_upper_case_globals)] // Python's name for it
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
