//! When each program is used: tables by architecture, width and form.

mod any;
mod backward;
mod forward;

use cake_core::{Arch, RouteTable};

use crate::{BackwardSpec, Spec};

/// The tables of an architecture: for each width and form that has programs of its own, one.
type Tables = [(u32, &'static str, RouteTable)];

/// The table that serves a specification on an architecture: with `vectors` the one of its width and form, if there is
/// one; otherwise the one for any width and layout.
pub fn forward(spec: &Spec, arch: Arch, vectors: bool) -> &'static RouteTable {
    find(forward::tables(arch), spec, vectors).unwrap_or_else(|| any::forward(spec))
}

/// The same for the backward.
pub fn backward(spec: &BackwardSpec, arch: Arch, vectors: bool) -> &'static RouteTable {
    find(backward::tables(arch), &spec.norm, vectors).unwrap_or_else(|| any::backward(&spec.norm))
}

fn find(tables: &'static Tables, spec: &Spec, vectors: bool) -> Option<&'static RouteTable> {
    let own = |(width, form, _): &&(u32, &str, RouteTable)| vectors && *width == spec.width && *form == spec.form();
    tables.iter().find(own).map(|(.., table)| table)
}

/// A static table, checked when it compiles: a width's and form's place in [`Tables`].
macro_rules! table {
    ($arch:expr, $width:expr, $form:expr, $($route:expr),+) => {{
        static ROUTES: &[cake_core::Route] = &[$($route),+];
        ($width, $form, cake_core::RouteTable::new($arch, Some($width), ROUTES))
    }};
}
use table;
