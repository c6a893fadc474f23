//! `cargo ci test`: everything that needs no GPU.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::shell::{self, cargo, command, works};
use crate::{images, python, structure, tools};

/// The builder of the images is linted and tested too. Every step builds in the profile of the tests, so that GMP, MPFR
/// and zstd are compiled once.
const WORKSPACE: &str = "--workspace --features cake-kernels/build";

/// Runs every step, also after one that failed, and prints a table of them.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    // Without the tools no other step can be judged.
    steps.step("tools", tools)?;
    let _ = steps.step("format", || shell::run(&mut cargo("fmt --all --check")));
    let _ = steps.step("structure", structure::run);
    let _ = steps.step("images", || images::run(true));
    let _ = steps.step("lints", lints);
    let _ = steps.step("docs", docs);
    let _ = steps.step("doctests", || shell::run(&mut cargo(&format!("test --quiet --doc {WORKSPACE}"))));
    let _ = steps.step("tests", tests);
    let _ = steps.step("verify", verify);
    let _ = steps.step("python", python::run);
    steps.finish()
}

fn tools() -> Result<()> {
    tools::c_tools()?;
    tools::components()?;
    tools::nvrtc()
}

fn lints() -> Result<()> {
    shell::run(&mut cargo(&format!("clippy {WORKSPACE} --profile test --all-targets -- -D warnings")))
}

fn docs() -> Result<()> {
    shell::run(cargo(&format!("doc --no-deps --profile test {WORKSPACE}")).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Device tests report themselves as ignored, with the reason, where there is no GPU. The judgements of the host tests
/// are left to [`verify`], which keeps a report of them.
fn tests() -> Result<()> {
    if works(&mut cargo("nextest --version")) {
        let mut nextest = cargo(&format!("nextest run {WORKSPACE} --status-level skip -E"));
        return shell::run(nextest.arg("not binary_id(cake-verify::host) or test(/^(every_host_task|task_names)_/)"));
    }
    println!("cargo-nextest is not installed: running the same tests by cargo test");
    shell::run(&mut cargo(&format!("test {WORKSPACE} --lib --bins --tests --examples")))
}

/// The matrix on the host path; its report is what CI keeps.
fn verify() -> Result<()> {
    shell::run(&mut cargo(&format!("build --quiet {WORKSPACE} --profile test --bin cake-verify")))?;
    let program = shell::target_folder()?.join("debug/cake-verify");
    shell::run(command(program).args(["run", "--report", "target/report"]))
}

/// The steps so far: name, seconds, and why a step failed.
#[derive(Default)]
struct Steps {
    done: Vec<(&'static str, f64, Option<String>)>,
}

impl Steps {
    fn step(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n== {name}");
        let start = Instant::now();
        let result = step();
        let failure = result.as_ref().err().map(|error| format!("{error:#}"));
        if let Some(failure) = &failure {
            println!("{failure}");
        }
        self.done.push((name, start.elapsed().as_secs_f64(), failure));
        result
    }

    fn finish(self) -> Result<()> {
        println!("\n{:<10} {:>7}", "step", "seconds");
        for (name, seconds, failure) in &self.done {
            println!("{name:<10} {seconds:>7.1} {}", if failure.is_some() { "FAILED" } else { "ok" });
        }
        let failed: Vec<&str> = self.done.iter().filter(|step| step.2.is_some()).map(|step| step.0).collect();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }
}
