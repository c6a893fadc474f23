//! A record as CSV, written and read.

use std::io::{self, Write};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::record::{DeviceFacts, Engine, HostCost, ImageFacts, Measured, Record};
use super::times::Summary;

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
        let figures = Summary::NAMES.map(column).join(",");
        writeln!(to, "row,width,rows,engine,program,ahead,bytes,gb_per_s,percent_of_reference,{figures},why")?;
        let lines = self.measurements.iter().map(Measured::csv).chain(self.host.iter().map(HostCost::csv));
        for ((head, why), ns) in lines {
            let figures = ns.figures().map(|figure| figure.to_string()).join(",");
            writeln!(to, "{head},{figures},\"{why}\"")?;
        }
        Ok(())
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
        let (rate, percent) = (number(self.gb_per_s), number(self.percent_of_reference));
        let head = format!("{row},{width},{rows},{engine},{program},{ahead},{bytes},{rate},{percent}");
        ((head, &self.why), &self.ns)
    }
}

impl HostCost {
    fn csv(&self) -> ((String, &str), &Summary) {
        ((format!("host/{},,,host,,,,,", self.call), ""), &self.ns)
    }
}

/// A line below the head. Host costs have no shape.
#[derive(Deserialize)]
struct Line {
    row: String,
    width: Option<u32>,
    rows: Option<u64>,
    engine: String,
    program: Option<String>,
    ahead: Option<u32>,
    bytes: Option<u64>,
    gb_per_s: Option<f64>,
    /// Records of forwards alone call the reference a copy.
    #[serde(alias = "percent_of_copy")]
    percent_of_reference: Option<f64>,
    samples: u64,
    mean_ns: f64,
    min_ns: u64,
    p01_ns: u64,
    p10_ns: u64,
    p25_ns: u64,
    p50_ns: u64,
    p75_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    why: String,
}

impl Record {
    /// The record that [`Record::write_csv`] wrote; rates have lost digits, and the method is not said.
    pub fn read_csv(text: &str) -> Result<Record> {
        let mut record = facts(text.lines().map_while(|line| line.strip_prefix("# ")))?;
        let lines = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes()).into_deserialize();
        for line in lines {
            let line: Line = line?;
            let ns = line.summary();
            match line.row.strip_prefix("host/") {
                Some(call) => record.host.push(HostCost { call: call.into(), ns }),
                None => record.measurements.push(line.measured(ns)?),
            }
        }
        Ok(record)
    }
}

impl Line {
    fn summary(&self) -> Summary {
        Summary {
            samples: self.samples,
            mean: self.mean_ns,
            min: self.min_ns,
            p01: self.p01_ns,
            p10: self.p10_ns,
            p25: self.p25_ns,
            p50: self.p50_ns,
            p75: self.p75_ns,
            p90: self.p90_ns,
            p99: self.p99_ns,
            max: self.max_ns,
        }
    }

    fn measured(self, ns: Summary) -> Result<Measured> {
        let engine = Engine::ALL.into_iter().find(|engine| engine.to_string() == self.engine);
        Ok(Measured {
            engine: engine.with_context(|| format!("{}: unknown engine {:?}", self.row, self.engine))?,
            width: self.width.context("a row without its width")?,
            rows: self.rows.context("a row without its rows")?,
            ahead: self.ahead.unwrap_or_default(),
            bytes: self.bytes.unwrap_or_default(),
            row: self.row,
            why: self.why,
            program: self.program,
            ns,
            gb_per_s: self.gb_per_s,
            percent_of_reference: self.percent_of_reference,
        })
    }
}

/// A record without figures, of the lines that stand before them.
fn facts<'t>(mut lines: impl Iterator<Item = &'t str>) -> Result<Record> {
    let run = lines.next().and_then(run).context("the first line is not `# cake VERSION BUILD, DATE, seed SEED`")?;
    let ([version, build, date], seed) = run;
    let device = lines.next().and_then(device).context("the second line does not name a board")?;
    let mut record = Record {
        version,
        build,
        date,
        device,
        images: Vec::new(),
        seed,
        rounds: 0,
        samples: 0,
        flush_bytes: 0,
        method: String::new(),
        measurements: Vec::new(),
        host: Vec::new(),
        wrong: Vec::new(),
    };
    for line in lines {
        if let Some(image) = line.strip_prefix("image ") {
            let (op, sha256) = image.split_once(" sha256 ").with_context(|| format!("line {line:?}"))?;
            record.images.push(ImageFacts { op: op.into(), sha256: sha256.into() });
        } else if let Some(wrong) = line.strip_prefix("wrong: ") {
            record.wrong.push(wrong.into());
        } else {
            let Some(effort) = effort(line) else { bail!("line {line:?}: expected rounds, samples and flush") };
            (record.rounds, record.samples, record.flush_bytes) = effort;
        }
    }
    Ok(record)
}

