//! Work that needs a process of its own: `cake-verify fresh WORK`.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Context, absence, devices, faults};
use crate::cases::random::DEFAULT_SEED;

/// What the fresh process does.
#[derive(Clone, Copy, Debug, clap::Subcommand)]
pub enum Work {
    /// See [`absence`].
    WithoutDevice,
    /// See [`devices`].
    OnOneDevice {
        /// Of the device.
        ordinal: u32,
    },
    /// See [`faults`].
    WithFullMemory {
        /// Of the device.
        ordinal: u32,
    },
}

impl Work {
    /// Does it; what was found, or what is wrong.
    pub fn run(self) -> Result<String, String> {
        match self {
            Work::WithoutDevice => absence::without_device(DEFAULT_SEED),
            Work::OnOneDevice { ordinal } => devices::on_one_device(ordinal, DEFAULT_SEED),
            Work::WithFullMemory { ordinal } => faults::with_full_memory(ordinal, DEFAULT_SEED),
        }
    }

    /// Has a fresh process do it.
    pub(super) fn ask(self, context: &Context) -> Result<(), String> {
        let mut command = Command::new(&context.executable);
        command.arg("fresh").stdin(Stdio::null());
        match self {
            Work::WithoutDevice => command.arg("without-device").env("CUDA_VISIBLE_DEVICES", ""),
            Work::OnOneDevice { ordinal } => command.args(["on-one-device", &ordinal.to_string()]),
            Work::WithFullMemory { ordinal } => command.args(["with-full-memory", &ordinal.to_string()]),
        };
        let output = command.output().map_err(|error| format!("{}: {error}", context.executable.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        Err(format!("{}: {}", output.status, text.trim()))
    }
}

/// The `cake-verify` that a test asks: the one that nextest unpacked from an archive, or else the one that Cargo built.
pub fn executable(built: &str) -> PathBuf {
    env::var_os("NEXTEST_BIN_EXE_cake-verify").map_or(built.into(), PathBuf::from)
}
