//! A test for each task of the matrix, on the GPU `cuda:0`. Without one every test is ignored, and its name says why;
//! none is counted as passed. Each is its own process under `cargo nextest run`.

use cake_core::Device;
use cake_verify::cases::groups::Profile;
use cake_verify::cases::random::DEFAULT_SEED;
use cake_verify::checks::{self, Context, Task, fresh};
use cake_verify::engine::target::Target;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let (device, reason) = match Device::new(0) {
        Ok(device) => (Some(device), None),
        Err(error) => (None, Some(format!("no GPU: {error}"))),
    };
    let tasks = checks::tasks(Profile::Quick, device.as_ref().map(Device::info));
    let trials = tasks.into_iter().map(|task| trial(task, device.clone(), reason.as_deref())).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(task: Task, device: Option<Device>, reason: Option<&str>) -> Trial {
    let name = task.name.clone();
    let trial = Trial::test(name, move || match device {
        Some(device) => judge(&task, device),
        // Reached only when ignored tests are asked for: not judged is not passed.
        None => Err("needs a GPU".into()),
    });
    match reason {
        Some(_) => trial.with_ignored_flag(true).with_kind("needs a GPU"),
        None => trial,
    }
}

fn judge(task: &Task, device: Device) -> Result<(), Failed> {
    let executable = fresh::executable(env!("CARGO_BIN_EXE_cake-verify"));
    let context = Context::new(Target::Cuda(device), DEFAULT_SEED, Profile::Quick, executable);
    let tally = task.run(&context).programs.total();
    // A limit that this GPU's memory cannot reach is said, and is no failure.
    tally.0.values().flat_map(|outcome| &outcome.skipped).for_each(|skipped| eprintln!("skipped: {skipped}"));
    match tally.failures() {
        0 => Ok(()),
        failures => Err(format!("{}: {failures} failures\n{}", task.why, tally.messages()).into()),
    }
}
