//! `cake-verify run`: the whole matrix in one process.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use cake_core::Device;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use crate::cases::groups::Profile;
use crate::cases::random::DEFAULT_SEED;
use crate::checks::{self, Context, Task};
use crate::engine::target::Target;
use crate::report::{Report, Tally};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How much is tried.
    #[arg(long, value_enum, default_value = "quick")]
    pub profile: Profile,
    /// `host`, or `cuda:N`.
    #[arg(long, default_value = "host")]
    pub device: String,
    /// Only tasks whose name contains this.
    #[arg(long)]
    pub filter: Option<String>,
    /// Seed of every random number.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Writes the results as JSON.
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// Only lists the tasks, and why each is there.
    #[arg(long)]
    pub list: bool,
}

/// Runs the matrix; whether nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let target = target(&options.device)?;
    let all = checks::tasks(options.profile, target.device().map(|device| device.info()));
    let wanted = |task: &Task| options.filter.as_ref().is_none_or(|filter| task.name.contains(filter));
    let (tasks, others): (Vec<Task>, Vec<Task>) =
        all.into_iter().filter(wanted).partition(|task| target.device().is_some() || !task.device);
    if tasks.is_empty() && others.is_empty() {
        bail!("no task's name contains {:?}", options.filter.as_deref().unwrap_or_default());
    }
    if options.list {
        tasks.iter().for_each(|task| println!("{:<28} {:>5}  {}", task.name, task.steps, task.why));
        return Ok(true);
    }
    let executable = std::env::current_exe().context("finding this program, to run it again")?;
    let context = Context::new(target, options.seed, options.profile, executable);
    println!("{} tasks, profile {:?}, seed {:#x}", tasks.len(), options.profile, options.seed);
    println!("judging {}", describe(&context.target));

    let start = Instant::now();
    let mut tally = with_progress(&tasks, &context, || judge(&tasks, &context));
    let seconds = start.elapsed().as_secs_f64();
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|task| task.name.as_str()).collect();
        tally.skip("device", format!("{} tasks that need a GPU: {}", names.len(), names.join(", ")));
    }
    print!("{tally}");
    println!("longest tasks: {}", longest(&context));
    println!("{} judgements, {} failures, {seconds:.1} s", tally.cases(), tally.failures());
    let passed = tally.failures() == 0;
    if let Some(path) = &options.report {
        write_report(path, options, &context, seconds, tally)?;
    }
    Ok(passed)
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

/// Tasks side by side, then those that must be alone.
fn judge(tasks: &[Task], context: &Context) -> Tally {
    let (alone, together): (Vec<&Task>, Vec<&Task>) = tasks.iter().partition(|task| task.alone);
    let tally = together.into_par_iter().map(|task| judge_one(task, context)).reduce(Tally::default, Tally::merge);
    alone.into_iter().map(|task| judge_one(task, context)).fold(tally, Tally::merge)
}

/// Runs a task; into a log, where no bar can be shown, goes a line for each.
fn judge_one(task: &Task, context: &Context) -> Tally {
    let start = Instant::now();
    let tally = task.run(context);
    if !std::io::stderr().is_terminal() {
        let (cases, failures, seconds) = (tally.cases(), tally.failures(), start.elapsed().as_secs_f64());
        eprintln!("{:<32} {cases:>7} judgements, {failures} failures, {seconds:.1} s", task.name);
        if failures > 0 {
            eprintln!("{}", tally.messages());
        }
    }
    tally
}

/// Shows how far the tasks are, where someone is looking.
fn with_progress(tasks: &[Task], context: &Context, work: impl FnOnce() -> Tally) -> Tally {
    let steps = tasks.iter().map(|task| task.steps).sum();
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} cases, {elapsed} gone, {eta} to go");
    bar.set_style(style.expect("the template is well-formed"));
    let finished = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(std::sync::atomic::Ordering::Relaxed) {
                bar.set_position(context.done.load(std::sync::atomic::Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let tally = work();
        finished.store(true, std::sync::atomic::Ordering::Relaxed);
        tally
    })
}

/// The tasks that took longest, with their seconds.
fn longest(context: &Context) -> String {
    let seconds = context.seconds.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tasks: Vec<(&String, &f64)> = seconds.iter().collect();
    tasks.sort_by(|a, b| b.1.total_cmp(a.1));
    tasks.iter().take(5).map(|(name, seconds)| format!("{name} {seconds:.1} s")).collect::<Vec<_>>().join(", ")
}

fn write_report(path: &Path, options: &Options, context: &Context, seconds: f64, checks: Tally) -> Result<()> {
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        target: describe(&context.target),
        driver: context.target.device().and_then(|_| Device::driver_version().ok()),
        profile: options.profile,
        seed: options.seed,
        seconds,
        tasks: context.seconds.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        checks,
    };
    let file = std::fs::File::create(path).with_context(|| format!("creating {}", path.display()))?;
    serde_json::to_writer_pretty(file, &report).with_context(|| format!("writing {}", path.display()))
}
