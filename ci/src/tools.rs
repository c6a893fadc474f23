//! The tools besides Rust that the tasks need: installed where that is quick and ours to do, else asked for.

use anyhow::{Result, bail};

use crate::shell::{command, output, run, works};

/// The compiler of the images, as in cake-kernels/src/build/nvrtc.rs.
const NVRTC: &str = "13.5.37";

/// A C compiler, make and m4: what GMP and MPFR are built with, for the references in cake-verify; and a C++ compiler,
/// which its emulator of the kernels is built with.
pub(crate) fn c_tools() -> Result<()> {
    for (tool, package) in [("cc", "gcc"), ("c++", "g++"), ("make", "make"), ("m4", "m4")] {
        if works(command(tool).arg("--version")) {
            continue;
        }
        let root = output(command("id").arg("-u")).is_ok_and(|user| user.starts_with(b"0\n"));
        if !root || !works(command("apt-get").arg("--version")) {
            bail!("`{tool}` is missing, which the tests are built with: install the package {package}");
        }
        println!("`{tool}` is missing: installing the package {package}");
        run(command("apt-get").args(["update", "--quiet"]))?;
        run(command("apt-get")
            .args(["install", "--quiet", "--yes", package])
            .env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    Ok(())
}

/// rustfmt and clippy, which a minimal toolchain lacks.
pub(crate) fn components() -> Result<()> {
    for (tool, component) in [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")] {
        if works(command(tool).arg("--version")) {
            continue;
        }
        println!("`{tool}` is missing: adding the component {component}");
        run(command("rustup").args(["component", "add", component]))?;
    }
    Ok(())
}

/// NVRTC from its Python package, unless `CAKE_NVRTC` names a library.
pub(crate) fn nvrtc() -> Result<()> {
    if std::env::var_os("CAKE_NVRTC").is_some() {
        return Ok(());
    }
    let requirement = format!("nvidia-cuda-nvrtc=={NVRTC}");
    let version = "import importlib.metadata as m; print(m.version('nvidia-cuda-nvrtc'))";
    let installed = command("python3").args(["-c", version]).output();
    let Ok(installed) = installed else {
        bail!(
            "python3 is missing: install it with pip, or set CAKE_NVRTC to the path of libnvrtc.so.13 of {requirement}"
        );
    };
    if String::from_utf8_lossy(&installed.stdout).trim() == NVRTC {
        return Ok(());
    }
    println!("{requirement} is missing: installing it for this user's python3");
    let mut pip = command("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &requirement]);
    // A Python that the system manages (PEP 668) takes packages only into the user's own folder, and only when told so.
    let managed = "import os, sys, sysconfig
inside = sys.prefix != sys.base_prefix
sys.exit(inside or not os.path.exists(os.path.join(sysconfig.get_path('stdlib'), 'EXTERNALLY-MANAGED')))";
    if works(command("python3").args(["-c", managed])) {
        pip.args(["--user", "--break-system-packages"]);
    }
    run(&mut pip)
}
