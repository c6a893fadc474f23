//! The device's own code, run on the host: every kernel of every program, compiled by the C++ compiler and run thread by
//! thread, must give the canonical bits and touch nothing else. Needs no GPU, so that CI looks at each line of the kernels.
//!
//! It cannot see what only a board does: races between CTAs, memory order, and what NVRTC makes of the source.

mod backward;
mod emulator;
mod gate;
mod subject;

use cake_core::Op;
use cake_core::sums::plain;
use cake_kernels::RowTensor;
use cake_kernels::rmsnorm::{self, ForwardParams};
use cake_rmsnorm::{Arch, RmsNormForward, Spec};
use cake_verify::cases::groups::{self, Profile};
use emulator::{Emulator, Size, Window};
use half::bf16;

/// Judges the cases of all groups whose names begin like this; returns the launches.
fn judge(prefixes: &[&str]) -> usize {
    let groups = groups::all(Profile::Quick, None);
    let groups = groups.into_iter().filter(|group| prefixes.iter().any(|prefix| group.name.starts_with(prefix)));
    subject::judge(rmsnorm::OP, groups.flat_map(|group| group.cases))
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
    let of_row = |(x, y): (&[bf16], &mut [bf16])| plain::rms_row::<bf16, bf16, bf16>(x, None, -0.0, 1e-6, y).to_bits();
    let expected_rstd: Vec<u32> =
        x.chunks(width as usize).zip(expected.chunks_mut(width as usize)).map(of_row).collect();
    let bytes = u64::from(width) * 2;
    for program in RmsNormForward::programs(&spec, Arch::Sm90) {
        let kernel = &RmsNormForward::kernels(&spec, program)[0];
        y.fill(bf16::NAN);
        rstd.fill(f32::NAN);
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
        assert!(rstd.iter().map(|rstd| rstd.to_bits()).eq(expected_rstd.iter().copied()), "{kernel}: rstd {rstd:?}");
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
    values: "values/";
    weights: "weights/";
    eps: "eps";
    layouts_of_inputs: "layouts/x", "layouts/residual", "layouts/weight", "layouts/inputs";
    layouts_of_outputs: "layouts/y", "layouts/h", "layouts/rstd";
    layouts_together: "layouts/together", "layouts/pairs", "layouts/levels", "in_place";
}
