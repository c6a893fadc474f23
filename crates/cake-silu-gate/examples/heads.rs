//! The gated norm of attention heads whose gate is a part of a projection: forward and backward. `z` is read where it
//! lies, and `dz` is written into the projection's gradient, beside what others keep there.
//!
//! On the host, held to the formula in double precision; then, where there is a GPU that Cake serves, to the same bits.
//!
//! ```text
//! cargo run --release -p cake-silu-gate --example heads
//! ```

use anyhow::{Result, ensure};
use cake_silu_gate::{
    Backward, BackwardPlan, BackwardSpec, Buffer, Device, Dtype, Forward, ForwardPlan, Spec, Stream, TensorView,
    TensorViewMut, Workspace,
};
use half::bf16;

const TOKENS: usize = 96;
const HEADS: usize = 6;
const WIDTH: usize = 128;
/// The projection holds, for each head, what something else is made of, and then `z`.
const PROJECTED: usize = 2 * WIDTH;
const EPS: f32 = 1e-6;

const SHAPE: [u64; 3] = [TOKENS as u64, HEADS as u64, WIDTH as u64];
const DENSE: [i64; 3] = [(HEADS * WIDTH) as i64, WIDTH as i64, 1];
/// Of `z` and `dz`, from the first head's `z` on.
const SLICE: [i64; 3] = [(HEADS * PROJECTED) as i64, PROJECTED as i64, 1];

pub(crate) fn main() -> Result<()> {
    let inputs = Inputs::new();
    let host = on_host(&inputs)?;
    let error = worst_error(&inputs, &host.y);
    println!("host: y is within {error:.3} of a BF16 ulp of the formula");
    ensure!(error < 0.51, "y is off by {error} ulp");
    let others = host.d_projection.chunks(PROJECTED).flat_map(|head| &head[..WIDTH]);
    ensure!(others.into_iter().all(|value| *value == bf16::ONE), "what is not dz was written");

    match Device::new(0) {
        Ok(device) => {
            ensure!(on_gpu(&device, &inputs)?.bits() == host.bits(), "the results are not the host's");
            println!("{device:?}: the bits of the host");
        }
        Err(reason) => println!("nothing more to run: {reason}"),
    }
    Ok(())
}

struct Inputs {
    x: Vec<bf16>,
    projection: Vec<bf16>,
    weight: Vec<bf16>,
    dy: Vec<bf16>,
}

