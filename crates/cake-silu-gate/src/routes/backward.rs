//! Routes of the backward: no board has been measured.

use cake_core::{Arch, Route};
use cake_kernels::silu_gate as k;

use super::{Tables, table};

macro_rules! tables {
    ($($name:ident = $arch:path;)*) => {
        $(static $name: &Tables = &[
            table!($arch, 64, "", Route::rest(&k::H64_WALK, UNTUNED)),
            table!($arch, 128, "", Route::rest(&k::H128_WALK, UNTUNED)),
            table!($arch, 128, "sigmoid", Route::rest(&k::H128_WALK_SIGMOID, UNTUNED)),
            table!($arch, 128, "first", Route::rest(&k::H128_WALK_FIRST, UNTUNED)),
            table!($arch, 128, "first_sigmoid", Route::rest(&k::H128_WALK_FIRST_SIGMOID, UNTUNED)),
            table!($arch, 256, "", Route::rest(&k::H256_WALK, UNTUNED)),
            table!($arch, 512, "", Route::rest(&k::H512_WALK, UNTUNED)),
        ];)*

        /// The tables of an architecture.
        pub(super) const fn tables(arch: Arch) -> &'static Tables {
            match arch {
                $($arch => $name,)*
            }
        }
    };
}

const UNTUNED: &str = "untuned";

tables! {
    SM80 = Arch::Sm80;
    SM86 = Arch::Sm86;
    SM89 = Arch::Sm89;
    SM90 = Arch::Sm90;
    SM100 = Arch::Sm100;
    SM103 = Arch::Sm103;
    SM107 = Arch::Sm107;
    SM120 = Arch::Sm120;
}
