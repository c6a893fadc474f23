//! `cargo ci candle`: the example for candle, which nothing else builds.

use anyhow::Result;

use crate::shell::{self, cargo};

/// Format, lints and tests, on the CPU: the part for GPUs needs a CUDA toolkit.
pub(crate) fn run() -> Result<()> {
    const PACKAGE: &str = "--manifest-path examples/candle/Cargo.toml";
    const BUILD: &str = "--locked --target-dir target/candle";
    shell::run(&mut cargo(&format!("fmt {PACKAGE} --check")))?;
    shell::run(&mut cargo(&format!("clippy {PACKAGE} {BUILD} --profile test --all-targets -- -D warnings")))?;
    shell::run(&mut cargo(&format!("test {PACKAGE} {BUILD}")))
}
