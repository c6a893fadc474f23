//! The groups of the gated norm.

use cake_core::{Arch, DeviceInfo, Dtype};
use cake_silu_gate::{BackwardSpec, SiluGateBackward, SiluGateForward, Spec};

use super::{APART, EXPANDED, Group, Profile, SEVEN, Tensor, affordable_rows, window_edges};
use crate::cases::gate::{GateBackwardCase, GateCase, GateForm};
use crate::cases::layout::Layout;
use crate::cases::shapes::{GATED, NARROW};
use crate::cases::values::{Values, Weights};
use crate::cases::{ALIGNED, Case, Layouts};

/// Every group of the forward. `device` adds the edges of the row windows that its routes have.
pub fn forward(profile: Profile, device: Option<&DeviceInfo>) -> Vec<Group<GateCase>> {
    let case = |norm: Case, form, gates| GateCase { form, gates, ..GateCase::of(norm) };
    let mut groups = Groups::new("gate", profile);
    groups.add("rows", ROWS_WHY, GATED.into_iter().flat_map(|width| of_rows(width, profile, case)).collect());
    groups.add("widths", WIDTHS_WHY, of_widths(case));
    groups.add("values", VALUES_WHY, families(case));
    groups.add("z", Z_WHY, of_gates(case));
    groups.add("eps", EPS_WHY, of_eps(case));
    let tensors = TENSORS.into_iter().filter(|tensor| tensor.forward);
    let layouts = tensors.clone().flat_map(|of| of_layouts(&of.tensor, profile, case));
    groups.add("layouts", LAYOUTS_WHY, layouts.collect());
    let pair = |inner, outer| {
        [
            Layouts { x: inner, z: outer, ..Layouts::default() },
            Layouts { z: inner, y: outer, rstd: outer, ..Layouts::default() },
        ]
    };
    groups.add("pairs", PAIRS_WHY, pairs(pair, case));
    let rows: Vec<Tensor> = tensors.map(|of| of.tensor).filter(|of| !matches!(of.name, "rstd" | "weight")).collect();
    groups.add("heads", HEADS_WHY, heads(&rows, case));
    groups.add("in_place", "an element of x or z is written before it is read", in_place());
    groups.add("no_rows", "a launch of zero rows", no_rows(case));
    groups.add("many_rows", "row numbers beyond 65535 in a dimension of the grid", many_rows(case));
    if let Some(device) = device {
        let rows = |case: &GateCase| window_edges::<SiluGateForward>(&case.spec(), device, ALIGNED).collect();
        groups.add_windows(of_windows(case, rows));
    }
    groups.all
}

/// Every group of the backward.
pub fn backward(profile: Profile, device: Option<&DeviceInfo>) -> Vec<Group<GateBackwardCase>> {
    let of = |norm: Case, form, gates| {
        let forward = GateCase { form, gates, ..GateCase::of(norm) };
        GateBackwardCase::of(forward)
    };
    // From the inputs alone, as is usual.
    let case = |norm, form, gates| of(Case { rstd: false, ..norm }, form, gates);
    let mut groups = Groups::new("gate/backward", profile);
    let rows = |width| of_rows(width, profile, case).into_iter().chain(of_rows(width, profile, of));
    let why = "chunks, leaves and levels of the row tree begin and end";
    groups.add("rows", why, GATED.into_iter().flat_map(rows).collect());
    groups.add("widths", WIDTHS_WHY, of_widths(case));
    groups.add("outputs", "dw is left out, added to or rounded; rstd is given or not", outputs());
    groups.add("any_order", "terms are lost or added twice where nothing orders them", any_order());
    groups.add("max_sms", "chunks and sums divided among few CTAs", max_sms());
    let mut values = families(case);
    for (gradients, _) in Values::ALL {
        let of_gradients = |norm, form| GateBackwardCase { gradients, ..case(norm, form, Values::Normal) };
        values.extend(of_values(of_gradients));
    }
    groups.add("values", VALUES_WHY, values);
    groups.add("z", Z_WHY, of_gates(case));
    groups.add("eps", EPS_WHY, of_eps(case));
    let tensors = TENSORS.into_iter().filter(|tensor| tensor.backward);
    let layouts = tensors.clone().flat_map(|ForPasses { tensor, .. }| {
        let case = |norm: Case, form, gates| {
            let case = of(Case { rstd: tensor.name == "rstd", ..norm }, form, gates);
            GateBackwardCase { accumulate: case.forward.norm.layouts.dw == Layout::Gap(8), ..case }
        };
        of_layouts(&tensor, profile, case)
    });
    groups.add("layouts", LAYOUTS_WHY, layouts.collect());
    let pair = |inner, outer| {
        [
            Layouts { x: inner, dy: outer, ..Layouts::default() },
            Layouts { z: inner, dx: outer, ..Layouts::default() },
            Layouts { dy: inner, dz: outer, rstd: outer, ..Layouts::default() },
        ]
    };
    groups.add("pairs", PAIRS_WHY, pairs(pair, of));
    let flat = ["rstd", "weight", "dw"];
    let rows: Vec<Tensor> = tensors.map(|of| of.tensor).filter(|of| !flat.contains(&of.name)).collect();
    groups.add("heads", HEADS_WHY, heads(&rows, case));
    groups.add("in_place", "dy or z is overwritten before it is read", backward_in_place());
    groups.add("no_rows", "no row: sums of nothing, or nothing to write", backward_no_rows());
    groups.add("many_rows", "more chunks than are joined in one go; deep trees", many_rows(case));
    if let Some(device) = device {
        let rows = |case: &GateBackwardCase| {
            // The last: each CTA has several chunks.
            let many = u64::from(device.sms) * 800 + 19;
            window_edges::<SiluGateBackward>(&case.spec(), device, ALIGNED).chain([many]).collect()
        };
        groups.add_windows(of_windows(case, rows));
    }
    groups.all
}

