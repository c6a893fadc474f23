//! The norm, forward and backward: `y = rmsnorm(x) * w` and `dw = sum over rows of dy * xhat`, for the same rows again and
//! again, on the host or on a GPU.

use std::time::{Duration, Instant};

use cake_rmsnorm::{
    Backward, BackwardPlan, BackwardSpec, Buffer, Device, Dtype, Forward, ForwardPlan, Result, Spec, Stream,
    TensorView, TensorViewMut, Workspace,
};
use half::bf16;

use super::WIDTH;

/// Added to the mean of squares.
const EPS: f32 = 1e-6;

/// What one forward pass gives.
pub(crate) struct Output {
    /// `[rows, WIDTH]`.
    pub(crate) y: Vec<bf16>,
    /// `[rows]`.
    pub(crate) rstd: Vec<f32>,
}

impl Output {
    pub(crate) fn new(rows: usize) -> Output {
        Output { y: vec![bf16::ZERO; rows * WIDTH], rstd: vec![0.0; rows] }
    }

    /// Where two outputs first differ in a bit.
    pub(crate) fn difference(&self, other: &Output) -> Option<String> {
        let y = self.y.iter().zip(&other.y).position(|(a, b)| a.to_bits() != b.to_bits());
        let rstd = self.rstd.iter().zip(&other.rstd).position(|(a, b)| a.to_bits() != b.to_bits());
        let y = y.map(|i| format!("y[{}, {}]: {} and {}", i / WIDTH, i % WIDTH, self.y[i], other.y[i]));
        y.or(rstd.map(|t| format!("rstd[{t}]: {} and {}", self.rstd[t], other.rstd[t])))
    }
}

/// A place to run the norm.
pub(crate) trait Engine {
    /// One forward pass with the weights `w`.
    fn forward(&mut self, w: &[f32], output: &mut Output) -> Result<()>;

    /// The gradient of the weights of the last [`forward`](Engine::forward), from the gradient of its `y`.
    fn backward(&mut self, w: &[f32], output: &Output, dy: &[bf16], dw: &mut [f32]) -> Result<()>;

    /// Time of `calls` forward passes one after the other, with the weights and memory of the last
    /// [`forward`](Engine::forward); copies between host and GPU do not count.
    fn time(&mut self, calls: u32, w: &[f32], output: &mut Output) -> Result<Duration>;
}

fn spec() -> Spec {
    Spec { weight: Some(Dtype::F32), ..Spec::new(WIDTH as u32) }
}

/// Nothing below the norm is trained: no `dx`.
fn backward_spec() -> BackwardSpec {
    BackwardSpec { dx: false, ..BackwardSpec::new(spec()) }
}

/// The norm on the host's cores.
pub(crate) struct Host<'x> {
    plan: ForwardPlan,
    backward: BackwardPlan,
    x: &'x [bf16],
}

impl<'x> Host<'x> {
    pub(crate) fn new(x: &'x [bf16]) -> Result<Host<'x>> {
        Ok(Host { plan: ForwardPlan::host(spec())?, backward: BackwardPlan::host(backward_spec())?, x })
    }
}

impl Engine for Host<'_> {
    fn forward(&mut self, w: &[f32], output: &mut Output) -> Result<()> {
        let shape = [output.rstd.len() as u64, WIDTH as u64];
        self.plan.run_host(Forward {
            x: TensorView::from_slice("x", self.x, &shape)?,
            weight: Some(TensorView::from_slice("weight", w, &shape[1..])?),
            eps: EPS,
            residual: None,
            y: TensorViewMut::from_slice("y", &mut output.y, &shape)?,
            h: None,
            rstd: Some(TensorViewMut::from_slice("rstd", &mut output.rstd, &shape[..1])?),
        })
    }

    fn backward(&mut self, w: &[f32], output: &Output, dy: &[bf16], dw: &mut [f32]) -> Result<()> {
        let shape = [output.rstd.len() as u64, WIDTH as u64];
        self.backward.run_host(Backward {
            dy: TensorView::from_slice("dy", dy, &shape)?,
            x: TensorView::from_slice("x", self.x, &shape)?,
            weight: Some(TensorView::from_slice("weight", w, &shape[1..])?),
            rstd: Some(TensorView::from_slice("rstd", &output.rstd, &shape[..1])?),
            eps: EPS,
            dh: None,
            dx: None,
            dw: Some(TensorViewMut::from_slice("dw", dw, &shape[1..])?),
            workspace: None,
        })
    }

    fn time(&mut self, calls: u32, w: &[f32], output: &mut Output) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..calls {
            self.forward(w, output)?;
        }
        Ok(start.elapsed())
    }
}

