//! The matrix: groups of cases, each group with its reason. A group is one test of `tests/device.rs`.

pub mod backward;
pub mod gate;

use cake_core::{Arch, DeviceInfo, Dtype, Op, Shape};
use cake_rmsnorm::{RmsNormForward, Spec};

use super::layout::Layout;
use super::shapes::{ANY, NARROW, ROWS, TUNED, UNTUNED, WIDE};
use super::values::{Values, Weights};
use super::{ALIGNED, Case, Form, Layouts};

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Every group, small: under a minute on two cores.
    Quick,
    /// Every size: minutes on a GPU.
    Full,
}

impl Profile {
    /// Most elements of an activation.
    pub const fn most_elements(self) -> u64 {
        match self {
            Profile::Quick => 1 << 20,
            Profile::Full => 1 << 28,
        }
    }

    /// Its name on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Full => "full",
        }
    }

    /// `quick` or `full`, whichever holds.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Profile::Quick => quick,
            Profile::Full => full,
        }
    }
}

/// Cases that are tried for the same reason.
#[derive(Clone, Debug)]
pub struct Group<C = Case> {
    /// Unique; a path like `rows/h6144`.
    pub name: String,
    /// What would be found.
    pub why: &'static str,
    /// The cases.
    pub cases: Vec<C>,
    /// Whether every program that can serve a case is tried, or the routed one alone.
    pub forced: bool,
}

/// Every group. `device` adds the edges of the row windows that its routes have.
pub fn all(profile: Profile, device: Option<&DeviceInfo>) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut add = |name: String, why, mut cases: Vec<Case>| {
        cases.retain(|case| case.elements() <= profile.most_elements());
        groups.push(Group { name, why, cases, forced: true });
    };
    for width in TUNED.into_iter().chain(ANY) {
        add(format!("rows/h{width}"), "tiles begin and end inside a call", rows(width, profile));
    }
    for (name, widths) in [("tuned", &TUNED[..]), ("narrow", &NARROW), ("untuned", &UNTUNED), ("wide", &WIDE)] {
        add(format!("widths/{name}"), "tails of units, groups and rows; rows at odd addresses", forms(widths));
    }
    for (values, why) in Values::ALL {
        add(format!("values/{}", word(values)), why, of_values(values));
    }
    for (weights, why) in Weights::ALL {
        add(format!("weights/{}", word(weights)), why, of_weights(weights));
    }
    add("eps".into(), "eps outside the root, dropped, or lost against the mean", of_eps());
    for tensor in TENSORS {
        let why = "strides and offsets of this tensor are used in every pass over it";
        add(format!("layouts/{}", tensor.name), why, of_layouts(tensor, profile));
    }
    add("layouts/pairs".into(), "the strides of one tensor are used for another", pairs());
    add("layouts/levels".into(), "rows that do not fold into one pitch; ranks 1 to 7; single elements", levels());
    add("in_place".into(), "an element is written before it is read", in_place());
    add("no_rows".into(), "a launch of zero rows", no_rows());
    add("many_rows".into(), "row numbers beyond 65535 in a dimension of the grid", many_rows());
    if let Some(device) = device {
        for width in TUNED {
            let cases = windows(width, device);
            if !cases.is_empty() {
                let why = "another program, or another distance of prefetching, from one row to the next";
                groups.push(Group { name: format!("windows/h{width}"), why, cases, forced: false });
            }
        }
    }
    groups
}

fn rows(width: u32, profile: Profile) -> Vec<Case> {
    let of_rows = |rows| Form::COMMON.map(|form| Case::new(rows, width).form(form));
    affordable_rows(width, profile).flat_map(of_rows).collect()
}

fn affordable_rows(width: u32, profile: Profile) -> impl Iterator<Item = u64> {
    ROWS.into_iter().filter(move |rows| profile == Profile::Full || rows * u64::from(width) <= 1 << 19)
}

/// Numbers of rows on both sides of each edge between two routes, and one far into the last. Large ones are tried by
/// every profile: no smaller case reaches these routes.
fn windows(width: u32, device: &DeviceInfo) -> Vec<Case> {
    let mut cases = Vec::new();
    for form in Form::COMMON {
        let spec = Spec { width, ..form.spec() };
        let rows = window_edges::<RmsNormForward>(&spec, device, ALIGNED);
        cases.extend(rows.map(|rows| Case::new(rows, width).form(form)));
    }
    cases.retain(|case| case.elements() <= Profile::Full.most_elements());
    cases
}

/// The last number of rows of each window, and the first of the next; then one far into the last window.
fn window_edges<O: Op>(spec: &O::Spec, device: &DeviceInfo, shape: Shape) -> impl Iterator<Item = u64> {
    let routes = O::routes(spec, device.arch, shape).routes();
    let bounded = routes.iter().filter(|route| route.rows_per_sm != u32::MAX);
    let edges = bounded.map(|route| u64::from(route.rows_per_sm) * u64::from(device.sms));
    let edges: Vec<u64> = edges.flat_map(|edge| [edge, edge + 1]).collect();
    let beyond = edges.last().map(|edge| edge + edge / 2 + 3);
    edges.into_iter().chain(beyond)
}

