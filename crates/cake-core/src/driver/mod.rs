//! The only place that calls the CUDA driver: thin, checked wrappers over `cudarc`'s raw bindings.
//!
//! Unsafe code is fenced here. Each call is sound for one of these reasons, which the SAFETY comments name:
//! (a) it passes pointers to live locals of the type that the driver API documents; (b) it passes handles that a
//! constructor of this module obtained and that live as long as the process (contexts, modules, functions) or as their
//! owner (streams, allocations); (c) `init` has succeeded, so libcuda is present and new enough to have the symbol.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;

use crate::{Error, Result};

/// The CUDA version whose driver the embedded images need (they are built by NVRTC 13).
pub(crate) const NEEDED_DRIVER: i32 = 13000;

/// Loads libcuda and checks its version, once per process.
pub(crate) fn init() -> Result<()> {
    static STATE: OnceLock<Result<()>> = OnceLock::new();
    STATE
        .get_or_init(|| {
            // cudarc panics without the library, and has a question for it only where it is not linked to it.
            // SAFETY: loading libcuda runs nothing that asks for more.
            if !["libcuda.so.1", "libcuda.so"].iter().any(|name| unsafe { Library::new(*name) }.is_ok()) {
                return Err(Error::DriverMissing);
            }
            // SAFETY: (a); both symbols exist in every libcuda.
            unsafe {
                let mut version = 0;
                check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
                if version < NEEDED_DRIVER {
                    return Err(Error::DriverTooOld { expected: NEEDED_DRIVER, actual: version });
                }
                match sys::cuInit(0) {
                    sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::NoDevice { ordinal: 0, present: 0 }),
                    result => check("cuInit", result),
                }
            }
        })
        .clone()
}

/// Number of devices that the driver shows.
pub(crate) fn device_count() -> Result<u32> {
    match init() {
        Err(Error::NoDevice { .. }) => return Ok(0),
        state => state?,
    }
    let mut count = 0;
    // SAFETY: (a), (c).
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(count as u32)
}

/// Plain facts of a device, before any context exists.
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) capability: (i32, i32),
    pub(crate) sms: u32,
    pub(crate) shared_per_cta: u32,
    pub(crate) l2_bytes: u32,
}

pub(crate) fn facts(ordinal: u32) -> Result<Facts> {
    use sys::CUdevice_attribute as A;
    let device = device(ordinal)?;
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: (a), (c).
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
        Ok::<i32, Error>(value)
    };
    let mut name = [0 as std::ffi::c_char; 256];
    // SAFETY: (a), (c); the driver writes a terminated string of at most 256 bytes.
    let name = unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), 256, device))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    Ok(Facts {
        name,
        capability: (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sms: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        shared_per_cta: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32,
        l2_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u32,
    })
}

/// Version of the driver as it reports it: 1000 * major + 10 * minor.
pub(crate) fn version() -> Result<i32> {
    init()?;
    let mut version = 0;
    // SAFETY: (a), (c).
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    Ok(version)
}

/// A primary context, retained for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Context(sys::CUcontext);
// SAFETY: driver contexts may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn primary(ordinal: u32) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: (a), (c).
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device(ordinal)?) })?;
        Ok(Context(context))
    }

    /// Makes the context current on this thread until the guard is dropped, which brings the former one back.
    pub(crate) fn push(self) -> Result<Current> {
        let mut current = ptr::null_mut();
        // SAFETY: (a), (c).
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        let pushed = current != self.0; // a push and a pop cost half as much as a launch
        if pushed {
            // SAFETY: (b), (c).
            check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.0) })?;
        }
        Ok(Current { pushed, thread: std::marker::PhantomData })
    }
}

/// Proof that a context is current on this thread.
pub(crate) struct Current {
    pushed: bool,
    thread: std::marker::PhantomData<*const ()>, // neither Send nor Sync
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: (a), (c); pops what `push` pushed. A failure here has no one to be told.
            unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        }
    }
}

/// An entry point of a loaded module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(sys::CUfunction);
// SAFETY: functions belong to a module that is never unloaded and may be launched from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A loaded cubin; never unloaded.
#[derive(Debug)]
pub(crate) struct Module(sys::CUmodule);
// SAFETY: as for `Function`.
unsafe impl Send for Module {}
// SAFETY: as for `Function`.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(_: &Current, cubin: &[u8]) -> Result<Module> {
        let mut module = ptr::null_mut();
        // SAFETY: (a); a cubin carries its own length in its ELF header.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) })?;
        Ok(Module(module))
    }

    /// The entry point `name`. With `shared` it may be launched with all the dynamic shared memory that a CTA may have of
    /// `shared_per_cta` bytes: plans share a function, and none may take from what another needs.
    pub(crate) fn function(&self, _: &Current, name: &str, shared: bool, shared_per_cta: u32) -> Result<Function> {
        use sys::CUfunction_attribute as A;
        let name = CString::new(name).expect("symbols hold no NUL");
        let mut function = ptr::null_mut();
        // SAFETY: (a), (b).
        check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&mut function, self.0, name.as_ptr()) })?;
        // SAFETY: (b). Loads the function now, so that a launch inside a graph capture never has to.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(function) })?;
        if shared {
            let mut fixed = 0;
            // SAFETY: (a), (b).
            check("cuFuncGetAttribute", unsafe {
                sys::cuFuncGetAttribute(&mut fixed, A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
            })?;
            let most = shared_per_cta as i32 - fixed;
            let attribute = A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: (b).
            check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, most) })?;
        }
        Ok(Function(function))
    }
}

