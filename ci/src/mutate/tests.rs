//! Tests that are to notice a fault: building them, running them, and reading what they say.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::copy::Copy;
use crate::shell::{cargo, output};

/// Seconds after which tests hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// Some tests of a package.
#[derive(PartialEq)]
pub(super) struct Tests {
    package: &'static str,
    /// A file of `tests/`; that of the package itself: the tests inside it.
    target: &'static str,
    /// Their names.
    names: &'static [&'static str],
}

/// What came of them.
#[derive(PartialEq)]
pub(super) enum Verdict {
    Passed,
    /// By which test, and what it said first.
    Failed(String),
    /// They ended in another way.
    Broken(String),
}

impl Tests {
    /// Of a file in the package's `tests/`.
    pub(super) const fn of(package: &'static str, target: &'static str, names: &'static [&'static str]) -> Tests {
        Tests { package, target, names }
    }

    /// Of the kernels' source, run on the host.
    pub(super) const fn emulated(names: &'static [&'static str]) -> Tests {
        Tests::of("cake-verify", "emulated", names)
    }

    /// Of the host path and the argument checks, by the names that cake-verify has for them.
    pub(super) const fn verify(names: &'static [&'static str]) -> Tests {
        Tests::of("cake-verify", "host", names)
    }

    /// Builds them from the copy; an error unless that succeeds.
    pub(super) fn build(&self, copy: &Copy) -> Result<PathBuf> {
        let mut cargo = cargo("test --quiet --no-run --message-format json --package");
        cargo.arg(self.package);
        match self.target == self.package {
            true => cargo.arg("--lib"),
            false => cargo.args(["--test", self.target]),
        };
        // The images are not those of a copy with a fault in a kernel, nor used.
        cargo.current_dir(&copy.tree).env("CARGO_TARGET_DIR", &copy.target).env("CAKE_IMAGES_STALE", "1");
        let messages = output(&mut cargo)?;
        let messages = String::from_utf8(messages).context("cargo's messages are not text")?;
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut tests = messages.filter(|message| message["profile"]["test"] == true);
        let program = tests.find_map(|message| message["executable"].as_str().map(PathBuf::from));
        program.with_context(|| format!("{self}: cargo names no program"))
    }

    /// Runs them, on the sources of the copy.
    pub(super) fn run(&self, copy: &Copy, program: &Path, fault: &str) -> Result<Verdict> {
        let log = copy.logs.join(format!("{fault}.txt"));
        let package = copy.tree.join("crates").join(self.package);
        let file = File::create(&log)?;
        let mut command = Command::new(program);
        command.arg("--exact").args(self.names).current_dir(&package).env("CARGO_MANIFEST_DIR", &package);
        command.stdout(file.try_clone()?).stderr(file).stdin(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let start = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if start.elapsed() > PATIENCE => {
                    child.kill()?;
                    child.wait()?;
                    return Ok(Verdict::Broken(format!("did not end within {} s", PATIENCE.as_secs())));
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        ensure!(!text.contains("running 0 tests"), "{self}: there are no such tests");
        ensure!(!text.contains("the C++ compiler refused"), "{fault}: does not compile, see {}", log.display());
        Ok(match status.code() {
            Some(0) => Verdict::Passed,
            Some(FAILED) => Verdict::Failed(first_failure(&text)),
            _ => Verdict::Broken(status.to_string()),
        })
    }
}

/// The exit status of a test program some of whose tests failed.
const FAILED: i32 = 101;

/// The test that panicked first, and the first line of what it said.
fn first_failure(text: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("---- "));
    let test = lines.next().and_then(|line| line.strip_prefix("---- ")?.split(' ').next()).unwrap_or("?");
    let said = lines.find(|line| !line.is_empty() && !line.starts_with("thread '")).unwrap_or_default();
    let said: String = said.chars().take(100).collect();
    format!("{test}: {said}")
}

impl fmt::Display for Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.package)?;
        if self.target != self.package {
            write!(f, " {}", self.target)?;
        }
        self.names.iter().try_for_each(|name| write!(f, " {name}"))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passed => f.write_str("NOTHING: all tests passed"),
            Verdict::Failed(by) => f.write_str(by),
            Verdict::Broken(how) => write!(f, "NOTHING: the tests broke: {how}"),
        }
    }
}
