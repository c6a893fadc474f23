//! `cake-verify run`: the whole matrix in one process.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use cake_core::Device;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::bench::record::{hex, images};
use crate::cases::groups::Profile;
use crate::cases::random::DEFAULT_SEED;
use crate::checks::operator::Operator;
use crate::checks::{self, Context, Task};
use crate::engine::target::Target;
use crate::report::{Facts, Report, files};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How much is tried.
    #[arg(long, value_enum, default_value = "quick")]
    pub profile: Profile,
    /// `host`, or `cuda:N`.
    #[arg(long, default_value = "host")]
    pub device: String,
    /// Only tasks that judge this operator, or all of them at once.
    #[arg(long, value_enum)]
    pub op: Option<Operator>,
    /// Only tasks whose name contains this.
    #[arg(long)]
    pub filter: Option<String>,
    /// Seed of every random number.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Writes report.txt, report.json and report.html into this folder.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Keeps the results that the report holds, and runs the other tasks.
    #[arg(long, requires = "report")]
    pub resume: bool,
    /// Only lists the tasks, and why each is there.
    #[arg(long)]
    pub list: bool,
}

/// Runs the matrix; whether nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let target = target(&options.device)?;
    let all = checks::tasks(options.profile, target.device().map(|device| device.info()));
    let wanted = |task: &Task| {
        options.filter.as_ref().is_none_or(|filter| task.name.contains(filter))
            && (options.op.is_none() || task.operator.is_none() || task.operator == options.op)
    };
    let (mut tasks, others): (Vec<Task>, Vec<Task>) =
        all.into_iter().filter(wanted).partition(|task| target.device().is_some() || !task.device);
    if tasks.is_empty() && others.is_empty() {
        bail!("no task's name contains {:?}", options.filter.as_deref().unwrap_or_default());
    }
    if options.list {
        tasks.iter().for_each(|task| println!("{:<28} {:>5}  {}", task.name, task.steps, task.why));
        return Ok(true);
    }
    let executable = std::env::current_exe().context("finding this program, to run it again")?;
    let facts = facts(&target, options, &executable)?;
    let mut report = match &options.report {
        Some(folder) if options.resume => Report::resume(folder, &facts)?,
        _ => Report::new(facts),
    };
    tasks.retain(|task| !report.tasks.contains_key(&task.name));
    let names = |tasks: &[Task]| tasks.iter().map(|task| task.name.clone()).collect();
    (report.left, report.need_device) = (names(&tasks), names(&others));
    if let Some(folder) = &options.report {
        files::begin(&report, folder)?;
    }
    print!("{}", report.facts);
    println!("{} tasks{}", tasks.len(), if options.resume { " that the report does not hold" } else { "" });

    let context = Context::new(target, options.seed, options.profile, executable);
    let journal = Journal::new(report, options.report.as_deref());
    with_progress(&tasks, &context, || judge(&tasks, &context, &journal))?;
    let report = journal.end()?;
    print!("{}", report.results());
    Ok(report.total().failures() == 0)
}

/// What a name on the command line means.
pub fn target(name: &str) -> Result<Target> {
    if name == "host" {
        return Ok(Target::Host);
    }
    let ordinal = name.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
    let ordinal = ordinal.with_context(|| format!("device {name:?}: expected host or cuda:N"))?;
    Ok(Target::Cuda(Device::new(ordinal)?))
}

fn describe(target: &Target) -> String {
    match target {
        Target::Host => "the host path".into(),
        Target::Cuda(device) => format!("cuda:{} {}", device.info().ordinal, device.info()),
    }
}

/// What the results rest on.
fn facts(target: &Target, options: &Options, executable: &Path) -> Result<Facts> {
    let program = std::fs::read(executable).context("reading this program, for its digest")?;
    Ok(Facts {
        version: env!("CARGO_PKG_VERSION").into(),
        executable: hex(&Sha256::digest(program)),
        device: describe(target),
        driver: target.device().and_then(|_| Device::driver_version().ok()),
        images: target.device().map(|device| images(device.info().arch)).unwrap_or_default(),
        profile: options.profile,
        seed: options.seed,
    })
}

/// What has been found so far, in memory and, if there is one, in a folder.
struct Journal<'f> {
    report: Mutex<Report>,
    folder: Option<&'f Path>,
    begin: Instant,
    /// Of the runs that this one resumes.
    before: f64,
}

impl Journal<'_> {
    fn new(report: Report, folder: Option<&Path>) -> Journal<'_> {
        Journal { before: report.seconds, report: Mutex::new(report), folder, begin: Instant::now() }
    }

    /// Runs a task and keeps what it found; into a log, where no bar can be shown, goes a line for each.
    fn run(&self, task: &Task, context: &Context) -> Result<()> {
        let result = task.run(context);
        if !io::stderr().is_terminal() {
            let total = result.programs.total();
            let (cases, failures, seconds) = (total.cases(), total.failures(), result.seconds);
            eprintln!("{:<32} {cases:>7} judgements, {failures} failures, {seconds:.1} s", task.name);
            if failures > 0 {
                eprintln!("{}", total.messages());
            }
        }
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.left.retain(|name| *name != task.name);
        report.tasks.insert(task.name.clone(), result);
        report.seconds = self.before + self.begin.elapsed().as_secs_f64();
        self.folder.map_or(Ok(()), |folder| report.store(folder))
    }

    fn end(self) -> Result<Report> {
        let report = self.report.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.folder.map_or(Ok(()), |folder| files::end(&report, folder))?;
        Ok(report)
    }
}

/// Tasks side by side, then those that must be alone.
fn judge(tasks: &[Task], context: &Context, journal: &Journal<'_>) -> Result<()> {
    let (alone, together): (Vec<&Task>, Vec<&Task>) = tasks.iter().partition(|task| task.alone);
    together.into_par_iter().try_for_each(|task| journal.run(task, context))?;
    alone.into_iter().try_for_each(|task| journal.run(task, context))
}

/// Shows how far the tasks are, where someone is looking.
fn with_progress<T>(tasks: &[Task], context: &Context, work: impl FnOnce() -> T) -> T {
    let steps = tasks.iter().map(|task| task.steps).sum();
    let bar = if io::stderr().is_terminal() { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} cases, {elapsed} gone, {eta} to go");
    bar.set_style(style.expect("the template is well-formed"));
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::Relaxed) {
                bar.set_position(context.done.load(Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let done = work();
        finished.store(true, Ordering::Relaxed);
        done
    })
}
