//! RMSNorm: its calls, and what is asked of its plans.

use cake_core::{Dtype, Place};
use cake_rmsnorm::{
    Backward, BackwardSpec, Combine, CombineDw, CombineSpec, Forward, RmsNormBackward, RmsNormForward, Spec,
};
use pyo3::prelude::*;

use crate::error::raise;
use crate::plans::Plans;
use crate::tensor::{Tensor, workspace as lent};

static FORWARD: Plans<RmsNormForward> = Plans::new();
static BACKWARD: Plans<RmsNormBackward> = Plans::new();
static COMBINE: Plans<CombineDw> = Plans::new();

/// A tensor of the call, absent or not.
type Optional<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// Writes `y`, and `h` and `rstd` where they are given.
#[pyfunction]
#[pyo3(signature = (x, weight, eps, offset, residual, y, h, rstd, stream=None, /))]
#[allow(clippy::too_many_arguments)] // one for each argument of the operator
pub(crate) fn forward<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    weight: Optional<'_, 'py>,
    eps: f32,
    offset: bool,
    residual: Optional<'_, 'py>,
    y: &Bound<'py, PyAny>,
    h: Optional<'_, 'py>,
    rstd: Optional<'_, 'py>,
    stream: Option<u64>,
) -> PyResult<()> {
    let x = Tensor::new("x", x)?;
    let weight = Tensor::optional("weight", weight)?;
    let residual = Tensor::optional("residual", residual)?;
    let y = Tensor::new("out", y)?;
    let h = Tensor::optional("h", h)?;
    let rstd = Tensor::optional("rstd", rstd)?;
    let stream = x.stream(py, stream)?;

    let weight_dtype = weight.as_ref().map(Tensor::dtype).transpose()?;
    let spec = Spec { width: x.width()?, weight: weight_dtype, offset, residual: residual.is_some() };
    let args = Forward {
        x: x.view()?,
        weight: weight.as_ref().map(Tensor::view).transpose()?,
        eps,
        residual: residual.as_ref().map(Tensor::view).transpose()?,
        y: y.view_mut()?,
        h: h.as_ref().map(Tensor::view_mut).transpose()?,
        rstd: rstd.as_ref().map(Tensor::view_mut).transpose()?,
    };
    let result = FORWARD.run(py, x.place(), spec, stream, |plan, stream| match stream {
        Some(stream) => plan.run(stream, args),
        None => plan.run_host(args),
    })?;
    result.map_err(raise)
}

