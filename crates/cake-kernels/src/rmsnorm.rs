//! The compiled programs of RMSNorm, and the parameter block that they take.

use cake_core::rows::MAX_LEVELS;
use cake_core::{Arch, Dtype, Kernel, Pass, Program};

use crate::{Forms, RowTensor};

/// Operator name in kernel names and images.
pub const OP: &str = "rmsnorm";

/// Tensors with rows.
pub const ROW_TENSORS: usize = 5;
/// All tensors.
pub const TENSORS: usize = 6;
/// Bit of `x` in [`ForwardParams::vectors`], and its index in the arrays there.
pub const X: usize = 0;
/// As [`X`], of `residual`.
pub const RESIDUAL: usize = 1;
/// As [`X`], of `y`.
pub const Y: usize = 2;
/// As [`X`], of `h`.
pub const H: usize = 3;
/// As [`X`], of `rstd`.
pub const RSTD: usize = 4;
/// As [`X`], of `weight`, which has no rows.
pub const WEIGHT: usize = 5;

/// Parameters of every forward kernel, mirrored by `cuda/rmsnorm/args.cuh`, which says why they lie in this order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardParams {
    /// Output rows.
    pub y: RowTensor,
    /// Output: one FP32 for each row.
    pub rstd: RowTensor,
    /// Input rows.
    pub x: RowTensor,
    /// Added to `x`.
    pub residual: RowTensor,
    /// Address of the weight; 0 when it is absent.
    pub weight: u64,
    /// Rows.
    pub rows: u32,
    /// Levels of row indices in use, 1 to 6.
    pub levels: u32,
    /// Output: `x + residual`, rounded.
    pub h: RowTensor,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Added to each weight: 1 for an offset weight, else -0.
    pub offset: f32,
    /// Rows between the one in hand and the one to fetch into L2; 0, also where `levels` > 1, for none.
    pub ahead: u32,
    /// Columns.
    pub width: u32,
    /// Sizes of the levels.
    pub sizes: [u32; MAX_LEVELS],
    /// Strides of levels 2 and up.
    pub more: [[u64; ROW_TENSORS]; MAX_LEVELS - 2],
    /// Strides between columns.
    pub column: [u64; TENSORS],
    /// Bit t: tensor t allows 16-byte accesses to each unit of 8 elements.
    pub vectors: u32,
}

const _: () = assert!(size_of::<ForwardParams>() == 392, "the mirror in cuda/rmsnorm/args.cuh has this size");

/// Tensors of the backward: their bits in [`BackwardParams::vectors`] and indices in its arrays.
pub mod backward {
    /// Input of the forward pass.
    pub const X: usize = 0;
    /// Gradient of its output.
    pub const DY: usize = 1;
    /// Output: gradient of `x`.
    pub const DX: usize = 2;
    /// Gradient of `h`.
    pub const DH: usize = 3;
    /// One FP32 for each row.
    pub const RSTD: usize = 4;
    /// Tensors with rows.
    pub const ROW_TENSORS: usize = 5;
    /// Weight.
    pub const WEIGHT: usize = 5;
    /// Output: gradient of the weight.
    pub const DW: usize = 6;
    /// All tensors.
    pub const TENSORS: usize = 7;
}

/// Parameters of every backward kernel, mirrored by `cuda/rmsnorm/args.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BackwardParams {
    /// Input rows of the forward pass.
    pub x: RowTensor,
    /// Gradient of `y`.
    pub dy: RowTensor,
    /// One FP32 for each row; absent to compute it again.
    pub rstd: RowTensor,
    /// Output rows; absent if only `dw` is wanted.
    pub dx: RowTensor,
    /// Added to `dx`: the gradient of `h`.
    pub dh: RowTensor,
    /// Address of the weight; 0 when it is absent.
    pub weight: u64,
    /// Output: address of the gradient of the weight; 0 if only `dx` is wanted.
    pub dw: u64,
    /// Address of the workspace: barrier word, partial sums.
    pub workspace: u64,
    /// Rows.
    pub rows: u32,
    /// Levels of row indices in use, 1 to 6.
    pub levels: u32,
    /// Added to the mean of squares where `rstd` is absent.
    pub eps: f32,
    /// Added to each weight: 1 for an offset weight, else -0.
    pub offset: f32,
    /// Columns.
    pub width: u32,
    /// Rows between the one in hand and the one to fetch into L2; 0 for none.
    pub ahead: u32,
    /// Rows of a chunk: 8 for each group of a CTA, times a power of two.
    pub chunk: u32,
    /// Chunks of all rows.
    pub chunks: u32,
    /// Units of columns for a CTA of the `split` schedule that takes columns.
    pub columns: u32,
    /// CTAs that share the chunks.
    pub ctas: u32,
    /// Levels of the row tree that wait in shared memory; the others wait in the workspace.
    pub shared_levels: u32,
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

