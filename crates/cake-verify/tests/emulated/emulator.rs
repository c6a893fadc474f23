//! The kernels compiled for the host by the C++ compiler, see `emulator/emulator.hpp`.
//!
//! Unsafe code is fenced here: the library was built from the very kernels and parameter blocks that it is called with,
//! and `run` has its callers answer for the addresses in them.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::{env, fs};

use cake_core::{Arch, Kernel, Pass};
use libloading::Library;
use sha2::{Digest, Sha256};

/// The order in which the threads of a CTA get their turns. No result may depend on it.
pub(crate) const ORDERS: [u32; 5] = [0, 1, 2, 3, 4];

/// The kernels of an operator.
pub(crate) struct Emulator {
    op: &'static str,
    /// Those of each schedule and width, compiled when the first of them runs.
    libraries: Mutex<BTreeMap<String, Arc<OnceLock<Library>>>>,
}

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

/// `cake_emulate` of a unit: kernel, parameters, CTAs, threads, bytes of dynamic shared memory, order, whether all CTAs
/// run at once, windows.
type Emulate =
    unsafe extern "C" fn(*const c_void, *const c_void, u32, u32, u32, u32, u32, *const Window, u64) -> *const c_char;

impl Emulator {
    pub(crate) fn new(op: &'static str) -> Emulator {
        Emulator { op, libraries: Mutex::default() }
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
        let name = library_name(kernel);
        let library = self.libraries.lock().expect("no panic under the lock").entry(name.clone()).or_default().clone();
        let library = library.get_or_init(|| compile(&name, self.op));
        // SAFETY: the symbols have these types; the message is read before the next call on this thread.
        let fault = unsafe {
            let emulate = library.get::<Emulate>(b"cake_emulate").map_err(|error| error.to_string())?;
            let symbol =
                library.get::<*const c_void>(kernel.to_string().as_bytes()).map_err(|error| error.to_string())?;
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

fn library_name(kernel: &Kernel) -> String {
    let width = kernel.width.map_or("any".into(), |width| format!("h{width}"));
    format!("{}_{}_{width}_{}", kernel.op, kernel.pass, kernel.schedule)
}

/// Compiles the kernels of a library, or finds what was compiled from the same sources.
fn compile(name: &str, op: &'static str) -> Library {
    let kernels: Vec<&'static Kernel> =
        cake_kernels::kernels(op).into_iter().filter(|kernel| library_name(kernel) == name).collect();
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is")).join("..");
    let includes = [crates.join("cake-verify/emulator"), crates.join("cake-kernels/cuda")];
    let params =
        format!("cake::{op}::{}", if kernels[0].pass == Pass::Forward { "ForwardParams" } else { "BackwardParams" });
    let unit = format!(
        "#include \"emulator.hpp\"\n{}\n\
         struct Call {{ void (*kernel)({params}); const {params}* params; }};\n\
         extern \"C\" const char* cake_emulate(void* kernel, const void* params, unsigned grid, unsigned threads, unsigned shared,\n\
         unsigned order, unsigned together, const emulator::Window* windows, unsigned long long count) {{\n\
         Call call{{reinterpret_cast<void (*)({params})>(kernel), static_cast<const {params}*>(params)}};\n\
         const auto body = [](void* c) {{ auto* call = static_cast<Call*>(c); call->kernel(*call->params); }};\n\
         return emulator::run({{grid, threads, shared, order, windows, count, body, &call}}, together);\n}}\n",
        cake_kernels::build::unit(kernels, Arch::Sm90),
    );
    let mut sources = Sha256::new();
    digest(&unit, &includes, &mut BTreeSet::new(), &mut sources);
    let key: String = sources.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    // One process compiles, the others wait for it.
    let lock = fs::File::create(folder.join(format!("{name}.lock"))).expect("the target folder can be written");
    lock.lock().expect("the target folder can be locked");
    let library = folder.join(format!("{name}-{key}.so"));
    if !library.exists() {
        let (source, fresh) = (folder.join(format!("{name}.cpp")), folder.join(format!("{name}.so")));
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
    unsafe { Library::new(&library) }.expect("the library was linked for this machine")
}

/// Takes in a text, and before it each of our own headers that it includes, once.
fn digest(text: &str, includes: &[PathBuf], seen: &mut BTreeSet<String>, sources: &mut Sha256) {
    let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
    for name in names {
        if seen.insert(name.into()) {
            let header = includes.iter().find_map(|folder| fs::read_to_string(folder.join(name)).ok());
            digest(&header.unwrap_or_else(|| panic!("no header {name}")), includes, seen, sources);
        }
    }
    sources.update(text);
}
