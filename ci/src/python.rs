//! The Python package: the wheel, alone and under its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell::{self, command, root};

/// Builds the wheel, imports it where nothing else is installed, and runs the tests on it.
pub(crate) fn run() -> Result<()> {
    let folder = shell::target_folder()?.join("python");
    let package = root().join("crates/cake-py");
    let venv = tested_venv(&folder.join("venv"), &package.join("tests/requirements.txt"))?;
    let wheel = wheel(&venv, &package, &folder.join("wheels"))?;
    import_alone(&folder.join("bare"), &wheel)?;

    shell::run(pip(&venv).args(["install", "--quiet", "--force-reinstall", "--no-deps"]).arg(&wheel))?;
    // In the folder of the tests, so that the package is the one in the wheel.
    let tests = package.join("tests");
    shell::run(command(&venv).args(["-m", "pytest", "--quiet", "-rs", "-p", "no:cacheprovider"]).current_dir(tests))
}

/// The Python of a venv with all that the tests need, installed again when the list of it changes.
fn tested_venv(venv: &Path, requirements: &Path) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    let (done, wanted) = (venv.join("requirements.txt"), fs::read_to_string(requirements)?);
    if fs::read_to_string(&done).is_ok_and(|done| done == wanted) {
        return Ok(python);
    }
    println!("installing what the tests of the Python package need, PyTorch among it: some 6 GB in {}", venv.display());
    new_venv(venv)?;
    // Uncached: PyTorch's packages for CUDA would take 3 GB once more, for one installation.
    shell::run(pip(&python).args(["install", "--quiet", "--no-cache-dir", "--requirement"]).arg(requirements))?;
    fs::write(done, wanted)?;
    Ok(python)
}

fn wheel(python: &Path, package: &Path, wheels: &Path) -> Result<PathBuf> {
    if wheels.exists() {
        fs::remove_dir_all(wheels)?;
    }
    let mut maturin = command(python);
    maturin.args(["-m", "maturin", "build", "--quiet", "--release", "--locked", "--out"]).arg(wheels);
    shell::run(maturin.current_dir(package))?;
    let mut files = fs::read_dir(wheels)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(files.len() == 1, "maturin made {} wheels, expected one", files.len());
    Ok(files.remove(0).path())
}

/// In a fresh venv, without PyTorch and NumPy.
fn import_alone(venv: &Path, wheel: &Path) -> Result<()> {
    new_venv(venv)?;
    let python = venv.join("bin/python");
    shell::run(pip(&python).args(["install", "--quiet", "--no-index"]).arg(wheel))?;
    shell::run(command(&python).args(["-m", "cake_py", "doctor"]).current_dir(venv))
}

fn new_venv(folder: &Path) -> Result<()> {
    let made = shell::run(command("python3").args(["-m", "venv", "--clear"]).arg(folder));
    made.context("expected a python3 of version 3.10 or newer with its module venv (Debian: python3-venv)")
}

fn pip(python: &Path) -> Command {
    let mut pip = command(python);
    pip.args(["-m", "pip", "--disable-pip-version-check"]);
    pip
}
