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
        table!(SM90, 128, Route::rest(&k::H128_ROW.plain, "@128p")),
        table!(SM90, 128, Route::rest(&k::H128_ROW.residual, "@128r")),
    ),
    (
        256,
        table!(SM90, 256, Route::rest(&k::H256_ROW.plain, "@256p")),
        table!(SM90, 256, Route::rest(&k::H256_ROW.residual, "@256r")),
    ),
    (
        512,
        table!(SM90, 512, Route::rest(&k::H512_ROW.plain, "@512p")),
        table!(SM90, 512, Route::rest(&k::H512_ROW.residual, "@512r")),
    ),
    (
        1024,
        table!(SM90, 1024, Route::rest(&k::H1024_ROW.plain, "@1024p")),
        table!(SM90, 1024, Route::rest(&k::H1024_ROW.residual, "@1024r")),
    ),
    (
        1536,
        table!(SM90, 1536, Route::rest(&k::H1536_ROW.plain, "@1536p")),
        table!(SM90, 1536, Route::rest(&k::H1536_ROW.residual, "@1536r")),
    ),
    (
        2048,
        table!(SM90, 2048, Route::rest(&k::H2048_ROW.plain, "@2048p")),
        table!(SM90, 2048, Route::rest(&k::H2048_ROW.residual, "@2048r")),
    ),
    (
        2560,
        table!(SM90, 2560, Route::rest(&k::H2560_ROW.plain, "@2560p")),
        table!(SM90, 2560, Route::rest(&k::H2560_ROW.residual, "@2560r")),
    ),
    (
        2880,
        table!(SM90, 2880, Route::rest(&k::H2880_ROW.plain, "@2880p")),
        table!(SM90, 2880, Route::rest(&k::H2880_ROW.residual, "@2880r")),
    ),
    (
        3072,
        table!(SM90, 3072, Route::rest(&k::H3072_ROW.plain, "@3072p")),
        table!(SM90, 3072, Route::rest(&k::H3072_ROW.residual, "@3072r")),
    ),
    (
        3584,
        table!(SM90, 3584, Route::rest(&k::H3584_ROW.plain, "@3584p")),
        table!(SM90, 3584, Route::rest(&k::H3584_ROW.residual, "@3584r")),
    ),
    (
        4096,
        table!(
            SM90,
            4096,
            Route::up_to(64, &k::H4096_ROW.plain, "@4096ps"),
            Route::rest(&k::H4096_ROW.plain, "@4096p").ahead(2)
        ),
        table!(
            SM90,
            4096,
            Route::up_to(24, &k::H4096_ROW.residual, "@4096rs"),
            Route::rest(&k::H4096_ROW.residual, "@4096r").ahead(2)
        ),
    ),
    (
        5120,
        table!(
            SM90,
            5120,
            Route::up_to(64, &k::H5120_ROW.plain, "@5120ps"),
            Route::rest(&k::H5120_ROW.plain, "@5120p").ahead(2)
        ),
        table!(
            SM90,
            5120,
            Route::up_to(24, &k::H5120_ROW.residual, "@5120rs"),
            Route::rest(&k::H5120_ROW.residual, "@5120r").ahead(2)
        ),
    ),
    (
        6144,
        table!(
            SM90,
            6144,
            Route::up_to(64, &k::H6144_ROW.plain, "@6144ps"),
            Route::rest(&k::H6144_ROW.plain, "@6144p").ahead(2)
        ),
        table!(
            SM90,
            6144,
            Route::up_to(24, &k::H6144_ROW.residual, "@6144rs"),
            Route::rest(&k::H6144_ROW_T512.residual, "@6144r").ahead(2)
        ),
    ),
    (
        7168,
        table!(
            SM90,
            7168,
            Route::up_to(24, &k::H7168_ROW.plain, "@7168ps"),
            Route::rest(&k::H7168_ROW.plain, "@7168p").ahead(2)
        ),
        table!(
            SM90,
            7168,
            Route::up_to(24, &k::H7168_ROW.residual, "@7168rs"),
            Route::rest(&k::H7168_ROW_T512.residual, "@7168r").ahead(2)
        ),
    ),
    (
        8192,
        table!(
            SM90,
            8192,
            Route::up_to(24, &k::H8192_ROW.plain, "@8192ps"),
            Route::rest(&k::H8192_ROW.plain, "@8192p").ahead(2)
        ),
        table!(
            SM90,
            8192,
            Route::up_to(24, &k::H8192_ROW.residual, "@8192rs"),
            Route::rest(&k::H8192_ROW_T512.residual, "@8192r").ahead(1)
        ),
    ),
    (
        12288,
        table!(
            SM90,
            12288,
            Route::up_to(24, &k::H12288_ROW.plain, "@12288ps"),
            Route::rest(&k::H12288_ROW.plain, "@12288p").ahead(1)
        ),
        table!(
            SM90,
            12288,
            Route::up_to(24, &k::H12288_ROW.residual, "@12288rs"),
            Route::rest(&k::H12288_ROW.residual, "@12288r").ahead(1)
        ),
    ),
    (
        16384,
        table!(
            SM90,
            16384,
            Route::up_to(24, &k::H16384_ROW.plain, "@16384ps"),
            Route::rest(&k::H16384_ROW.plain, "@16384p").ahead(1)
        ),
        table!(
            SM90,
            16384,
            Route::up_to(24, &k::H16384_ROW.residual, "@16384rs"),
            Route::rest(&k::H16384_ROW_T1024.residual, "@16384r").ahead(1)
        ),
    ),
];
