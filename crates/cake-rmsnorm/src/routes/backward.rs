//! Routes of the backward: the same geometries for every architecture, measured on sm_90a.

use cake_core::{Arch, Route, RouteTable};
use cake_kernels::rmsnorm as k;

use super::table;

/// The tables of a width.
pub(super) struct Tables {
    pub(super) width: u32,
    pub(super) plain: Needs,
    pub(super) residual: Needs,
}

/// The tables of a width and form.
pub(super) struct Needs {
    /// `dx` alone.
    pub(super) alone: RouteTable,
    /// `dw`, as far as `split` may serve it.
    pub(super) both: RouteTable,
    /// `dw`, where it may not.
    pub(super) walk: RouteTable,
}

/// Rows for each SM up to which narrow rows are fetched ahead: measured at H = 512, T = 4096, 10.8 us, without 11.7; at
/// T = 65536, 61.0, without 58.5.
const FEW: u32 = 64;

/// Rows for each SM from which on a residual's rows are fetched ahead: measured at H = 6144, T = 65536, 856 us, without
/// 876; at T = 16231, 227, without 216.
const MANY: u32 = 160;

macro_rules! needs {
    (
        $arch:expr, $width:literal, $split:expr, $rows:literal, alone ahead $alone:literal, $evidence:expr, [$($walk:expr),+]
    ) => {
        Needs {
            alone: table!($arch, $width, Route::rest(&$split, $evidence).half_rows_ahead($alone)),
            both: table!($arch, $width, Route::up_to($rows, &$split, $evidence), $($walk),+),
            walk: table!($arch, $width, $($walk),+),
        }
    };
}

macro_rules! all {
    (
        $name:ident, $arch:expr, $evidence:expr,
        [$(
            $width:literal = $split:ident to $rows:literal, alone ahead $alone:literal;
            $walk:ident ahead $few:literal, $ahead:literal;
        )*]
    ) => {
        static $name: &[Tables] = &[
            $(Tables {
                width: $width,
                plain: needs!($arch, $width, k::$split.plain, $rows, alone ahead $alone, $evidence, [
                    Route::up_to(FEW, &k::$walk.plain, $evidence).half_rows_ahead($few),
                    Route::rest(&k::$walk.plain, $evidence).half_rows_ahead($ahead)
                ]),
                residual: needs!($arch, $width, k::$split.residual, $rows, alone ahead $alone, $evidence, [
                    Route::up_to(MANY, &k::$walk.residual, $evidence),
                    Route::rest(&k::$walk.residual, $evidence).half_rows_ahead($ahead)
                ]),
            },)*
        ];
    };
}

macro_rules! tables {
    ($($name:ident = $arch:path, $evidence:expr;)*) => {
        $(all!($name, $arch, $evidence, [
            128 = H128_SPLIT to 24, alone ahead 0; H128_WALK ahead 2, 0;
            256 = H256_SPLIT to 24, alone ahead 0; H256_WALK ahead 2, 0;
            512 = H512_SPLIT to 24, alone ahead 0; H512_WALK ahead 4, 0;
            1024 = H1024_SPLIT to 20, alone ahead 0; H1024_WALK ahead 2, 2;
            1536 = H1536_SPLIT to 14, alone ahead 0; H1536_WALK ahead 2, 2;
            2048 = H2048_SPLIT to 16, alone ahead 0; H2048_WALK ahead 2, 2;
            2560 = H2560_SPLIT to 14, alone ahead 0; H2560_WALK ahead 2, 2;
            2880 = H2880_SPLIT to 12, alone ahead 0; H2880_WALK ahead 2, 2;
            3072 = H3072_SPLIT to 12, alone ahead 0; H3072_WALK ahead 2, 2;
            3584 = H3584_SPLIT to 12, alone ahead 0; H3584_WALK ahead 2, 2;
            4096 = H4096_SPLIT to 12, alone ahead 2; H4096_WALK ahead 2, 2;
            5120 = H5120_SPLIT to 9, alone ahead 2; H5120_WALK ahead 2, 2;
            6144 = H6144_SPLIT to 8, alone ahead 2; H6144_WALK ahead 2, 2;
            7168 = H7168_SPLIT to 8, alone ahead 2; H7168_WALK ahead 2, 2;
            8192 = H8192_SPLIT to 8, alone ahead 2; H8192_WALK ahead 2, 2;
            12288 = H12288_SPLIT to 6, alone ahead 2; H12288_WALK ahead 2, 2;
            16384 = H16384_SPLIT to 6, alone ahead 2; H16384_WALK ahead 2, 2;
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
