//! Routes for every width and layout: a warp for each row.

use cake_core::{Arch, Route, RouteTable};
use cake_kernels::silu_gate as k;

use crate::{Activation, Spec};

/// The table for a form. Every architecture runs these kernels.
pub(super) fn forward(spec: &Spec) -> &'static RouteTable {
    match (spec.activation, spec.gate_first) {
        (Activation::Silu, false) => &FORWARD,
        (Activation::Sigmoid, false) => &FORWARD_SIGMOID,
        (Activation::Silu, true) => &FORWARD_FIRST,
        (Activation::Sigmoid, true) => &FORWARD_FIRST_SIGMOID,
    }
}

static FORWARD: RouteTable = one(&[Route::rest(&k::ANY_SCAN, REST)]);
static FORWARD_SIGMOID: RouteTable = one(&[Route::rest(&k::ANY_SCAN_SIGMOID, REST)]);
static FORWARD_FIRST: RouteTable = one(&[Route::rest(&k::ANY_SCAN_FIRST, REST)]);
static FORWARD_FIRST_SIGMOID: RouteTable = one(&[Route::rest(&k::ANY_SCAN_FIRST_SIGMOID, REST)]);

/// As [`forward`], for the backward.
pub(super) fn backward(spec: &Spec) -> &'static RouteTable {
    match (spec.activation, spec.gate_first) {
        (Activation::Silu, false) => &BACKWARD,
        (Activation::Sigmoid, false) => &BACKWARD_SIGMOID,
        (Activation::Silu, true) => &BACKWARD_FIRST,
        (Activation::Sigmoid, true) => &BACKWARD_FIRST_SIGMOID,
    }
}

static BACKWARD: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN, REST)]);
static BACKWARD_SIGMOID: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN_SIGMOID, REST)]);
static BACKWARD_FIRST: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN_FIRST, REST)]);
static BACKWARD_FIRST_SIGMOID: RouteTable = one(&[Route::rest(&k::ANY_BWD_SCAN_FIRST_SIGMOID, REST)]);

const REST: &str = "serves what no tuned program can";

const fn one(routes: &'static [Route]) -> RouteTable {
    RouteTable::new(Arch::Sm80, None, routes)
}
