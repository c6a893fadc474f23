//! What timing needs of the driver beside [`cake_core`]: events, fills and copies on the device, the probes.
//!
//! Unsafe code is fenced here. Each call is sound for one of these reasons, which the SAFETY comments name:
//! (a) it passes pointers to live locals of the type that the driver API documents; (b) it passes handles that a
//! constructor of this module obtained and that live as long as their owner, or the stream that the [`Gpu`] owns;
//! (c) the range was checked against the [`Buffer`], which is freed after the device's queued work. Everywhere the
//! primary context is current, because a [`Gpu`] holds it and stays on its thread; and libcuda is loaded and new
//! enough, because a [`Device`] exists.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use anyhow::{Context as _, Result, bail};
use cake_core::{Buffer, Device, Kernel, Stream};
use cake_kernels::probe;
use cudarc::driver::sys;

use crate::engine::driver::Current;

/// A GPU that this thread works on: its primary context is current as long as the value lives.
#[derive(Debug)]
pub struct Gpu {
    device: Device,
    module: sys::CUmodule,
    probes: [(&'static Kernel, sys::CUfunction); 4],
    stream: Stream,
    // Last: what was current before comes back after everything else is gone.
    _current: Current,
}

impl Gpu {
    /// Makes the primary context current, and loads the probes.
    pub fn new(device: &Device) -> Result<Gpu> {
        let current = Current::primary(device).map_err(anyhow::Error::msg)?;
        let stream = Stream::new(device)?;
        let cubin = cake_kernels::image(probe::OP, device.info().arch).cubin()?;
        let mut module = ptr::null_mut();
        // SAFETY: (a); a cubin carries its own length in its ELF header.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) })?;
        // From here on dropping the value unloads the module.
        let probes = [&probe::EMPTY, &probe::ADD, &probe::ADD_THREE, &probe::ADD_THREE_TWICE];
        let probes = probes.map(|kernel| (kernel, ptr::null_mut()));
        let mut gpu = Gpu { device: device.clone(), module, probes, stream, _current: current };
        for (kernel, function) in &mut gpu.probes {
            let name = std::ffi::CString::new(kernel.to_string())?;
            // SAFETY: (a), (b).
            let found = unsafe { sys::cuModuleGetFunction(function, gpu.module, name.as_ptr()) };
            check("cuModuleGetFunction", found).with_context(|| kernel.to_string())?;
            // SAFETY: (b). Loads it now, not within a sample.
            check("cuFuncLoad", unsafe { sys::cuFuncLoad(*function) })?;
        }
        Ok(gpu)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What everything here is queued on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The highest clocks of the SMs and of the memory in MHz, where the driver tells them.
    pub fn peak_clocks(&self) -> [Option<u32>; 2] {
        use sys::CUdevice_attribute as A;
        [A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE].map(|attribute| {
            let (mut device, mut kilohertz) = (0, 0);
            // SAFETY: (a).
            let told = unsafe {
                check("cuDeviceGet", sys::cuDeviceGet(&mut device, self.device.info().ordinal as i32))
                    .and_then(|()| check("", sys::cuDeviceGetAttribute(&mut kilohertz, attribute, device)))
            };
            told.ok().and_then(|()| u32::try_from(kilohertz / 1000).ok()).filter(|&megahertz| megahertz > 0)
        })
    }

    /// Queues the empty kernel: one CTA of one warp.
    pub fn launch_empty(&self) -> Result<()> {
        self.launch(0, 1, &probe::ForwardParams::default())
    }

    /// Queues the addition of the first `bytes` of two or three buffers, in whole units of 16, over those of another one, or
    /// of three buffers over those of two others.
    pub fn add(&self, to: &[&Buffer], from: &[&Buffer], bytes: u64) -> Result<()> {
        let probe = match (from.len(), to.len()) {
            (2, 1) => 1,
            (3, 1) => 2,
            (3, 2) => 3,
            (from, to) => bail!("an addition of {from} buffers into {to}"),
        };
        let (mut inputs, mut outputs) = ([0; 3], [0; 2]);
        inputs.iter_mut().zip(from).for_each(|(input, buffer)| *input = buffer.address());
        outputs.iter_mut().zip(to).for_each(|(output, buffer)| *output = buffer.address());
        let units = u32::try_from(bytes.div_ceil(16))?;
        let held = from.iter().chain(to).map(|buffer| buffer.bytes()).min().unwrap_or(0);
        if u64::from(units) * 16 > held {
            bail!("an addition of {bytes} bytes of buffers of at least {held}");
        }
        let ctas = units.div_ceil(self.probes[probe].0.threads());
        self.launch(probe, ctas, &probe::ForwardParams { units, inputs, outputs, ..Default::default() })
    }

    fn launch(&self, probe: usize, ctas: u32, params: &probe::ForwardParams) -> Result<()> {
        let (kernel, function) = self.probes[probe];
        let mut pointers = [ptr::from_ref(params).cast_mut().cast::<c_void>()];
        let (threads, stream) = (kernel.threads(), self.stream.raw().cast());
        // SAFETY: (a), (b), and (c) for the addresses in the parameter block: both callers checked them, or there are none.
        // The driver copies the block, which mirrors the kernel's, before it returns.
        let launched = unsafe {
            sys::cuLaunchKernel(function, ctas, 1, 1, threads, 1, 1, 0, stream, pointers.as_mut_ptr(), ptr::null_mut())
        };
        check("cuLaunchKernel", launched)
    }

    /// Queues a fill of a whole buffer with one 32-bit word; up to three bytes at its end stay as they are.
    pub fn fill(&self, buffer: &Buffer, word: u32) -> Result<()> {
        let (words, stream) = (buffer.bytes() as usize / 4, self.stream.raw().cast());
        // SAFETY: (b), (c): the words of the buffer.
        check("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(buffer.address(), word, words, stream) })
    }

    /// Queues the device's own copy of the first `bytes` of a buffer to the start of another one.
    pub fn copy(&self, to: &Buffer, from: &Buffer, bytes: u64) -> Result<()> {
        let held = to.bytes().min(from.bytes());
        if bytes > held {
            bail!("a copy of {bytes} bytes between buffers of at least {held}");
        }
        self.copy_checked(to.address(), from.address(), bytes)
    }

    /// Queues copies that repeat the first `bytes` of a buffer to its end.
    pub fn repeat(&self, buffer: &Buffer, bytes: u64) -> Result<()> {
        if bytes == 0 {
            bail!("nothing to repeat");
        }
        let mut done = bytes;
        while done < buffer.bytes() {
            let step = done.min(buffer.bytes() - done);
            self.copy_checked(buffer.address() + done, buffer.address(), step)?;
            done += step;
        }
        Ok(())
    }

    fn copy_checked(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        let stream = self.stream.raw().cast();
        // SAFETY: (b), (c): both callers checked the ranges, which do not overlap.
        check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream) })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The kernel may still be queued. A failure has no one to be told, here as below.
        let _ = self.stream.synchronize();
        // SAFETY: (b); the context is current until the fields are dropped.
        unsafe { sys::cuModuleUnload(self.module) };
    }
}

/// A mark in the stream that takes the time.
#[derive(Debug)]
pub struct Event<'g> {
    handle: sys::CUevent,
    gpu: &'g Gpu,
}

impl<'g> Event<'g> {
    /// An event that was not recorded yet.
    pub fn new(gpu: &'g Gpu) -> Result<Event<'g>> {
        let mut handle = ptr::null_mut();
        // The default flags: with timing.
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: (a).
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        Ok(Event { handle, gpu })
    }

    /// Queues the mark.
    pub fn record(&self) -> Result<()> {
        // SAFETY: (b).
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.handle, self.gpu.stream.raw().cast()) })
    }

    /// Nanoseconds from `start` to this event; the stream must have passed both.
    pub fn since(&self, start: &Event<'_>) -> Result<u64> {
        let mut milliseconds = 0.0;
        // SAFETY: (a), (b).
        let told = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, start.handle, self.handle) };
        check("cuEventElapsedTime", told)?;
        Ok((f64::from(milliseconds) * 1e6).round() as u64)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: (b); the driver keeps what a queued mark needs.
        unsafe { sys::cuEventDestroy_v2(self.handle) };
    }
}

fn check(call: &str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { bail!("{call}: {result:?}") }
}
