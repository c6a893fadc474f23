//! The device's own code, run on the host: every kernel of every program, compiled by the C++ compiler and run thread by
//! thread, must give the canonical bits and touch nothing else. Needs no GPU, so that CI looks at each line of the kernels.
//!
//! It cannot see what only a board does: races between CTAs, memory order, and what NVRTC makes of the source.

mod backward;
mod emulator;

use cake_core::sums::plain;
use cake_core::{DeviceInfo, Op, Place};
use cake_kernels::RowTensor;
use cake_kernels::rmsnorm::{self, ForwardParams};
use cake_rmsnorm::{Arch, Forward, RmsNormForward, Spec};
use cake_verify::cases::Case;
use cake_verify::cases::groups::{self, Profile};
use cake_verify::cases::random::DEFAULT_SEED;
use cake_verify::engine::setup::Setup;
use cake_verify::engine::target::Target;
use emulator::{Emulator, ORDERS, Size, Window};
use half::bf16;
use rayon::prelude::*;

/// Elements and rows of the largest case: a thread of a GPU is worth some microseconds here.
const MOST_ELEMENTS: u64 = 1 << 16;
const MOST_ROWS: u64 = 130;

/// Judges the cases of all groups whose names begin like this; returns the launches.
fn judge(prefixes: &[&str]) -> usize {
    let emulator = Emulator::new(rmsnorm::OP);
    let groups = groups::all(Profile::Quick, None);
    let groups = groups.into_iter().filter(|group| prefixes.iter().any(|prefix| group.name.starts_with(prefix)));
    let affordable = |case: &Case| case.elements() <= MOST_ELEMENTS && case.rows() <= MOST_ROWS;
    let cases: Vec<Case> = groups.flat_map(|group| group.cases).filter(affordable).collect();
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
            let order = ORDERS[launches % ORDERS.len()];
            let shared = RmsNormForward::shared_bytes(&case.spec, kernel, Some(&params));
            let size = Size { grid: RmsNormForward::grid(kernel, &params), shared, order };
            // SAFETY: these are the kernel's parameters, and `setup` holds the memory.
            #[allow(unsafe_code)]
            let ran = unsafe { emulator.run(kernel, &params, size, &windows(&views)) };
            ran.map_err(|fault| format!("[{case}] {kernel}: {fault}"))?;
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

/// The tensors of a call, outputs first; each where it is.
fn windows(views: &Forward<'_>) -> Vec<Window> {
    let outputs = [Some(&views.y), views.h.as_ref(), views.rstd.as_ref()];
    let inputs = [Some(&views.x), views.residual.as_ref(), views.weight.as_ref()];
    let outputs = outputs.into_iter().flatten().map(|view| (view.raw().byte_range(), 1));
    let inputs = inputs.into_iter().flatten().map(|view| (view.raw().byte_range(), 0));
    let window = |((first, last), writable)| Window { first, last, memory: first, writable };
    outputs.chain(inputs).map(window).collect()
}

/// Rows that lie more than 2^32 elements apart: what 32 bits would cut off. Only the rows themselves have memory.
#[test]
fn far_rows() {
    let emulator = Emulator::new(rmsnorm::OP);
    let (width, rows, pitch) = (128, 3_usize, (1_u64 << 32) + 64);
    let spec = Spec { weight: None, ..Spec::new(width) };
    let x: Vec<bf16> = (0..rows * width as usize).map(|i| bf16::from_f32((i % 31) as f32 - 15.0)).collect();
    let (mut y, mut rstd) = (vec![bf16::ZERO; x.len()], vec![0.0_f32; rows]);
    let mut expected = y.clone();
    for (x, y) in x.chunks(width as usize).zip(expected.chunks_mut(width as usize)) {
        plain::rms_row::<bf16, bf16, bf16>(x, None, -0.0, 1e-6, y);
    }
    let bytes = u64::from(width) * 2;
    for program in RmsNormForward::programs(&spec, Arch::Sm90) {
        let kernel = &RmsNormForward::kernels(&spec, program)[0];
        y.fill(bf16::NAN);
        let far = |base: u64| RowTensor { address: base, pitch, outer: 0 };
        let (x_base, y_base, rstd_base) = (1_u64 << 40, 1_u64 << 41, 1_u64 << 42);
        let params = ForwardParams {
            x: far(x_base),
            y: far(y_base),
            rstd: RowTensor { address: rstd_base, pitch: 1, outer: 0 },
            rows: rows as u32,
            levels: 1,
            eps: 1e-6,
            offset: -0.0,
            ahead: 1,
            width,
            sizes: [rows as u32, 1, 1, 1, 1, 1],
            column: [1; rmsnorm::TENSORS],
            vectors: 0b1111,
            ..ForwardParams::default()
        };
        let window = |base: u64, row: usize, memory: u64, writable| {
            let first = base + row as u64 * pitch * 2;
            Window { first, last: first + bytes, memory: memory + row as u64 * bytes, writable }
        };
        let (x_memory, y_memory) = (x.as_ptr().expose_provenance(), y.as_mut_ptr().expose_provenance());
        let mut windows: Vec<Window> = (0..rows).map(|row| window(x_base, row, x_memory as u64, 0)).collect();
        windows.extend((0..rows).map(|row| window(y_base, row, y_memory as u64, 1)));
        let rstd_memory = rstd.as_mut_ptr().expose_provenance() as u64;
        let last = rstd_base + 4 * rows as u64;
        windows.push(Window { first: rstd_base, last, memory: rstd_memory, writable: 1 });
        let shared = RmsNormForward::shared_bytes(&spec, kernel, Some(&params));
        let size = Size { grid: RmsNormForward::grid(kernel, &params), shared, order: 2 };
        // SAFETY: these are the kernel's parameters, and the vectors hold the windows' memory.
        #[allow(unsafe_code)]
        let ran = unsafe { emulator.run(kernel, &params, size, &windows) };
        ran.unwrap_or_else(|fault| panic!("{kernel}: {fault}"));
        assert!(y.iter().map(|y| y.to_bits()).eq(expected.iter().map(|y| y.to_bits())), "{kernel}");
    }
}

macro_rules! emulated_tests {
    ($($name:ident: $($prefix:literal),+;)*) => {
        $(#[test]
        fn $name() {
            let launches = judge(&[$($prefix),+]);
            assert!(launches > 30, "{launches} launches");
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
