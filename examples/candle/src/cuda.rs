//! The operator on a GPU's storage: candle's memory and stream, nothing copied.
#![allow(unsafe_code)] // views of device memory, whose extent no type knows

use cake_rmsnorm::{
    Backward, BackwardPlan, BackwardSpec, Device, Dtype, Forward, ForwardPlan, Place, Spec, Stream, TensorView,
    TensorViewMut, Workspace,
};
use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use candle_core::cuda_backend::{CudaDevice, CudaStorage, CudaStorageSlice};
use candle_core::{DType, DeviceLocation, Error, Layout, Result, bail};

use crate::{Plans, lead, sizes};

/// A tensor's storage and its place in it.
type Part<'a> = (&'a CudaStorage, &'a Layout);

/// Plans for candle's device. Both libraries use its primary context, so they see each other's memory and streams.
pub(crate) fn plans(device: &CudaDevice, spec: Spec, backward: BackwardSpec) -> Result<Plans> {
    let device = Device::new(ordinal(device)).map_err(Error::wrap)?;
    Ok(Plans {
        forward: ForwardPlan::new(&device, spec).map_err(Error::wrap)?,
        backward: BackwardPlan::new(&device, backward).map_err(Error::wrap)?,
    })
}

/// `y` and `rstd`.
pub(crate) fn forward(plan: &ForwardPlan, eps: f32, x: Part<'_>, w: Part<'_>) -> Result<(CudaStorage, CudaStorage)> {
    let device = &x.0.device;
    let (stream, queue) = (device.cuda_stream(), queue(device)?);
    let mut y = unwritten(device, x.1.dims(), DType::BF16)?;
    let mut rstd = unwritten(device, &lead(x.1), DType::F32)?;
    {
        // The guards tell candle's streams when a pointer is no longer used; they end with the block.
        let (x_view, _x) = view("x", x, &stream)?;
        let (weight, _w) = view("weight", w, &stream)?;
        let (y, _y) = output("y", &mut y, x.1.dims(), &stream)?;
        let (rstd, _rstd) = output("rstd", &mut rstd, &lead(x.1), &stream)?;
        let args = Forward { x: x_view, weight: Some(weight), eps, residual: None, y, h: None, rstd: Some(rstd) };
        plan.run(&queue, args).map_err(Error::wrap)?;
    }
    Ok((y, rstd))
}

/// `dx` and `dw`.
pub(crate) fn backward(
    plan: &BackwardPlan,
    eps: f32,
    dy: Part<'_>,
    x: Part<'_>,
    w: Part<'_>,
    rstd: Part<'_>,
) -> Result<(CudaStorage, CudaStorage)> {
    let device = &x.0.device;
    let (stream, queue) = (device.cuda_stream(), queue(device)?);
    let mut dx = unwritten(device, x.1.dims(), DType::BF16)?;
    let mut dw = unwritten(device, w.1.dims(), w.0.dtype())?;
    let rows = lead(x.1).iter().product::<usize>() as u32;
    let bytes = plan.workspace_bytes(rows).max(Workspace::HEADER);
    // SAFETY: what the kernels read of it they have written, or `reset` has. Candle frees it in order with the stream, so it
    // may go when this function returns.
    let mut scratch = unsafe { device.alloc::<u8>(bytes as usize) }?;
    {
        let (address, _scratch) = scratch.device_ptr_mut(&stream);
        // SAFETY: the memory is this call's alone (C1 and C2 of docs/safety.md).
        let mut workspace = unsafe { Workspace::from_raw(&queue, address, bytes) }.map_err(Error::wrap)?;
        workspace.reset(&queue).map_err(Error::wrap)?;
        let (dy, _dy) = view("dy", dy, &stream)?;
        let (x_view, _x) = view("x", x, &stream)?;
        let (weight, _w) = view("weight", w, &stream)?;
        let (rstd, _rstd) = view("rstd", rstd, &stream)?;
        let (dx, _dx) = output("dx", &mut dx, x.1.dims(), &stream)?;
        let (dw, _dw) = output("dw", &mut dw, w.1.dims(), &stream)?;
        let args = Backward {
            dy,
            x: x_view,
            weight: Some(weight),
            rstd: Some(rstd),
            eps,
            dh: None,
            dx: Some(dx),
            dw: Some(dw),
            workspace: Some(&mut workspace),
        };
        plan.run(&queue, args).map_err(Error::wrap)?;
    }
    Ok((dx, dw))
}

fn ordinal(device: &CudaDevice) -> u32 {
    match device.location() {
        DeviceLocation::Cuda { gpu_id } => gpu_id as u32,
        _ => unreachable!("a CudaDevice is a GPU"),
    }
}

/// Candle's stream, for Cake.
fn queue(device: &CudaDevice) -> Result<Stream> {
    let cake = Device::new(ordinal(device)).map_err(Error::wrap)?;
    // SAFETY: the device owns the stream, and outlives the call that the value is made for.
    unsafe { Stream::from_raw(&cake, device.cuda_stream().cu_stream().cast()) }.map_err(Error::wrap)
}

/// Memory for an output of which every element will be written.
fn unwritten(device: &CudaDevice, shape: &[usize], dtype: DType) -> Result<CudaStorage> {
    // SAFETY: nothing reads it before the kernel that writes it.
    unsafe { device.alloc_uninit(&shape.into(), dtype) }
}

fn view<'a>(
    argument: &'static str,
    (storage, layout): Part<'a>,
    stream: &'a CudaStream,
) -> Result<(TensorView<'a>, SyncOnDrop<'a>)> {
    let (size, length, dtype, (address, guard)) = match &storage.slice {
        CudaStorageSlice::BF16(data) => (2, data.len(), Dtype::Bf16, data.device_ptr(stream)),
        CudaStorageSlice::F32(data) => (4, data.len(), Dtype::F32, data.device_ptr(stream)),
        _ => bail!("{argument}: expected BF16 or F32"),
    };
    let (place, (shape, strides)) = (Place::Cuda(ordinal(&storage.device)), sizes(layout));
    let first = layout.start_offset();
    let (address, bytes) = (address + (size * first) as u64, (size * (length - first)) as u64);
    // SAFETY: the slice owns these bytes; candle frees them in order with the stream (C1 and C2 of docs/safety.md).
    let view = unsafe { TensorView::from_raw(argument, place, address, bytes, dtype, &shape, &strides) };
    Ok((view.map_err(Error::wrap)?, guard))
}

fn output<'a>(
    argument: &'static str,
    storage: &'a mut CudaStorage,
    shape: &[usize],
    stream: &'a CudaStream,
) -> Result<(TensorViewMut<'a>, SyncOnDrop<'a>)> {
    let (place, (shape, strides)) = (Place::Cuda(ordinal(&storage.device)), sizes(&Layout::contiguous(shape)));
    let (bytes, dtype, (address, guard)) = match &mut storage.slice {
        CudaStorageSlice::BF16(data) => (2 * data.len() as u64, Dtype::Bf16, data.device_ptr_mut(stream)),
        CudaStorageSlice::F32(data) => (4 * data.len() as u64, Dtype::F32, data.device_ptr_mut(stream)),
        _ => bail!("{argument}: expected BF16 or F32"),
    };
    // SAFETY: as for `view`; the storage is new, so nothing else knows it (C2 of docs/safety.md).
    let view = unsafe { TensorViewMut::from_raw(argument, place, address, bytes, dtype, &shape, &strides) };
    Ok((view.map_err(Error::wrap)?, guard))
}