/// The specifications that the cases use on an architecture, for tests that ask whether each kernel has a case.
pub fn specs(profile: Profile, arch: Arch) -> (Vec<Spec>, Vec<BackwardSpec>) {
    let device = DeviceInfo::typical(arch);
    let (mut forwards, mut backwards) = (Vec::new(), Vec::new());
    for case in forward(profile, Some(&device)).into_iter().flat_map(|group| group.cases) {
        if case.norm.rows() > 0 && !forwards.contains(&case.spec()) {
            forwards.push(case.spec());
        }
    }
    for case in backward(profile, Some(&device)).into_iter().flat_map(|group| group.cases) {
        if case.forward.norm.rows() > 0 && !backwards.contains(&case.spec()) {
            backwards.push(case.spec());
        }
    }
    (forwards, backwards)
}

const ROWS_WHY: &str = "tiles begin and end inside a call";
const WIDTHS_WHY: &str = "tails of units, groups and rows; rows at odd addresses";
const VALUES_WHY: &str =
    "a family of rows, gradients or weights for which a step overflows, vanishes, cancels or is no number";
const Z_WHY: &str = "a gate that vanishes, is the identity, overflows on the way, or is no number";
const EPS_WHY: &str = "eps outside the root, dropped, or lost against the mean";
const LAYOUTS_WHY: &str = "strides and offsets of this tensor are used in every pass over it";
const PAIRS_WHY: &str = "the strides of one tensor are used for another";
const HEADS_WHY: &str = "tokens and heads with strides of their own; z a slice of a projection; ranks 1 to 7";

/// Groups as they are made.
struct Groups<C> {
    prefix: &'static str,
    profile: Profile,
    all: Vec<Group<C>>,
}

impl<C: crate::engine::subject::Subject> Groups<C> {
    fn new(prefix: &'static str, profile: Profile) -> Groups<C> {
        Groups { prefix, profile, all: Vec::new() }
    }

    fn add(&mut self, name: &str, why: &'static str, mut cases: Vec<C>) {
        cases.retain(|case| case.norm().elements() <= self.profile.most_elements());
        self.all.push(Group { name: format!("{}/{name}", self.prefix), why, cases, forced: true });
    }

    /// Large ones are tried by every profile: no smaller case reaches these routes.
    fn add_windows(&mut self, mut cases: Vec<C>) {
        cases.retain(|case| case.norm().elements() <= Profile::Full.most_elements());
        let why = "another program from one row to the next, or another division of the rows";
        self.all.push(Group { name: format!("{}/windows", self.prefix), why, cases, forced: false });
    }
}

