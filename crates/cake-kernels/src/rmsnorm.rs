//! The compiled programs of RMSNorm, and the parameter block that they take.

use cake_core::{Dtype, Fusion, Kernel, Pass, Program};

use crate::Forms;

/// Operator name in kernel names and images.
pub const OP: &str = "rmsnorm";

/// One tensor of a call, mirrored by `cuda/cake/tensor.cuh`. Strides count elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tensor {
    /// Address of the first element; 0 when the tensor is absent.
    pub address: u64,
    /// Stride between columns.
    pub column: i64,
    /// Strides of the row levels, innermost first.
    pub row: [i64; 6],
}

/// Parameters of every forward kernel, mirrored by `cuda/rmsnorm/args.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardParams {
    /// Input rows.
    pub x: Tensor,
    /// Added to `x` before the norm.
    pub residual: Tensor,
    /// Output rows.
    pub y: Tensor,
    /// Output: `x + residual`, rounded.
    pub h: Tensor,
    /// Output: one FP32 value for each row.
    pub rstd: Tensor,
    /// One value for each column; no row strides.
    pub weight: Tensor,
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub width: u32,
    /// Sizes of the row levels, innermost first.
    pub sizes: [u32; 6],
    /// Levels in use.
    pub levels: u32,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Added to each weight: 1 for an offset weight and for none, else -0.
    pub offset: f32,
    /// Bit i: tensor i of (x, residual, y, h, weight) allows 16-byte accesses to each unit of 8 elements.
    pub vectors: u32,
}

/// Geometry of one row of the list.
struct Geometry {
    width: Option<u32>,
    schedule: &'static str,
    knob: &'static str,
    group: u32,
    rows: u32,
    min_ctas: u32,
    persistent: u32,
    stages: u32,
}

/// One compiled kernel of a geometry.
const fn forward(geometry: Geometry, fusion: Fusion, weight: Dtype) -> Kernel {
    let Geometry { width, schedule, knob, group, rows, min_ctas, persistent, stages } = geometry;
    let pass = Pass::Forward;
    let vectors = width.is_some();
    Kernel { op: OP, pass, fusion, width, schedule, knob, weight, group, rows, min_ctas, persistent, stages, vectors }
}

const fn row(width: u32, knob: &'static str, group: u32, rows: u32, min_ctas: u32) -> Geometry {
    Geometry { width: Some(width), schedule: "row", knob, group, rows, min_ctas, persistent: 0, stages: 0 }
}

const fn any(schedule: &'static str, group: u32, rows: u32) -> Geometry {
    Geometry { width: None, schedule, knob: "", group, rows, min_ctas: 0, persistent: 0, stages: 0 }
}

macro_rules! forward {
    ($($name:ident = $geometry:expr;)*) => {
        $(
            #[allow(missing_docs)] // the name is the sentence
            pub static $name: Forms = Forms {
                plain: Program {
                    bf16: &[forward($geometry, Fusion::Plain, Dtype::Bf16)],
                    f32: &[forward($geometry, Fusion::Plain, Dtype::F32)],
                },
                residual: Program {
                    bf16: &[forward($geometry, Fusion::Residual, Dtype::Bf16)],
                    f32: &[forward($geometry, Fusion::Residual, Dtype::F32)],
                },
            };
        )*
        /// Every forward program.
        pub static FORWARD: &[&Forms] = &[$(&$name),*];
    };
}

forward! {
    // Any width, any alignment: a warp, or a CTA, for each row.
    ANY_WARP = any("warp", 32, 8);
    ANY_ROW = any("row", 256, 1);

    H512_ROW = row(512, "", 16, 8, 0);
    H2048_ROW = row(2048, "", 128, 1, 0);
    H6144_ROW = row(6144, "", 256, 1, 0);
}
