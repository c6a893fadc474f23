//! Architectures without a measured board: the geometry that the H200 prefers for most rows.

use cake_core::{Arch, Route};
use cake_kernels::rmsnorm as k;

use super::{Tables, table};

macro_rules! tables {
    ($($name:ident = $arch:expr;)*) => {
        $(pub(super) static $name: &Tables = all!($arch, [
            128 = H128_ROW, 256 = H256_ROW, 512 = H512_ROW, 1024 = H1024_ROW, 1536 = H1536_ROW, 2048 = H2048_ROW,
            2560 = H2560_ROW, 2880 = H2880_ROW, 3072 = H3072_ROW, 3584 = H3584_ROW, 4096 = H4096_ROW,
            5120 = H5120_ROW, 6144 = H6144_ROW, 7168 = H7168_ROW, 8192 = H8192_ROW, 12288 = H12288_ROW,
            16384 = H16384_ROW,
        ]);)*
    };
}

macro_rules! all {
    ($arch:expr, [$($width:literal = $forms:ident),* $(,)?]) => {
        &[$((
            $width,
            table!($arch, $width, Route::rest(&k::$forms.plain, UNTUNED)),
            table!($arch, $width, Route::rest(&k::$forms.residual, UNTUNED)),
        )),*]
    };
}

const UNTUNED: &str = "untuned: the geometry of sm_90a";

tables! {
    SM80 = Arch::Sm80;
    SM86 = Arch::Sm86;
    SM89 = Arch::Sm89;
    SM100 = Arch::Sm100;
    SM103 = Arch::Sm103;
    SM107 = Arch::Sm107;
    SM120 = Arch::Sm120;
}
