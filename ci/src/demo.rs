//! `cargo ci demo`.

use std::env::current_dir;

use anyhow::Result;

use crate::shell;

/// Runs the example in the folder where we were called, so that a relative path means what it says.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut cargo = shell::cargo("run --quiet --release --package cake-rmsnorm --example fit_text --manifest-path");
    cargo.arg(shell::root().join("Cargo.toml")).arg("--").args(arguments);
    shell::run(cargo.current_dir(current_dir()?))
}
