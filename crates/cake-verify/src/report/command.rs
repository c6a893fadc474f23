//! `cake-verify report`: pages, differences and plots of what other commands wrote.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::results::{Report, replace};
use super::{diff, files, plots};
use crate::bench::compare::{self, Comparison};
use crate::bench::record::Record;

/// What to make of it.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Writes report.html into the folder of a run's report, with the figures of benchmarks if there are some.
    Html {
        /// The folder that `cake-verify run --report` wrote.
        folder: PathBuf,
        /// Records that `cake-verify bench` wrote, JSON or CSV.
        #[arg(long, num_args = 1.., value_name = "FILE")]
        bench: Vec<PathBuf>,
    },
    /// Compares two runs, or two benchmarks of one board; exits with 1 when something got worse.
    Diff {
        /// The folder of a run's report, or a record of `cake-verify bench`.
        before: PathBuf,
        /// Another of the same kind.
        now: PathBuf,
        /// What a row of a benchmark may lose, in per cent.
        #[arg(long, value_name = "PERCENT", default_value_t = compare::TOLERANCE, value_parser = compare::tolerance)]
        tolerance: f64,
    },
    /// Draws the rates of a benchmark over the number of rows, as SVG.
    Plot {
        /// A record that `cake-verify bench` wrote, JSON or CSV.
        record: PathBuf,
        /// Where to write it; without it, beside the record.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// Does it; false when something got worse.
pub fn command(command: &Command) -> Result<bool> {
    match command {
        Command::Html { folder, bench } => {
            let records = bench.iter().map(|path| Record::read(path)).collect::<Result<Vec<_>>>()?;
            println!("{}", files::page(&Report::load(folder)?, &records, folder)?.display());
            Ok(true)
        }
        Command::Diff { before, now, tolerance } => differ(before, now, *tolerance),
        Command::Plot { record, to } => {
            let path = to.clone().unwrap_or_else(|| record.with_extension("svg"));
            let plot = plots::rates::file(&Record::read(record)?);
            let plot = plot.with_context(|| format!("{} has no row with a rate", record.display()))?;
            replace(&path, plot.as_bytes())?;
            println!("{}", path.display());
            Ok(true)
        }
    }
}

fn differ(before: &Path, now: &Path, tolerance: f64) -> Result<bool> {
    match (before.is_dir(), now.is_dir()) {
        (true, true) => {
            let difference = diff::diff(&Report::load(before)?, &Report::load(now)?);
            print!("{difference}");
            Ok(difference.worse.is_empty())
        }
        (false, false) => {
            let comparison = Comparison::new(&Record::read(before)?, &Record::read(now)?)?;
            print!("{}", comparison.table(tolerance));
            Ok(!comparison.has_lost(tolerance))
        }
        _ => bail!("{} and {}: expected two folders of runs, or two records", before.display(), now.display()),
    }
}