/// The norm on a GPU: `x` stays there, the weights and `dy` go up and the outputs come down at each pass.
pub(crate) struct Gpu {
    plan: ForwardPlan,
    backward: BackwardPlan,
    workspace: Workspace,
    stream: Stream,
    rows: usize,
    x: Buffer,
    w: Buffer,
    y: Buffer,
    rstd: Buffer,
    dy: Buffer,
    dw: Buffer,
}

impl Gpu {
    pub(crate) fn new(device: &Device, x: &[bf16]) -> Result<Gpu> {
        let rows = x.len() / WIDTH;
        let stream = Stream::new(device)?;
        let backward = BackwardPlan::new(device, backward_spec())?;
        Ok(Gpu {
            plan: ForwardPlan::new(device, spec())?,
            workspace: Workspace::new(&stream, backward.workspace_bytes(rows as u32))?,
            backward,
            rows,
            x: Buffer::from_slice(&stream, x)?,
            w: Buffer::new(device, 4 * WIDTH as u64)?,
            y: Buffer::new(device, size_of_val(x) as u64)?,
            rstd: Buffer::new(device, 4 * rows as u64)?,
            dy: Buffer::new(device, size_of_val(x) as u64)?,
            dw: Buffer::new(device, 4 * WIDTH as u64)?,
            stream,
        })
    }

    /// Queues a forward pass.
    fn queue(&mut self) -> Result<()> {
        let shape = [self.rows as u64, WIDTH as u64];
        let Gpu { plan, stream, x, w, y, rstd, .. } = self;
        let forward = Forward {
            x: input(stream, "x", x, Dtype::Bf16, &shape)?,
            weight: Some(input(stream, "weight", w, Dtype::F32, &shape[1..])?),
            eps: EPS,
            residual: None,
            y: output(stream, "y", y, Dtype::Bf16, &shape)?,
            h: None,
            rstd: Some(output(stream, "rstd", rstd, Dtype::F32, &shape[..1])?),
        };
        plan.run(stream, forward)
    }
}

impl Engine for Gpu {
    fn forward(&mut self, w: &[f32], output: &mut Output) -> Result<()> {
        self.w.write(&self.stream, 0, w)?;
        self.queue()?;
        self.y.read(&self.stream, 0, &mut output.y)?;
        self.rstd.read(&self.stream, 0, &mut output.rstd)
    }

    fn backward(&mut self, _: &[f32], _: &Output, dy: &[bf16], dw: &mut [f32]) -> Result<()> {
        let shape = [self.rows as u64, WIDTH as u64];
        self.dy.write(&self.stream, 0, dy)?;
        let backward = Backward {
            dy: input(&self.stream, "dy", &self.dy, Dtype::Bf16, &shape)?,
            x: input(&self.stream, "x", &self.x, Dtype::Bf16, &shape)?,
            weight: Some(input(&self.stream, "weight", &self.w, Dtype::F32, &shape[1..])?),
            rstd: Some(input(&self.stream, "rstd", &self.rstd, Dtype::F32, &shape[..1])?),
            eps: EPS,
            dh: None,
            dx: None,
            dw: Some(output(&self.stream, "dw", &mut self.dw, Dtype::F32, &shape[1..])?),
            workspace: Some(&mut self.workspace),
        };
        self.backward.run(&self.stream, backward)?;
        self.dw.read(&self.stream, 0, dw)
    }

    fn time(&mut self, calls: u32, _: &[f32], _: &mut Output) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..calls {
            self.queue()?;
        }
        self.stream.synchronize()?;
        Ok(start.elapsed())
    }
}

/// Strides of a contiguous tensor of one or two dimensions.
fn strides(shape: &[u64]) -> &'static [i64] {
    if shape.len() == 1 { &[1] } else { &[WIDTH as i64, 1] }
}

#[allow(unsafe_code)] // views of device memory: the type system does not see it
fn input<'a>(
    stream: &Stream,
    name: &'static str,
    buffer: &Buffer,
    dtype: Dtype,
    shape: &[u64],
) -> Result<TensorView<'a>> {
    let (place, address, bytes) = (stream.place(), buffer.address(), buffer.bytes());
    // SAFETY: the buffer outlives the work, since dropping it waits for the device; it is written only by `Buffer::write`
    // and kernels on the stream that reads it (C1 and C2 of docs/safety.md).
    unsafe { TensorView::from_raw(name, place, address, bytes, dtype, shape, strides(shape)) }
}

#[allow(unsafe_code)] // as above
fn output<'a>(
    stream: &Stream,
    name: &'static str,
    buffer: &mut Buffer,
    dtype: Dtype,
    shape: &[u64],
) -> Result<TensorViewMut<'a>> {
    let (place, address, bytes) = (stream.place(), buffer.address(), buffer.bytes());
    // SAFETY: as above; moreover only work on this stream touches the buffer.
    unsafe { TensorViewMut::from_raw(name, place, address, bytes, dtype, shape, strides(shape)) }
}
