//! `cake-verify bench`: our programs against the device's own copy, in one run on one board.
//!
//! | room | holds |
//! | --- | --- |
//! | [`rows`] | what is timed, as data, with its reason |
//! | [`answers`] | what the inputs of a row hold, and what its calls should write |
//! | [`tensors`] | a row in device memory, and the check before the timing |
//! | [`sample`] | turns, cold L2, events |
//! | [`measure`] | one row: what takes turns, and its figures |
//! | [`times`] | histograms, percentiles, rates |
//! | [`host_cost`] | what a call costs the host |
//! | [`table`], [`progress`] | what is shown |
//! | [`mod@record`], [`csv`], [`date`] | what is kept |
//! | [`compare`] | one record against another |
//! | [`driver`] | the driver calls that this takes |
//!
//! The method is that of docs/benchmarks.md.

pub mod answers;
pub mod compare;
pub mod csv;
pub mod date;
pub mod driver;
pub mod host_cost;
pub mod measure;
pub mod progress;
pub mod record;
pub mod rows;
pub mod sample;
pub mod table;
pub mod tensors;
pub mod times;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use cake_core::Device;

use crate::cases::random::DEFAULT_SEED;
use compare::Comparison;
use driver::Gpu;
use progress::Progress;
use record::{DeviceFacts, Measured, Record};
use rows::Row;
use sample::{Effort, Flush};

/// What to time.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// `cuda:N`.
    #[arg(long, default_value = "cuda:0")]
    pub device: String,
    /// Only rows whose name contains this.
    #[arg(long)]
    pub filter: Option<String>,
    /// Times that the stream is filled with samples and waited for.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Samples of each engine in a round.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub samples: u32,
    /// The program that the routes choose, or also every program that can serve the row.
    #[arg(long, value_enum, default_value = "routed")]
    pub programs: Programs,
    /// Times what a call costs the host, instead of the rows.
    #[arg(long)]
    pub host_cost: bool,
    /// Writes everything as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Writes the figures as CSV.
    #[arg(long)]
    pub csv: Option<PathBuf>,
    /// Compares with a record of the same board, JSON or CSV; exits with 1 when a row has lost.
    #[arg(long, value_name = "FILE", conflicts_with = "host_cost")]
    pub against: Option<PathBuf>,
    /// What a row may lose, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = compare::TOLERANCE, value_parser = compare::tolerance)]
    pub tolerance: f64,
    /// Only lists the rows, and why each is there; needs no GPU.
    #[arg(long)]
    pub list: bool,
}

/// Which of our programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Programs {
    /// What the routes choose.
    Routed,
    /// And every one that can serve the row, forced.
    All,
}

/// The row of an empty stream: what the events and a launch cost.
const PROBE: &str = "probe/empty";

/// How to read the figures.
const METHOD: &str = "\
Before each sample 256 MiB are written: L2 is full of other, dirty lines. A time lies between two events around the call,
which adds about a microsecond: `empty`, one warp that does nothing, is timed in the same way and may be subtracted.
Engines take turns: A B C, A B C. GB/s are of the least bytes over the median: 4TH + 4T, with a residual 8TH + 4T, and
the weight; of the backward 6TH + 4T, with a residual 8TH + 4T, for dw alone 4TH + 4T, the weight and dw. The reference
moves as many: for the forward `copy`, the device's own copy, two with a residual; for the backward `add`, a kernel that
reads two streams, three with a residual, and writes one; `copy+add` for a step, both in turn. % are of its rate.
With a gate 6TH and 10TH, no rstd; the reference of both is `add`, which reads two and writes one, and three and two.";