/// Writes `dx` and `dw` where they are given. Returns 0, or, with nothing written, the bytes that a workspace needs where
/// the one given has too few.
#[pyfunction]
#[pyo3(signature = (dy, x, weight, rstd, eps, offset, dh, dx, dw, accumulate, deterministic, max_sms, workspace, stream=None, /))]
#[allow(clippy::too_many_arguments)] // one for each argument of the operator
pub(crate) fn backward<'py>(
    py: Python<'py>,
    dy: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
    weight: Optional<'_, 'py>,
    rstd: Optional<'_, 'py>,
    eps: f32,
    offset: bool,
    dh: Optional<'_, 'py>,
    dx: Optional<'_, 'py>,
    dw: Optional<'_, 'py>,
    accumulate: bool,
    deterministic: bool,
    max_sms: Option<u32>,
    workspace: Optional<'_, 'py>,
    stream: Option<u64>,
) -> PyResult<u64> {
    let dy = Tensor::new("dy", dy)?;
    let x = Tensor::new("x", x)?;
    let weight = Tensor::optional("weight", weight)?;
    let rstd = Tensor::optional("rstd", rstd)?;
    let dh = Tensor::optional("dh", dh)?;
    let dx = Tensor::optional("dx", dx)?;
    let dw = Tensor::optional("dw", dw)?;
    let place = x.place();
    let scratch = Tensor::optional("workspace", workspace)?.map(|tensor| tensor.bytes(place)).transpose()?;
    let stream = x.stream(py, stream)?;

    let dtype = |tensor: &Option<Tensor<'_>>| tensor.as_ref().map(Tensor::dtype).transpose();
    let norm = Spec { width: x.width()?, weight: dtype(&weight)?, offset, residual: dh.is_some() };
    let spec = BackwardSpec {
        norm,
        rstd: rstd.is_some(),
        dx: dx.is_some(),
        dw: dtype(&dw)?,
        accumulate,
        deterministic,
        max_sms,
    };
    let args = Backward {
        dy: dy.view()?,
        x: x.view()?,
        weight: weight.as_ref().map(Tensor::view).transpose()?,
        rstd: rstd.as_ref().map(Tensor::view).transpose()?,
        eps,
        dh: dh.as_ref().map(Tensor::view).transpose()?,
        dx: dx.as_ref().map(Tensor::view_mut).transpose()?,
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

/// Joins the weight gradients of row shards.
#[pyfunction]
#[pyo3(signature = (shards, dw, accumulate, stream=None, /))]
pub(crate) fn combine<'py>(
    py: Python<'py>,
    shards: &Bound<'py, PyAny>,
    dw: &Bound<'py, PyAny>,
    accumulate: bool,
    stream: Option<u64>,
) -> PyResult<()> {
    let shards = Tensor::new("shards", shards)?;
    let dw = Tensor::new("dw", dw)?;
    let stream = shards.stream(py, stream)?;
    let spec = CombineSpec { width: shards.width()?, dw: dw.dtype()?, accumulate };
    let args = Combine { shards: shards.view()?, dw: dw.view_mut()? };
    let result = COMBINE.run(py, shards.place(), spec, stream, |plan, stream| match stream {
        Some(stream) => plan.run(stream, args),
        None => plan.run_host(args),
    })?;
    result.map_err(raise)
}

/// Bytes of a workspace that serves every backward of up to `rows` rows of `width` on a GPU.
#[pyfunction]
#[pyo3(signature = (rows, width, ordinal, /))]
pub(crate) fn workspace_bytes(py: Python<'_>, rows: u32, width: u32, ordinal: u32) -> PyResult<u64> {
    let bytes = |spec| Ok(BACKWARD.get(Place::Cuda(ordinal), spec)?.workspace_bytes(rows));
    let bytes = || {
        backward_specs(width, &[Some(Dtype::Bf16), Some(Dtype::F32)]).map(bytes).try_fold(0, |most, bytes| {
            let bytes: cake_core::Result<u64> = bytes;
            Ok(most.max(bytes?))
        })
    };
    py.detach(bytes).map_err(raise)
}

/// Loads what serves rows of `width` on a GPU, so that the first call may be inside a graph capture.
#[pyfunction]
#[pyo3(signature = (width, ordinal, /))]
pub(crate) fn warm_up(py: Python<'_>, width: u32, ordinal: u32) -> PyResult<()> {
    let place = Place::Cuda(ordinal);
    let load = || {
        for norm in norms(width, &WEIGHTS) {
            FORWARD.get(place, norm)?.warm_up()?;
        }
        for spec in backward_specs(width, &WEIGHTS) {
            BACKWARD.get(place, spec)?.warm_up()?;
        }
        for dw in [Dtype::F32, Dtype::Bf16] {
            for accumulate in [false, true] {
                COMBINE.get(place, CombineSpec { width, dw, accumulate })?.warm_up()?;
            }
        }
        Ok(())
    };
    py.detach(load).map_err(raise)
}

/// Kinds of weight.
const WEIGHTS: [Option<Dtype>; 3] = [Some(Dtype::Bf16), Some(Dtype::F32), None];

/// Every forward of a width.
fn norms(width: u32, weights: &[Option<Dtype>]) -> impl Iterator<Item = Spec> {
    let flags = [(false, false), (false, true), (true, false), (true, true)];
    let all = weights
        .iter()
        .flat_map(move |&weight| flags.map(|(offset, residual)| Spec { width, weight, offset, residual }));
    all.filter(|spec| spec.weight.is_some() || !spec.offset)
}

/// Every backward of a width that uses all SMs.
fn backward_specs(width: u32, weights: &[Option<Dtype>]) -> impl Iterator<Item = BackwardSpec> {
    norms(width, weights).flat_map(|norm| {
        let gradients = [
            None,
            Some((Dtype::F32, false)),
            Some((Dtype::F32, true)),
            Some((Dtype::Bf16, false)),
            Some((Dtype::Bf16, true)),
        ];
        let each = [true, false].into_iter().flat_map(move |dx| gradients.map(|dw| (dx, dw)));
        let each = each.filter(move |(dx, dw)| (*dx || dw.is_some()) && (dw.is_none() || norm.weight.is_some()));
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        each.flat_map(move |(dx, dw)| {
            flags.map(|(rstd, deterministic)| BackwardSpec {
                rstd,
                dx,
                dw: dw.map(|(dtype, _)| dtype),
                accumulate: dw.is_some_and(|(_, accumulate)| accumulate),
                deterministic,
                ..BackwardSpec::new(norm)
            })
        })
    })
}