fn forms(widths: &[u32]) -> Vec<Case> {
    let of_width = |&width: &u32| {
        let rows: &[u64] = if width > 16384 { &[1, 3] } else { &[1, 7, 67] };
        rows.iter().flat_map(move |&rows| Form::ALL.map(|form| Case::new(rows, width).form(form)))
    };
    let without_rstd = |&width: &u32| Form::COMMON.map(|form| Case { rstd: false, ..Case::new(5, width).form(form) });
    widths.iter().flat_map(of_width).chain(widths.iter().flat_map(without_rstd)).collect()
}

const SOME_WIDTHS: [u32; 6] = [7, 128, 1000, 2048, 6144, 16384];

fn of_values(values: Values) -> Vec<Case> {
    let mut cases = Vec::new();
    for width in SOME_WIDTHS {
        for (i, form) in Form::ALL.into_iter().enumerate() {
            let eps = [1e-6, 0.0, 1e-12, 1e-5][i % 4];
            cases.push(Case { values, eps, ..Case::new(19, width).form(form) });
        }
    }
    cases
}

fn of_weights(weights: Weights) -> Vec<Case> {
    let forms = Form::ALL.into_iter().filter(|form| form.weight.is_some());
    let case = |width, form| Case { weights, ..Case::new(5, width).form(form) };
    forms.flat_map(|form| SOME_WIDTHS.map(|width| case(width, form))).collect()
}

fn of_eps() -> Vec<Case> {
    let mut cases = Vec::new();
    for eps in [0.0, -0.0, 1e-45, 1e-38, 1e-12, 1e-6, 1e-5, 1e-2, 1.0, 1e6, f32::MAX] {
        for values in [Values::Normal, Values::Small, Values::Tiny, Values::ZeroRows, Values::Spiky, Values::Huge] {
            for width in [1, 128, 1000, 4096] {
                let form = Form::COMMON[width as usize / 128 % 2];
                cases.push(Case { eps, values, ..Case::new(8, width).form(form) });
            }
        }
    }
    cases
}

/// Layouts in which elements are apart, for inputs and outputs.
const APART: [Layout; 17] = [
    Layout::Contiguous,
    Layout::Offset(1),
    Layout::Offset(2),
    Layout::Offset(3),
    Layout::Offset(4),
    Layout::Offset(8),
    Layout::Gap(1),
    Layout::Gap(4),
    Layout::Gap(8),
    Layout::Gap(64),
    Layout::Pitch(2),
    Layout::Pitch(3),
    Layout::Slice(3),
    Layout::Slice(8),
    Layout::Every(2),
    Layout::Transposed,
    Layout::Swapped,
];

/// Layouts of inputs only.
const EXPANDED: [Layout; 3] = [Layout::OneRow, Layout::OneOuter, Layout::OneColumn];

/// Layouts that are tried in pairs.
const SEVEN: [Layout; 7] = [
    Layout::Contiguous,
    Layout::Offset(1),
    Layout::Gap(8),
    Layout::Pitch(3),
    Layout::Every(2),
    Layout::Transposed,
    Layout::Swapped,
];

#[derive(Clone, Copy)]
struct Tensor {
    name: &'static str,
    set: fn(&mut Layouts, Layout),
    input: bool,
}

const TENSORS: [Tensor; 8] = [
    Tensor { name: "x", set: |layouts, layout| layouts.x = layout, input: true },
    Tensor { name: "residual", set: |layouts, layout| layouts.residual = layout, input: true },
    Tensor { name: "y", set: |layouts, layout| layouts.y = layout, input: false },
    Tensor { name: "h", set: |layouts, layout| layouts.h = layout, input: false },
    Tensor { name: "rstd", set: |layouts, layout| layouts.rstd = layout, input: false },
    Tensor { name: "weight", set: |layouts, layout| layouts.weight = layout, input: true },
    Tensor { name: "together", set: |layouts, layout| *layouts = Layouts::all(layout), input: false },
    Tensor {
        name: "inputs",
        set: |layouts, layout| (layouts.x, layouts.residual, layouts.weight) = (layout, layout, layout),
        input: true,
    },
];

fn of_layouts(tensor: Tensor, profile: Profile) -> Vec<Case> {
    let widths = profile.pick(&[100, 128, 2048, 6144][..], &[3, 100, 1000, 1152, 65536]).iter();
    let tuned = profile.pick(&[][..], &TUNED).iter();
    let layouts = APART.into_iter().chain(EXPANDED.into_iter().filter(|_| tensor.input));
    let mut cases = Vec::new();
    for (i, &width) in widths.chain(tuned).enumerate() {
        for layout in layouts.clone() {
            let weight = [Some(Dtype::Bf16), Some(Dtype::F32)][i % 2];
            for residual in [false, true] {
                if !residual && matches!(tensor.name, "residual" | "h") {
                    continue;
                }
                let lead = if width > 16384 { vec![2, 3] } else { vec![5, 7] };
                let form = Form { weight, offset: false, residual };
                let mut case = Case { lead, ..Case::new(35, width).form(form) };
                (tensor.set)(&mut case.layouts, layout);
                cases.push(case);
            }
        }
    }
    cases
}