/// Numbers of rows around tiles, some of them as tokens and heads.
fn of_rows<C>(width: u32, profile: Profile, case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let leads = affordable_rows(width, profile).map(|rows| vec![rows]).chain([vec![43, 3], vec![5, 48], vec![63, 16]]);
    let of_lead = |lead: Vec<u64>| {
        let form = GateForm::ALL[lead.len() / 2 * (lead[0] as usize % 4)];
        case(Case { lead, ..Case::new(1, width) }, form, Values::Normal)
    };
    leads.map(of_lead).collect()
}

const SOME_WIDTHS: [u32; 5] = [7, 64, 100, 128, 1000];

fn of_widths<C>(case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let mut cases = Vec::new();
    for width in GATED.into_iter().chain(NARROW).chain([192, 768, 1000, 2048, 2056, 8192]) {
        for form in GateForm::ALL {
            for (rows, dtype) in [(1, Dtype::Bf16), (7, Dtype::F32), (67, Dtype::Bf16)] {
                let norm = GateCase::new(rows, width).weight(dtype).norm;
                cases.push(case(Case { rstd: rows != 7, ..norm }, form, Values::Normal));
            }
        }
    }
    cases
}

fn of_values<C>(case: impl Fn(Case, GateForm) -> C) -> Vec<C> {
    let mut cases = Vec::new();
    for width in SOME_WIDTHS {
        for form in GateForm::ALL {
            for (i, dtype) in [Dtype::Bf16, Dtype::F32].into_iter().enumerate() {
                let eps = [1e-6, 0.0, 1e-12, 1e-5][(i + width as usize) % 4];
                cases.push(case(Case { eps, ..GateCase::new(19, width).weight(dtype).norm }, form));
            }
        }
    }
    cases
}

/// Every family of rows and weights.
fn families<C>(case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let values = Values::ALL.into_iter().map(|(values, _)| (values, Weights::Usual));
    let weights = [Weights::Mixed, Weights::NotNumbers].map(|weights| (Values::Normal, weights));
    let of_family =
        |(values, weights)| of_values(|norm, form| case(Case { values, weights, ..norm }, form, Values::Normal));
    values.chain(weights).flat_map(of_family).collect()
}

/// Every family of gates.
fn of_gates<C>(case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let of_family = |(gates, _)| of_values(|norm, form| case(norm, form, gates));
    Values::GATES.into_iter().flat_map(of_family).collect()
}

fn of_eps<C>(case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let mut cases = Vec::new();
    for eps in [0.0, -0.0, 1e-45, 1e-38, 1e-12, 1e-6, 1e-2, 1.0, f32::MAX] {
        for values in [Values::Normal, Values::Small, Values::Tiny, Values::ZeroRows, Values::Huge] {
            for (width, form) in [(1, GateForm::ALL[0]), (128, GateForm::ALL[0]), (128, GateForm::ALL[2])] {
                cases.push(case(Case { eps, values, ..Case::new(8, width) }, form, Values::Normal));
            }
        }
    }
    cases
}

/// A tensor, and the passes that have it.
#[derive(Clone)]
struct ForPasses {
    tensor: Tensor,
    forward: bool,
    backward: bool,
}

const fn tensor(name: &'static str, set: fn(&mut Layouts, Layout), input: bool, passes: [bool; 2]) -> ForPasses {
    ForPasses { tensor: Tensor { name, set, input }, forward: passes[0], backward: passes[1] }
}

const TENSORS: [ForPasses; 11] = [
    tensor("x", |layouts, layout| layouts.x = layout, true, [true, true]),
    tensor("z", |layouts, layout| layouts.z = layout, true, [true, true]),
    tensor("y", |layouts, layout| layouts.y = layout, false, [true, false]),
    tensor("rstd", |layouts, layout| layouts.rstd = layout, false, [true, false]),
    tensor("weight", |layouts, layout| layouts.weight = layout, true, [true, true]),
    tensor("dy", |layouts, layout| layouts.dy = layout, true, [false, true]),
    tensor("dx", |layouts, layout| layouts.dx = layout, false, [false, true]),
    tensor("dz", |layouts, layout| layouts.dz = layout, false, [false, true]),
    tensor("dw", |layouts, layout| layouts.dw = layout, false, [false, true]),
    tensor("rstd", |layouts, layout| layouts.rstd = layout, true, [false, true]),
    tensor("together", |layouts, layout| *layouts = Layouts::all(layout), false, [true, true]),
];

