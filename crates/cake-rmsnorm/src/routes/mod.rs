//! When each program is used: one table for each architecture, width and fusion.

mod any;
mod sm90;

use cake_core::{Arch, RouteTable};

use crate::Spec;

/// The tuned tables of an architecture: for each width one without and one with a residual.
type Tuned = &'static [(u32, RouteTable, RouteTable)];

/// The tuned tables of an architecture.
fn tuned(arch: Arch) -> Tuned {
    match arch {
        Arch::Sm90 => sm90::TUNED,
        // Start values: the geometry that the H200 prefers, untuned here.
        Arch::Sm80 | Arch::Sm86 | Arch::Sm89 | Arch::Sm100 | Arch::Sm103 | Arch::Sm107 | Arch::Sm120 => sm90::TUNED,
    }
}

/// The table that serves a specification on an architecture: with `vectors` the tuned one of its width, if there is
/// one; otherwise the one for any width and layout.
pub fn forward(spec: &Spec, arch: Arch, vectors: bool) -> &'static RouteTable {
    let own = tuned(arch).iter().find(|(width, ..)| vectors && *width == spec.width);
    match (own, spec.residual) {
        (Some((_, plain, _)), false) => plain,
        (Some((_, _, residual)), true) => residual,
        (None, residual) => any::table(spec.width, residual),
    }
}
