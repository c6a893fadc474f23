//! What checks need of the driver and users of Cake would do with their own library: graph capture, the current
//! context, free memory. Thin wrappers over `cudarc`'s raw bindings.
//!
//! Unsafe code is fenced here. Each call passes pointers to live locals of the documented type, and handles that this
//! module or a [`Stream`] owns; a [`Device`] or [`Stream`] in the arguments proves that libcuda is loaded.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr;

use cake_core::{Device, Stream};
use cudarc::driver::sys;

type Result<T> = std::result::Result<T, String>;

/// The device's primary context, current on this thread until dropped; then there is what was before.
#[derive(Debug)]
pub struct Current {
    former: sys::CUcontext,
    device: sys::CUdevice,
    // Contexts are current on one thread.
    thread: PhantomData<*const ()>,
}

impl Current {
    /// Makes the primary context current.
    pub fn primary(device: &Device) -> Result<Current> {
        let (mut handle, mut context, mut former) = (0, ptr::null_mut(), ptr::null_mut());
        // SAFETY: see the head of the file; the device exists.
        unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&mut handle, device.info().ordinal as i32))?;
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut former))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, handle))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
        }
        Ok(Current { former, device: handle, thread: PhantomData })
    }

    /// Bytes of device memory that are free.
    pub fn free_bytes(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: see the head of the file.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(free as u64)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: what was current before, possibly nothing; and the reference that `primary` took.
        unsafe {
            sys::cuCtxSetCurrent(self.former);
            sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// The address of the thread's current context, 0 without one.
pub fn current_context(_: &Device) -> Result<usize> {
    let mut context = ptr::null_mut();
    // SAFETY: see the head of the file.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut context) })?;
    Ok(context as usize)
}

/// The ordinals of those of the first `count` GPUs whose primary context exists. Makes none; somebody has asked for the
/// count before, so libcuda is loaded.
pub fn active_contexts(count: u32) -> Result<Vec<u32>> {
    let is_active = |ordinal: u32| {
        let (mut handle, mut flags, mut active) = (0, 0, 0);
        // SAFETY: see the head of the file.
        let found = unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&mut handle, ordinal as i32)).and_then(|()| {
                let state = sys::cuDevicePrimaryCtxGetState(handle, &mut flags, &mut active);
                check("cuDevicePrimaryCtxGetState", state)
            })
        };
        found.map(|()| active != 0)
    };
    let states: Vec<bool> = (0..count).map(is_active).collect::<Result<_>>()?;
    Ok((0..count).zip(states).filter_map(|(ordinal, active)| active.then_some(ordinal)).collect())
}

/// Lets the kernels of a device use the memory of another one from now on; whether they can.
pub fn reach(from: &Device, to: &Device) -> Result<bool> {
    let ordinals = [from, to].map(|device| device.info().ordinal as i32);
    let (mut can, mut devices, mut context) = (0, [0; 2], ptr::null_mut());
    let _current = Current::primary(from)?;
    // SAFETY: see the head of the file; both devices exist, and each keeps its primary context.
    unsafe {
        check("cuDeviceGet", sys::cuDeviceGet(&mut devices[0], ordinals[0]))?;
        check("cuDeviceGet", sys::cuDeviceGet(&mut devices[1], ordinals[1]))?;
        check("cuDeviceCanAccessPeer", sys::cuDeviceCanAccessPeer(&mut can, devices[0], devices[1]))?;
        if can == 0 {
            return Ok(false);
        }
        check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, devices[1]))?;
        let enabled = sys::cuCtxEnablePeerAccess(context, 0);
        sys::cuDevicePrimaryCtxRelease_v2(devices[1]);
        match enabled {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
            enabled => check("cuCtxEnablePeerAccess", enabled).map(|()| true),
        }
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct Graph(sys::CUgraphExec);

impl Graph {
    /// Captures what `work` queues on a stream, in the strictest mode: nothing in this process may do what a capture
    /// forbids. The second value is what `work` returned; the capture ends in any case.
    pub fn capture<T>(stream: &Stream, work: impl FnOnce() -> T) -> Result<(Result<Graph>, T)> {
        let _current = Current::primary(stream.device())?;
        let handle: sys::CUstream = stream.raw().cast();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: see the head of the file.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(handle, mode) })?;
        let returned = work();
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: see the head of the file.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(handle, &mut graph) });
        let graph = ended.and_then(|()| {
            // SAFETY: the capture gave this graph; it is not used after.
            unsafe {
                let made = sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
                sys::cuGraphDestroy(graph);
                check("cuGraphInstantiate", made)?;
            }
            Ok(Graph(executable))
        });
        Ok((graph, returned))
    }

    /// Queues the graph.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _current = Current::primary(stream.device())?;
        // SAFETY: see the head of the file.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.0, stream.raw().cast()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`, destroyed once.
        unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

/// An entry point of a cubin that this module loaded, and the device it is on.
#[derive(Debug)]
pub struct Loaded {
    module: sys::CUmodule,
    function: sys::CUfunction,
}

impl Loaded {
    /// Loads a cubin on the current device and finds `symbol` in it.
    pub fn new(_: &Current, cubin: &[u8], symbol: &str) -> Result<Loaded> {
        let name = std::ffi::CString::new(symbol).map_err(|error| error.to_string())?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: see the head of the file; a cubin carries its own length.
        unsafe {
            check("cuModuleLoadData", sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()))?;
            check("cuModuleGetFunction", sys::cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
        }
        Ok(Loaded { module, function })
    }

    /// How many CTAs of `threads` threads fit on an SM at the same time.
    pub fn ctas_per_sm(&self, threads: u32) -> Result<u32> {
        let mut ctas = 0;
        // SAFETY: see the head of the file.
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut ctas, self.function, threads as i32, 0)
        })?;
        Ok(ctas as u32)
    }

    /// Queues a cooperative launch, in which all CTAs run at the same time or none does.
    ///
    /// # Safety
    /// `params` must be the kernel's parameter, and the addresses in it good until the launch has finished.
    pub unsafe fn launch_together<P: Copy>(&self, stream: &Stream, ctas: u32, threads: u32, params: &P) -> Result<()> {
        let mut pointers = [ptr::from_ref(params).cast_mut().cast()];
        // SAFETY: as the caller promises.
        check("cuLaunchCooperativeKernel", unsafe {
            sys::cuLaunchCooperativeKernel(
                self.function,
                ctas,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.raw().cast(),
                pointers.as_mut_ptr(),
            )
        })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: loaded by `new`, unloaded once; callers have waited for its launches.
        unsafe { sys::cuModuleUnload(self.module) };
    }
}

fn check(call: &str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{call}: {result:?}")) }
}
