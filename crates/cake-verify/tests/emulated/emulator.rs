//! The kernels compiled for the host by the C++ compiler, see `emulator/emulator.hpp`.
//!
//! Unsafe code is fenced here: the library was built from the very kernels and parameter blocks that it is called with,
//! and `run` has its callers answer for the addresses in them.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use cake_core::{Arch, Kernel, Pass};
use libloading::Library;
use sha2::{Digest, Sha256};

/// The order in which the threads of a CTA get their turns. No result may depend on it.
pub(crate) const ORDERS: [u32; 3] = [0, 1, 2];

pub(crate) struct Emulator(Library);

/// Device addresses, and where their bytes are on the host; mirrors `Window` of `emulator/emulator.hpp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// First device address.
    pub(crate) first: u64,
    /// One past the last.
    pub(crate) last: u64,
    /// Host address of the first.
    pub(crate) memory: u64,
    /// 1 for an output.
    pub(crate) writable: u64,
}

/// Size and order of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) grid: u32,
    pub(crate) shared: u32,
    pub(crate) order: u32,
}

/// `cake_emulate` of the unit: kernel, parameters, CTAs, threads, bytes of dynamic shared memory, order, whether all CTAs
/// run at once, windows.
type Emulate =
    unsafe extern "C" fn(*const c_void, *const c_void, u32, u32, u32, u32, u32, *const Window, u64) -> *const c_char;

impl Emulator {
    /// Compiles every kernel of an operator, or finds what another test has compiled from the same sources.
    pub(crate) fn new(op: &'static str) -> Emulator {
        let crates = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is")).join("..");
        let includes = [crates.join("cake-verify/emulator"), crates.join("cake-kernels/cuda")];
        let unit = format!(
            "#include \"emulator.hpp\"\n{}\n\
             template <class Params> struct Call {{ void (*kernel)(Params); const Params* params; }};\n\
             template <class Params> const char* emulate(void* kernel, const void* params, emulator::Launch launch, bool together) {{\n\
             Call<Params> call{{reinterpret_cast<void (*)(Params)>(kernel), static_cast<const Params*>(params)}};\n\
             launch.body = [](void* c) {{ auto* call = static_cast<Call<Params>*>(c); call->kernel(*call->params); }};\n\
             launch.argument = &call;\n\
             return emulator::run(launch, together);\n}}\n{}{}",
            cake_kernels::build::unit(op, Arch::Sm90),
            entry(op, Pass::Forward),
            entry(op, Pass::Backward),
        );
        let mut sources = Sha256::new_with_prefix(&unit);
        includes.iter().for_each(|folder| digest(folder, &mut sources));
        let key: String = sources.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
        fs::create_dir_all(&folder).expect("the target folder can be written");
        // One test compiles, the others wait for it.
        let lock = fs::File::create(folder.join("lock")).expect("the target folder can be written");
        lock.lock().expect("the target folder can be locked");
        let library = folder.join(format!("{op}-{key}.so"));
        if !library.exists() {
            let (source, fresh) = (folder.join("unit.cpp"), folder.join("unit.so"));
            fs::write(&source, unit).expect("the target folder can be written");
            let mut compiler = Command::new(env::var_os("CXX").unwrap_or("c++".into()));
            compiler.args(["-std=c++20", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-Wno-unknown-pragmas"]);
            includes.iter().for_each(|folder| _ = compiler.arg("-I").arg(folder));
            let status = compiler.arg(&source).arg("-o").arg(&fresh).status();
            let status = status.unwrap_or_else(|error| panic!("the C++ compiler {compiler:?}: {error}: install g++"));
            assert!(status.success(), "the C++ compiler refused the kernels: {status}");
            fs::rename(&fresh, &library).expect("the target folder can be written");
        }
        // SAFETY: the library has no code that runs when it is loaded, besides its own thread-local state.
        Emulator(unsafe { Library::new(&library) }.expect("the library was linked for this machine"))
    }

    /// Runs one launch. Accesses outside the windows are faults.
    ///
    /// # Safety
    /// `params` must be the parameters of `kernel`, and the memory of the windows the caller's to read and write.
    pub(crate) unsafe fn run<P>(
        &self,
        kernel: &Kernel,
        params: &P,
        size: Size,
        windows: &[Window],
    ) -> Result<(), String> {
        let Size { grid, shared, order } = size;
        // SAFETY: the symbols have these types; the message is read before the next call on this thread.
        let fault = unsafe {
            let entry = format!("cake_emulate_{}", kernel.pass);
            let emulate = self.0.get::<Emulate>(entry.as_bytes()).map_err(|error| error.to_string())?;
            let symbol =
                self.0.get::<*const c_void>(kernel.to_string().as_bytes()).map_err(|error| error.to_string())?;
            let address = symbol.try_as_raw_ptr().ok_or("a symbol without an address")?;
            let (params, count, together) =
                ((&raw const *params).cast(), windows.len() as u64, kernel.cooperative.into());
            let threads = kernel.threads();
            let fault = emulate(address, params, grid, threads, shared, order, together, windows.as_ptr(), count);
            CStr::from_ptr(fault).to_string_lossy().into_owned()
        };
        if fault.is_empty() { Ok(()) } else { Err(fault) }
    }
}

/// Takes in the names and contents of all files below a folder, in order.
fn digest(folder: &Path, sources: &mut Sha256) {
    let entries = fs::read_dir(folder).expect("the sources can be read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("the sources can be read").path()).collect();
    paths.sort();
    for path in paths {
        sources.update(path.file_name().expect("an entry has a name").as_encoded_bytes());
        if path.is_dir() {
            digest(&path, sources);
        } else {
            sources.update(fs::read(&path).expect("the sources can be read"));
        }
    }
}

/// The function by which the kernels of a pass are called.
fn entry(op: &str, pass: Pass) -> String {
    let params = match pass {
        Pass::Forward => "ForwardParams",
        Pass::Backward => "BackwardParams",
    };
    format!(
        "extern \"C\" const char* cake_emulate_{pass}(void* kernel, const void* params, unsigned grid, unsigned threads,\n\
         unsigned shared, unsigned order, unsigned together, const emulator::Window* windows, unsigned long long count) {{\n\
         return emulate<cake::{op}::{params}>(kernel, params, {{grid, threads, shared, order, windows, count, nullptr, nullptr}}, together);\n}}\n"
    )
}
