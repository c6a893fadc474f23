//! NVRTC: where the library is, and the few calls that compile a unit to a cubin.

#![allow(unsafe_code)] // calls into a C library; each call below says why it is sound

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use anyhow::{Context, Result, bail, ensure};
use libloading::Library;

/// The one compiler whose images are embedded: another version makes other bytes.
pub(super) const VERSION: &str = "13.5.37";

/// What the library's file is called on Linux.
const FILE: &str = "libnvrtc.so.13";

type Program = *mut c_void;
type Status = c_int;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> Status;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> Status;

/// The library, and those of its functions that are called here.
pub(super) struct Nvrtc {
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    log_size: GetSize,
    log: Get,
    ptx_size: GetSize,
    ptx: Get,
    cubin_size: GetSize,
    cubin: Get,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    /// Keeps the functions above mapped; dropped last.
    _library: Library,
}

/// A compiled unit.
pub(super) struct Compiled {
    /// The ELF file.
    pub(super) cubin: Vec<u8>,
    /// What it was made from.
    pub(super) ptx: String,
    /// What the compiler and ptxas said.
    pub(super) log: String,
}

impl Nvrtc {
    /// The library that `CAKE_NVRTC` names, or else that of the Python package, or else the system's.
    pub(super) fn load() -> Result<Nvrtc> {
        let path = match std::env::var_os("CAKE_NVRTC") {
            Some(path) => path.into(),
            None => in_python().unwrap_or_else(|| FILE.into()),
        };
        Self::open(&path).with_context(|| {
            format!(
                "NVRTC {VERSION} is missing: run `python3 -m pip install nvidia-cuda-nvrtc=={VERSION}`, or set \
                 CAKE_NVRTC to the path of its {FILE}"
            )
        })
    }

    fn open(path: &Path) -> Result<Nvrtc> {
        // SAFETY: loading NVRTC runs its initializers, which have no preconditions.
        let library = unsafe { Library::new(path) }.with_context(|| format!("cannot load {}", path.display()))?;
        // SAFETY: each type is the prototype of the function in nvrtc.h, and `_library` outlives the pointers.
        let nvrtc = unsafe {
            Nvrtc {
                error_string: *library.get(b"nvrtcGetErrorString\0")?,
                version: *library.get(b"nvrtcVersion\0")?,
                create: *library.get(b"nvrtcCreateProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0")?,
                log: *library.get(b"nvrtcGetProgramLog\0")?,
                ptx_size: *library.get(b"nvrtcGetPTXSize\0")?,
                ptx: *library.get(b"nvrtcGetPTX\0")?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0")?,
                cubin: *library.get(b"nvrtcGetCUBIN\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                _library: library,
            }
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both arguments point at integers that live through the call.
        nvrtc.check(unsafe { (nvrtc.version)(&mut major, &mut minor) })?;
        let actual = format!("{major}.{minor}");
        ensure!(VERSION.starts_with(&format!("{actual}.")), "{} is NVRTC {actual}", path.display());
        Ok(nvrtc)
    }

    /// Compiles `unit`, which may include `headers` (name and text), with `options`. Threads may compile at once.
    pub(super) fn compile(
        &self,
        name: &str,
        unit: &str,
        headers: &[(String, String)],
        options: &[String],
    ) -> Result<Compiled> {
        let (name, unit) = (CString::new(name)?, CString::new(unit)?);
        let texts = headers.iter().map(|(_, text)| CString::new(text.as_str())).collect::<Result<Vec<_>, _>>()?;
        let names = headers.iter().map(|(name, _)| CString::new(name.as_str())).collect::<Result<Vec<_>, _>>()?;
        let options = options.iter().map(|option| CString::new(option.as_str())).collect::<Result<Vec<_>, _>>()?;
        let [texts, names, options] = [&texts, &names, &options].map(|strings| pointers(strings));

        let mut job = Job { nvrtc: self, program: ptr::null_mut() };
        // SAFETY: every pointer is to a NUL-terminated string that lives to the end of this function, after `job`'s
        // program is destroyed; both arrays have as many entries as the count says.
        self.check(unsafe {
            let count = texts.len() as c_int;
            (self.create)(&mut job.program, unit.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        })?;
        // SAFETY: the program was created above; the options are strings, as many as the count says.
        let status = unsafe { (self.compile)(job.program, options.len() as c_int, options.as_ptr()) };
        let log = job.read_text(self.log_size, self.log)?;
        self.check(status).with_context(|| log.clone())?;
        let ptx = job.read_text(self.ptx_size, self.ptx)?;
        let cubin = job.read(self.cubin_size, self.cubin)?;
        // ptxas signs what it makes, which tells the patch level that nvrtcVersion does not.
        let signature = format!(", V{VERSION}");
        ensure!(
            cubin.windows(signature.len()).any(|window| window == signature.as_bytes()),
            "the loaded NVRTC is not {VERSION}: run `python3 -m pip install nvidia-cuda-nvrtc=={VERSION}`"
        );
        Ok(Compiled { cubin, ptx, log })
    }

    fn check(&self, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC answers every status with a static string.
        let text = unsafe { CStr::from_ptr((self.error_string)(status)) };
        bail!("NVRTC: {}", text.to_string_lossy())
    }
}

/// A program that is destroyed at the end of its scope.
struct Job<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Job<'_> {
    /// What a pair of NVRTC functions, size and content, has to say.
    fn read(&self, size: GetSize, content: Get) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program lives as long as `self`, and `bytes` through the call.
        self.nvrtc.check(unsafe { size(self.program, &mut bytes) })?;
        let mut buffer = vec![0; bytes];
        // SAFETY: `buffer` has the size that NVRTC asked for.
        self.nvrtc.check(unsafe { content(self.program, buffer.as_mut_ptr().cast()) })?;
        Ok(buffer)
    }

    /// The same for text, which NVRTC ends with a NUL.
    fn read_text(&self, size: GetSize, content: Get) -> Result<String> {
        let bytes = self.read(size, content)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program was created, is destroyed once, and is not used afterwards.
            unsafe { (self.nvrtc.destroy)(&mut self.program) };
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

/// The library of the installed Python package, if Python knows one.
fn in_python() -> Option<PathBuf> {
    let script = format!(
        "import importlib.metadata as m; print(m.distribution('nvidia-cuda-nvrtc').locate_file('nvidia/cu13/lib/{FILE}'))"
    );
    let output = Command::new("python3").args(["-c", &script]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_file().then_some(path)
}