fn of_layouts<C>(tensor: &Tensor, profile: Profile, case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let widths = profile.pick(&[100, 128][..], &[3, 64, 100, 128, 256, 512, 1000]);
    let layouts = APART.into_iter().chain(EXPANDED.into_iter().filter(|_| tensor.input));
    let mut cases = Vec::new();
    for &width in widths {
        for (i, layout) in layouts.clone().enumerate() {
            for dtype in [Dtype::Bf16, Dtype::F32] {
                let mut norm = Case { lead: vec![5, 7], ..GateCase::new(35, width).weight(dtype).norm };
                (tensor.set)(&mut norm.layouts, layout);
                cases.push(case(norm, GateForm::ALL[i % 4], Values::Normal));
            }
        }
    }
    cases
}

fn pairs<C, const N: usize>(
    layouts: impl Fn(Layout, Layout) -> [Layouts; N],
    case: impl Fn(Case, GateForm, Values) -> C,
) -> Vec<C> {
    let mut cases = Vec::new();
    for width in [64, 100, 128] {
        for inner in SEVEN {
            for outer in SEVEN {
                for layouts in layouts(inner, outer) {
                    let norm = Case { lead: vec![3, 4], layouts, ..Case::new(12, width) };
                    cases.push(case(norm, GateForm::ALL[0], Values::Normal));
                }
            }
        }
    }
    cases
}

/// Each of some tensors with strides that no other has.
fn heads<C>(tensors: &[Tensor], case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let mut cases = Vec::new();
    let mut with_every_tensor = |lead: &[u64], width, layout| {
        for (i, tensor) in tensors.iter().enumerate() {
            let mut norm = Case { lead: lead.to_vec(), ..Case::new(1, width) };
            (tensor.set)(&mut norm.layouts, layout);
            // Explicit strides are those of rows.
            let Layouts { rstd, weight, dw, .. } = Layouts::default();
            norm.layouts = Layouts { rstd, weight, dw, ..norm.layouts };
            cases.push(case(norm, GateForm::ALL[i % 4], Values::Normal));
        }
    };
    // Heads of a projection with room for others; heads outermost; an odd start of each token.
    with_every_tensor(&[9, 16], 128, Layout::Strides(&[6144, 128]));
    with_every_tensor(&[9, 4], 128, Layout::Strides(&[128, 2048]));
    with_every_tensor(&[9, 4], 128, Layout::Strides(&[520, 128]));
    with_every_tensor(&[9, 4], 128, Layout::Strides(&[515, 128]));
    with_every_tensor(&[1, 5], 128, Layout::Strides(&[1 << 40, 128]));
    with_every_tensor(&[5, 1], 64, Layout::Strides(&[64, 1 << 40]));
    for lead in [&[][..], &[3], &[2, 3, 5], &[4, 1, 1], &[2, 3, 2, 2, 1, 3], &[2, 1, 2, 2, 3, 2]] {
        for width in [96, 128] {
            for layout in [Layout::Contiguous, Layout::Transposed, Layout::Swapped, Layout::Gap(8), Layout::Every(3)] {
                with_every_tensor(lead, width, layout);
            }
        }
    }
    cases
}

const IN_PLACE: [Layout; 5] =
    [Layout::Contiguous, Layout::Offset(1), Layout::Gap(8), Layout::Every(2), Layout::Transposed];

/// Calls of few rows in every layout, and of many.
fn over(mut add: impl FnMut(Case, GateForm)) {
    for width in [7, 64, 128, 512, 1000] {
        for form in GateForm::ALL {
            for layout in IN_PLACE {
                add(Case { layouts: Layouts::all(layout), ..Case::new(13, width) }, form);
            }
            add(Case::new(300, width), form);
        }
    }
}

fn in_place() -> Vec<GateCase> {
    let mut cases = Vec::new();
    over(|norm, form| {
        let case = GateCase { form, ..GateCase::of(norm) };
        cases.push(GateCase { y_over_z: true, ..case.clone() });
        cases.push(GateCase { norm: Case { y_over_x: true, ..case.norm }, ..case });
    });
    cases
}

fn backward_in_place() -> Vec<GateBackwardCase> {
    let mut cases = Vec::new();
    over(|norm, form| {
        let forward = GateCase { form, ..GateCase::of(Case { rstd: false, ..norm }) };
        for (dx_over_dy, dz_over_z) in [(true, false), (false, true), (true, true)] {
            cases.push(GateBackwardCase { dx_over_dy, dz_over_z, ..GateBackwardCase::of(forward.clone()) });
        }
    });
    cases
}

