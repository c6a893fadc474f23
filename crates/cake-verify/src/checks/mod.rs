//! What is judged. A [`Task`] is one line of the matrix: the command runs all of them in one process, and
//! `tests/device.rs` makes a test of each.
//!
//! | check | judges |
//! |-------|--------|
//! | `accuracy` | `h`, `rstd`, `y`, `dx`, `dw` against MPFR, within [`bounds`](crate::bounds), element by element |
//! | `bits` | every program's outputs against the canonical bits; on the host, the host path |
//! | `surroundings` | margins, gaps between rows, and inputs keep every byte, as does what lies beside a workspace; its header rests at zero (but for the barrier's bit 31); refused calls write nothing |
//! | `independence` | a row's bits do not depend on where it stands, or among how many |
//! | `repeats` | the same bits, call after call, while other work disturbs the device; calls of all sizes on one workspace |
//! | `arguments` | bad calls are refused with the right error, and write nothing |
//! | `limits` | offsets beyond 2^31 and 2^32 elements, 2^31 - 1 rows |
//! | `threads` | plans and devices shared by threads and streams |
//! | `graphs` | capture and replay; a capture without warm-up fails and leaves the process usable |
//! | `contexts` | the thread's current context is the same before and after |
//! | `devices` | two GPUs in one process, and one alone in a fresh process |
//! | `handles` | plans, streams and buffers move between threads, and are dropped in any order |
//! | `barrier` | the grid barrier under a cooperative launch; whom a workspace is lent to |
//! | `faults` | a device whose memory is full: typed errors, nothing written, right once there is memory |
//! | `absence` | without a GPU or a driver: typed errors, and the host path works |

pub mod absence;
pub mod accuracy;
pub mod arguments;
pub mod barrier;
pub mod contexts;
pub mod devices;
pub mod faults;
pub mod fresh;
pub mod graphs;
pub mod handles;
pub mod independence;
pub mod limits;
pub mod matrix;
pub mod operator;
pub mod repeats;
pub mod threads;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cake_core::DeviceInfo;

use crate::cases::groups::{self, Profile};
use crate::engine::setup::Setup;
use crate::engine::subject::Subject;
use crate::engine::target::{Target, Way};
use crate::report::tally::ALL;
use crate::report::{ByProgram, Tally, TaskResult};
use operator::Operator;

/// What tasks are told.
#[derive(Debug)]
pub struct Context {
    /// What is judged.
    pub target: Target,
    /// Of every random number.
    pub seed: u64,
    /// How much is tried.
    pub profile: Profile,
    /// The `cake-verify` command, for checks that need a fresh process.
    pub executable: PathBuf,
    /// Steps done, for a progress bar.
    pub done: AtomicU64,
}

impl Context {
    /// A context without progress.
    pub fn new(target: Target, seed: u64, profile: Profile, executable: PathBuf) -> Context {
        Context { target, seed, profile, executable, done: AtomicU64::new(0) }
    }

    /// Counts a step.
    pub fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Some judgements that belong together.
pub struct Task {
    /// Unique; a path like `rows/h6144`.
    pub name: String,
    /// What would be found.
    pub why: &'static str,
    /// What is judged; none of them where it is several at once.
    pub operator: Option<Operator>,
    /// Steps of the progress bar.
    pub steps: u64,
    /// Whether the task calls [`Context::step`] itself, or is one step.
    steps_itself: bool,
    /// Whether it has to be the only one that runs, outside the thread pool: it starts threads, fills the memory, or
    /// uses modes of the whole process.
    pub alone: bool,
    /// Whether it needs a GPU.
    pub device: bool,
    run: Box<dyn Fn(&Context) -> ByProgram + Send + Sync>,
}

impl Task {
    /// A task that judges plans as users make them.
    fn new(
        name: impl Into<String>,
        why: &'static str,
        run: impl Fn(&Context) -> Tally + Send + Sync + 'static,
    ) -> Task {
        Task::by_program(name, why, move |context| ByProgram::of(context.target.routed(), run(context)))
    }

