//! GPUs: what they are, and what is loaded on them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use crate::driver::{self, Context, Current, Function, Module, StreamHandle};
use crate::{Arch, Element, Error, Image, Place, Result};

/// Plain numbers of a GPU: all that routing looks at.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// CUDA ordinal.
    pub ordinal: u32,
    /// Name as the driver gives it.
    pub name: String,
    /// Family.
    pub arch: Arch,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Most shared memory of one CTA, bytes.
    pub shared_per_cta: u32,
    /// L2 cache, bytes.
    pub l2_bytes: u32,
}

impl DeviceInfo {
    /// A usual board of an architecture, for looking at routes without one.
    pub fn typical(arch: Arch) -> DeviceInfo {
        let (name, sms, shared_per_cta, l2_mib) = match arch {
            Arch::Sm80 => ("A100", 108, 163 << 10, 40),
            Arch::Sm86 => ("RTX 3090", 82, 99 << 10, 6),
            Arch::Sm89 => ("RTX 4090", 128, 99 << 10, 72),
            Arch::Sm90 => ("H200", 132, 227 << 10, 60),
            Arch::Sm100 => ("B200", 148, 227 << 10, 126),
            Arch::Sm103 => ("B300", 152, 227 << 10, 126),
            Arch::Sm107 => ("R200", 216, 227 << 10, 126),
            Arch::Sm120 => ("RTX 5090", 170, 99 << 10, 96),
        };
        DeviceInfo { ordinal: 0, name: name.into(), arch, sms, shared_per_cta, l2_bytes: l2_mib << 20 }
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} SMs, {} MiB L2)", self.name, self.arch, self.sms, self.l2_bytes >> 20)
    }
}

/// A live GPU that an image serves. Clones share one handle; usable from any thread. The primary context is used and
/// kept until the process ends; the thread's current context is the same before and after every call.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    info: DeviceInfo,
    context: Context,
    images: Mutex<HashMap<&'static str, Arc<LoadedImage>>>,
}

impl Device {
    /// The GPU with a CUDA ordinal.
    pub fn new(ordinal: u32) -> Result<Device> {
        static DEVICES: OnceLock<Mutex<HashMap<u32, Device>>> = OnceLock::new();
        let mut devices = lock(DEVICES.get_or_init(Default::default));
        if let Some(device) = devices.get(&ordinal) {
            return Ok(device.clone());
        }
        let facts = driver::facts(ordinal)?;
        let (major, minor) = facts.capability;
        let arch = Arch::of_capability(major, minor).ok_or_else(|| Error::UnsupportedDevice {
            ordinal,
            name: facts.name.clone(),
            major,
            minor,
        })?;
        let info = DeviceInfo {
            ordinal,
            name: facts.name,
            arch,
            sms: facts.sms,
            shared_per_cta: facts.shared_per_cta,
            l2_bytes: facts.l2_bytes,
        };
        let device = Device(Arc::new(Inner { info, context: Context::primary(ordinal)?, images: Default::default() }));
        devices.insert(ordinal, device.clone());
        Ok(device)
    }

    /// How many GPUs the driver shows, served or not.
    pub fn count() -> Result<u32> {
        driver::device_count()
    }

    /// The driver's version, 1000 * major + 10 * minor.
    pub fn driver_version() -> Result<i32> {
        driver::version()
    }

    /// Its numbers.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// The loaded form of an image; the first call for each operator loads it. Refused by the driver while a stream of
    /// this thread captures a graph.
    pub(crate) fn load(&self, image: Image) -> Result<Arc<LoadedImage>> {
        // The lock is held while loading: threads that come at the same time wait for the one module.
        let mut images = lock(&self.0.images);
        if let Some(loaded) = images.get(image.op) {
            return Ok(loaded.clone());
        }
        let module = Module::load(&self.make_current()?, &image.cubin()?)?;
        let loaded = Arc::new(LoadedImage { device: self.clone(), module });
        images.insert(image.op, loaded.clone());
        Ok(loaded)
    }

    pub(crate) fn make_current(&self) -> Result<Current> {
        self.0.context.push()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} {}", self.info().ordinal, self.info())
    }
}

/// An image on a device.
pub(crate) struct LoadedImage {
    device: Device,
    module: Module,
}

impl LoadedImage {
    pub(crate) fn function(&self, name: &str, shared: bool) -> Result<Function> {
        self.module.function(&self.device.make_current()?, name, shared, self.device.info().shared_per_cta)
    }
}

/// A stream of a device's primary context. Clones share one handle, which lives as long as the last of them.
#[derive(Clone, Debug)]
pub struct Stream(Arc<StreamInner>);

#[derive(Debug)]
struct StreamInner {
    device: Device,
    handle: StreamHandle,
    owned: bool,
}

