//! Routes of the backward: the same geometries for every architecture, measured on sm_90a at a width of 128.

use cake_core::{Arch, Route};
use cake_kernels::silu_gate as k;

use super::{Tables, table};

macro_rules! tables {
    ($($name:ident = $arch:path, $evidence:expr;)*) => {
        $(static $name: &Tables = &[
            table!($arch, 64, "", Route::rest(&k::H64_WALK, UNTUNED).half_rows_ahead(2)),
            table!(
                $arch,
                128,
                "",
                Route::up_to(64, &k::H128_FEW, $evidence),
                Route::rest(&k::H128_WALK, $evidence).half_rows_ahead(2)
            ),
            table!($arch, 128, "sigmoid", Route::rest(&k::H128_WALK_SIGMOID, UNTUNED).half_rows_ahead(2)),
            table!($arch, 128, "first", Route::rest(&k::H128_WALK_FIRST, UNTUNED).half_rows_ahead(2)),
            table!($arch, 128, "first_sigmoid", Route::rest(&k::H128_WALK_FIRST_SIGMOID, UNTUNED).half_rows_ahead(2)),
            table!($arch, 256, "", Route::rest(&k::H256_WALK, UNTUNED).half_rows_ahead(2)),
            table!($arch, 512, "", Route::rest(&k::H512_WALK, UNTUNED).half_rows_ahead(2)),
        ];)*

        /// The tables of an architecture.
        pub(super) const fn tables(arch: Arch) -> &'static Tables {
            match arch {
                $($arch => $name,)*
            }
        }
    };
}

const UNTUNED: &str = "untuned: as rows of 128 on sm_90a";

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
