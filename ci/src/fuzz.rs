//! `cargo ci fuzz`: the targets of `fuzz/`, by libFuzzer.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::shell::{self, cargo, command, output, root};

/// So that libFuzzer sees which code an input reaches: no sanitizer, and so no other toolchain.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Builds the targets and runs each for some seconds, from what earlier runs have found.
pub(crate) fn run(wanted: &[String], seconds: u32) -> Result<()> {
    let fuzz = root().join("fuzz");
    let mut targets: Vec<String> = Vec::new();
    for entry in fs::read_dir(fuzz.join("targets"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(String::from));
    }
    targets.sort();
    let unknown = wanted.iter().find(|name| !targets.contains(name));
    ensure!(unknown.is_none(), "no target {:?}: expected some of {}", unknown, targets.join(", "));

    let version = String::from_utf8(output(command("rustc").arg("-vV"))?)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let folder = shell::target_folder()?.join("fuzz");
    // With a target of their own, build scripts are compiled without the flags.
    let mut build = cargo("build --release --manifest-path fuzz/Cargo.toml --target");
    shell::run(build.arg(host).env("RUSTFLAGS", COVERAGE).env("CARGO_TARGET_DIR", &folder))?;

    for target in targets.iter().filter(|target| wanted.is_empty() || wanted.contains(target)) {
        let (corpus, artifacts) = (fuzz.join("corpus").join(target), fuzz.join("artifacts").join(target));
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&artifacts)?;
        let mut run = command(folder.join(host).join("release").join(target));
        run.arg(corpus).arg(format!("-artifact_prefix={}/", artifacts.display()));
        shell::run(run.arg(format!("-max_total_time={seconds}")).args(["-max_len=512", "-print_final_stats=1"]))?;
    }
    Ok(())
}
