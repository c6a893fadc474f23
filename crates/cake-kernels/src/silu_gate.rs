//! The compiled programs of the gated RMSNorm, and the parameter blocks that they take.

use cake_core::rows::MAX_LEVELS;
use cake_core::{Arch, Dtype, Kernel, Pass, Program};

use crate::RowTensor;

/// Operator name in kernel names and images.
pub const OP: &str = "silu_gate";

/// Tensors of the forward: their bits in [`ForwardParams::vectors`] and indices in its arrays.
pub mod forward {
    /// Input.
    pub const X: usize = 0;
    /// Input of the gate.
    pub const Z: usize = 1;
    /// Output.
    pub const Y: usize = 2;
    /// Output: one FP32 for each row.
    pub const RSTD: usize = 3;
    /// Tensors with rows.
    pub const ROW_TENSORS: usize = 4;
    /// Weight.
    pub const WEIGHT: usize = 4;
    /// All tensors.
    pub const TENSORS: usize = 5;
}

/// Parameters of every forward kernel, mirrored by `cuda/silu_gate/args.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardParams {
    /// Input rows.
    pub x: RowTensor,
    /// Rows of the gate's input.
    pub z: RowTensor,
    /// Output rows.
    pub y: RowTensor,
    /// Output: one FP32 for each row; absent where it is not wanted.
    pub rstd: RowTensor,
    /// Address of the weight.
    pub weight: u64,
    /// Rows.
    pub rows: u32,
    /// Levels of row indices in use, 1 to 6.
    pub levels: u32,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Columns.
    pub width: u32,
    /// Rows between the one in hand and the one to fetch into L2; 0, also where `levels` > 1, for none.
    pub ahead: u32,
    /// Whether the weight is FP32, else BF16.
    pub weight_fp32: u32,
    /// Sizes of the levels.
    pub sizes: [u32; MAX_LEVELS],
    /// Strides of levels 2 and up.
    pub more: [[u64; forward::ROW_TENSORS]; MAX_LEVELS - 2],
    /// Strides between columns.
    pub column: [u64; forward::TENSORS],
    /// Bit t: tensor t allows 16-byte accesses to each unit of 8 elements.
    pub vectors: u32,
}

const _: () = assert!(size_of::<ForwardParams>() == 328, "the mirror in cuda/silu_gate/args.cuh has this size");

/// Tensors of the backward: their bits in [`BackwardParams::vectors`] and indices in its arrays.
pub mod backward {
    /// Input of the forward pass.
    pub const X: usize = 0;
    /// Gradient of its output.
    pub const DY: usize = 1;
    /// Input of the gate.
    pub const Z: usize = 2;
    /// Output: gradient of `x`.
    pub const DX: usize = 3;
    /// Output: gradient of `z`.
    pub const DZ: usize = 4;
    /// One FP32 for each row.
    pub const RSTD: usize = 5;
    /// Tensors with rows.
    pub const ROW_TENSORS: usize = 6;
    /// Weight.
    pub const WEIGHT: usize = 6;
    /// Output: gradient of the weight.
    pub const DW: usize = 7;
    /// All tensors.
    pub const TENSORS: usize = 8;
}

/// Parameters of every backward kernel, mirrored by `cuda/silu_gate/args.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BackwardParams {
    /// Input rows of the forward pass.
    pub x: RowTensor,
    /// Gradient of `y`.
    pub dy: RowTensor,
    /// Rows of the gate's input.
    pub z: RowTensor,
    /// Output rows: gradient of `x`.
    pub dx: RowTensor,
    /// Output rows: gradient of `z`.
    pub dz: RowTensor,
    /// One FP32 for each row; absent to compute it again.
    pub rstd: RowTensor,
    /// Address of the weight.
    pub weight: u64,
    /// Output: address of the gradient of the weight; 0 if it is not wanted.
    pub dw: u64,
    /// Address of the workspace: barrier word, partial sums.
    pub workspace: u64,
    /// Rows.
    pub rows: u32,
    /// Levels of row indices in use, 1 to 6.
    pub levels: u32,
    /// Added to the mean of squares where `rstd` is absent.
    pub eps: f32,
    /// Columns.
    pub width: u32,
    /// Rows between the one in hand and the one to fetch into L2; 0 for none.
    pub ahead: u32,
    /// Whether the weight is FP32, else BF16.
    pub weight_fp32: u32,
    /// Rows of a chunk: 8 for each group of a CTA, times a power of two.
    pub chunk: u32,
    /// Chunks of all rows.
    pub chunks: u32,
    /// Chunks of that size; those behind them, if any, have an eighth of it.
    pub large: u32,
    /// CTAs that share the chunks.
    pub ctas: u32,
    /// Whether `dw` is FP32, else BF16.
    pub dw_fp32: u32,
    /// Whether to add to what `dw` holds.
    pub accumulate: u32,
    /// Whether the chunks' sums are added up in any order, in FP64.
    pub unordered: u32,
    /// Sizes of the levels.
    pub sizes: [u32; MAX_LEVELS],
    /// Strides of levels 2 and up.
    pub more: [[u64; backward::ROW_TENSORS]; MAX_LEVELS - 2],
    /// Strides between columns.
    pub column: [u64; backward::TENSORS],
    /// Bit t: tensor t allows 16-byte accesses to each unit of 8 elements.
    pub vectors: u32,
}

