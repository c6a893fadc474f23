//! The weight gradients of row shards join to the bits of the whole, whichever norm they are of.

use cake_core::{Dtype, TensorView, TensorViewMut};
use cake_rmsnorm::{Combine, CombinePlan, CombineSpec};
use cake_silu_gate::{Backward, BackwardPlan, BackwardSpec, Spec};
use cake_verify::cases::random::Random;
use half::bf16;

const WIDTH: usize = 96;

/// `dw` of some rows of a gated norm.
fn dw([dy, x, z]: [&[bf16]; 3], weight: &[bf16], gate_first: bool) -> Vec<f32> {
    let shape = [(x.len() / WIDTH) as u64, WIDTH as u64];
    let input = |name, tensor| TensorView::from_slice(name, tensor, &shape).expect("it fits");
    let [mut dx, mut dz] = [(); 2].map(|()| vec![bf16::ZERO; x.len()]);
    let mut dw = vec![f32::NAN; WIDTH];
    let args = Backward {
        dy: input("dy", dy),
        x: input("x", x),
        z: input("z", z),
        weight: TensorView::from_slice("weight", weight, &shape[1..]).expect("it fits"),
        rstd: None,
        eps: 1e-5,
        dx: TensorViewMut::from_slice("dx", &mut dx, &shape).expect("it fits"),
        dz: TensorViewMut::from_slice("dz", &mut dz, &shape).expect("it fits"),
        dw: Some(TensorViewMut::from_slice("dw", &mut dw, &shape[1..]).expect("it fits")),
        workspace: None,
    };
    let spec = BackwardSpec::new(Spec { gate_first, ..Spec::new(WIDTH as u32) });
    BackwardPlan::host(spec).and_then(|plan| plan.run_host(args)).expect("right arguments");
    dw
}

#[test]
fn gradients_of_shards_of_a_gated_norm_join() {
    let normals = |which, count| -> Vec<bf16> {
        let mut random = Random::new(7, &[which]);
        (0..count).map(|_| bf16::from_f32(random.normal())).collect()
    };
    let weight = normals(0, WIDTH);
    for (rows, shard) in [(2048, 512), (2048, 8), (777, 64), (100, 128), (7, 8)] {
        let [dy, x, z] = [1, 2, 3].map(|which| normals(which, rows * WIDTH));
        for gate_first in [false, true] {
            let whole = dw([&dy, &x, &z], &weight, gate_first);
            let chunks = |tensor| <[bf16]>::chunks(tensor, shard * WIDTH);
            let shards = chunks(&dy).zip(chunks(&x)).zip(chunks(&z));
            let shards: Vec<f32> = shards.flat_map(|((dy, x), z)| dw([dy, x, z], &weight, gate_first)).collect();
            let shape = [(shards.len() / WIDTH) as u64, WIDTH as u64];
            let mut joined = vec![f32::NAN; WIDTH];
            let args = Combine {
                shards: TensorView::from_slice("shards", &shards, &shape).expect("it fits"),
                dw: TensorViewMut::from_slice("dw", &mut joined, &shape[1..]).expect("it fits"),
            };
            let spec = CombineSpec { width: WIDTH as u32, dw: Dtype::F32, accumulate: false };
            CombinePlan::host(spec).and_then(|plan| plan.run_host(args)).expect("right arguments");
            let same = joined.iter().zip(&whole).all(|(joined, whole)| joined.to_bits() == whole.to_bits());
            assert!(same, "{rows} rows in shards of {shard}, gate first: {gate_first}");
        }
    }
}
