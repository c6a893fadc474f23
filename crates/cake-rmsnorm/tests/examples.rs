//! The examples run: on a GPU where there is one, and elsewhere as far as they go without.

#[path = "../examples/cudarc_graph.rs"]
mod cudarc_graph;
#[path = "../examples/workspace.rs"]
mod workspace;

#[test]
fn cudarc_graph_runs() {
    cudarc_graph::main().unwrap();
}

#[test]
fn workspace_runs() {
    workspace::main().unwrap();
}