/// Size of a launch: CTAs, threads of each, bytes of dynamic shared memory of each.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) grid: u32,
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

/// Launches a kernel that takes one parameter, `params`, by value; with `together` all its CTAs run at once or none does.
pub(crate) fn launch<P: Copy>(
    _: &Current,
    stream: StreamHandle,
    function: Function,
    size: Size,
    together: bool,
    params: &P,
) -> Result<()> {
    let mut pointers = [ptr::from_ref(params).cast_mut().cast::<c_void>()];
    let (pointers, Size { grid, threads, shared }) = (pointers.as_mut_ptr(), size);
    // SAFETY: (b); the driver copies the parameter, whose size it knows from the kernel, before it returns. That the
    // addresses inside are good is what the views of a checked call stand for, see docs/safety.md.
    unsafe {
        if together {
            let result =
                sys::cuLaunchCooperativeKernel(function.0, grid, 1, 1, threads, 1, 1, shared, stream.0, pointers);
            return check("cuLaunchCooperativeKernel", result);
        }
        let none = ptr::null_mut();
        let result = sys::cuLaunchKernel(function.0, grid, 1, 1, threads, 1, 1, shared, stream.0, pointers, none);
        check("cuLaunchKernel", result)
    }
}

/// CTAs of a kernel that fit on an SM at once.
pub(crate) fn ctas_per_sm(_: &Current, function: Function, threads: u32, shared: u32) -> Result<u32> {
    let mut ctas = 0;
    // SAFETY: (a), (b).
    let result = unsafe {
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut ctas, function.0, threads as i32, shared as usize)
    };
    check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
    Ok(ctas as u32)
}

/// A stream handle; null is the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StreamHandle(pub(crate) sys::CUstream);
// SAFETY: streams may be used from any thread.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

impl StreamHandle {
    pub(crate) fn create(_: &Current) -> Result<StreamHandle> {
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: (a).
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(StreamHandle(stream))
    }

    /// The context that the stream belongs to; default streams belong to the current one.
    pub(crate) fn context(self, _: &Current) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: (a); the caller vouched for the handle.
        check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(self.0, &mut context) })?;
        Ok(Context(context))
    }

    pub(crate) fn is_capturing(self, _: &Current) -> Result<bool> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: (a), (b).
        let result = unsafe { sys::cuStreamIsCapturing(self.0, &mut status) };
        // The legacy stream cannot be asked while another stream captures: that counts as capturing.
        if result == sys::cudaError_enum::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
            return Ok(true);
        }
        check("cuStreamIsCapturing", result)?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    pub(crate) fn synchronize(self, _: &Current) -> Result<()> {
        // SAFETY: (b).
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.0) })
    }

    pub(crate) fn destroy(self, _: &Current) {
        // SAFETY: (b); the owner drops it once. A failure has no one to be told.
        unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// Allocates `bytes` (more than 0) of device memory in the current context.
pub(crate) fn allocate(_: &Current, bytes: u64) -> Result<u64> {
    let mut address = 0;
    // SAFETY: (a).
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes as usize) })?;
    Ok(address)
}

pub(crate) fn free(_: &Current, address: u64) {
    // SAFETY: (b); waits for the device's work. A failure has no one to be told.
    unsafe { sys::cuMemFree_v2(address) };
}

/// Queues a fill of `bytes` at `address`.
pub(crate) fn fill(_: &Current, stream: StreamHandle, address: u64, value: u8, bytes: u64) -> Result<()> {
    // SAFETY: (b); the owner of the allocation checked the range.
    check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, value, bytes as usize, stream.0) })
}

/// Copies host bytes to the device, complete on return and in order with the stream.
pub(crate) fn upload(current: &Current, stream: StreamHandle, address: u64, source: &[u8]) -> Result<()> {
    // SAFETY: (a), (b); the owner of the allocation checked the range, and the wait below outlasts the borrow.
    let result = unsafe { sys::cuMemcpyHtoDAsync_v2(address, source.as_ptr().cast(), source.len(), stream.0) };
    check("cuMemcpyHtoDAsync", result)?;
    stream.synchronize(current)
}

/// Copies device bytes to the host, complete on return and in order with the stream.
pub(crate) fn download(current: &Current, stream: StreamHandle, target: &mut [u8], address: u64) -> Result<()> {
    // SAFETY: (a), (b); the owner of the allocation checked the range, and the wait below outlasts the borrow.
    let result = unsafe { sys::cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), address, target.len(), stream.0) };
    check("cuMemcpyDtoHAsync", result)?;
    stream.synchronize(current)
}

fn device(ordinal: u32) -> Result<sys::CUdevice> {
    let present = device_count()?;
    if ordinal >= present {
        return Err(Error::NoDevice { ordinal, present });
    }
    let mut device = 0;
    // SAFETY: (a), (c).
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
    Ok(device)
}

fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = ptr::null();
    // SAFETY: (a); the driver's strings are static, and null for a code that it does not know.
    let detail = unsafe {
        sys::cuGetErrorString(result, &mut text);
        if text.is_null() { "unknown error".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    Err(Error::Cuda { call, code: result as u32, detail })
}

/// The bytes of a slice of plain elements.
pub(crate) fn bytes_of<E: crate::Element>(slice: &[E]) -> &[u8] {
    // SAFETY: elements are plain numbers without padding.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

/// As [`bytes_of`], to be written; every bit pattern is an element.
pub(crate) fn bytes_of_mut<E: crate::Element>(slice: &mut [E]) -> &mut [u8] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
}
