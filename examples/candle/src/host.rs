//! The operator on the CPU's storage.

use cake_rmsnorm::{Backward, BackwardPlan, Dtype, Forward, ForwardPlan, TensorView, TensorViewMut};
use candle_core::{CpuStorage, Error, Layout, Result, bail};
use half::bf16;

use crate::{lead, sizes};

/// A tensor's storage and its place in it.
type Part<'a> = (&'a CpuStorage, &'a Layout);

/// `y` and `rstd`.
pub(crate) fn forward(plan: &ForwardPlan, eps: f32, x: Part<'_>, w: Part<'_>) -> Result<(CpuStorage, CpuStorage)> {
    let (shape, _) = sizes(x.1);
    let lead: Vec<u64> = lead(x.1).into_iter().map(|size| size as u64).collect();
    let mut y = vec![bf16::ZERO; x.1.shape().elem_count()];
    let mut rstd = vec![0f32; lead.iter().product::<u64>() as usize];
    let args = Forward {
        x: view("x", x)?,
        weight: Some(view("weight", w)?),
        eps,
        residual: None,
        y: TensorViewMut::from_slice("y", &mut y, &shape).map_err(Error::wrap)?,
        h: None,
        rstd: Some(TensorViewMut::from_slice("rstd", &mut rstd, &lead).map_err(Error::wrap)?),
    };
    plan.run_host(args).map_err(Error::wrap)?;
    Ok((CpuStorage::BF16(y), CpuStorage::F32(rstd)))
}

/// `dx` and `dw`.
pub(crate) fn backward(
    plan: &BackwardPlan,
    eps: f32,
    dy: Part<'_>,
    x: Part<'_>,
    w: Part<'_>,
    rstd: Part<'_>,
) -> Result<(CpuStorage, CpuStorage)> {
    let ((shape, _), width) = (sizes(x.1), w.1.shape().elem_count());
    let mut dx = vec![bf16::ZERO; x.1.shape().elem_count()];
    let (mut dw_bf16, mut dw_f32) = (vec![bf16::ZERO; width], vec![0f32; width]);
    let fp32 = plan.spec().dw == Some(Dtype::F32);
    let dw = match fp32 {
        true => TensorViewMut::from_slice("dw", &mut dw_f32, &[width as u64]),
        false => TensorViewMut::from_slice("dw", &mut dw_bf16, &[width as u64]),
    };
    let args = Backward {
        dy: view("dy", dy)?,
        x: view("x", x)?,
        weight: Some(view("weight", w)?),
        rstd: Some(view("rstd", rstd)?),
        eps,
        dh: None,
        dx: Some(TensorViewMut::from_slice("dx", &mut dx, &shape).map_err(Error::wrap)?),
        dw: Some(dw.map_err(Error::wrap)?),
        workspace: None,
    };
    plan.run_host(args).map_err(Error::wrap)?;
    Ok((CpuStorage::BF16(dx), if fp32 { CpuStorage::F32(dw_f32) } else { CpuStorage::BF16(dw_bf16) }))
}

fn view<'a>(argument: &'static str, (storage, layout): Part<'a>) -> Result<TensorView<'a>> {
    let ((shape, strides), first) = (sizes(layout), layout.start_offset());
    let view = match storage {
        CpuStorage::BF16(data) => TensorView::from_slice_strided(argument, &data[first..], &shape, &strides),
        CpuStorage::F32(data) => TensorView::from_slice_strided(argument, &data[first..], &shape, &strides),
        _ => bail!("{argument}: expected BF16 or F32"),
    };
    view.map_err(Error::wrap)
}
