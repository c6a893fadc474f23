//! The matrix on the host path: always runs, whatever the machine.

use cake_verify::cases::groups::Profile;
use cake_verify::cases::random::DEFAULT_SEED;
use cake_verify::checks::{self, Context, absence};
use cake_verify::engine::target::Target;

/// Runs the tasks whose names begin like this, and says how many there were.
fn judge(prefix: &str) -> usize {
    let executable = absence::executable(env!("CARGO_BIN_EXE_cake-verify"));
    let context = Context::new(Target::Host, DEFAULT_SEED, Profile::Quick, executable);
    let tasks = checks::tasks(Profile::Quick, None);
    let tasks: Vec<_> = tasks.iter().filter(|task| !task.device && task.name.starts_with(prefix)).collect();
    assert!(!tasks.is_empty(), "no task begins with {prefix}");
    for task in &tasks {
        let tally = task.run(&context);
        assert!(tally.cases() > 0, "{} judged nothing", task.name);
        assert_eq!(tally.failures(), 0, "{}: {}", task.why, tally.messages());
    }
    tasks.len()
}

macro_rules! host_tests {
    ($($name:ident: $prefix:literal;)*) => {
        $(#[test]
        fn $name() {
            judge($prefix);
        })*

        #[test]
        fn every_host_task_has_a_test() {
            let prefixes = [$($prefix),*];
            for task in checks::tasks(Profile::Quick, None).iter().filter(|task| !task.device) {
                let tests = prefixes.iter().filter(|prefix| task.name.starts_with(*prefix)).count();
                assert_eq!(tests, 1, "{}", task.name);
            }
        }
    };
}

host_tests! {
    rows: "rows/";
    tuned_widths: "widths/tuned";
    narrow_widths: "widths/narrow";
    untuned_widths: "widths/untuned";
    wide_widths: "widths/wide";
    values: "values/";
    weights: "weights/";
    eps: "eps";
    layouts: "layouts/";
    in_place: "in_place";
    no_rows: "no_rows";
    many_rows: "many_rows";
    backward_rows: "backward/rows/";
    backward_widths: "backward/widths/";
    backward_outputs: "backward/outputs";
    backward_any_order: "backward/any_order";
    backward_combine: "backward/combine";
    backward_max_sms: "backward/max_sms";
    backward_no_rows: "backward/no_rows";
    backward_many_rows: "backward/many_rows";
    backward_values: "backward/values/";
    backward_weights: "backward/weights/";
    backward_eps: "backward/eps";
    backward_layouts: "backward/layouts/";
    backward_in_place: "backward/in_place";
    independence: "independence/";
    repeats: "repeats/";
    arguments: "arguments/";
    threads: "threads/";
    absence: "absence";
}

#[test]
fn task_names_are_unique() {
    let tasks = checks::tasks(Profile::Quick, None);
    for (i, task) in tasks.iter().enumerate() {
        assert!(tasks[..i].iter().all(|other| other.name != task.name), "{}", task.name);
    }
    assert!((60..=200).contains(&tasks.len()), "{} tasks: each is a process of its own", tasks.len());
}
