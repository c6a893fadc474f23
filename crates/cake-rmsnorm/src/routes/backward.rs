//! Routes of the backward: the same geometries for every architecture, measured on sm_90a.

use cake_core::{Arch, Route, RouteTable};
use cake_kernels::rmsnorm as k;

use super::table;

/// The tables of a width.
pub(super) struct Tables {
    pub(super) width: u32,
    pub(super) plain: Forms,
    pub(super) residual: Forms,
}

/// The tables of a width and fusion. Without `both` and `walk` the program for any width takes their place.
pub(super) struct Forms {
    /// `dx` alone.
    pub(super) alone: RouteTable,
    /// `dw`, as far as `split` may serve it.
    pub(super) both: Option<RouteTable>,
    /// `dw`, where it may not.
    pub(super) walk: Option<RouteTable>,
}

macro_rules! forms {
    ($arch:expr, $width:literal, $fusion:ident, $split:ident to $rows:literal, $walk:ident, $evidence:expr) => {
        Forms {
            alone: table!($arch, $width, Route::rest(&k::$split.$fusion, $evidence)),
            both: Some(table!(
                $arch,
                $width,
                Route::up_to($rows, &k::$split.$fusion, $evidence),
                Route::rest(&k::$walk.$fusion, $evidence)
            )),
            walk: Some(table!($arch, $width, Route::rest(&k::$walk.$fusion, $evidence))),
        }
    };
}

macro_rules! all {
    ($name:ident, $arch:expr, $evidence:expr, [$($width:literal = $split:ident to $rows:literal, $walk:ident;)*]) => {
        static $name: &[Tables] = &[
            $(Tables {
                width: $width,
                plain: forms!($arch, $width, plain, $split to $rows, $walk, $evidence),
                residual: forms!($arch, $width, residual, $split to $rows, $walk, $evidence),
            },)*
            Tables {
                width: 16384,
                plain: Forms {
                    alone: table!($arch, 16384, Route::rest(&k::H16384_SPLIT.plain, $evidence)),
                    both: None,
                    walk: None,
                },
                residual: Forms {
                    alone: table!($arch, 16384, Route::rest(&k::H16384_SPLIT.residual, $evidence)),
                    both: None,
                    walk: None,
                },
            },
        ];
    };
}

macro_rules! tables {
    ($($name:ident = $arch:path, $evidence:expr;)*) => {
        $(all!($name, $arch, $evidence, [
            128 = H128_SPLIT to 24, H128_WALK;
            256 = H256_SPLIT to 24, H256_WALK;
            512 = H512_SPLIT to 24, H512_WALK;
            1024 = H1024_SPLIT to 20, H1024_WALK;
            1536 = H1536_SPLIT to 16, H1536_WALK;
            2048 = H2048_SPLIT to 16, H2048_WALK;
            2560 = H2560_SPLIT to 14, H2560_WALK;
            2880 = H2880_SPLIT to 12, H2880_WALK;
            3072 = H3072_SPLIT to 12, H3072_WALK;
            3584 = H3584_SPLIT to 12, H3584_WALK;
            4096 = H4096_SPLIT to 12, H4096_WALK;
            5120 = H5120_SPLIT to 10, H5120_WALK;
            6144 = H6144_SPLIT to 10, H6144_WALK;
            7168 = H7168_SPLIT to 8, H7168_WALK;
            8192 = H8192_SPLIT to 8, H8192_WALK;
            12288 = H12288_SPLIT to 6, H12288_WALK;
        ]);)*

        /// The tables of an architecture.
        pub(super) const fn tables(arch: Arch) -> &'static [Tables] {
            match arch {
                $($arch => $name,)*
            }
        }
    };
}

const UNTUNED: &str = "untuned: the geometry and window of sm_90a";

tables! {
    SM80 = Arch::Sm80, UNTUNED;
    SM86 = Arch::Sm86, UNTUNED;
    SM89 = Arch::Sm89, UNTUNED;
    SM90 = Arch::Sm90, "H200, cold L2: docs/benchmarks.md";
    SM100 = Arch::Sm100, UNTUNED;
    SM103 = Arch::Sm103, UNTUNED;
    SM107 = Arch::Sm107, UNTUNED;
    SM120 = Arch::Sm120, UNTUNED;
}
