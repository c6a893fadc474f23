//! The record of a run; as JSON it is what its fields say.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::driver::Gpu;
use super::times::Summary;

/// Everything that a reader needs to judge the figures, and the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Of Cake.
    pub version: String,
    /// `release`, or `debug`: then the host's times mean nothing.
    pub build: String,
    /// UTC, when the run began.
    pub date: String,
    /// The board.
    pub device: DeviceFacts,
    /// Compiled code that was used.
    pub images: Vec<ImageFacts>,
    /// Of every random number.
    pub seed: u64,
    /// Times that the stream was filled with samples.
    pub rounds: u32,
    /// Samples of each engine in a round.
    pub samples: u32,
    /// Bytes that were written before each sample.
    pub flush_bytes: u64,
    /// How to read the figures.
    pub method: String,
    /// On the device.
    pub measurements: Vec<Measured>,
    /// On the host.
    pub host: Vec<HostCost>,
    /// Programs that were not timed because their answers were wrong.
    pub wrong: Vec<String>,
}

/// A board.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // as in `DeviceInfo`
pub struct DeviceFacts {
    pub ordinal: u32,
    pub name: String,
    pub arch: String,
    pub sms: u32,
    pub l2_bytes: u32,
    /// CUDA version of the driver, 1000 * major + 10 * minor.
    pub driver: i32,
    /// Highest clock of the SMs.
    pub sm_mhz: Option<u32>,
    /// Highest clock of the memory.
    pub memory_mhz: Option<u32>,
}

/// An embedded image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageFacts {
    /// Operator.
    pub op: String,
    /// SHA-256 as in `images.lock`.
    pub sha256: String,
}

/// What was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Our plan, as a user makes it.
    Routed,
    /// One of our programs, whatever the routes say; it fetches nothing ahead.
    Forced,
    /// The device's own copy of as many bytes as the forward moves.
    Copy,
    /// Two or three streams read and one or two written, as many bytes as the backward moves, or a gated forward.
    Add,
    /// One after the other.
    #[serde(rename = "copy+add")]
    CopyAdd,
    /// A kernel that does nothing.
    Empty,
    /// Two events with nothing between them.
    Nothing,
}

/// Times of one engine at one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the row.
    pub row: String,
    /// Why it is there.
    pub why: String,
    /// Elements of a row.
    pub width: u32,
    /// Rows of the call.
    pub rows: u64,
    /// What was timed.
    pub engine: Engine,
    /// First kernel of the program, where the engine has one; of a step, both programs'.
    pub program: Option<String>,
    /// Rows that the program fetches ahead on all SMs together, as its route says; of a step, the forward's.
    pub ahead: u32,
    /// The least that must move.
    pub bytes: u64,
    /// Nanoseconds between the events.
    pub ns: Summary,
    /// Bytes over the median, where the engine moves them.
    pub gb_per_s: Option<f64>,
    /// Rate beside the reference of the same row.
    pub percent_of_reference: Option<f64>,
}

/// Host time of one kind of call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostCost {
    /// What is called.
    pub call: String,
    /// Nanoseconds.
    pub ns: Summary,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 7] =
        [Engine::Routed, Engine::Forced, Engine::Copy, Engine::Add, Engine::CopyAdd, Engine::Empty, Engine::Nothing];

    /// Whether other engines of its row are set against it.
    pub const fn is_reference(self) -> bool {
        matches!(self, Engine::Copy | Engine::Add | Engine::CopyAdd)
    }
}

impl Record {
    /// A record in a file, as JSON or as CSV.
    pub fn read(path: &Path) -> Result<Record> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let record = match text.starts_with('#') {
            true => Record::read_csv(&text),
            false => serde_json::from_str(&text).map_err(Into::into),
        };
        record.with_context(|| format!("{}: not a record of `cake-verify bench`", path.display()))
    }

    /// The reference of a row.
    pub fn reference(&self, row: &str) -> Option<&Measured> {
        self.measurements.iter().find(|measured| measured.row == row && measured.engine.is_reference())
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Engine::Routed => "routed",
            Engine::Forced => "forced",
            Engine::Copy => "copy",
            Engine::Add => "add",
            Engine::CopyAdd => "copy+add",
            Engine::Empty => "empty",
            Engine::Nothing => "nothing",
        })
    }
}