const _: () = assert!(size_of::<BackwardParams>() == 448, "the mirror in cuda/rmsnorm/args.cuh has this size");

/// Geometry of one row of the list.
struct Geometry {
    width: Option<u32>,
    schedule: &'static str,
    knob: &'static str,
    group: u32,
    rows: u32,
    step: u32,
    min_ctas: u32,
}

/// One compiled kernel of a geometry.
const fn kernel(pass: Pass, geometry: Geometry, residual: bool, weight: Option<Dtype>) -> Kernel {
    let Geometry { width, schedule, knob, group, rows, step, min_ctas } = geometry;
    // Residuals and FP32 weights take more registers: in the forward what suits the plain BF16 form would make them spill;
    // in the backward two steps at once would, and so would both where a thread has more than three units.
    let min_ctas = match (pass, residual, weight, width) {
        (Pass::Backward, true, Some(Dtype::F32), Some(width)) if width > 24 * group => 1,
        (Pass::Backward, ..) | (_, false, Some(Dtype::Bf16), _) => min_ctas,
        _ => 0,
    };
    let step = if residual && step > 1 { 1 } else { step };
    Kernel {
        op: OP,
        pass,
        form: if residual { "res" } else { "" },
        width,
        schedule,
        knob,
        weight,
        group,
        rows,
        step,
        min_ctas,
        since: Arch::Sm80,
        vectors: width.is_some(),
        cooperative: matches!(pass, Pass::Backward) && !matches!(schedule.as_bytes(), b"split" | b"join"),
    }
}

/// Rows of a fixed width: `group` threads for each of `rows` rows of a CTA, registers for `min_ctas` CTAs on an SM.
const fn row(width: u32, knob: &'static str, group: u32, rows: u32, min_ctas: u32) -> Geometry {
    Geometry { width: Some(width), schedule: "row", knob, group, rows, step: 0, min_ctas }
}

/// Rows of any width and layout; in the backward, `min_ctas` CTAs share an SM.
const fn scan(knob: &'static str, group: u32, rows: u32, min_ctas: u32) -> Geometry {
    Geometry { width: None, schedule: "scan", knob, group, rows, step: 0, min_ctas }
}

/// Backward of rows of a fixed width, for few rows or for dx alone.
const fn split(width: u32, group: u32, rows: u32, min_ctas: u32) -> Geometry {
    Geometry { width: Some(width), schedule: "split", knob: "", group, rows, step: 0, min_ctas }
}

/// Backward of rows of a fixed width, for many rows; `step` rows of a group at a time.
const fn walk(width: u32, group: u32, rows: u32, step: u32, min_ctas: u32) -> Geometry {
    Geometry { width: Some(width), schedule: "walk", knob: "", group, rows, step, min_ctas }
}

/// One program for each form; without a weight none of the `walk` schedule, which is there for `dw`.
macro_rules! forms {
    ($pass:expr, $geometry:expr, $residual:expr) => {
        Program {
            bf16: &[kernel($pass, $geometry, $residual, Some(Dtype::Bf16))],
            f32: &[kernel($pass, $geometry, $residual, Some(Dtype::F32))],
            none: match $geometry.schedule.as_bytes() {
                b"walk" => &[],
                _ => &[kernel($pass, $geometry, $residual, None)],
            },
        }
    };
}

