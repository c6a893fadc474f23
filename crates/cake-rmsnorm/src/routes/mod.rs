//! When each program is used: tables by architecture, width and form.
//!
//! sm_90a is tuned and measured on an H200. Every other architecture starts from the same geometry, untuned: none of its
//! boards has been measured.

mod any;
mod backward;
mod sm90;
mod untuned;

use cake_core::{Arch, RouteTable, Shape};

use crate::{BackwardSpec, Spec};

/// The tuned tables of an architecture: for each width one without and one with a residual.
type Tables = [(u32, RouteTable, RouteTable)];

const fn tables(arch: Arch) -> &'static Tables {
    match arch {
        Arch::Sm80 => untuned::SM80,
        Arch::Sm86 => untuned::SM86,
        Arch::Sm89 => untuned::SM89,
        Arch::Sm90 => sm90::TABLES,
        Arch::Sm100 => untuned::SM100,
        Arch::Sm103 => untuned::SM103,
        Arch::Sm107 => untuned::SM107,
        Arch::Sm120 => untuned::SM120,
    }
}

/// The table that serves a specification on an architecture: with `vectors` the one of its width, if there is one;
/// otherwise the one for any width and layout.
pub fn forward(spec: &Spec, arch: Arch, vectors: bool) -> &'static RouteTable {
    let own = tables(arch).iter().find(|(width, ..)| vectors && *width == spec.width);
    match (own, spec.residual) {
        (Some((_, plain, _)), false) => plain,
        (Some((_, _, residual)), true) => residual,
        (None, residual) => any::table(spec.width, residual),
    }
}

/// The same for the backward. Its programs differ in what they are good for: `split` computes `dx` alone, and both
/// gradients of few rows, but for `dw` it takes `dy` as unchanged and all SMs; `walk` does without. Both take `rstd` as given.
pub fn backward(spec: &BackwardSpec, arch: Arch, shape: Shape) -> &'static RouteTable {
    let residual = spec.norm.residual && spec.dx;
    // Without a weight there is no `walk`, so a limit on SMs is kept by the programs for any width.
    let tuned = shape.vectors && spec.rstd && (spec.norm.weight.is_some() || spec.max_sms.is_none());
    let own = backward::tables(arch).iter().find(|tables| tuned && tables.width == spec.norm.width);
    let Some(tables) = own else { return any::backward(spec.norm.width, residual) };
    let needs = if residual { &tables.residual } else { &tables.plain };
    if spec.max_sms.is_some() {
        &needs.walk
    } else if spec.dw.is_none() {
        &needs.alone
    } else if !shape.in_place {
        &needs.both
    } else {
        &needs.walk
    }
}

/// A static table, checked when it compiles.
macro_rules! table {
    ($arch:expr, $width:expr, $($route:expr),+) => {{
        static ROUTES: &[cake_core::Route] = &[$($route),+];
        cake_core::RouteTable::new($arch, Some($width), ROUTES)
    }};
}
use table;