/// Times the rows; whether every answer was right.
pub fn bench(options: &Options) -> Result<bool> {
    let wanted = |name: &str| options.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    let rows: Vec<Row> = rows::all().into_iter().filter(|row| wanted(&row.to_string())).collect();
    if options.list {
        rows.iter().for_each(|row| println!("{:<26} {}", row.to_string(), row.why));
        return Ok(true);
    }
    if rows.is_empty() && !wanted(PROBE) && !options.host_cost {
        bail!("no row's name contains {:?}", options.filter.as_deref().unwrap_or_default());
    }
    let ordinal = options.device.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
    let ordinal = ordinal.with_context(|| format!("device {:?}: expected cuda:N", options.device))?;
    let gpu = Gpu::new(&Device::new(ordinal)?)?;
    // Before the work, so that a path that cannot be written is known at once.
    let file = |path: &Option<PathBuf>| path.as_deref().map(create).transpose();
    let before = options.against.as_deref().map(Record::read).transpose()?;
    let (json, csv) = (file(&options.json)?, file(&options.csv)?);

    let mut record = new_record(&gpu, options)?;
    if let Some(before) = &before {
        compare::same_board(before, &record)?;
    }
    println!("cake-verify {} {}, {}, seed {:#x}", record.version, record.build, record.date, record.seed);
    println!("{}", record.device);
    record.images.iter().for_each(|image| println!("image {} sha256 {}", image.op, image.sha256));
    if cfg!(debug_assertions) {
        println!("a debug build: the host's times mean nothing");
    }
    let outcome = if options.host_cost {
        time_host(&gpu, &mut record)
    } else {
        time_rows(&gpu, options, &rows, wanted(PROBE), &mut record)
    };
    // What was measured before a failure is kept.
    if let Some(mut file) = json {
        serde_json::to_writer_pretty(&mut file, &record).context("writing JSON")?;
        writeln!(file).and_then(|()| file.flush()).context("writing JSON")?;
    }
    if let Some(mut file) = csv {
        record.write_csv(&mut file).and_then(|()| file.flush()).context("writing CSV")?;
    }
    outcome?;
    if !record.wrong.is_empty() {
        println!("{} programs were wrong", record.wrong.len());
    }
    let mut kept = true;
    if let Some(before) = &before {
        let changes = Comparison::new(before, &record)?.of_rows_named(wanted);
        print!("\n{}", changes.lost(options.tolerance));
        kept = !changes.has_lost(options.tolerance);
    }
    Ok(kept && record.wrong.is_empty())
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path).with_context(|| format!("creating {}", path.display()))?))
}

fn new_record(gpu: &Gpu, options: &Options) -> Result<Record> {
    Ok(Record {
        version: env!("CARGO_PKG_VERSION").into(),
        build: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
        date: date::now(),
        device: DeviceFacts::of(gpu)?,
        images: record::images(gpu.device().info().arch),
        seed: DEFAULT_SEED,
        rounds: options.rounds,
        samples: options.samples,
        flush_bytes: Flush::BYTES,
        method: METHOD.into(),
        measurements: Vec::new(),
        host: Vec::new(),
        wrong: Vec::new(),
    })
}

fn time_host(gpu: &Gpu, record: &mut Record) -> Result<()> {
    println!(
        "{} calls of each kind, 16 rows of 2048, timed one by one; the clock's own time is in each",
        host_cost::CALLS
    );
    print!("{}", table::host_header());
    host_cost::measure(gpu, record.seed, |cost| {
        print!("{}", table::host_line(&cost));
        record.host.push(cost);
    })
}

fn time_rows(gpu: &Gpu, options: &Options, rows: &[Row], probe: bool, record: &mut Record) -> Result<()> {
    println!("{} rounds of {} samples", options.rounds, options.samples);
    println!("{METHOD}\n");
    // Some of a row's time is its own, the rest goes with its bytes.
    let weight = |row: &Row| (64 << 20) + row.bytes();
    let mut progress = Progress::new(rows.len() + usize::from(probe), rows.iter().map(weight).sum());
    let effort = Effort { rounds: options.rounds, samples: options.samples };
    let mut flush = Flush::new(gpu)?;
    progress.print(&table::header());
    if probe {
        progress.begin(PROBE);
        keep(&progress, record, measure::probe(gpu, &mut flush, effort).context(PROBE)?);
    }
    for row in rows {
        let name = row.to_string();
        progress.begin(&name);
        let wrong = record.wrong.len();
        let measured = measure::row(gpu, &mut flush, row, options.programs, effort, &mut record.wrong).context(name)?;
        keep(&progress, record, measured);
        record.wrong[wrong..].iter().for_each(|wrong| progress.print(&format!("WRONG, not timed: {wrong}\n")));
        progress.end(weight(row));
    }
    Ok(())
}

fn keep(progress: &Progress, record: &mut Record, measured: Vec<Measured>) {
    progress.print(&measured.iter().map(table::line).collect::<String>());
    record.measurements.extend(measured);
}
