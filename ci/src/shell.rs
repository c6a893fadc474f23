//! Running other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("ci/ is a folder of the repository").into()
}

/// A command in the root of the repository.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Cargo in the root of the repository; `words` are its arguments, separated by spaces.
pub(crate) fn cargo(words: &str) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split_whitespace());
    command
}

/// Runs a command with our output; an exit status other than success is an error that names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot run `{line}`"))?;
    ensure!(status.success(), "`{line}` failed: {status}");
    Ok(())
}

/// What a command writes to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = line(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run `{line}`"))?;
    ensure!(output.status.success(), "`{line}` failed: {}", output.status);
    Ok(output.stdout)
}

/// Whether a command can be started and succeeds; its output is dropped.
pub(crate) fn works(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// What cargo knows about the packages of the workspace.
pub(crate) fn metadata() -> Result<Value> {
    let json = output(&mut cargo("metadata --format-version 1 --no-deps"))?;
    serde_json::from_slice(&json).context("cannot read the output of cargo metadata")
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder() -> Result<PathBuf> {
    Ok(metadata()?["target_directory"].as_str().context("cargo metadata has no target_directory")?.into())
}

/// The command as one would type it, without the folder of its program.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let words: Vec<_> = [program].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