    /// A task that tells which program it judges.
    fn by_program(
        name: impl Into<String>,
        why: &'static str,
        run: impl Fn(&Context) -> ByProgram + Send + Sync + 'static,
    ) -> Task {
        let (name, run) = (name.into(), Box::new(run));
        Task { name, why, operator: None, steps: 1, steps_itself: false, alone: false, device: false, run }
    }

    /// A task with one judgement, of the check `check`.
    fn single(
        check: &'static str,
        name: &'static str,
        why: &'static str,
        run: fn(&Context) -> Result<(), String>,
    ) -> Task {
        Task::new(name, why, move |context| {
            let mut tally = Tally::default();
            tally.judge_result(check, name, run(context));
            tally
        })
    }

    fn steps(self, steps: usize) -> Task {
        Task { steps: steps as u64, steps_itself: true, ..self }
    }

    fn of(self, operator: Operator) -> Task {
        Task { operator: Some(operator), ..self }
    }

    fn alone(self) -> Task {
        Task { alone: true, ..self }
    }

    fn device(self) -> Task {
        Task { device: true, ..self }
    }

    /// Runs it. A panic is a failure of the task, not of the run.
    pub fn run(&self, context: &Context) -> TaskResult {
        let start = Instant::now();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.run)(context)));
        if !self.steps_itself {
            context.step();
        }
        let programs = caught.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            let mut tally = Tally::default();
            tally.judge("panics", Some(format!("{}: {text}", self.name)));
            ByProgram::of(context.target.routed(), tally)
        });
        let op = self.operator.map_or(ALL, Operator::name).into();
        TaskResult { op, seconds: start.elapsed().as_secs_f64(), programs }
    }
}

/// Judges every program that can serve a case; what goes wrong before that is a failure of the routed one.
fn each_program<C: Subject>(
    context: &Context,
    check: &str,
    case: &C,
    judge: impl Fn(&Setup<C>, &Way<C::Op>) -> Result<(), String>,
) -> ByProgram {
    let mut results = ByProgram::default();
    let mut judge_all = || -> cake_core::Result<()> {
        let (spec, setup) = (case.spec(), Setup::new(case, &context.target, context.seed)?);
        let shape = setup.shape()?;
        for way in context.target.plans::<C::Op>(&spec)?.iter().filter(|way| way.obstacle(&spec, shape).is_none()) {
            let what = || format!("[{case}] {}", way.name);
            let problem = judge(&setup, way).err().map(|problem| format!("{}: {problem}", what()));
            results.at(&way.name).judge(check, problem);
        }
        Ok(())
    };
    if let Err(error) = judge_all() {
        results.at(context.target.routed()).judge(check, Some(format!("[{case}] {error}")));
    }
    results
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("name", &self.name).field("why", &self.why).finish_non_exhaustive()
    }
}

/// Every task. `device` is the GPU that the cases are made for, if one is judged.
pub fn tasks(profile: Profile, device: Option<&DeviceInfo>) -> Vec<Task> {
    let mut tasks: Vec<Task> = groups::all(profile, device).into_iter().map(matrix::task).collect();
    tasks.extend(groups::backward::all(profile, device).into_iter().map(matrix::task));
    tasks.push(matrix::task(groups::backward::combine()));
    tasks.extend(groups::gate::forward(profile, device).into_iter().map(matrix::task));
    tasks.extend(groups::gate::backward(profile, device).into_iter().map(matrix::task));
    tasks.extend(independence::tasks());
    tasks.extend(repeats::tasks());
    tasks.extend(arguments::tasks());
    tasks.extend(threads::tasks());
    tasks.extend(absence::tasks());
    tasks.extend(limits::tasks());
    tasks.extend(graphs::tasks());
    tasks.extend(contexts::tasks());
    tasks.extend(devices::tasks());
    tasks.extend(faults::tasks());
    tasks.extend(handles::tasks());
    tasks.extend(barrier::tasks());
    tasks
}