const _: () = assert!(size_of::<BackwardParams>() == 512, "the mirror in cuda/silu_gate/args.cuh has this size");

/// One compiled kernel: `group` threads for each of `rows` rows of a CTA, registers for `min_ctas` CTAs on an SM.
const fn kernel(
    pass: Pass,
    width: Option<u32>,
    schedule: &'static str,
    form: &'static str,
    [group, rows, min_ctas]: [u32; 3],
    knob: &'static str,
) -> Kernel {
    Kernel {
        op: OP,
        pass,
        form,
        width,
        schedule,
        knob,
        weight: Some(Dtype::Bf16), // or FP32: the kernels ask at run time
        group,
        rows,
        step: 0,
        min_ctas,
        since: Arch::Sm80,
        vectors: width.is_some(),
        cooperative: matches!(pass, Pass::Backward),
    }
}

/// Lists programs under their names: pass, width, schedule, form, and `[group, rows, min_ctas]`.
macro_rules! programs {
    ($(#[$attribute:meta])* $all:ident, $pass:expr; $($name:ident = $width:expr, $schedule:literal, $form:literal, $geometry:expr $(, $knob:literal)?;)*) => {
        $(
            #[allow(missing_docs)] // the name is the sentence
            pub static $name: Program = {
                const KERNELS: &[Kernel] = &[kernel($pass, $width, $schedule, $form, $geometry, concat!($($knob)?))];
                Program { bf16: KERNELS, f32: KERNELS, none: &[] }
            };
        )*
        $(#[$attribute])*
        pub static $all: &[&Program] = &[$(&$name),*];
    };
}

programs! {
    /// Every forward program.
    FORWARD, Pass::Forward;

    ANY_SCAN = None, "scan", "", [32, 8, 0];
    ANY_SCAN_SIGMOID = None, "scan", "sigmoid", [32, 8, 0];
    ANY_SCAN_FIRST = None, "scan", "first", [32, 8, 0];
    ANY_SCAN_FIRST_SIGMOID = None, "scan", "first_sigmoid", [32, 8, 0];

    H64_ROW = Some(64), "row", "", [4, 32, 7];
    H128_ROW = Some(128), "row", "", [4, 32, 7];
    H128_ROW_G8 = Some(128), "row", "", [8, 16, 0], "g8";
    H128_ROW_SIGMOID = Some(128), "row", "sigmoid", [4, 32, 0];
    H128_ROW_FIRST = Some(128), "row", "first", [4, 32, 0];
    H128_ROW_FIRST_SIGMOID = Some(128), "row", "first_sigmoid", [4, 32, 0];
    H256_ROW = Some(256), "row", "", [8, 16, 0];
    H512_ROW = Some(512), "row", "", [16, 8, 0];
}

programs! {
    /// Every backward program.
    BACKWARD, Pass::Backward;

    ANY_BWD_SCAN = None, "scan", "", [32, 8, 1];
    ANY_BWD_SCAN_SIGMOID = None, "scan", "sigmoid", [32, 8, 1];
    ANY_BWD_SCAN_FIRST = None, "scan", "first", [32, 8, 1];
    ANY_BWD_SCAN_FIRST_SIGMOID = None, "scan", "first_sigmoid", [32, 8, 1];

    H128_FEW = Some(128), "few", "", [8, 64, 1];
    H64_WALK = Some(64), "walk", "", [8, 32, 2];
    H128_WALK = Some(128), "walk", "", [16, 16, 3];
    H128_WALK_SIGMOID = Some(128), "walk", "sigmoid", [16, 16, 2];
    H128_WALK_FIRST = Some(128), "walk", "first", [16, 16, 2];
    H128_WALK_FIRST_SIGMOID = Some(128), "walk", "first_sigmoid", [16, 16, 2];
    H256_WALK = Some(256), "walk", "", [32, 8, 3];
    H512_WALK = Some(512), "walk", "", [32, 8, 1];
}