fn pairs() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [64, 100, 512, 4096] {
        for inner in SEVEN {
            for outer in SEVEN {
                let plain = Case { lead: vec![3, 4], ..Case::new(12, width).form(Form::COMMON[0]) };
                let layouts = Layouts { x: inner, y: outer, ..Layouts::default() };
                cases.push(Case { layouts, ..plain.clone() });
                let layouts = Layouts { residual: inner, h: outer, rstd: outer, ..Layouts::default() };
                cases.push(Case { layouts, ..plain.form(Form::COMMON[1]) });
            }
        }
    }
    cases
}

fn levels() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut with_every_tensor = |lead: &[u64], width, layout| {
        for form in Form::COMMON {
            for tensor in TENSORS.iter().filter(|tensor| !matches!(tensor.name, "rstd" | "weight")) {
                let mut layouts = Layouts::default();
                (tensor.set)(&mut layouts, layout);
                // Explicit strides are those of rows.
                (layouts.rstd, layouts.weight) = (Layout::Contiguous, Layout::Contiguous);
                cases.push(Case { lead: lead.to_vec(), layouts, ..Case::new(1, width).form(form) });
            }
        }
    };
    // Queries of a fused qkv projection, and of one with 3 widths a row.
    with_every_tensor(&[9, 32], 128, Layout::Strides(&[6144, 128]));
    with_every_tensor(&[2, 257], 1200, Layout::Strides(&[925_200, 3600]));
    // A size of 1 has no stride.
    with_every_tensor(&[1, 5], 128, Layout::Strides(&[1 << 40, 128]));
    with_every_tensor(&[5, 1], 6144, Layout::Strides(&[6144, 1 << 40]));
    with_every_tensor(&[1], 128, Layout::Strides(&[i64::MAX]));
    for lead in [&[][..], &[3], &[2, 3, 5], &[4, 1, 1], &[1, 7], &[2, 3, 2, 2, 1, 3], &[2, 1, 2, 2, 3, 2]] {
        for width in [96, 128, 256] {
            for layout in [Layout::Contiguous, Layout::Transposed, Layout::Swapped, Layout::Gap(8), Layout::Every(3)] {
                with_every_tensor(lead, width, layout);
            }
        }
    }
    cases
}

fn in_place() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [7, 128, 1000, 2048, 5120, 6144, 16384, 32768] {
        for layout in [Layout::Contiguous, Layout::Offset(1), Layout::Gap(8), Layout::Every(2), Layout::Transposed] {
            for (y_over_x, h_over_residual) in [(true, false), (false, true), (true, true)] {
                let form = Form::COMMON[usize::from(h_over_residual || width % 2 == 0)];
                let layouts = Layouts::all(layout);
                cases.push(Case { layouts, y_over_x, h_over_residual, ..Case::new(13, width).form(form) });
                cases.push(Case { y_over_x, h_over_residual, ..Case::new(300, width).form(form) });
            }
        }
    }
    cases
}

fn no_rows() -> Vec<Case> {
    let shapes: [(&[u64], u32); 5] = [(&[0], 2520), (&[3, 0], 128), (&[0], 1), (&[0, 5], 6144), (&[0], 16384)];
    let of_shape = |(lead, width): (&[u64], u32)| {
        Form::ALL.map(|form| Case { lead: lead.to_vec(), ..Case::new(0, width).form(form) })
    };
    shapes.into_iter().flat_map(of_shape).collect()
}

fn many_rows() -> Vec<Case> {
    let mut cases = Vec::new();
    for rows in [65535, 65536, 65537, 131072, 1_000_000] {
        for width in [1, 8, 128] {
            let form = Form::COMMON[rows as usize % 2];
            cases.push(Case { distinct: 251, ..Case::new(rows, width).form(form) });
        }
    }
    cases.push(Case { distinct: 251, lead: vec![10923, 6], ..Case::new(1, 128) });
    cases
}

/// An enum's name as a word of a test name.
fn word(name: impl std::fmt::Debug) -> String {
    let mut word = String::new();
    for (i, c) in format!("{name:?}").chars().enumerate() {
        if c.is_uppercase() && i > 0 {
            word.push('_');
        }
        word.push(c.to_ascii_lowercase());
    }
    word
}

/// The specifications that the cases use on an architecture, for tests that ask whether each kernel has a case.
pub fn specs(profile: Profile, arch: Arch) -> Vec<Spec> {
    let mut specs: Vec<Spec> = Vec::new();
    for case in all(profile, Some(&DeviceInfo::typical(arch))).into_iter().flat_map(|group| group.cases) {
        if case.rows() > 0 && !specs.contains(&case.spec) {
            specs.push(case.spec);
        }
    }
    specs
}
