//! Without a GPU, or without a driver: typed errors, no panic, and the host path works. A fresh process is asked, with
//! no device visible; on a machine without libcuda that process finds no driver.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cake_core::{Device, Error};

use super::{Context, Task};
use crate::cases::gate::{GateBackwardCase, GateCase};
use crate::cases::{BackwardCase, Case};
use crate::checks::matrix;
use crate::engine::target::Target;
use crate::report::Tally;

const CHECK: &str = "absence";

/// The argument that makes `cake-verify` be the fresh process.
pub const SUBCOMMAND: &str = "without-device";

/// The `cake-verify` that a test asks: the one that nextest unpacked from an archive, or else the one that Cargo built.
pub fn executable(built: &str) -> PathBuf {
    env::var_os("NEXTEST_BIN_EXE_cake-verify").map_or(built.into(), PathBuf::from)
}

/// One task.
pub fn tasks() -> [Task; 1] {
    let judge = |context: &Context| {
        let mut tally = Tally::default();
        tally.judge_result(CHECK, "a fresh process without devices", ask(context));
        tally
    };
    [Task::new("absence", "a machine without a GPU panics, or fails at load", judge)]
}

fn ask(context: &Context) -> Result<(), String> {
    let output = Command::new(&context.executable)
        .arg(SUBCOMMAND)
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", context.executable.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Err(format!("{}: {}", output.status, text.trim()))
}

/// What the fresh process does. It sees no device.
pub fn without_device(seed: u64) -> Result<String, String> {
    let error = match Device::new(0) {
        Err(error) => error,
        Ok(device) => return Err(format!("expected no device, found {device:?}")),
    };
    match &error {
        Error::DriverMissing | Error::NoDevice { ordinal: 0, present: 0 } => {}
        other => return Err(format!("expected Error::DriverMissing or Error::NoDevice, got {other:?}")),
    }
    match Device::count() {
        Ok(0) | Err(Error::DriverMissing) => {}
        other => return Err(format!("expected 0 devices or Error::DriverMissing, got {other:?}")),
    }
    let case = Case::new(3, 128);
    let results = matrix::judge(&case, &Target::Host, seed, 4096, true);
    let results = results.merge(matrix::judge(&BackwardCase::of(case), &Target::Host, seed, 4096, true));
    let results = results.merge(matrix::judge(&GateCase::new(3, 128), &Target::Host, seed, 4096, true));
    let results = results.merge(matrix::judge(&GateBackwardCase::new(3, 128), &Target::Host, seed, 4096, true));
    let total = results.total();
    if total.failures() > 0 {
        return Err(total.messages());
    }
    Ok(format!("{error}; the host path works"))
}
