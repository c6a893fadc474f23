//! RMSNorm between `cudarc` buffers: called eagerly, then captured into a CUDA graph and replayed with new data.
//!
//! Without a GPU that Cake serves it prints the reason and ends.
//!
//! ```text
//! cargo run --release -p cake-rmsnorm --example cudarc_graph
//! ```

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cake_rmsnorm::{Device, Dtype, Forward, ForwardPlan, Place, Spec, Stream, TensorView, TensorViewMut};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use half::bf16;

const ROWS: usize = 4096;
const WIDTH: usize = 2048;
const EPS: f32 = 1e-6;

/// The buffers of a call. BF16 travels as its 16 bits, so that `cudarc` needs no feature for it.
struct Buffers {
    x: CudaSlice<u16>,
    weight: CudaSlice<u16>,
    y: CudaSlice<u16>,
    rstd: CudaSlice<f32>,
}

pub(crate) fn main() -> Result<()> {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(reason) => {
            println!("nothing to run: {reason}");
            return Ok(());
        }
    };
    println!("{device:?}");

    // Both libraries use the primary context of the device, so they see each other's memory and streams.
    let context = CudaContext::new(0)?;
    let cudarc_stream = context.new_stream()?;
    let stream = stream_of(&device, &cudarc_stream)?;

    let plan = ForwardPlan::new(&device, Spec::new(WIDTH as u32))?;
    let weight: Vec<bf16> = (0..WIDTH).map(|j| bf16::from_f32(0.5 + (j % 16) as f32 / 16.0)).collect();
    let (first, second) = (rows(1), rows(2));
    let mut buffers = Buffers {
        x: cudarc_stream.clone_htod(&bits(&first))?,
        weight: cudarc_stream.clone_htod(&bits(&weight))?,
        y: cudarc_stream.alloc_zeros(ROWS * WIDTH)?,
        rstd: cudarc_stream.alloc_zeros(ROWS)?,
    };

    // Eagerly. The first call of a plan loads its kernels; `plan.warm_up()` does the same without a call.
    norm(&plan, &stream, &cudarc_stream, &mut buffers)?;
    expect(&cudarc_stream, &buffers, &first, &weight).context("eager call")?;
    println!("eager call: the bits of the host");

    // As a graph. A call is one launch: it allocates, copies and waits for nothing, so a capture can hold it.
    cudarc_stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    norm(&plan, &stream, &cudarc_stream, &mut buffers)?;
    let graph = cudarc_stream.end_capture(CUgraphInstantiate_flags(0))?.context("the capture holds no work")?;

    cudarc_stream.memcpy_htod(&bits(&second), &mut buffers.x)?;
    cudarc_stream.memset_zeros(&mut buffers.y)?;
    graph.launch()?;
    expect(&cudarc_stream, &buffers, &second, &weight).context("replay")?;
    println!("graph replayed with new data: the bits of the host");
    Ok(())
}

/// The same stream for Cake, in order with what `cudarc` queues on it.
#[allow(unsafe_code)]
fn stream_of(device: &Device, stream: &CudaStream) -> Result<Stream> {
    // SAFETY: the caller keeps the cudarc stream alive longer than the one that borrows its handle. All memory of this
    // program belongs to this one stream, so cudarc need not order streams with events, which a capture would refuse.
    unsafe {
        stream.context().disable_event_tracking();
        Ok(Stream::from_raw(device, stream.cu_stream().cast())?)
    }
}

/// Queues `y, rstd = rmsnorm(x) * weight` on the stream.
#[allow(unsafe_code)]
fn norm(plan: &ForwardPlan, stream: &Stream, cudarc_stream: &CudaStream, buffers: &mut Buffers) -> Result<()> {
    let place = Place::Cuda(0);
    let (shape, strides) = ([ROWS as u64, WIDTH as u64], [WIDTH as i64, 1]);
    // The guards tell cudarc when a pointer is no longer used by the calls that come next; they end with the function.
    let (x, _x) = buffers.x.device_ptr(cudarc_stream);
    let (weight, _weight) = buffers.weight.device_ptr(cudarc_stream);
    let (y, _y) = buffers.y.device_ptr_mut(cudarc_stream);
    let (rstd, _rstd) = buffers.rstd.device_ptr_mut(cudarc_stream);
    let (tensor, row) = (2 * (ROWS * WIDTH) as u64, 2 * WIDTH as u64);

    // SAFETY: each address is that of a live allocation of the stated size, which the buffers own; they are freed in
    // order with this stream, after the last replay, and nothing but this stream reads or writes them (C1, C2 and C7
    // of docs/safety.md).
    let forward = unsafe {
        Forward {
            x: TensorView::from_raw("x", place, x, tensor, Dtype::Bf16, &shape, &strides)?,
            weight: Some(TensorView::from_raw("weight", place, weight, row, Dtype::Bf16, &shape[1..], &[1])?),
            eps: EPS,
            residual: None,
            y: TensorViewMut::from_raw("y", place, y, tensor, Dtype::Bf16, &shape, &strides)?,
            h: None,
            rstd: Some(TensorViewMut::from_raw("rstd", place, rstd, 4 * ROWS as u64, Dtype::F32, &shape[..1], &[1])?),
        }
    };
    plan.run(stream, forward)?;
    Ok(())
}

/// Compares y and rstd, bit by bit, with what the host computes from the same rows.
fn expect(stream: &Arc<CudaStream>, buffers: &Buffers, x: &[bf16], weight: &[bf16]) -> Result<()> {
    let shape = [ROWS as u64, WIDTH as u64];
    let (mut y, mut rstd) = (vec![bf16::ZERO; ROWS * WIDTH], vec![0f32; ROWS]);
    ForwardPlan::host(Spec::new(WIDTH as u32))?.run_host(Forward {
        x: TensorView::from_slice("x", x, &shape)?,
        weight: Some(TensorView::from_slice("weight", weight, &shape[1..])?),
        eps: EPS,
        residual: None,
        y: TensorViewMut::from_slice("y", &mut y, &shape)?,
        h: None,
        rstd: Some(TensorViewMut::from_slice("rstd", &mut rstd, &shape[..1])?),
    })?;
    ensure!(stream.clone_dtoh(&buffers.y)? == bits(&y), "y is not the host's");
    let found = stream.clone_dtoh(&buffers.rstd)?;
    ensure!(found.iter().map(|r| r.to_bits()).eq(rstd.iter().map(|r| r.to_bits())), "rstd is not the host's");
    Ok(())
}

/// Rows of different sizes, from a small recurrence.
fn rows(seed: u32) -> Vec<bf16> {
    let mut state = seed;
    let mut value = |i: usize| {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        bf16::from_f32(((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * (1 + i / WIDTH % 7) as f32)
    };
    (0..ROWS * WIDTH).map(&mut value).collect()
}

fn bits(values: &[bf16]) -> Vec<u16> {
    values.iter().map(|value| value.to_bits()).collect()
}