impl DeviceFacts {
    /// Of the GPU in hand.
    pub fn of(gpu: &Gpu) -> cake_core::Result<DeviceFacts> {
        let info = gpu.device().info();
        let [sm_mhz, memory_mhz] = gpu.peak_clocks();
        Ok(DeviceFacts {
            ordinal: info.ordinal,
            name: info.name.clone(),
            arch: info.arch.target().into(),
            sms: info.sms,
            l2_bytes: info.l2_bytes,
            driver: cake_core::Device::driver_version()?,
            sm_mhz,
            memory_mhz,
        })
    }
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceFacts { ordinal, name, arch, sms, l2_bytes, driver, .. } = self;
        write!(f, "cuda:{ordinal} {name} ({arch}, {sms} SMs, {} MiB L2), ", l2_bytes >> 20)?;
        write!(f, "driver for CUDA {}.{}", driver / 1000, driver % 1000 / 10)?;
        for (part, clock) in [("SMs", self.sm_mhz), ("memory", self.memory_mhz)] {
            if let Some(clock) = clock {
                write!(f, ", {part} up to {clock} MHz")?;
            }
        }
        Ok(())
    }
}

/// The images of an architecture that are timed and judged.
pub fn images(arch: cake_core::Arch) -> Vec<ImageFacts> {
    let sha256 = |op: &'static str| hex(&Sha256::digest(cake_kernels::image(op, arch).compressed));
    let ops = cake_kernels::OPS.iter().filter(|op| ["probe", "rmsnorm", "silu_gate"].contains(op));
    ops.map(|op| ImageFacts { op: (*op).into(), sha256: sha256(op) }).collect()
}

/// Bytes as digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::times::Times;

    pub(crate) fn summary(nanoseconds: u64) -> Summary {
        let mut times = Times::new();
        times.record(nanoseconds);
        times.summary()
    }

    pub(crate) fn measured(row: &str, engine: Engine, nanoseconds: u64) -> Measured {
        Measured {
            row: row.into(),
            why: "one, or another".into(),
            width: 2048,
            rows: 16,
            engine,
            program: (engine == Engine::Routed).then(|| "rmsnorm_fwd_h2048_row".into()),
            ahead: 0,
            bytes: 4000,
            ns: summary(nanoseconds),
            gb_per_s: Some(4000.0 / nanoseconds as f64),
            percent_of_reference: Some(93.25),
        }
    }

    pub(crate) fn record() -> Record {
        Record {
            version: "0.1.0".into(),
            build: "release".into(),
            date: "1970-01-01T00:00:00Z".into(),
            device: DeviceFacts {
                ordinal: 0,
                name: "H200".into(),
                arch: "sm_90a".into(),
                sms: 132,
                l2_bytes: 60 << 20,
                driver: 13000,
                sm_mhz: Some(1980),
                memory_mhz: None,
            },
            images: images(cake_core::Arch::Sm90),
            seed: 7,
            rounds: 1,
            samples: 1,
            flush_bytes: 1,
            method: String::new(),
            measurements: vec![measured("a", Engine::Routed, 1000), measured("a", Engine::Copy, 900)],
            host: vec![HostCost { call: "views".into(), ns: summary(90) }],
            wrong: Vec::new(),
        }
    }

    #[test]
    fn json_has_facts_and_percentiles() {
        let json = serde_json::to_value(record()).unwrap();
        assert_eq!(json["device"]["sms"], 132);
        assert_eq!(json["measurements"][0]["engine"], "routed");
        assert_eq!(json["measurements"][1]["ns"]["p50"], 900);
        assert_eq!(json["images"][0]["sha256"].as_str().unwrap().len(), 64);
        assert_eq!(serde_json::from_value::<Record>(json).unwrap(), record());
    }
}
