//! sm_90a, measured on an H200 (132 SMs, cold L2).
//!
//! One program serves a width while there are few rows for each SM. With more, rows of 8 KiB and more are fetched into L2
//! ahead of use, and wide rows with a residual are better shared by more threads.

use cake_core::{Arch, Route};
use cake_kernels::rmsnorm as k;

use super::{Tables, table};

const SM90: Arch = Arch::Sm90;

pub(super) static TABLES: &Tables = &[
    (
        128,
        table!(SM90, 128, Route::rest(&k::H128_ROW.plain, "T=16384: 7.1 us, copy 8.9 us")),
        table!(SM90, 128, Route::rest(&k::H128_ROW.residual, "T=16384: 9.3 us, copy 15.9 us")),
    ),
    (
        256,
        table!(SM90, 256, Route::rest(&k::H256_ROW.plain, "T=16384: 9.2 us, copy 11.3 us")),
        table!(SM90, 256, Route::rest(&k::H256_ROW.residual, "T=16384: 13.7 us, copy 20.6 us")),
    ),
    (
        512,
        table!(SM90, 512, Route::rest(&k::H512_ROW.plain, "T=65536: 37.8 us, copy 39.5 us")),
        table!(SM90, 512, Route::rest(&k::H512_ROW.residual, "T=16384: 22.3 us, copy 29.0 us")),
    ),
    (
        1024,
        table!(SM90, 1024, Route::rest(&k::H1024_ROW.plain, "T=16384: 21.5 us, copy 23.9 us")),
        table!(SM90, 1024, Route::rest(&k::H1024_ROW.residual, "T=16384: 37.4 us, copy 45.1 us")),
    ),
    (
        1536,
        table!(SM90, 1536, Route::rest(&k::H1536_ROW.plain, "T=16384: 29.2 us, copy 31.6 us")),
        table!(SM90, 1536, Route::rest(&k::H1536_ROW.residual, "T=16384: 53.8 us, copy 60.6 us")),
    ),
    (
        2048,
        table!(SM90, 2048, Route::rest(&k::H2048_ROW.plain, "T=65536: 130.3 us, copy 132.3 us")),
        table!(SM90, 2048, Route::rest(&k::H2048_ROW.residual, "T=16384: 69.4 us, copy 75.8 us")),
    ),
    (
        2560,
        table!(SM90, 2560, Route::rest(&k::H2560_ROW.plain, "T=16384: 45.0 us, copy 47.1 us")),
        table!(SM90, 2560, Route::rest(&k::H2560_ROW.residual, "T=16384: 84.7 us, copy 91.4 us")),
    ),
    (
        2880,
        table!(SM90, 2880, Route::rest(&k::H2880_ROW.plain, "T=16384: 50.3 us, copy 51.9 us")),
        table!(SM90, 2880, Route::rest(&k::H2880_ROW.residual, "T=16384: 95.7 us, copy 101.5 us")),
    ),
    (
        3072,
        table!(SM90, 3072, Route::rest(&k::H3072_ROW.plain, "T=16384: 53.2 us, copy 54.4 us")),
        table!(SM90, 3072, Route::rest(&k::H3072_ROW.residual, "T=16384: 100.7 us, copy 106.6 us")),
    ),
    (
        3584,
        table!(SM90, 3584, Route::rest(&k::H3584_ROW.plain, "T=16384: 61.1 us, copy 62.8 us")),
        table!(SM90, 3584, Route::rest(&k::H3584_ROW.residual, "T=16384: 116.5 us, copy 122.5 us")),
    ),
    (
        4096,
        table!(
            SM90,
            4096,
            Route::up_to(64, &k::H4096_ROW.plain, "T=4096: 21.6 us, copy 21.1 us"),
            Route::rest(&k::H4096_ROW.plain, "T=16384: 68.1 us, copy 68.0 us").half_rows_ahead(2)
        ),
        table!(
            SM90,
            4096,
            Route::up_to(24, &k::H4096_ROW.residual, "T=256: 7.1 us, copy 13.7 us"),
            Route::rest(&k::H4096_ROW.residual, "T=16384: 131.2 us, copy 137.5 us").half_rows_ahead(2)
        ),
    ),
    (
        5120,
        table!(
            SM90,
            5120,
            Route::up_to(64, &k::H5120_ROW.plain, "T=4096: 25.4 us, copy 27.1 us"),
            Route::rest(&k::H5120_ROW.plain, "T=16384: 83.2 us, copy 85.9 us").half_rows_ahead(2)
        ),
        table!(
            SM90,
            5120,
            Route::up_to(24, &k::H5120_ROW.residual, "T=256: 7.7 us, copy 14.6 us"),
            Route::rest(&k::H5120_ROW.residual, "T=16384: 162.1 us, copy 169.7 us").half_rows_ahead(2)
        ),
    ),
    (
        6144,
        table!(
            SM90,
            6144,
            Route::up_to(64, &k::H6144_ROW.plain, "T=4096: 29.6 us, copy 31.6 us"),
            Route::rest(&k::H6144_ROW.plain, "T=65536: 380.1 us, copy 382.6 us").half_rows_ahead(2)
        ),
        table!(
            SM90,
            6144,
            Route::up_to(24, &k::H6144_ROW.residual, "T=1024: 17.7 us, copy 20.4 us"),
            Route::rest(&k::H6144_ROW_T512.residual, "T=65536: 756.0 us, copy 760.3 us").half_rows_ahead(2)
        ),
    ),
    (
        7168,
        table!(
            SM90,
            7168,
            Route::up_to(24, &k::H7168_ROW.plain, "T=256: 7.1 us, copy 9.0 us"),
            Route::rest(&k::H7168_ROW.plain, "T=16384: 114.4 us, copy 117.3 us").half_rows_ahead(2)
        ),
        table!(
            SM90,
            7168,
            Route::up_to(24, &k::H7168_ROW.residual, "T=256: 8.5 us, copy 15.5 us"),
            Route::rest(&k::H7168_ROW_T512.residual, "T=16384: 225.0 us, copy 232.3 us").half_rows_ahead(2)
        ),
    ),
    (
        8192,
        table!(
            SM90,
            8192,
            Route::up_to(24, &k::H8192_ROW.plain, "T=256: 7.2 us, copy 8.9 us"),
            Route::rest(&k::H8192_ROW.plain, "T=16384: 130.2 us, copy 129.0 us").half_rows_ahead(2)
        ),
        table!(
            SM90,
            8192,
            Route::up_to(24, &k::H8192_ROW.residual, "T=256: 9.0 us, copy 16.1 us"),
            Route::rest(&k::H8192_ROW_T512.residual, "T=16384: 256.6 us, copy 262.7 us").half_rows_ahead(1)
        ),
    ),
    (
        12288,
        table!(
            SM90,
            12288,
            Route::up_to(24, &k::H12288_ROW.plain, "T=256: 8.2 us, copy 10.4 us"),
            Route::rest(&k::H12288_ROW.plain, "T=16384: 195.0 us, copy 195.3 us").half_rows_ahead(1)
        ),
        table!(
            SM90,
            12288,
            Route::up_to(24, &k::H12288_ROW.residual, "T=256: 11.3 us, copy 18.6 us"),
            Route::rest(&k::H12288_ROW.residual, "T=16384: 382.6 us, copy 389.5 us").half_rows_ahead(1)
        ),
    ),
    (
        16384,
        table!(
            SM90,
            16384,
            Route::up_to(24, &k::H16384_ROW.plain, "T=256: 9.1 us, copy 11.2 us"),
            Route::rest(&k::H16384_ROW.plain, "T=16384: 255.0 us, copy 258.1 us").half_rows_ahead(1)
        ),
        table!(
            SM90,
            16384,
            Route::up_to(24, &k::H16384_ROW.residual, "T=256: 12.9 us, copy 20.8 us"),
            Route::rest(&k::H16384_ROW_T1024.residual, "T=16384: 503.7 us, copy 512.7 us").half_rows_ahead(1)
        ),
    ),
];
