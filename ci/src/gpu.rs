//! `cargo ci gpu`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::python;
use crate::shell::{self, cargo, command, root};

/// So that the pack travels easily.
const MOST_BYTES: u64 = 60 << 20;

const NEXTEST: &str = "cargo-nextest";

const RUN: &str = include_str!("gpu_run.sh");

/// Builds in the release profile, everything once, without debug information, and copies the results to target/gpu.
pub(crate) fn run() -> Result<()> {
    let folder = root().join("target/gpu");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    shell::run(small(&mut cargo("build --release --package cake-verify --bin cake-verify")))?;
    shell::run(small(&mut cargo("build --release --package cake-rmsnorm --example fit_text")))?;
    let archive = folder.join("tests.tar.zst");
    // The other tests need no GPU.
    let nextest = cargo(
        "nextest archive --cargo-profile release --package cake-verify --test device --zstd-level 19 --archive-file",
    );
    shell::run(small({ nextest }.arg(archive)))?;

    let built = shell::target_folder()?;
    copy(&built.join("release/cake-verify"), &folder)?;
    copy(&built.join("release/examples/fit_text"), &folder)?;
    copy(&nextest_binary()?, &folder)?;
    // The largest file by far, and the one that shrinks.
    shell::run(command("gzip").arg("--best").arg(folder.join(NEXTEST)))?;
    copy(&python::packed()?, &folder)?;
    let script = folder.join("run.sh");
    fs::write(&script, RUN)?;
    executable(&script)?;
    report(&folder)
}

/// Panics keep the names of functions; lines and variables would make the pack several times larger.
fn small(command: &mut Command) -> &mut Command {
    command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo").env("CARGO_PROFILE_RELEASE_DEBUG", "0")
}

fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().context("a program has a name")?;
    fs::copy(file, folder.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}

/// The program behind `cargo nextest`.
fn nextest_binary() -> Result<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    match folders
        .into_iter()
        .chain(home.map(|home| home.join("bin")))
        .map(|folder| folder.join(NEXTEST))
        .find(|file| file.is_file())
    {
        Some(file) => Ok(file),
        None => bail!("cargo-nextest is not installed: run `cargo install --locked cargo-nextest`"),
    }
}

fn executable(file: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    }
    let _ = file;
    Ok(())
}

fn report(folder: &Path) -> Result<()> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let bytes = entry.metadata()?.len();
        total += bytes;
        println!("{:>10} {}", bytes, entry.file_name().to_string_lossy());
    }
    println!("{total:>10} bytes in target/gpu");
    ensure!(total < MOST_BYTES, "target/gpu has {total} bytes, expected less than {MOST_BYTES}");
    println!("\nOn a machine with a GPU, in a copy of this repository with its target/gpu:\n");
    println!("    target/gpu/run.sh                     # tests, verification, demo");
    println!("    target/gpu/run.sh tests [ARGUMENTS]   # only the tests; likewise verify and demo");
    println!("    target/gpu/run.sh devices             # where two GPUs and PyTorch are: docs/distributed.md");
    Ok(())
}