impl Stream {
    /// A new stream that does not wait for the legacy default stream.
    pub fn new(device: &Device) -> Result<Stream> {
        let handle = StreamHandle::create(&device.make_current()?)?;
        Ok(Stream(Arc::new(StreamInner { device: device.clone(), handle, owned: true })))
    }

    /// A stream that someone else owns: a `CUstream`, null for the legacy default stream.
    ///
    /// # Safety
    /// `handle` must be a live stream, or one of the driver's default handles, for as long as the value is used.
    #[allow(unsafe_code)] // declares the contract
    pub unsafe fn from_raw(device: &Device, handle: *mut std::ffi::c_void) -> Result<Stream> {
        let handle = StreamHandle(handle.cast());
        let context = handle.context(&device.make_current()?)?;
        if context != device.0.context {
            return Err(Error::Foreign {
                argument: "stream",
                expected: format!("the primary context of cuda:{}", device.info().ordinal),
                actual: "another context".into(),
            });
        }
        Ok(Stream(Arc::new(StreamInner { device: device.clone(), handle, owned: false })))
    }

    /// The device that the stream belongs to.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// `cuda:N`.
    pub fn place(&self) -> Place {
        Place::Cuda(self.0.device.info().ordinal)
    }

    /// The `CUstream`, for other libraries.
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.0.handle.0.cast()
    }

    /// Waits until all queued work is done; reports errors of that work.
    pub fn synchronize(&self) -> Result<()> {
        self.0.handle.synchronize(&self.0.device.make_current()?)
    }

    /// Whether the stream is recording a graph.
    pub fn is_capturing(&self) -> Result<bool> {
        self.0.handle.is_capturing(&self.0.device.make_current()?)
    }

    /// Queues a fill of memory that the caller answers for.
    pub(crate) fn fill(&self, address: u64, value: u8, bytes: u64) -> Result<()> {
        driver::fill(&self.0.device.make_current()?, self.0.handle, address, value, bytes)
    }

    pub(crate) fn handle(&self) -> StreamHandle {
        self.0.handle
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        if self.owned
            && let Ok(current) = self.device.make_current()
        {
            self.handle.destroy(&current);
        }
    }
}

/// Device memory, for callers that bring no allocator of their own. Freed on drop, after the device's queued work.
#[derive(Debug)]
pub struct Buffer {
    device: Device,
    address: u64,
    bytes: u64,
}

impl Buffer {
    /// `bytes` of device memory, aligned to 256 bytes, with arbitrary content.
    pub fn new(device: &Device, bytes: u64) -> Result<Buffer> {
        let address = if bytes == 0 { 0 } else { driver::allocate(&device.make_current()?, bytes)? };
        Ok(Buffer { device: device.clone(), address, bytes })
    }

    /// Device memory that holds a copy of `elements`.
    pub fn from_slice<E: Element>(stream: &Stream, elements: &[E]) -> Result<Buffer> {
        let buffer = Buffer::new(stream.device(), size_of_val(elements) as u64)?;
        buffer.write(stream, 0, elements)?;
        Ok(buffer)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies `elements` to the byte offset `at`; done on return.
    pub fn write<E: Element>(&self, stream: &Stream, at: u64, elements: &[E]) -> Result<()> {
        let source = driver::bytes_of(elements);
        let address = self.range(stream, at, source.len() as u64)?;
        driver::upload(&self.device.make_current()?, stream.handle(), address, source)
    }

    /// Copies elements from the byte offset `at`, after the stream's queued work; done on return.
    pub fn read<E: Element>(&self, stream: &Stream, at: u64, elements: &mut [E]) -> Result<()> {
        let target = driver::bytes_of_mut(elements);
        let address = self.range(stream, at, target.len() as u64)?;
        driver::download(&self.device.make_current()?, stream.handle(), target, address)
    }

    /// Queues a fill of the whole buffer with one byte.
    pub fn fill(&self, stream: &Stream, value: u8) -> Result<()> {
        let address = self.range(stream, 0, self.bytes)?;
        if self.bytes == 0 {
            return Ok(());
        }
        stream.fill(address, value, self.bytes)
    }

    fn range(&self, stream: &Stream, at: u64, bytes: u64) -> Result<u64> {
        if stream.place() != Place::Cuda(self.device.info().ordinal) {
            let expected = Place::Cuda(self.device.info().ordinal);
            return Err(Error::Place { argument: "stream", expected, actual: stream.place() });
        }
        match at.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + at),
            _ => Err(Error::Extent {
                argument: "buffer",
                shape: vec![bytes],
                strides: vec![1],
                needed: u128::from(at) + u128::from(bytes),
                held: self.bytes,
            }),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes > 0
            && let Ok(current) = self.device.make_current()
        {
            driver::free(&current, self.address);
        }
    }
}

/// Locks even if another thread panicked while it held the lock: the maps behind it are never left half written.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
