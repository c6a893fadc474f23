//! The example runs: on a GPU too, where there is one.

#[path = "../examples/heads.rs"]
mod heads;

#[test]
fn heads_runs() {
    heads::main().unwrap();
}
