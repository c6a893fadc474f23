//! Plans, streams and buffers, of all GPUs that are here: used by another thread than made them, and dropped in any order
//! while the device works.

use std::any::Any;
use std::marker::PhantomData;

use cake_core::{Buffer, Device, Dtype, Plan, Stream, TensorView, TensorViewMut};
use cake_rmsnorm::{Forward, ForwardPlan, RmsNormForward, Spec};
use half::bf16;

use super::{Context, Task};
use crate::cases::random::Random;
use crate::engine::memory::Argument;
use crate::engine::target::Target;
use crate::report::Tally;

const CHECK: &str = "handles";

/// One task.
pub fn tasks() -> [Task; 1] {
    let judge = |context: &Context| {
        let mut tally = Tally::default();
        tally.judge_result(CHECK, "moved between threads", move_between_threads(context));
        tally.judge_result(CHECK, "dropped in any order", drop_in_any_order(context));
        tally
    };
    [Task::new("devices/handles", "a handle is tied to its thread, or goes while a queued call needs it", judge)
        .device()
        .alone()]
}

const ROWS: usize = 2000;
const WIDTH: usize = 4096;
const SHAPE: [u64; 2] = [ROWS as u64, WIDTH as u64];
const EPS: f32 = 1e-6;

/// A call's handles.
struct Handles {
    plan: Plan<RmsNormForward>,
    stream: Stream,
    x: Buffer,
    weight: Buffer,
    y: Buffer,
}

impl Handles {
    fn new(device: &Device, inputs: &Inputs) -> cake_core::Result<Handles> {
        let stream = Stream::new(device)?;
        Ok(Handles {
            plan: ForwardPlan::new(device, Spec::new(WIDTH as u32))?,
            x: Buffer::from_slice(&stream, &inputs.x)?,
            weight: Buffer::from_slice(&stream, &inputs.weight)?,
            y: Buffer::new(device, 2 * inputs.x.len() as u64)?,
            stream,
        })
    }

    fn queue(&self) -> cake_core::Result<()> {
        let argument = |name, buffer: &Buffer, shape: &[u64]| Argument {
            name,
            place: self.stream.place(),
            address: buffer.address(),
            bytes: buffer.bytes(),
            dtype: Dtype::Bf16,
            shape: shape.to_vec(),
            strides: if shape.len() == 2 { vec![WIDTH as i64, 1] } else { vec![1] },
            memory: PhantomData,
        };
        self.y.fill(&self.stream, 0xff)?;
        let args = Forward {
            x: argument("x", &self.x, &SHAPE).view()?,
            weight: Some(argument("weight", &self.weight, &SHAPE[1..]).view()?),
            eps: EPS,
            residual: None,
            y: argument("y", &self.y, &SHAPE).view_mut()?,
            h: None,
            rstd: None,
        };
        self.plan.run(&self.stream, args)
    }
}

/// What every call reads, and what the host makes of it.
struct Inputs {
    x: Vec<bf16>,
    weight: Vec<bf16>,
    y: Vec<bf16>,
}

impl Inputs {
    fn new(seed: u64) -> cake_core::Result<Inputs> {
        let mut random = Random::new(seed, &[0]);
        let mut draw = |count| (0..count).map(|_| bf16::from_f32(random.normal())).collect::<Vec<_>>();
        let (x, weight) = (draw(ROWS * WIDTH), draw(WIDTH));
        let mut y = vec![bf16::ZERO; x.len()];
        ForwardPlan::host(Spec::new(WIDTH as u32))?.run_host(Forward {
            x: TensorView::from_slice("x", &x, &SHAPE)?,
            weight: Some(TensorView::from_slice("weight", &weight, &SHAPE[1..])?),
            eps: EPS,
            residual: None,
            y: TensorViewMut::from_slice("y", &mut y, &SHAPE)?,
            h: None,
            rstd: None,
        })?;
        Ok(Inputs { x, weight, y })
    }

    /// Reads a result on a stream.
    fn expect(&self, y: &Buffer, stream: &Stream) -> Result<(), String> {
        let mut seen = vec![bf16::ZERO; self.y.len()];
        y.read(stream, 0, &mut seen).map_err(text)?;
        let different = seen.iter().zip(&self.y).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        match different {
            0 => Ok(()),
            _ => Err(format!("{different} elements of y differ on {}", stream.place())),
        }
    }
}

/// The judged device first, then the others.
fn devices(context: &Context) -> Result<Vec<Device>, String> {
    let Target::Cuda(own) = &context.target else { return Err("needs a GPU".into()) };
    let others = (0..Device::count().map_err(text)?).filter(|&ordinal| ordinal != own.info().ordinal);
    [Ok(own.clone())].into_iter().chain(others.map(Device::new)).collect::<Result<_, _>>().map_err(text)
}

/// Made by one thread, called by a second, read and dropped by a third.
fn move_between_threads(context: &Context) -> Result<(), String> {
    let (devices, inputs) = (devices(context)?, Inputs::new(context.seed).map_err(text)?);
    for _ in 0..3 {
        let made =
            on_a_thread(|| devices.iter().map(|device| Handles::new(device, &inputs)).collect::<Result<Vec<_>, _>>());
        let made = made.map_err(text)?;
        let called = on_a_thread(|| made.iter().try_for_each(Handles::queue).map(|()| made));
        let called = called.map_err(text)?;
        on_a_thread(|| called.into_iter().try_for_each(|handles| inputs.expect(&handles.y, &handles.stream)))?;
    }
    Ok(())
}

/// The handles of calls on all devices, in many orders, right after the calls were queued; only the results are kept.
fn drop_in_any_order(context: &Context) -> Result<(), String> {
    let (devices, inputs) = (devices(context)?, Inputs::new(context.seed).map_err(text)?);
    let count = 4 * devices.len();
    // Steps that share no factor with the number of handles reach each of them.
    let steps = [1, count / 2 - 1, count / 2 + 1, count - 1];
    for (offset, step) in (0..count).flat_map(|offset| steps.map(|step| (offset, step))) {
        let mut handles: Vec<Option<Box<dyn Any>>> = Vec::new();
        let mut results = Vec::new();
        for device in &devices {
            let made = Handles::new(device, &inputs).map_err(text)?;
            made.queue().map_err(text)?;
            let Handles { plan, stream, x, weight, y } = made;
            handles.extend([Some(Box::new(plan) as Box<dyn Any>), Some(Box::new(stream)), Some(Box::new(x))]);
            handles.push(Some(Box::new(weight)));
            results.push((device, y));
        }
        for i in 0..count {
            handles[(offset + step * i) % count] = None;
        }
        for (device, y) in results {
            // Freeing `x` has waited for the call.
            inputs.expect(&y, &Stream::new(device).map_err(text)?)?;
        }
    }
    Ok(())
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn text(error: cake_core::Error) -> String {
    error.to_string()
}