fn no_rows<C>(case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let shapes: [(&[u64], u32); 4] = [(&[0], 128), (&[3, 0], 128), (&[0, 48], 64), (&[0], 1)];
    let of_shape = |(lead, width): (&[u64], u32)| {
        let norm = Case { lead: lead.to_vec(), ..Case::new(0, width) };
        GateForm::ALL.map(|form| case(norm.clone(), form, Values::Normal))
    };
    shapes.into_iter().flat_map(of_shape).collect()
}

/// What a call may ask of `dw`: its dtype, adding to it.
const OUTPUTS: [(Option<Dtype>, bool); 5] = [
    (None, false),
    (Some(Dtype::F32), false),
    (Some(Dtype::F32), true),
    (Some(Dtype::Bf16), false),
    (Some(Dtype::Bf16), true),
];

fn outputs() -> Vec<GateBackwardCase> {
    let mut cases = Vec::new();
    for width in [7, 100, 1000].into_iter().chain(GATED) {
        for (i, (dw, accumulate)) in OUTPUTS.into_iter().enumerate() {
            for form in GateForm::ALL {
                for rstd in [true, false] {
                    let rows = if i % 2 == 0 { 5 } else { 50 };
                    let forward = GateCase { form, ..GateCase::of(Case { rstd, ..Case::new(rows, width) }) };
                    cases.push(GateBackwardCase { dw, accumulate, ..GateBackwardCase::of(forward) });
                }
            }
        }
    }
    cases
}

fn any_order() -> Vec<GateBackwardCase> {
    let mut cases = Vec::new();
    for width in [7, 128, 512, 1000] {
        for (dw, accumulate) in OUTPUTS.into_iter().filter(|(dw, _)| dw.is_some()) {
            for rows in [0, 1, 63, 1031] {
                let case = GateBackwardCase::new(rows, width);
                cases.push(GateBackwardCase { dw, accumulate, deterministic: false, ..case });
            }
        }
    }
    cases
}

fn max_sms() -> Vec<GateBackwardCase> {
    let mut cases = Vec::new();
    for width in [64, 128, 1000] {
        for sms in [1, 64, 124, 132, 1000] {
            for rows in [1, 63, 1031] {
                cases.push(GateBackwardCase { max_sms: Some(sms), ..GateBackwardCase::new(rows, width) });
            }
        }
        cases.push(GateBackwardCase { max_sms: Some(64), dw: None, ..GateBackwardCase::new(300, width) });
    }
    cases
}

fn backward_no_rows() -> Vec<GateBackwardCase> {
    let of_outputs =
        |case: GateBackwardCase| OUTPUTS.map(|(dw, accumulate)| GateBackwardCase { dw, accumulate, ..case.clone() });
    let case = |norm: Case, form, gates| {
        let forward = GateCase { form, gates, ..GateCase::of(Case { rstd: false, ..norm }) };
        GateBackwardCase::of(forward)
    };
    no_rows(case).into_iter().flat_map(of_outputs).collect()
}

fn many_rows<C>(case: impl Fn(Case, GateForm, Values) -> C) -> Vec<C> {
    let mut cases = Vec::new();
    for rows in [65535, 65536, 65537, 131_072, 131_073, 1_000_000] {
        for width in [1, 8, 128] {
            cases.push(case(Case { distinct: 251, ..Case::new(rows, width) }, GateForm::ALL[0], Values::Normal));
        }
    }
    let tokens = Case { distinct: 251, lead: vec![10923, 6], ..Case::new(1, 128) };
    cases.push(case(tokens, GateForm::ALL[0], Values::Normal));
    cases
}

/// Numbers of rows on both sides of each edge between two routes, and some far into the last, as `rows` says.
fn of_windows<C>(case: impl Fn(Case, GateForm, Values) -> C, rows: impl Fn(&C) -> Vec<u64>) -> Vec<C> {
    let mut cases = Vec::new();
    for width in GATED {
        for form in GateForm::ALL {
            let of_rows = |rows| case(Case::new(rows, width), form, Values::Normal);
            cases.extend(rows(&of_rows(1)).into_iter().map(of_rows));
        }
    }
    cases
}
