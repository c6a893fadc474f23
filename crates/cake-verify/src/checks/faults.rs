//! When the driver fails: a typed error, nothing written, and the same call right once it can be served.

use cake_core::{Buffer, Device, Error, Plan, Workspace};

use super::fresh::Work;
use super::{Context, Task};
use crate::cases::gate::{GateBackwardCase, GateCase};
use crate::cases::{BackwardCase, Case};
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::engine::target::Target;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// One task, in a process of its own, beside which nothing else may need memory.
pub fn tasks() -> [Task; 1] {
    let judge = |context: &Context| {
        let device = context.target.device().ok_or("needs a GPU")?;
        Work::WithFullMemory { ordinal: device.info().ordinal }.ask(context)
    };
    [Task::single("faults", "faults/memory", "without memory a first use writes, or never succeeds after", judge)
        .device()
        .alone()]
}

/// What the fresh process does: it takes all memory of a device before the first call of each operator, and gives it back
/// before the second.
pub fn with_full_memory(ordinal: u32, seed: u64) -> Result<String, String> {
    let text = |error: Error| error.to_string();
    let device = Device::new(ordinal).map_err(text)?;
    let target = Target::Cuda(device.clone());
    let case = Case::new(500, 6144);
    let (forward, backward) = (First::new(&target, &case, seed)?, First::new(&target, &BackwardCase::of(case), seed)?);
    let gate = First::new(&target, &GateCase::new(500, 128), seed)?;
    let gate_backward = First::new(&target, &GateBackwardCase::new(500, 128), seed)?;
    let lane = target.lane().map_err(text)?;
    let stream = lane.stream().ok_or("needs a GPU")?;

    let mut held = Vec::new();
    let mut bytes = 8_u64 << 30;
    while bytes >= 4096 {
        match Buffer::new(&device, bytes) {
            Ok(buffer) => held.push(buffer),
            Err(Error::Cuda { code: OUT_OF_MEMORY, .. }) => bytes /= 2,
            Err(error) => return Err(format!("a buffer of {bytes} bytes: {error:?}")),
        }
    }
    match Workspace::new(stream, 1 << 20) {
        Err(Error::Cuda { code: OUT_OF_MEMORY, .. }) => {}
        result => return Err(format!("a workspace without memory: {result:?}")),
    }
    let refused = [
        forward.without_memory()?,
        backward.without_memory()?,
        gate.without_memory()?,
        gate_backward.without_memory()?,
    ];
    let total = held.iter().map(Buffer::bytes).sum::<u64>();
    drop(held);
    forward.with_memory()?;
    backward.with_memory()?;
    gate.with_memory()?;
    gate_backward.with_memory()?;
    let refused = refused.iter().filter(|refused| **refused).count();
    Ok(format!("{} MiB taken, {refused} of 4 first uses refused, all right afterwards", total >> 20))
}

/// A call that has its tensors, and a plan that has loaded nothing yet.
struct First<C: Subject> {
    setup: Setup<C>,
    plan: Plan<C::Op>,
}

impl<C: Subject> First<C> {
    fn new(target: &Target, case: &C, seed: u64) -> Result<Self, String> {
        let made =
            Setup::new(case, target, seed).and_then(|setup| Ok(First { setup, plan: target.plan(&case.spec())? }));
        made.map_err(|error| error.to_string())
    }

    /// Whether the call was refused; then nothing may have been written.
    fn without_memory(&self) -> Result<bool, String> {
        match self.setup.run(&self.plan) {
            Ok(()) => self.setup.expect_canonical().map(|()| false),
            Err(Error::Cuda { code: OUT_OF_MEMORY, .. }) => {
                let outputs = self.setup.outputs().map_err(|error| error.to_string())?;
                let written = self.setup.writes(outputs);
                written.first().map_or(Ok(true), |write| Err(format!("refused, but wrote {write}")))
            }
            Err(error) => Err(format!("a first use without memory: {error:?}")),
        }
    }

    fn with_memory(&self) -> Result<(), String> {
        let run = self.setup.reset().and_then(|()| self.setup.run(&self.plan));
        run.map_err(|error| error.to_string())?;
        self.setup.expect_canonical()
    }
}
