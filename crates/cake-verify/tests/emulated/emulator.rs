//! The kernels compiled for the host by the C++ compiler, see `emulator/emulator.hpp`.
//!
//! Unsafe code is fenced here: the library was built from the very kernels and parameter blocks that it is called with,
//! and `run` has its callers answer for the addresses in them.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::{env, fs, ptr, slice};

use cake_core::{Arch, Kernel};
use libloading::Library;

/// The order in which the threads of a CTA get their turns. No result may depend on it.
pub(crate) const ORDERS: [u32; 3] = [0, 1, 2];

pub(crate) struct Emulator(Library);

/// `cake_emulate` of the unit: kernel, parameters, CTAs, threads, bytes of dynamic shared memory, order.
type Emulate = unsafe extern "C" fn(*const c_void, *const c_void, u32, u32, u32, u32) -> *const c_char;

/// `cake_fetched` of the unit: gives the addresses and returns their number.
type Fetched = unsafe extern "C" fn(*mut *const u64) -> u64;

impl Emulator {
    /// Compiles every kernel of an operator, whose forward parameters are `params`.
    pub(crate) fn new(op: &'static str, params: &str) -> Emulator {
        let crates = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is")).join("..");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("emulated-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the target folder can be written");
        let unit = format!(
            "#include \"emulator.hpp\"\n{}\nstruct Call {{ void (*kernel)({params}); const {params}* params; }};\n\
             extern \"C\" const char* cake_emulate(void* kernel, const void* params, unsigned grid, unsigned threads,\n\
             unsigned shared, unsigned order) {{\n\
             Call call{{reinterpret_cast<void (*)({params})>(kernel), static_cast<const {params}*>(params)}};\n\
             const auto body = [](void* c) {{ auto* call = static_cast<Call*>(c); call->kernel(*call->params); }};\n\
             return emulator::run(grid, threads, shared, order, body, &call);\n}}\n\
             extern \"C\" unsigned long long cake_fetched(const unsigned long long** addresses) {{\n\
             *addresses = emulator::machine.fetched.data();\nreturn emulator::machine.fetched.size();\n}}\n",
            cake_kernels::build::unit(op, Arch::Sm90)
        );
        let (source, library) = (folder.join("unit.cpp"), folder.join("unit.so"));
        fs::write(&source, unit).expect("the target folder can be written");
        let mut compiler = Command::new(env::var_os("CXX").unwrap_or("c++".into()));
        compiler.args(["-std=c++20", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-Wno-unknown-pragmas", "-I"]);
        compiler.arg(crates.join("cake-verify/emulator")).arg("-I").arg(crates.join("cake-kernels/cuda"));
        let status = compiler.arg(&source).arg("-o").arg(&library).status();
        let status = status.unwrap_or_else(|error| panic!("the C++ compiler {compiler:?}: {error}: install g++"));
        assert!(status.success(), "the C++ compiler refused the kernels: {status}");
        // SAFETY: the library has no code that runs when it is loaded, besides its own thread-local state.
        let loaded = unsafe { Library::new(&library) }.expect("the library was just linked");
        fs::remove_dir_all(&folder).expect("the folder is ours");
        Emulator(loaded)
    }

    /// Runs one launch on this thread; the ranges of addresses that it fetched ahead.
    ///
    /// # Safety
    /// `params` must be the parameters of `kernel`, and the addresses in them good for what they describe.
    pub(crate) unsafe fn run<P>(
        &self,
        kernel: &Kernel,
        params: &P,
        rows: u32,
        shared: u32,
        order: u32,
    ) -> Result<Vec<(u64, u64)>, String> {
        // SAFETY: the symbols have these types; what they return is read before the next call on this thread.
        let (fault, fetched) = unsafe {
            let emulate = self.0.get::<Emulate>(b"cake_emulate").map_err(|error| error.to_string())?;
            let symbol =
                self.0.get::<*const c_void>(kernel.to_string().as_bytes()).map_err(|error| error.to_string())?;
            let address = symbol.try_as_raw_ptr().ok_or("a symbol without an address")?;
            let fault =
                emulate(address, (&raw const *params).cast(), kernel.grid(rows), kernel.threads(), shared, order);
            let fault = CStr::from_ptr(fault).to_string_lossy().into_owned();
            let fetched = self.0.get::<Fetched>(b"cake_fetched").map_err(|error| error.to_string())?;
            let mut addresses = ptr::null();
            let count = fetched(&mut addresses) as usize;
            let addresses = if count == 0 { &[] } else { slice::from_raw_parts(addresses, count) };
            (fault, addresses.chunks_exact(2).map(|range| (range[0], range[1])).collect())
        };
        if fault.is_empty() { Ok(fetched) } else { Err(fault) }
    }
}
