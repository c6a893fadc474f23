//! What is there: devices and routes.

use cake_core::{Arch, Device, Dtype, Op, Place, Shape};
use cake_rmsnorm::{BackwardSpec, RmsNormBackward, RmsNormForward, Spec};
use cake_silu_gate::{SiluGateBackward, SiluGateForward};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::raise;
use crate::tensor::Tensor;

/// Whether a GPU is served.
#[pyfunction]
#[pyo3(signature = (ordinal, /))]
pub(crate) fn is_supported(py: Python<'_>, ordinal: u32) -> bool {
    py.detach(|| Device::new(ordinal).is_ok())
}

/// Whether the stream that is current in a tensor's library is recording a graph.
#[pyfunction]
#[pyo3(signature = (tensor, /))]
pub(crate) fn is_capturing(py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let tensor = Tensor::new("tensor", tensor)?;
    let Place::Cuda(ordinal) = tensor.place() else { return Ok(false) };
    let stream = tensor.stream(py, None)?;
    Device::new(ordinal).and_then(|device| stream.on(&device)?.is_capturing()).map_err(raise)
}

/// A line for each GPU: what it is, or why it is not served.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<String>> {
    let lines = || {
        let line = |ordinal| match Device::new(ordinal) {
            Ok(device) => format!("cuda:{ordinal}: {}", device.info()),
            Err(error) => error.to_string(),
        };
        Ok((0..Device::count()?).map(line).collect())
    };
    py.detach(lines).map_err(raise)
}

/// The driver's version, 1000 * major + 10 * minor.
#[pyfunction]
pub(crate) fn driver_version(py: Python<'_>) -> PyResult<i32> {
    py.detach(Device::driver_version).map_err(raise)
}

/// The routes of a width on an architecture, without a GPU: most rows for each SM, program, evidence.
#[pyfunction]
#[pyo3(signature = (width, arch, weight, offset, residual, gated, backward, /))]
pub(crate) fn routes(
    width: u32,
    arch: &str,
    weight: Option<&str>,
    offset: bool,
    residual: bool,
    gated: bool,
    backward: bool,
) -> PyResult<Vec<(u32, String, &'static str)>> {
    let Some(arch) = Arch::from_target(arch) else {
        let known = Arch::ALL.map(|arch| arch.target()).join(", ");
        return Err(PyValueError::new_err(format!("arch: {arch}, expected one of {known}")));
    };
    let weight = match weight {
        None => None,
        Some("bf16" | "bfloat16") => Some(Dtype::Bf16),
        Some("f32" | "float32") => Some(Dtype::F32),
        Some(other) => return Err(PyValueError::new_err(format!("weight: {other}, expected bf16, f32 or None"))),
    };
    if gated {
        let Some(weight) = weight else {
            return Err(PyValueError::new_err("weight: None, expected one of a gated norm"));
        };
        for (argument, given) in [("offset", offset), ("residual", residual)] {
            if given {
                return Err(PyValueError::new_err(format!("{argument}: True, expected False of a gated norm")));
            }
        }
        let norm = cake_silu_gate::Spec { weight, ..cake_silu_gate::Spec::new(width) };
        return match backward {
            false => table::<SiluGateForward>(norm, arch),
            true => table::<SiluGateBackward>(cake_silu_gate::BackwardSpec::new(norm), arch),
        };
    }
    let norm = Spec { width, weight, offset, residual };
    match backward {
        false => table::<RmsNormForward>(norm, arch),
        true => table::<RmsNormBackward>(BackwardSpec::new(norm), arch),
    }
}

fn table<O: Op>(spec: O::Spec, arch: Arch) -> PyResult<Vec<(u32, String, &'static str)>> {
    O::check_spec(&spec).map_err(raise)?;
    let table = O::routes(&spec, arch, Shape { rows: 1, vectors: true, in_place: false });
    let line =
        |route: &cake_core::Route| (route.rows_per_sm, O::kernels(&spec, route.program)[0].to_string(), route.evidence);
    Ok(table.routes().iter().map(line).collect())
}
