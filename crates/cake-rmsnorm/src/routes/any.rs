//! Routes for every width and layout: a warp for each narrow row, a CTA for each wide one.

use cake_core::{Arch, Route, RouteTable};
use cake_kernels::rmsnorm as k;

/// Widest row that a warp takes on: 8 units of 8 elements for each lane, one batch of the schedule.
const NARROW: u32 = 2048;

/// The table for rows of `width` elements. Every architecture runs these kernels.
pub(super) fn table(width: u32, residual: bool) -> &'static RouteTable {
    match (width <= NARROW, residual) {
        (true, false) => &WARP,
        (true, true) => &WARP_RESIDUAL,
        (false, false) => &ROW,
        (false, true) => &ROW_RESIDUAL,
    }
}

static WARP: RouteTable = one(&[Route::rest(&k::ANY_SCAN_WARP.plain, UNTUNED)]);
static WARP_RESIDUAL: RouteTable = one(&[Route::rest(&k::ANY_SCAN_WARP.residual, UNTUNED)]);
static ROW: RouteTable = one(&[Route::rest(&k::ANY_SCAN.plain, UNTUNED)]);
static ROW_RESIDUAL: RouteTable = one(&[Route::rest(&k::ANY_SCAN.residual, UNTUNED)]);

/// As [`table`], for the backward.
pub(super) fn backward(width: u32, residual: bool) -> &'static RouteTable {
    match (width <= NARROW, residual) {
        (true, false) => &BACKWARD_WARP,
        (true, true) => &BACKWARD_WARP_RESIDUAL,
        (false, false) => &BACKWARD_ROW,
        (false, true) => &BACKWARD_ROW_RESIDUAL,
    }
}

static BACKWARD_WARP: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN_WARP.plain, UNTUNED)]);
static BACKWARD_WARP_RESIDUAL: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN_WARP.residual, UNTUNED)]);
static BACKWARD_ROW: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN.plain, UNTUNED)]);
static BACKWARD_ROW_RESIDUAL: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN.residual, UNTUNED)]);

const UNTUNED: &str = "serves what no tuned program can";

const fn one(routes: &'static [Route]) -> RouteTable {
    RouteTable::new(Arch::Sm80, None, routes)
}
