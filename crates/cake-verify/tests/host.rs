//! The matrix on the host path: always runs, whatever the machine.

use cake_verify::cases::groups::Profile;
use cake_verify::cases::random::DEFAULT_SEED;
use cake_verify::checks::{self, Context, fresh};
use cake_verify::engine::target::Target;

/// Runs the tasks whose names begin like this, and says how many there were.
fn judge(prefix: &str) -> usize {
    let executable = fresh::executable(env!("CARGO_BIN_EXE_cake-verify"));
    let context = Context::new(Target::Host, DEFAULT_SEED, Profile::Quick, executable);
    let tasks = checks::tasks(Profile::Quick, None);
    let tasks: Vec<_> = tasks.iter().filter(|task| !task.device && task.name.starts_with(prefix)).collect();
    assert!(!tasks.is_empty(), "no task begins with {prefix}");
    for task in &tasks {
        let tally = task.run(&context).programs.total();
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
    gate_rows: "gate/rows";
    gate_widths: "gate/widths";
    gate_values: "gate/values";
    gate_z: "gate/z";
    gate_eps: "gate/eps";
    gate_layouts: "gate/layouts";
    gate_pairs: "gate/pairs";
    gate_heads: "gate/heads";
    gate_in_place: "gate/in_place";
    gate_no_rows: "gate/no_rows";
    gate_many_rows: "gate/many_rows";
    gate_backward_rows: "gate/backward/rows";
    gate_backward_widths: "gate/backward/widths";
    gate_backward_outputs: "gate/backward/outputs";
    gate_backward_any_order: "gate/backward/any_order";
    gate_backward_max_sms: "gate/backward/max_sms";
    gate_backward_values: "gate/backward/values";
    gate_backward_z: "gate/backward/z";
    gate_backward_eps: "gate/backward/eps";
    gate_backward_layouts: "gate/backward/layouts";
    gate_backward_pairs: "gate/backward/pairs";
    gate_backward_heads: "gate/backward/heads";
    gate_backward_in_place: "gate/backward/in_place";
    gate_backward_no_rows: "gate/backward/no_rows";
    gate_backward_many_rows: "gate/backward/many_rows";
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
    assert!((60..=240).contains(&tasks.len()), "{} tasks: each is a process of its own", tasks.len());
}
