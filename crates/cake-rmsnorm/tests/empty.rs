//! Calls without rows.

use cake_rmsnorm::{Forward, ForwardPlan, Spec, TensorView, TensorViewMut};
use half::bf16;

#[test]
fn no_rows_are_served_whatever_the_other_sizes() {
    let plan = ForwardPlan::host(Spec { weight: None, ..Spec::new(128) }).expect("the width is served");
    for shape in [[0, 1 << 40, 1 << 40, 128], [1 << 40, 1 << 40, 0, 128], [0, 0, 0, 128]] {
        let (x, mut y): ([bf16; 0], [bf16; 0]) = ([], []);
        let x = TensorView::from_slice("x", &x, &shape).expect("no elements");
        let y = TensorViewMut::from_slice("y", &mut y, &shape).expect("no elements");
        let args = Forward { x, weight: None, eps: 1e-6, residual: None, y, h: None, rstd: None };
        plan.run_host(args).expect("a call without rows does nothing");
    }
}