macro_rules! programs {
    ($(#[$attribute:meta])* $all:ident, $pass:expr; $($name:ident = $geometry:expr;)*) => {
        $(
            #[allow(missing_docs)] // the name is the sentence
            pub static $name: Forms = Forms {
                plain: forms!($pass, $geometry, false),
                residual: forms!($pass, $geometry, true),
            };
        )*
        $(#[$attribute])*
        pub static $all: &[&Forms] = &[$(&$name),*];
    };
}

programs! {
    /// Every forward program.
    FORWARD, Pass::Forward;

    // Any width, any alignment: a CTA, or a warp, for each row.
    ANY_SCAN = scan("", 256, 1, 0);
    ANY_SCAN_WARP = scan("warp", 32, 8, 0);

    // The lines of a width stand together. Tuned on an H200: of all geometries with 8 to 1024 threads for a row, those that some route prefers.
    H128_ROW = row(128, "", 8, 16, 8);
    H256_ROW = row(256, "", 16, 16, 4);
    H512_ROW = row(512, "", 32, 8, 6);
    H1024_ROW = row(1024, "", 64, 2, 12);
    H1536_ROW = row(1536, "", 64, 2, 10);
    H2048_ROW = row(2048, "", 128, 1, 12);
    H2560_ROW = row(2560, "", 128, 1, 10);
    H2880_ROW = row(2880, "", 128, 1, 10);
    H3072_ROW = row(3072, "", 128, 1, 10);
    H3584_ROW = row(3584, "", 128, 1, 0);
    H4096_ROW = row(4096, "", 256, 1, 6);
    H5120_ROW = row(5120, "", 256, 1, 5);
    H6144_ROW = row(6144, "", 256, 1, 5);
    H6144_ROW_T512 = row(6144, "t512", 512, 1, 2);
    H7168_ROW = row(7168, "", 256, 1, 0);
    H7168_ROW_T512 = row(7168, "t512", 512, 1, 2);
    H8192_ROW = row(8192, "", 256, 1, 0);
    H8192_ROW_T512 = row(8192, "t512", 512, 1, 2);
    H12288_ROW = row(12288, "", 512, 1, 2);
    H16384_ROW = row(16384, "", 512, 1, 0);
    H16384_ROW_T1024 = row(16384, "t1024", 1024, 1, 1);
}

programs! {
    /// Every backward program.
    BACKWARD, Pass::Backward;

    // Any width, any alignment: a CTA, or a warp, for each row.
    ANY_BWD_SCAN = scan("", 256, 1, 2);
    ANY_BWD_SCAN_WARP = scan("warp", 32, 8, 2);

    H128_SPLIT = split(128, 8, 32, 0);
    H128_WALK = walk(128, 8, 32, 1, 2);
    H256_SPLIT = split(256, 16, 16, 0);
    H256_WALK = walk(256, 16, 16, 1, 2);
    H512_SPLIT = split(512, 32, 8, 0);
    H512_WALK = walk(512, 32, 8, 2, 2);
    H1024_SPLIT = split(1024, 64, 4, 0);
    H1024_WALK = walk(1024, 128, 1, 1, 4);
    H1536_SPLIT = split(1536, 64, 4, 0);
    H1536_WALK = walk(1536, 128, 1, 1, 4);
    H2048_SPLIT = split(2048, 64, 4, 0);
    H2048_WALK = walk(2048, 128, 1, 1, 4);
    H2560_SPLIT = split(2560, 128, 2, 0);
    H2560_WALK = walk(2560, 128, 1, 1, 3);
    H2880_SPLIT = split(2880, 128, 2, 0);
    H2880_WALK = walk(2880, 128, 1, 1, 3);
    H3072_SPLIT = split(3072, 128, 2, 0);
    H3072_WALK = walk(3072, 128, 1, 1, 3);
    H3584_SPLIT = split(3584, 256, 1, 0);
    H3584_WALK = walk(3584, 256, 1, 1, 2);
    H4096_SPLIT = split(4096, 256, 1, 0);
    H4096_WALK = walk(4096, 256, 1, 1, 2);
    H5120_SPLIT = split(5120, 256, 1, 0);
    H5120_WALK = walk(5120, 256, 1, 1, 2);
    H6144_SPLIT = split(6144, 256, 1, 0);
    H6144_WALK = walk(6144, 256, 1, 1, 2);
    H7168_SPLIT = split(7168, 256, 1, 0);
    H7168_WALK = walk(7168, 256, 1, 1, 2);
    H8192_SPLIT = split(8192, 256, 1, 0);
    H8192_WALK = walk(8192, 512, 1, 1, 1);
    H12288_SPLIT = split(12288, 512, 1, 0);
    H12288_WALK = walk(12288, 512, 1, 1, 1);
    H16384_SPLIT = split(16384, 512, 1, 0);
    H16384_WALK = walk(16384, 512, 1, 1, 1);
}

/// Joins the weight gradients of shards; no weight takes part.
pub static JOIN: Program = {
    const KERNELS: &[Kernel] = &[kernel(
        Pass::Backward,
        Geometry { width: None, schedule: "join", knob: "", group: 256, rows: 1, step: 0, min_ctas: 0 },
        false,
        Some(Dtype::Bf16),
    )];
    Program { bf16: KERNELS, f32: KERNELS, none: KERNELS }
};

/// Widths that have kernels of their own, in the order of the list.
pub const FORWARD_WIDTHS: [u32; forward_widths().1] = {
    let (all, count) = forward_widths();
    let mut widths = [0; forward_widths().1];
    let mut i = 0;
    while i < count {
        widths[i] = all[i];
        i += 1;
    }
    widths
};

/// The widths, which the list has next to each other, and their number.
const fn forward_widths() -> ([u32; FORWARD.len()], usize) {
    let (mut widths, mut count, mut i) = ([0; FORWARD.len()], 0, 0);
    while i < FORWARD.len() {
        if let Some(width) = FORWARD[i].plain.bf16[0].width
            && (count == 0 || widths[count - 1] != width)
        {
            widths[count] = width;
            count += 1;
        }
        i += 1;
    }
    (widths, count)
}
