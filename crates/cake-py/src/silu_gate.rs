//! The gated RMSNorm: its calls, and what is asked of its plans.

use cake_core::{Dtype, Place};
use cake_silu_gate::{Activation, Backward, BackwardSpec, Forward, SiluGateBackward, SiluGateForward, Spec};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::raise;
use crate::plans::Plans;
use crate::tensor::{Tensor, workspace as lent};

static FORWARD: Plans<SiluGateForward> = Plans::new();
static BACKWARD: Plans<SiluGateBackward> = Plans::new();

/// A tensor of the call, absent or not.
type Optional<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// Writes `y`, and `rstd` where it is given.
#[pyfunction]
#[pyo3(signature = (x, z, weight, eps, activation, gate_first, y, rstd, stream=None, /))]
#[allow(clippy::too_many_arguments)] // one for each argument of the operator
pub(crate) fn gate_forward<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    z: &Bound<'py, PyAny>,
    weight: &Bound<'py, PyAny>,
    eps: f32,
    activation: &str,
    gate_first: bool,
    y: &Bound<'py, PyAny>,
    rstd: Optional<'_, 'py>,
    stream: Option<u64>,
) -> PyResult<()> {
    let x = Tensor::new("x", x)?;
    let z = Tensor::new("z", z)?;
    let weight = Tensor::new("weight", weight)?;
    let y = Tensor::new("out", y)?;
    let rstd = Tensor::optional("rstd", rstd)?;
    let stream = x.stream(py, stream)?;
    let spec = norm(x.width()?, weight.dtype()?, activation, gate_first)?;
    let args = Forward {
        x: x.view()?,
        z: z.view()?,
        weight: weight.view()?,
        eps,
        y: y.view_mut()?,
        rstd: rstd.as_ref().map(Tensor::view_mut).transpose()?,
    };
    let result = FORWARD.run(py, x.place(), spec, stream, |plan, stream| match stream {
        Some(stream) => plan.run(stream, args),
        None => plan.run_host(args),
    })?;
    result.map_err(raise)
}

/// Writes `dx`, `dz`, and `dw` where it is given. Returns 0, or, with nothing written, the bytes that a workspace needs
/// where the one given has too few.
#[pyfunction]
#[pyo3(signature = (
    dy, x, z, weight, rstd, eps, activation, gate_first, dx, dz, dw, accumulate, deterministic, max_sms, workspace,
    stream=None, /
))]
#[allow(clippy::too_many_arguments)] // one for each argument of the operator
pub(crate) fn gate_backward<'py>(
    py: Python<'py>,
    dy: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
    z: &Bound<'py, PyAny>,
    weight: &Bound<'py, PyAny>,
    rstd: Optional<'_, 'py>,
    eps: f32,
    activation: &str,
    gate_first: bool,
    dx: &Bound<'py, PyAny>,
    dz: &Bound<'py, PyAny>,
    dw: Optional<'_, 'py>,
    accumulate: bool,
    deterministic: bool,
    max_sms: Option<u32>,
    workspace: Optional<'_, 'py>,
    stream: Option<u64>,
) -> PyResult<u64> {
    let dy = Tensor::new("dy", dy)?;
    let x = Tensor::new("x", x)?;
    let z = Tensor::new("z", z)?;
    let weight = Tensor::new("weight", weight)?;
    let rstd = Tensor::optional("rstd", rstd)?;
    let dx = Tensor::new("dx", dx)?;
    let dz = Tensor::new("dz", dz)?;
    let dw = Tensor::optional("dw", dw)?;
    let place = x.place();
    let scratch = Tensor::optional("workspace", workspace)?.map(|tensor| tensor.bytes(place)).transpose()?;
    let stream = x.stream(py, stream)?;
    let spec = BackwardSpec {
        rstd: rstd.is_some(),
        dw: dw.as_ref().map(Tensor::dtype).transpose()?,
        accumulate,
        deterministic,
        max_sms,
        ..BackwardSpec::new(norm(x.width()?, weight.dtype()?, activation, gate_first)?)
    };
    let args = Backward {
        dy: dy.view()?,
        x: x.view()?,
        z: z.view()?,
        weight: weight.view()?,
        rstd: rstd.as_ref().map(Tensor::view).transpose()?,
        eps,
        dx: dx.view_mut()?,
        dz: dz.view_mut()?,
        dw: dw.as_ref().map(Tensor::view_mut).transpose()?,
        workspace: None,
    };
    let result = BACKWARD.run(py, place, spec, stream, |plan, stream| {
        let Some(stream) = stream else { return plan.run_host(args) };
        let mut scratch = scratch.map(|bytes| lent(stream, bytes)).transpose()?;
        plan.run(stream, Backward { workspace: scratch.as_mut(), ..args })
    })?;
    BACKWARD.lacking(place, spec, x.shape(), result)
}

/// As `workspace_bytes`, of the gated norm.
#[pyfunction]
#[pyo3(signature = (rows, width, ordinal, /))]
pub(crate) fn gate_workspace_bytes(py: Python<'_>, rows: u32, width: u32, ordinal: u32) -> PyResult<u64> {
    let bytes = || {
        backward_specs(width).try_fold(0, |most: u64, spec| {
            Ok(most.max(BACKWARD.get(Place::Cuda(ordinal), spec)?.workspace_bytes(rows)))
        })
    };
    py.detach(bytes).map_err(raise)
}

/// Loads what serves gated rows of `width` on a GPU, so that the first call may be inside a graph capture.
#[pyfunction]
#[pyo3(signature = (width, ordinal, /))]
pub(crate) fn gate_warm_up(py: Python<'_>, width: u32, ordinal: u32) -> PyResult<()> {
    let place = Place::Cuda(ordinal);
    let load = || {
        for norm in norms(width) {
            FORWARD.get(place, norm)?.warm_up()?;
        }
        for spec in backward_specs(width) {
            BACKWARD.get(place, spec)?.warm_up()?;
        }
        Ok(())
    };
    py.detach(load).map_err(raise)
}

/// Every gated norm of a width.
fn norms(width: u32) -> impl Iterator<Item = Spec> {
    let forms =
        [Activation::Silu, Activation::Sigmoid].into_iter().flat_map(|a| [false, true].map(move |first| (a, first)));
    forms.flat_map(move |(activation, gate_first)| {
        [Dtype::Bf16, Dtype::F32].map(|weight| Spec { width, weight, activation, gate_first })
    })
}

/// Every backward of a width that uses all SMs.
fn backward_specs(width: u32) -> impl Iterator<Item = BackwardSpec> {
    let gradients = [
        (None, false),
        (Some(Dtype::F32), false),
        (Some(Dtype::F32), true),
        (Some(Dtype::Bf16), false),
        (Some(Dtype::Bf16), true),
    ];
    let flags = [(false, false), (false, true), (true, false), (true, true)];
    norms(width).flat_map(move |norm| {
        gradients.into_iter().flat_map(move |(dw, accumulate)| {
            flags.map(|(rstd, deterministic)| BackwardSpec {
                rstd,
                dw,
                accumulate,
                deterministic,
                ..BackwardSpec::new(norm)
            })
        })
    })
}

fn norm(width: u32, weight: Dtype, activation: &str, gate_first: bool) -> PyResult<Spec> {
    let activation = match activation {
        "silu" | "swish" => Activation::Silu,
        "sigmoid" => Activation::Sigmoid,
        other => return Err(PyValueError::new_err(format!("activation: {other}, expected silu, swish or sigmoid"))),
    };
    Ok(Spec { width, weight, activation, gate_first })
}
