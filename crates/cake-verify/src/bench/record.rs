//! The record of a run, as JSON and as CSV.

use std::fmt;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::driver::Gpu;
use super::times::Summary;

/// Everything that a reader needs to judge the figures, and the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Of Cake.
    pub version: &'static str,
    /// `release`, or `debug`: then the host's times mean nothing.
    pub build: &'static str,
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
    pub method: &'static str,
    /// On the device.
    pub measurements: Vec<Measured>,
    /// On the host.
    pub host: Vec<HostCost>,
    /// Programs that were not timed because their answers were wrong.
    pub wrong: Vec<String>,
}

/// A board.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // as in `DeviceInfo`
pub struct DeviceFacts {
    pub ordinal: u32,
    pub name: String,
    pub arch: &'static str,
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
#[derive(Clone, Debug, Serialize)]
pub struct ImageFacts {
    /// Operator.
    pub op: &'static str,
    /// SHA-256 as in `images.lock`.
    pub sha256: String,
}

/// What was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Our plan, as a user makes it.
    Routed,
    /// One of our programs, whatever the routes say; it fetches nothing ahead.
    Forced,
    /// The device's own copy of as many bytes.
    Copy,
    /// A kernel that does nothing.
    Empty,
    /// Two events with nothing between them.
    Nothing,
}

/// Times of one engine at one row.
#[derive(Clone, Debug, Serialize)]
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
    /// First kernel of the program, where the engine has one.
    pub program: Option<String>,
    /// Rows that the program fetches ahead.
    pub ahead: u32,
    /// The least that must move.
    pub bytes: u64,
    /// Nanoseconds between the events.
    pub ns: Summary,
    /// Bytes over the median, where the engine moves them.
    pub gb_per_s: Option<f64>,
    /// Rate beside the copy of the same row.
    pub percent_of_copy: Option<f64>,
}

/// Host time of one kind of call.
#[derive(Clone, Debug, Serialize)]
pub struct HostCost {
    /// What is called.
    pub call: String,
    /// Nanoseconds.
    pub ns: Summary,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Engine::Routed => "routed",
            Engine::Forced => "forced",
            Engine::Copy => "copy",
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
            arch: info.arch.target(),
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

/// The images that a benchmark on an architecture uses.
pub fn images(arch: cake_core::Arch) -> Vec<ImageFacts> {
    let hex = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let ops = cake_kernels::OPS.iter().filter(|op| ["probe", "rmsnorm"].contains(op));
    ops.map(|op| ImageFacts { op, sha256: hex(cake_kernels::image(op, arch).compressed) }).collect()
}

impl Record {
    /// One line for each measurement and host cost; the facts stand before them, after `#`.
    pub fn write_csv(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to, "# cake {} {}, {}, seed {:#x}", self.version, self.build, self.date, self.seed)?;
        writeln!(to, "# {}", self.device)?;
        for image in &self.images {
            writeln!(to, "# image {} sha256 {}", image.op, image.sha256)?;
        }
        writeln!(to, "# {} rounds of {} samples, flush {} bytes", self.rounds, self.samples, self.flush_bytes)?;
        for wrong in &self.wrong {
            writeln!(to, "# wrong: {wrong}")?;
        }
        write!(to, "row,width,rows,engine,program,ahead,bytes,gb_per_s,percent_of_copy")?;
        let lines = self.measurements.iter().map(Measured::csv).chain(self.host.iter().map(HostCost::csv));
        for (i, (head, ns)) in lines.enumerate() {
            if i == 0 {
                ns.figures().iter().try_for_each(|(name, _)| write!(to, ",{}", column(name)))?;
                write!(to, ",why")?;
            }
            writeln!(to)?;
            let (head, why) = head;
            write!(to, "{head}")?;
            ns.figures().iter().try_for_each(|(_, figure)| write!(to, ",{figure}"))?;
            write!(to, ",\"{why}\"")?;
        }
        writeln!(to)
    }
}

/// A count has no unit, everything else is in nanoseconds.
fn column(figure: &str) -> String {
    if figure == "samples" { figure.into() } else { format!("{figure}_ns") }
}

impl Measured {
    fn csv(&self) -> ((String, &str), &Summary) {
        let Measured { row, width, rows, engine, ahead, bytes, .. } = self;
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let program = self.program.as_deref().unwrap_or_default();
        let (rate, percent) = (number(self.gb_per_s), number(self.percent_of_copy));
        let head = format!("{row},{width},{rows},{engine},{program},{ahead},{bytes},{rate},{percent}");
        ((head, &self.why), &self.ns)
    }
}

impl HostCost {
    fn csv(&self) -> ((String, &str), &Summary) {
        ((format!("host/{},,,host,,,,,", self.call), ""), &self.ns)
    }
}

/// Now, in UTC: `2026-01-31T12:34:56Z`.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds)
}

/// Of a number of seconds since 1970. Days to a date: Hinnant, chrono-Compatible Low-Level Date Algorithms, 2013.
fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86400, seconds % 86400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second % 3600 / 60, second % 60)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::times::Times;

    pub(in crate::bench) fn summary(nanoseconds: u64) -> Summary {
        let mut times = Times::new();
        times.record(nanoseconds);
        times.summary()
    }

    pub(in crate::bench) fn measured(row: &str, engine: Engine, nanoseconds: u64) -> Measured {
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
            percent_of_copy: Some(93.25),
        }
    }

    fn record() -> Record {
        Record {
            version: "0.1.0",
            build: "release",
            date: date(0),
            device: DeviceFacts {
                ordinal: 0,
                name: "H200".into(),
                arch: "sm_90a",
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
            method: "",
            measurements: vec![measured("a", Engine::Routed, 1000), measured("a", Engine::Copy, 900)],
            host: vec![HostCost { call: "views".into(), ns: summary(90) }],
            wrong: Vec::new(),
        }
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn every_csv_line_has_the_columns_of_the_header() {
        let mut text = Vec::new();
        record().write_csv(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), 4, "{text}");
        // A comma within quotes separates nothing.
        let columns = |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{text}");
        assert!(lines[0].contains(",p50_ns,") && lines[1].contains(",1000,"), "{text}");
    }

    #[test]
    fn json_has_facts_and_percentiles() {
        let json = serde_json::to_value(record()).unwrap();
        assert_eq!(json["device"]["sms"], 132);
        assert_eq!(json["measurements"][0]["engine"], "routed");
        assert_eq!(json["measurements"][1]["ns"]["p50"], 900);
        assert_eq!(json["images"][0]["sha256"].as_str().unwrap().len(), 64);
    }
}
