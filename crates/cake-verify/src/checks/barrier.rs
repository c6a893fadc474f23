//! The grid barrier on a device: a cooperative launch of the probe, in which every CTA checks what the others wrote.
#![allow(unsafe_code)] // launches a kernel by hand, see below

use cake_core::{Buffer, Workspace};
use cake_kernels::probe::{self, ForwardParams};

use super::{Context, Task};
use crate::engine::driver::{Current, Loaded};
use crate::engine::target::Lane;

/// The task, for devices.
pub fn tasks() -> Vec<Task> {
    let why = "a CTA passes early, or the word does not rest";
    vec![Task::single("barrier", "barrier", why, barrier).alone().device()]
}

fn barrier(context: &Context) -> Result<(), String> {
    let text = |error: cake_core::Error| error.to_string();
    let device = context.target.device().ok_or("needs a GPU")?;
    let Lane::Cuda(stream) = context.target.lane().map_err(text)? else { return Err("needs a GPU".into()) };
    let current = Current::primary(device)?;
    let cubin = cake_kernels::image(probe::OP, device.info().arch).cubin().map_err(text)?;
    let kernel = &probe::BARRIER;
    let loaded = Loaded::new(&current, &cubin, &kernel.to_string())?;
    let most = loaded.ctas_per_sm(kernel.threads())? * device.info().sms;

    let mut workspace = Workspace::new(&stream, Workspace::HEADER).map_err(text)?;
    let barrier = workspace.lend(&stream, Workspace::HEADER).map_err(text)?;
    let zeros = vec![0.0_f32; most as usize + 1];
    let memory = Buffer::from_slice(&stream, &zeros).map_err(text)?; // a cell for each CTA, then the count of errors
    // Odd and even numbers of rounds and CTAs, so that bit 31 rests both ways between the launches.
    for (ctas, rounds) in [(1, 3), (2, 1), (most, 1), (device.info().sms, 100), (most, 200), (most - 1, 7)] {
        let errors = memory.address() + u64::from(most) * 4;
        let params = ForwardParams { barrier, cells: memory.address(), errors, rounds, ..ForwardParams::default() };
        // SAFETY: the kernel takes these parameters, and the memory outlives the wait below.
        unsafe { loaded.launch_together(&stream, ctas, kernel.threads(), &params)? };
        stream.synchronize().map_err(text)?;
        let mut count = [0.0_f32];
        memory.read(&stream, u64::from(most) * 4, &mut count).map_err(text)?;
        if count[0].to_bits() != 0 {
            return Err(format!("{ctas} CTAs, {rounds} rounds: {} cells seen too early", count[0].to_bits()));
        }
    }
    let other = cake_core::Stream::new(device).map_err(text)?;
    match workspace.lend(&other, 1) {
        Err(cake_core::Error::Foreign { argument: "workspace", .. }) => {}
        result => return Err(format!("a workspace lent to another stream: {result:?}")),
    }
    match workspace.lend(&stream, Workspace::HEADER + 1) {
        Err(cake_core::Error::WorkspaceShort { needed, held }) if needed == held + 1 => {}
        result => return Err(format!("a workspace that is a byte short: {result:?}")),
    }
    workspace.reset(&stream).map_err(text)
}
