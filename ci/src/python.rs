//! The Python package: the wheel, alone and under its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell::{self, command, root};

/// Builds the wheel, imports it where nothing else is installed, and runs the tests on it.
pub(crate) fn run() -> Result<()> {
    let (folder, package) = (folder()?, package());
    let requirements = requirements()?;
    println!("what the tests of the Python package need, PyTorch among it, takes some 6 GB in {}", folder.display());
    let venv = venv(&folder.join("venv"), &requirements)?;
    let wheel = wheel(&venv, &package, &folder.join("wheels"))?;
    import_alone(&folder.join("bare"), &wheel)?;

    shell::run(pip(&venv).args(["install", "--quiet", "--force-reinstall", "--no-deps"]).arg(&wheel))?;
    // In the folder of the tests, so that the package is the one in the wheel.
    let tests = package.join("tests");
    shell::run(command(&venv).args(["-m", "pytest", "--quiet", "-rs", "-p", "no:cacheprovider"]).current_dir(tests))
}

/// Builds the wheel alone, for a machine that has PyTorch.
pub(crate) fn packed() -> Result<PathBuf> {
    let requirements = requirements()?;
    let maturin = requirements.lines().find(|line| line.starts_with("maturin"));
    let folder = folder()?;
    let venv = venv(&folder.join("maturin"), maturin.context("the tests' requirements name no maturin")?)?;
    wheel(&venv, &package(), &folder.join("wheels"))
}

fn package() -> PathBuf {
    root().join("crates/cake-py")
}

fn requirements() -> Result<String> {
    Ok(fs::read_to_string(package().join("tests/requirements.txt"))?)
}

fn folder() -> Result<PathBuf> {
    Ok(shell::target_folder()?.join("python"))
}

/// The Python of a venv with what is wanted, installed again when that changes.
fn venv(venv: &Path, wanted: &str) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    let done = venv.join("requirements.txt");
    if fs::read_to_string(&done).is_ok_and(|done| done == wanted) {
        return Ok(python);
    }
    new_venv(venv)?;
    // Uncached: PyTorch's packages for CUDA would take 3 GB once more, for one installation.
    let names = wanted.lines().filter(|line| !line.starts_with('#'));
    shell::run(pip(&python).args(["install", "--quiet", "--no-cache-dir"]).args(names))?;
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
