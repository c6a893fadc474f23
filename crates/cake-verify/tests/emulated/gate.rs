//! The kernels of the gated norm on the host.

use cake_core::{Arch, DeviceInfo};
use cake_kernels::silu_gate::{self, BackwardParams};
use cake_verify::cases::gate::{GateBackwardCase, GateForm};
use cake_verify::cases::groups::{Profile, gate};
use cake_verify::cases::random::DEFAULT_SEED;
use cake_verify::engine::setup::Setup;
use cake_verify::engine::subject::Subject;
use cake_verify::engine::target::Target;
use rayon::prelude::*;

use super::emulator::Emulator;
use super::subject;

/// Judges the forward and the backward cases of a group; returns the launches.
fn judge(name: &str) -> [usize; 2] {
    let forward = gate::forward(Profile::Quick, None).into_iter().filter(|group| group.name == format!("gate/{name}"));
    let backward = gate::backward(Profile::Quick, None).into_iter();
    let backward = backward.filter(|group| group.name == format!("gate/backward/{name}"));
    [
        subject::judge(silu_gate::OP, forward.flat_map(|group| group.cases)),
        subject::judge(silu_gate::OP, backward.flat_map(|group| group.cases)),
    ]
}

macro_rules! emulated_tests {
    ($($name:ident: $least:literal forward, $least_backward:literal backward;)*) => {
        $(#[test]
        fn $name() {
            let group = stringify!($name).strip_prefix("gate_").expect("tests are named so");
            let launches = judge(group);
            let enough = launches.iter().zip(&[$least, $least_backward]).all(|(launches, least)| launches >= least);
            assert!(enough, "{launches:?} launches");
        })*
    };
}

emulated_tests! {
    gate_rows: 50 forward, 100 backward;
    gate_widths: 200 forward, 200 backward;
    gate_values: 100 forward, 100 backward;
    gate_z: 100 forward, 100 backward;
    gate_eps: 100 forward, 100 backward;
    gate_layouts: 100 forward, 100 backward;
    gate_pairs: 100 forward, 100 backward;
    gate_heads: 100 forward, 100 backward;
    gate_in_place: 100 forward, 100 backward;
    gate_outputs: 0 forward, 100 backward;
    gate_any_order: 0 forward, 50 backward;
    gate_max_sms: 0 forward, 10 backward;
    gate_no_rows: 0 forward, 20 backward;
}

/// As many rows as make a chunk of two to three levels for each CTA; chunks as they are chosen, and others: of two sizes, or with levels for
/// the scan.
#[test]
fn gate_levels() {
    let case = |rows, width, form| {
        let mut case = GateBackwardCase::new(rows, width);
        case.forward.form = form;
        case
    };
    let cases = [
        case(2048, 64, GateForm::ALL[0]),
        case(2048, 128, GateForm::ALL[0]),
        case(2100, 128, GateForm::ALL[2]),
        case(1024, 256, GateForm::ALL[0]),
        case(1025, 512, GateForm::ALL[0]),
        case(1500, 100, GateForm::ALL[1]),
        case(1496, 100, GateForm::ALL[1]), // whole leaves, and no power of two of them
    ];
    let chosen = subject::judge_on(silu_gate::OP, &cases, 1, |_, _| 0);
    let others = subject::judge_on(silu_gate::OP, &cases, 1, |params: &mut BackwardParams, kernel| {
        if kernel.schedule == "scan" {
            // Three levels for each group, and a last leaf that is whole and joins two of them.
            params.chunk = 64 * kernel.rows;
            params.chunks = params.rows.div_ceil(params.chunk);
            params.large = params.chunks;
            return 3 * u64::from(kernel.rows) * 16 * u64::from(params.width.div_ceil(4));
        }
        if kernel.schedule != "walk" {
            return 0;
        }
        let small = 8 * kernel.rows;
        params.chunk = 8 * small;
        params.large = (params.rows - 1) / params.chunk;
        params.chunks = params.large + (params.rows - params.large * params.chunk).div_ceil(small);
        u64::from(params.chunks) * 4 * u64::from(params.width)
    });
    assert_eq!([chosen, others], [13, 13]);
}

/// Every z there is, in rows of neighbours and of strangers: `dw` of a single row shows each gate in FP32.
#[test]
fn gate_of_every_z() {
    let emulator = Emulator::new(silu_gate::OP);
    let device = DeviceInfo::typical(Arch::Sm90);
    let judge = |(step, first, form): (usize, usize, GateForm)| {
        let mut case = GateBackwardCase::new(1, 128);
        case.forward.form = form;
        let mut expected = case.expected(DEFAULT_SEED);
        let row = &mut expected.rows.distinct[0];
        row.z = (first..first + 128).map(|i| (i * step) as u16).collect();
        row.compute(expected.rows.weight.as_ref().expect("a gated norm has a weight"), form);
        let expected = case.alone(&expected, 0);
        let setup = Setup::with(&case, &Target::Host, expected).map_err(|error| error.to_string())?;
        subject::judge_setup(&emulator, &setup, &device, first / 128, &|_, _| 0)
    };
    let firsts = || (0..1 << 16).step_by(128);
    let rows = |step| firsts().flat_map(move |first| [0, 1].map(|form| (step, first, GateForm::ALL[form])));
    let rows: Vec<_> = rows(1).chain(rows(40_503)).collect(); // odd, so that it reaches every z
    let judged: Result<Vec<usize>, String> = rows.into_par_iter().map(judge).collect();
    let launches: usize = judged.unwrap_or_else(|problem| panic!("{problem}")).into_iter().sum();
    assert!(launches >= 2 * 2 * 2 * 512, "{launches} launches");
}
