//! Calls without rows.

use cake_rmsnorm::{Backward, BackwardPlan, BackwardSpec, Forward, ForwardPlan, Spec, TensorView, TensorViewMut};
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

#[test]
fn the_weight_gradient_of_no_rows_is_zero_whatever_the_other_sizes() {
    let plan = BackwardPlan::host(BackwardSpec { dx: false, rstd: false, ..BackwardSpec::new(Spec::new(128)) });
    let plan = plan.expect("the width is served");
    let none: [bf16; 0] = [];
    for shape in [[0, 1 << 40, 1 << 40, 128], [1 << 40, 1 << 40, 0, 128], [0, 0, 0, 128]] {
        let (weight, mut dw) = ([bf16::ONE; 128], [f32::NAN; 128]);
        let rows = |name| TensorView::from_slice(name, &none, &shape).expect("no elements");
        let args = Backward {
            dy: rows("dy"),
            x: rows("x"),
            weight: Some(TensorView::from_slice("weight", &weight, &[128]).expect("it fits")),
            rstd: None,
            eps: 1e-6,
            dh: None,
            dx: None,
            dw: Some(TensorViewMut::from_slice("dw", &mut dw, &[128]).expect("it fits")),
            workspace: None,
        };
        plan.run_host(args).expect("a sum of nothing");
        assert_eq!(dw, [0.0; 128]);
    }
}
