//! sm_90a, measured on an H200 (132 SMs, cold L2).
//!
//! One program serves a width while there are few rows for each SM. With more, rows of 8 KiB and more are fetched into L2
//! ahead of use, and wide rows with a residual are better shared by more threads.

use cake_core::{Arch, Route};
use cake_kernels::rmsnorm as k;

use super::{Tables, table};

const SM90: Arch = Arch::Sm90;

/// A width that one program serves: evidence without and with a residual.
macro_rules! one {
    ($width:literal, $forms:ident, $plain:literal, $residual:literal) => {
        (
            $width,
            table!(SM90, $width, Route::rest(&k::$forms.plain, $plain)),
            table!(SM90, $width, Route::rest(&k::$forms.residual, $residual)),
        )
    };
}

/// A width with two windows, without and with a residual: a program up to some rows for each SM; and beyond them one that
/// fetches some half rows for each SM ahead.
macro_rules! two {
    (
        $width:literal,
        [$few:ident to $rows:literal, $a:literal; $many:ident ahead $ahead:literal, $b:literal],
        [$few_res:ident to $rows_res:literal, $c:literal; $many_res:ident ahead $ahead_res:literal, $d:literal]
    ) => {
        (
            $width,
            table!(
                SM90,
                $width,
                Route::up_to($rows, &k::$few.plain, $a),
                Route::rest(&k::$many.plain, $b).half_rows_ahead($ahead)
            ),
            table!(
                SM90,
                $width,
                Route::up_to($rows_res, &k::$few_res.residual, $c),
                Route::rest(&k::$many_res.residual, $d).half_rows_ahead($ahead_res)
            ),
        )
    };
}

#[rustfmt::skip]
pub(super) static TABLES: &Tables = &[
    one!(128, H128_ROW, "T=16384: 7.1 us, copy 8.9 us", "T=16384: 9.3 us, copy 15.9 us"),
    one!(256, H256_ROW, "T=16384: 9.2 us, copy 11.3 us", "T=16384: 13.7 us, copy 20.6 us"),
    one!(512, H512_ROW, "T=65536: 37.8 us, copy 39.5 us", "T=16384: 22.3 us, copy 29.0 us"),
    one!(1024, H1024_ROW, "T=16384: 21.5 us, copy 23.9 us", "T=16384: 37.4 us, copy 45.1 us"),
    one!(1536, H1536_ROW, "T=16384: 29.2 us, copy 31.6 us", "T=16384: 53.8 us, copy 60.6 us"),
    one!(2048, H2048_ROW, "T=65536: 130.3 us, copy 132.3 us", "T=16384: 69.4 us, copy 75.8 us"),
    one!(2560, H2560_ROW, "T=16384: 45.0 us, copy 47.1 us", "T=16384: 84.7 us, copy 91.4 us"),
    one!(2880, H2880_ROW, "T=16384: 50.3 us, copy 51.9 us", "T=16384: 95.7 us, copy 101.5 us"),
    one!(3072, H3072_ROW, "T=16384: 53.2 us, copy 54.4 us", "T=16384: 100.7 us, copy 106.6 us"),
    one!(3584, H3584_ROW, "T=16384: 61.1 us, copy 62.8 us", "T=16384: 116.5 us, copy 122.5 us"),
    two!(4096,
        [H4096_ROW to 64, "T=4096: 21.6 us, copy 21.1 us"; H4096_ROW ahead 2, "T=16384: 68.1 us, copy 68.0 us"],
        [H4096_ROW to 24, "T=256: 7.1 us, copy 13.7 us"; H4096_ROW ahead 2, "T=16384: 131.2 us, copy 137.5 us"]
    ),
    two!(5120,
        [H5120_ROW to 64, "T=4096: 25.4 us, copy 27.1 us"; H5120_ROW ahead 2, "T=16384: 83.2 us, copy 85.9 us"],
        [H5120_ROW to 24, "T=256: 7.7 us, copy 14.6 us"; H5120_ROW ahead 2, "T=16384: 162.1 us, copy 169.7 us"]
    ),
    two!(6144,
        [H6144_ROW to 64, "T=4096: 29.6 us, copy 31.6 us"; H6144_ROW ahead 2, "T=65536: 380.1 us, copy 382.6 us"],
        [H6144_ROW to 24, "T=1024: 17.7 us, copy 20.4 us"; H6144_ROW_T512 ahead 2, "T=65536: 756.0 us, copy 760.3 us"]
    ),
    two!(7168,
        [H7168_ROW to 24, "T=256: 7.1 us, copy 9.0 us"; H7168_ROW ahead 2, "T=16384: 114.4 us, copy 117.3 us"],
        [H7168_ROW to 24, "T=256: 8.5 us, copy 15.5 us"; H7168_ROW_T512 ahead 2, "T=16384: 225.0 us, copy 232.3 us"]
    ),
    two!(8192,
        [H8192_ROW to 24, "T=256: 7.2 us, copy 8.9 us"; H8192_ROW ahead 2, "T=16384: 130.2 us, copy 129.0 us"],
        [H8192_ROW to 24, "T=256: 9.0 us, copy 16.1 us"; H8192_ROW_T512 ahead 1, "T=16384: 256.6 us, copy 262.7 us"]
    ),
    two!(12288,
        [H12288_ROW to 24, "T=256: 8.2 us, copy 10.4 us"; H12288_ROW ahead 1, "T=16384: 195.0 us, copy 195.3 us"],
        [H12288_ROW to 24, "T=256: 11.3 us, copy 18.6 us"; H12288_ROW ahead 1, "T=16384: 382.6 us, copy 389.5 us"]
    ),
    two!(16384,
        [H16384_ROW to 24, "T=256: 9.1 us, copy 11.2 us"; H16384_ROW ahead 1, "T=16384: 255.0 us, copy 258.1 us"],
        [H16384_ROW to 24, "T=256: 12.9 us, copy 20.8 us"; H16384_ROW_T1024 ahead 1, "T=16384: 503.7 us, copy 512.7 us"]
    ),
];