impl Inputs {
    fn new() -> Inputs {
        let mut state = 1u32;
        let mut values = |number: usize, most: f32| -> Vec<bf16> {
            let mut value = || {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                bf16::from_f32(((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * most)
            };
            (0..number).map(|_| value()).collect()
        };
        Inputs {
            x: values(TOKENS * HEADS * WIDTH, 2.0),
            projection: values(TOKENS * HEADS * PROJECTED, 8.0),
            weight: values(WIDTH, 1.0),
            dy: values(TOKENS * HEADS * WIDTH, 1.0),
        }
    }
}

struct Outputs {
    y: Vec<bf16>,
    dx: Vec<bf16>,
    d_projection: Vec<bf16>,
    dw: Vec<f32>,
}

impl Outputs {
    /// The projection's gradient holds ones from elsewhere.
    fn new() -> Outputs {
        let dense = vec![bf16::ZERO; TOKENS * HEADS * WIDTH];
        let d_projection = vec![bf16::ONE; TOKENS * HEADS * PROJECTED];
        Outputs { y: dense.clone(), dx: dense, d_projection, dw: vec![0.0; WIDTH] }
    }

    fn bits(&self) -> Vec<u32> {
        let halves = [&self.y, &self.dx, &self.d_projection].into_iter().flatten().map(|value| value.to_bits().into());
        halves.chain(self.dw.iter().map(|value| value.to_bits())).collect()
    }
}

fn on_host(inputs: &Inputs) -> Result<Outputs> {
    let mut outputs = Outputs::new();
    ForwardPlan::host(Spec::new(WIDTH as u32))?.run_host(Forward {
        x: TensorView::from_slice("x", &inputs.x, &SHAPE)?,
        z: TensorView::from_slice_strided("z", &inputs.projection[WIDTH..], &SHAPE, &SLICE)?,
        weight: TensorView::from_slice("weight", &inputs.weight, &SHAPE[2..])?,
        eps: EPS,
        y: TensorViewMut::from_slice("y", &mut outputs.y, &SHAPE)?,
        rstd: None,
    })?;
    BackwardPlan::host(BackwardSpec::new(Spec::new(WIDTH as u32)))?.run_host(Backward {
        dy: TensorView::from_slice("dy", &inputs.dy, &SHAPE)?,
        x: TensorView::from_slice("x", &inputs.x, &SHAPE)?,
        z: TensorView::from_slice_strided("z", &inputs.projection[WIDTH..], &SHAPE, &SLICE)?,
        weight: TensorView::from_slice("weight", &inputs.weight, &SHAPE[2..])?,
        rstd: None, // computed again: nothing but the inputs has to be kept
        eps: EPS,
        dx: TensorViewMut::from_slice("dx", &mut outputs.dx, &SHAPE)?,
        dz: TensorViewMut::from_slice_strided("dz", &mut outputs.d_projection[WIDTH..], &SHAPE, &SLICE)?,
        dw: Some(TensorViewMut::from_slice("dw", &mut outputs.dw, &SHAPE[2..])?),
        workspace: None,
    })?;
    Ok(outputs)
}

#[allow(unsafe_code)] // views of device memory
fn on_gpu(device: &Device, inputs: &Inputs) -> Result<Outputs> {
    let mut outputs = Outputs::new();
    let stream = Stream::new(device)?;
    let forward = ForwardPlan::new(device, Spec::new(WIDTH as u32))?;
    let backward = BackwardPlan::new(device, BackwardSpec::new(Spec::new(WIDTH as u32)))?;
    let mut workspace = Workspace::new(&stream, backward.workspace_bytes((TOKENS * HEADS) as u32))?;

    let [x, projection, weight, dy] =
        [&inputs.x, &inputs.projection, &inputs.weight, &inputs.dy].map(|tensor| Buffer::from_slice(&stream, tensor));
    let (x, projection, weight, dy) = (x?, projection?, weight?, dy?);
    let d_projection = Buffer::from_slice(&stream, &outputs.d_projection)?;
    let (y, dx, dw) =
        (Buffer::new(device, x.bytes())?, Buffer::new(device, x.bytes())?, Buffer::new(device, 4 * WIDTH as u64)?);

    let after = |buffer: &Buffer, elements: usize| {
        (buffer.address() + 2 * elements as u64, buffer.bytes() - 2 * elements as u64)
    };
    let place = stream.place();
    // SAFETY: each view lies in a buffer of this function, which only its stream uses, and which is freed after the
    // stream's work (C1 and C2 of docs/safety.md).
    let input = |name, buffer: &Buffer, first, shape: &[u64], strides: &[i64]| unsafe {
        let (address, bytes) = after(buffer, first);
        TensorView::from_raw(name, place, address, bytes, Dtype::Bf16, shape, strides)
    };
    // SAFETY: as above.
    let output = |name, buffer: &Buffer, first, dtype, shape: &[u64], strides: &[i64]| unsafe {
        let (address, bytes) = after(buffer, first);
        TensorViewMut::from_raw(name, place, address, bytes, dtype, shape, strides)
    };
    forward.run(
        &stream,
        Forward {
            x: input("x", &x, 0, &SHAPE, &DENSE)?,
            z: input("z", &projection, WIDTH, &SHAPE, &SLICE)?,
            weight: input("weight", &weight, 0, &SHAPE[2..], &[1])?,
            eps: EPS,
            y: output("y", &y, 0, Dtype::Bf16, &SHAPE, &DENSE)?,
            rstd: None,
        },
    )?;
    backward.run(
        &stream,
        Backward {
            dy: input("dy", &dy, 0, &SHAPE, &DENSE)?,
            x: input("x", &x, 0, &SHAPE, &DENSE)?,
            z: input("z", &projection, WIDTH, &SHAPE, &SLICE)?,
            weight: input("weight", &weight, 0, &SHAPE[2..], &[1])?,
            rstd: None,
            eps: EPS,
            dx: output("dx", &dx, 0, Dtype::Bf16, &SHAPE, &DENSE)?,
            dz: output("dz", &d_projection, WIDTH, Dtype::Bf16, &SHAPE, &SLICE)?,
            dw: Some(output("dw", &dw, 0, Dtype::F32, &SHAPE[2..], &[1])?),
            workspace: Some(&mut workspace),
        },
    )?;
    y.read(&stream, 0, &mut outputs.y)?;
    dx.read(&stream, 0, &mut outputs.dx)?;
    d_projection.read(&stream, 0, &mut outputs.d_projection)?;
    dw.read(&stream, 0, &mut outputs.dw)?;
    Ok(outputs)
}

/// The largest distance of `y` from the formula, in ulps of BF16.
fn worst_error(inputs: &Inputs, y: &[bf16]) -> f64 {
    let wide = |values: &[bf16]| values.iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
    let mut worst = 0f64;
    for ((x, head), y) in inputs.x.chunks(WIDTH).zip(inputs.projection.chunks(PROJECTED)).zip(y.chunks(WIDTH)) {
        let (x, z, weight, y) = (wide(x), wide(&head[WIDTH..]), wide(&inputs.weight), wide(y));
        let rstd = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / WIDTH as f64 + f64::from(EPS)).sqrt();
        for j in 0..WIDTH {
            let exact = x[j] * rstd * weight[j] * z[j] / (1.0 + (-z[j]).exp());
            let ulp = 2f64.powi(exact.abs().max(1e-30).log2().floor() as i32 - 7);
            worst = worst.max((y[j] - exact).abs() / ulp);
        }
    }
    worst
}
