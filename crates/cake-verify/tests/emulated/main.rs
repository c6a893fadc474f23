//! The device's own code, run on the host: every kernel of every program, compiled by the C++ compiler and run thread by
//! thread, must give the canonical bits and touch nothing else. Needs no GPU, so that CI looks at each line of the kernels.
//!
//! It cannot see what only a board does: races between CTAs, memory order, and what NVRTC makes of the source.

mod emulator;

use cake_core::{DeviceInfo, Op, Place};
use cake_kernels::rmsnorm;
use cake_rmsnorm::{Arch, RmsNormForward};
use cake_verify::cases::Case;
use cake_verify::cases::groups::{self, Profile};
use cake_verify::cases::random::DEFAULT_SEED;
use cake_verify::engine::setup::Setup;
use cake_verify::engine::target::Target;
use emulator::{Emulator, ORDERS};
use rayon::prelude::*;

/// Elements of the largest case: a thread of a GPU is worth some microseconds here.
const MOST_ELEMENTS: u64 = 1 << 17;

/// Judges the cases of all groups whose names begin like this; returns the launches.
fn judge(prefixes: &[&str]) -> usize {
    let emulator = Emulator::new(rmsnorm::OP, "cake::rmsnorm::ForwardParams");
    let groups = groups::all(Profile::Quick, None);
    let groups = groups.into_iter().filter(|group| prefixes.iter().any(|prefix| group.name.starts_with(prefix)));
    let cases: Vec<Case> = groups.flat_map(|group| group.cases).filter(|c| c.elements() <= MOST_ELEMENTS).collect();
    let judged: Vec<Result<usize, String>> = cases.par_iter().map(|case| judge_case(&emulator, case)).collect();
    let failures: Vec<&String> = judged.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(failures.is_empty(), "{} of {} cases, first {}", failures.len(), cases.len(), failures[0]);
    judged.into_iter().flatten().sum()
}

/// Runs a case by every program that can serve it, each in another order of threads, and once with a fetch ahead.
fn judge_case(emulator: &Emulator, case: &Case) -> Result<usize, String> {
    let device = DeviceInfo::typical(Arch::Sm90);
    let setup = Setup::new(case, &Target::Host, DEFAULT_SEED).map_err(|error| format!("[{case}] {error}"))?;
    let views = setup.call().views().map_err(|error| format!("[{case}] {error}"))?;
    let (shape, mut params) = RmsNormForward::check(&case.spec, Place::Host, &views).map_err(|e| e.to_string())?;
    if shape.rows == 0 {
        return Ok(0);
    }
    let mut launches = 0;
    for (i, program) in RmsNormForward::programs(&case.spec, device.arch).into_iter().enumerate() {
        for kernel in RmsNormForward::kernels(&case.spec, program) {
            if kernel.vectors && !shape.vectors {
                continue;
            }
            setup.reset().map_err(|error| error.to_string())?;
            params.ahead = if params.levels == 1 { (i as u32 + launches as u32) % 3 } else { 0 };
            let shared = RmsNormForward::shared_bytes(&case.spec, kernel);
            let order = ORDERS[launches % ORDERS.len()];
            // SAFETY: these are the kernel's parameters, and `setup` holds the memory.
            #[allow(unsafe_code)]
            let ran = unsafe { emulator.run(kernel, &params, shape.rows, shared, order) };
            let fetched = ran.map_err(|fault| format!("[{case}] {kernel}: {fault}"))?;
            let inputs = [Some(&views.x), views.residual.as_ref()].into_iter().flatten();
            let inputs: Vec<(u64, u64)> = inputs.map(|view| view.raw().byte_range()).collect();
            let stray = |&&(first, last): &&(u64, u64)| !inputs.iter().any(|&(from, to)| from <= first && last <= to);
            if let Some(fetch) = fetched.iter().find(stray) {
                return Err(format!("[{case}] {kernel}: fetches {fetch:#x?}, beyond {inputs:#x?}"));
            }
            let outputs = setup.outputs().map_err(|error| error.to_string())?;
            if let Some(difference) = setup.differences(outputs).first() {
                return Err(format!("[{case}] {kernel}, order {order}: {difference}"));
            }
            launches += 1;
        }
    }
    let changes = setup.input_changes().map_err(|error| error.to_string())?;
    changes.first().map_or(Ok(launches), |change| Err(format!("[{case}] input {change}")))
}

macro_rules! emulated_tests {
    ($($name:ident: $($prefix:literal),+;)*) => {
        $(#[test]
        fn $name() {
            let launches = judge(&[$($prefix),+]);
            assert!(launches > 100, "{launches} launches");
        })*
    };
}

emulated_tests! {
    rows: "rows/";
    widths: "widths/tuned", "widths/narrow", "widths/untuned";
    wide: "widths/wide";
    values: "values/", "weights/", "eps";
    layouts: "layouts/", "in_place";
}
