//! Without a GPU, or without a driver: typed errors, no panic, and the host path works. A fresh process is asked, with
//! no device visible; on a machine without libcuda that process finds no driver.

use cake_core::{Device, Error};

use super::fresh::Work;
use super::{Context, Task};
use crate::cases::gate::{GateBackwardCase, GateCase};
use crate::cases::{BackwardCase, Case};
use crate::checks::matrix;
use crate::engine::target::Target;
use crate::report::Tally;

const CHECK: &str = "absence";

/// One task.
pub fn tasks() -> [Task; 1] {
    let judge = |context: &Context| {
        let mut tally = Tally::default();
        tally.judge_result(CHECK, "a fresh process without devices", Work::WithoutDevice.ask(context));
        tally
    };
    [Task::new("absence", "a machine without a GPU panics, or fails at load", judge)]
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