fn run(line: &str) -> Option<([String; 3], u64)> {
    let [cake, date, seed] = line.split(", ").collect::<Vec<_>>().try_into().ok()?;
    let (version, build) = cake.strip_prefix("cake ")?.split_once(' ')?;
    let seed = u64::from_str_radix(seed.strip_prefix("seed 0x")?, 16).ok()?;
    Some(([version, build, date].map(String::from), seed))
}

/// As [`DeviceFacts`] is shown: `cuda:0 NAME (ARCH, N SMs, N MiB L2), driver for CUDA N.N, SMs up to N MHz, ..`.
fn device(line: &str) -> Option<DeviceFacts> {
    let (ordinal, rest) = line.strip_prefix("cuda:")?.split_once(' ')?;
    let (name, rest) = rest.rsplit_once(" (")?;
    let (inner, rest) = rest.split_once("), driver for CUDA ")?;
    let [arch, sms, l2] = inner.split(", ").collect::<Vec<_>>().try_into().ok()?;
    let mut rest = rest.split(", ");
    let (major, minor) = rest.next()?.split_once('.')?;
    let clock = |part: &str| {
        let mut parts = line.rsplit("), ").next()?.split(", ");
        parts.find_map(|clock| clock.strip_prefix(part)?.strip_prefix(" up to ")?.strip_suffix(" MHz")?.parse().ok())
    };
    Some(DeviceFacts {
        ordinal: ordinal.parse().ok()?,
        name: name.into(),
        arch: arch.into(),
        sms: sms.strip_suffix(" SMs")?.parse().ok()?,
        l2_bytes: l2.strip_suffix(" MiB L2")?.parse::<u32>().ok()?.checked_mul(1 << 20)?,
        driver: 1000 * major.parse::<i32>().ok()? + 10 * minor.parse::<i32>().ok()?,
        sm_mhz: clock("SMs"),
        memory_mhz: clock("memory"),
    })
}

fn effort(line: &str) -> Option<(u32, u32, u64)> {
    let (rounds, rest) = line.split_once(" rounds of ")?;
    let (samples, flush) = rest.split_once(" samples, flush ")?;
    Some((rounds.parse().ok()?, samples.parse().ok()?, flush.strip_suffix(" bytes")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::record;

    fn written(record: &Record) -> String {
        let mut text = Vec::new();
        record.write_csv(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_csv_line_has_the_columns_of_the_header() {
        let text = written(&record());
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), 4, "{text}");
        // A comma within quotes separates nothing.
        let columns = |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{text}");
        assert!(lines[0].contains(",p50_ns,") && lines[1].contains(",1000,"), "{text}");
    }

    #[test]
    fn what_was_written_is_read() {
        let mut record = Record { rounds: 5, samples: 20, wrong: vec!["a, b: c".into()], ..record() };
        record.measurements.iter_mut().for_each(|measured| measured.gb_per_s = Some(4.125));
        let text = written(&record);
        assert_eq!(Record::read_csv(&text).unwrap(), record, "{text}");
        record.device.memory_mhz = Some(3201);
        assert_eq!(Record::read_csv(&written(&record)).unwrap().device, record.device);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let text = written(&record());
        for (part, other) in [("# cake", "# cook"), ("132 SMs", "SMs"), ("routed", "router"), ("1 rounds", "rounds")] {
            assert!(text.contains(part), "{part}");
            assert!(Record::read_csv(&text.replacen(part, other, 1)).is_err(), "{other}");
        }
    }

    #[test]
    fn the_records_of_the_docs_are_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks");
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let records: Vec<_> = paths.filter(|path| path.extension().is_some_and(|name| name == "csv")).collect();
        assert!(!records.is_empty());
        for path in records {
            let record = Record::read(&path).unwrap();
            assert!(record.device.sms > 0 && !record.measurements.is_empty(), "{}", path.display());
        }
    }
}
