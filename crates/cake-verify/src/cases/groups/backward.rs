//! The groups of the backward.

use cake_core::{Arch, DeviceInfo, Dtype, Shape};
use cake_rmsnorm::{BackwardSpec, RmsNormBackward};

use super::{APART, EXPANDED, Group, Profile, SEVEN, SOME_WIDTHS, Tensor, affordable_rows, window_edges, word};
use crate::cases::layout::Layout;
use crate::cases::shapes::{ANY, NARROW, TUNED, UNTUNED, WIDE};
use crate::cases::values::{Values, Weights};
use crate::cases::{ALIGNED, BackwardCase, Case, CombineCase, Form, Layouts};

/// Every group. `device` adds the edges of the row windows that its routes have.
pub fn all(profile: Profile, device: Option<&DeviceInfo>) -> Vec<Group<BackwardCase>> {
    let mut groups = Vec::new();
    let mut add = |name: String, why, mut cases: Vec<BackwardCase>| {
        cases.retain(|case| case.norm.elements() <= profile.most_elements());
        groups.push(Group { name: format!("backward/{name}"), why, cases, forced: true });
    };
    for width in TUNED {
        add(format!("rows/h{width}"), "chunks, leaves and levels of the row tree begin and end", rows(width, profile));
    }
    add("rows/any".into(), "the same where no width is compiled in", any_rows(profile));
    for (name, widths) in [("tuned", &TUNED[..]), ("narrow", &NARROW), ("untuned", &UNTUNED), ("wide", &WIDE)] {
        add(format!("widths/{name}"), "tails of units, groups and rows; rows at odd addresses", forms(widths));
    }
    add("outputs".into(), "an output is left out, added to or rounded, by any program", outputs());
    add("any_order".into(), "terms are lost or added twice where nothing orders them", any_order());
    add("max_sms".into(), "chunks and sums divided among few CTAs", max_sms());
    add("no_rows".into(), "no row: sums of nothing, or nothing to write", no_rows());
    add("many_rows".into(), "more chunks than are joined in one go; deep trees", many_rows());
    for (values, why) in Values::ALL {
        add(format!("values/{}", word(values)), why, of_values(values));
    }
    for (weights, why) in Weights::ALL {
        add(format!("weights/{}", word(weights)), why, of_weights(weights));
    }
    add("eps".into(), "rstd computed again: eps outside the root, dropped, or lost against the mean", of_eps());
    for tensor in TENSORS {
        let why = "strides and offsets of this tensor are used in every pass over it";
        add(format!("layouts/{}", tensor.name), why, of_layouts(tensor, profile));
    }
    add("layouts/pairs".into(), "the strides of one tensor are used for another", pairs());
    add("layouts/levels".into(), "rows that do not fold into one pitch; ranks 1 to 7; single elements", levels());
    add("in_place".into(), "dy is overwritten before every sum has read it", in_place());
    if let Some(device) = device {
        let why = "another program from one row to the next, or another division of the rows";
        let cases = TUNED.into_iter().flat_map(|width| windows(width, device)).collect();
        groups.push(Group { name: "backward/windows".into(), why, cases, forced: false });
    }
    groups
}

/// Joining the weight gradients of shards.
pub fn combine() -> Group<CombineCase> {
    let mut cases = Vec::new();
    for width in [1, 7, 128, 257, 1000, 6144, 16384] {
        for (i, shards) in [0, 1, 2, 3, 7, 8, 9, 64, 65].into_iter().enumerate() {
            for (_, dw, accumulate) in OUTPUTS {
                let Some(dw) = dw else { continue };
                let norm = Case::new(shards, width);
                cases.push(CombineCase { norm: norm.clone(), dw, accumulate });
                let layouts = Layouts::all(APART[(i + width as usize) % APART.len()]);
                cases.push(CombineCase { norm: Case { layouts, ..norm }, dw, accumulate });
            }
        }
    }
    for shards in [1000, 4097] {
        cases.push(CombineCase { norm: Case::new(shards, 100), dw: Dtype::F32, accumulate: false });
    }
    let why = "sums of shards are joined in another order than the rows of one call";
    Group { name: "backward/combine".into(), why, cases, forced: true }
}

/// The specifications that the cases use on an architecture, for tests that ask whether each kernel has a case.
pub fn specs(profile: Profile, arch: Arch) -> Vec<BackwardSpec> {
    let mut specs: Vec<BackwardSpec> = Vec::new();
    for case in all(profile, Some(&DeviceInfo::typical(arch))).into_iter().flat_map(|group| group.cases) {
        let spec = case.spec();
        if case.norm.rows() > 0 && !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
}

fn of_form(rows: u64, width: u32, form: Form) -> BackwardCase {
    BackwardCase::of(Case::new(rows, width).form(form))
}

fn rows(width: u32, profile: Profile) -> Vec<BackwardCase> {
    let of_rows = |rows| Form::COMMON.map(|form| of_form(rows, width, form));
    affordable_rows(width, profile).flat_map(of_rows).collect()
}

fn any_rows(profile: Profile) -> Vec<BackwardCase> {
    ANY.into_iter().flat_map(|width| rows(width, profile)).collect()
}

fn forms(widths: &[u32]) -> Vec<BackwardCase> {
    let of_width = |&width: &u32| {
        let rows: &[u64] = if width > 16384 { &[1, 9] } else { &[1, 7, 67] };
        rows.iter().flat_map(move |&rows| Form::ALL.map(|form| of_form(rows, width, form)))
    };
    widths.iter().flat_map(of_width).collect()
}

/// What a call may ask for: `dx`, `dw` and its dtype, adding to it.
const OUTPUTS: [(bool, Option<Dtype>, bool); 9] = [
    (true, None, false),
    (true, Some(Dtype::F32), false),
    (true, Some(Dtype::F32), true),
    (true, Some(Dtype::Bf16), false),
    (true, Some(Dtype::Bf16), true),
    (false, Some(Dtype::F32), false),
    (false, Some(Dtype::F32), true),
    (false, Some(Dtype::Bf16), false),
    (false, Some(Dtype::Bf16), true),
];

fn outputs() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for width in [7, 100, 1000, 20480].into_iter().chain(TUNED) {
        for (i, (dx, dw, accumulate)) in OUTPUTS.into_iter().enumerate() {
            for rstd in [true, false] {
                let rows = if i % 2 == 0 { 5 } else { 50 };
                let case = of_form(rows, width, Form::COMMON[(i + usize::from(rstd)) % 2]);
                let norm = Case { rstd, ..case.norm };
                cases.push(BackwardCase { norm, dx, dw, accumulate, ..case });
            }
        }
    }
    cases
}

fn any_order() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for width in [7, 128, 1000, 6144, 16384] {
        for (dx, dw, accumulate) in OUTPUTS.into_iter().filter(|(_, dw, _)| dw.is_some()) {
            for rows in [0, 1, 63, 1031] {
                let form = Form::COMMON[rows as usize % 2];
                cases.push(BackwardCase { dx, dw, accumulate, deterministic: false, ..of_form(rows, width, form) });
            }
        }
    }
    cases
}

fn max_sms() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for width in [128, 1000, 2048, 6144, 16384] {
        for sms in [1, 64, 124, 132, 1000] {
            for rows in [1, 63, 1031] {
                let form = Form::COMMON[rows as usize % 2];
                cases.push(BackwardCase { max_sms: Some(sms), ..of_form(rows, width, form) });
            }
        }
        cases.push(BackwardCase { max_sms: Some(64), dw: None, ..BackwardCase::new(300, width) });
    }
    cases
}

/// No row: `dw` is zero, or stays what it is.
fn no_rows() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for (lead, width) in [(&[0][..], 2520), (&[3, 0], 128), (&[0], 1), (&[0, 5], 6144), (&[0], 16384)] {
        for (dx, dw, accumulate) in OUTPUTS {
            for form in Form::COMMON {
                for rstd in [true, false] {
                    let norm = Case { lead: lead.to_vec(), rstd, ..Case::new(0, width).form(form) };
                    cases.push(BackwardCase { dx, dw, accumulate, ..BackwardCase::of(norm) });
                }
            }
        }
    }
    cases
}

fn many_rows() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for rows in [65535, 65536, 65537, 131_072, 131_073, 1_000_000] {
        for width in [1, 8, 128] {
            let form = Form::COMMON[rows as usize % 2];
            cases.push(BackwardCase::of(Case { distinct: 251, ..Case::new(rows, width).form(form) }));
        }
    }
    cases
}

/// As for the forward, of each table. Then so many rows that each CTA has several chunks, and that no thread of `split`
/// could hold the sums of a column.
fn windows(width: u32, device: &DeviceInfo) -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    let mut edges = |case: BackwardCase, in_place| {
        let shape = Shape { rows: 1, in_place, ..ALIGNED };
        for rows in window_edges::<RmsNormBackward>(&case.spec(), device, shape) {
            cases.push(BackwardCase { norm: Case { lead: vec![rows], ..case.norm.clone() }, ..case.clone() });
        }
    };
    for form in Form::COMMON {
        let case = of_form(1, width, form);
        edges(BackwardCase { dw: None, ..case.clone() }, false);
        edges(BackwardCase { norm: Case { rstd: false, ..case.norm.clone() }, ..case.clone() }, false);
        edges(BackwardCase { dx_over_dy: true, ..case.clone() }, true);
        edges(case, false);
    }
    let many = BackwardCase::new(u64::from(device.sms) * 124 + 19, width);
    cases.extend([BackwardCase { dw: None, ..many.clone() }, many]);
    cases.retain(|case| case.norm.elements() <= Profile::Full.most_elements());
    cases
}

fn of_values(values: Values) -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for width in SOME_WIDTHS {
        for (i, form) in Form::ALL.into_iter().enumerate() {
            let eps = [1e-6, 0.0, 1e-12, 1e-5][i % 4];
            let (of_x, gradients) = [(values, Values::Normal), (Values::Normal, values), (values, values)][i % 3];
            for rstd in [true, false] {
                let norm = Case { values: of_x, eps, rstd, ..Case::new(19, width).form(form) };
                cases.push(BackwardCase { gradients, ..BackwardCase::of(norm) });
            }
        }
    }
    cases
}

fn of_weights(weights: Weights) -> Vec<BackwardCase> {
    let forms = Form::ALL.into_iter().filter(|form| form.weight.is_some());
    let case = |width, form| BackwardCase::of(Case { weights, ..Case::new(5, width).form(form) });
    forms.flat_map(|form| SOME_WIDTHS.map(|width| case(width, form))).collect()
}

fn of_eps() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for eps in [0.0, -0.0, 1e-45, 1e-38, 1e-12, 1e-6, 1e-2, 1.0, f32::MAX] {
        for values in [Values::Normal, Values::Small, Values::Tiny, Values::ZeroRows, Values::Huge] {
            for width in [1, 128, 1000, 4096] {
                let form = Form::COMMON[width as usize / 128 % 2];
                cases.push(BackwardCase::of(Case { eps, values, rstd: false, ..Case::new(8, width).form(form) }));
            }
        }
    }
    cases
}

const TENSORS: [Tensor; 8] = [
    Tensor { name: "x", set: |layouts, layout| layouts.x = layout, input: true },
    Tensor { name: "dy", set: |layouts, layout| layouts.dy = layout, input: true },
    Tensor { name: "dh", set: |layouts, layout| layouts.dh = layout, input: true },
    Tensor { name: "dx", set: |layouts, layout| layouts.dx = layout, input: false },
    Tensor { name: "dw", set: |layouts, layout| layouts.dw = layout, input: false },
    Tensor { name: "rstd", set: |layouts, layout| layouts.rstd = layout, input: true },
    Tensor { name: "weight", set: |layouts, layout| layouts.weight = layout, input: true },
    Tensor { name: "together", set: |layouts, layout| *layouts = Layouts::all(layout), input: false },
];

fn of_layouts(tensor: Tensor, profile: Profile) -> Vec<BackwardCase> {
    let widths = profile.pick(&[100, 128, 2048, 6144][..], &[3, 100, 1000, 1152, 65536]).iter();
    let tuned = profile.pick(&[][..], &TUNED).iter();
    let layouts = APART.into_iter().chain(EXPANDED.into_iter().filter(|_| tensor.input));
    let mut cases = Vec::new();
    for (i, &width) in widths.chain(tuned).enumerate() {
        for layout in layouts.clone() {
            for residual in [false, true] {
                if !residual && tensor.name == "dh" {
                    continue;
                }
                let weight = [Some(Dtype::Bf16), Some(Dtype::F32)][i % 2];
                let lead = if width > 16384 { vec![2, 3] } else { vec![5, 7] };
                let mut norm = Case { lead, ..Case::new(35, width).form(Form { weight, offset: false, residual }) };
                (tensor.set)(&mut norm.layouts, layout);
                let dw = [Some(Dtype::F32), Some(Dtype::Bf16)][usize::from(residual)];
                cases.push(BackwardCase { dw, accumulate: layout == Layout::Gap(8), ..BackwardCase::of(norm) });
            }
        }
    }
    cases
}

fn pairs() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for width in [64, 100, 512, 4096] {
        for inner in SEVEN {
            for outer in SEVEN {
                for (form, layouts) in [
                    (Form::COMMON[0], Layouts { x: inner, dy: outer, ..Layouts::default() }),
                    (Form::COMMON[1], Layouts { dy: inner, dx: outer, rstd: outer, ..Layouts::default() }),
                    (Form::COMMON[1], Layouts { x: outer, dh: inner, dx: outer, ..Layouts::default() }),
                ] {
                    let norm = Case { lead: vec![3, 4], layouts, ..Case::new(12, width).form(form) };
                    cases.push(BackwardCase::of(norm));
                }
            }
        }
    }
    cases
}

fn levels() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    let mut with_every_tensor = |lead: &[u64], width, layout| {
        for form in Form::COMMON {
            for tensor in TENSORS.iter().filter(|tensor| !matches!(tensor.name, "rstd" | "weight" | "dw")) {
                let mut norm = Case { lead: lead.to_vec(), ..Case::new(1, width).form(form) };
                (tensor.set)(&mut norm.layouts, layout);
                // Explicit strides are those of rows.
                let Layouts { rstd, weight, dw, .. } = Layouts::default();
                norm.layouts = Layouts { rstd, weight, dw, ..norm.layouts };
                cases.push(BackwardCase::of(norm));
            }
        }
    };
    with_every_tensor(&[9, 32], 128, Layout::Strides(&[6144, 128]));
    with_every_tensor(&[2, 257], 1200, Layout::Strides(&[925_200, 3600]));
    with_every_tensor(&[1, 5], 128, Layout::Strides(&[1 << 40, 128]));
    with_every_tensor(&[5, 1], 6144, Layout::Strides(&[6144, 1 << 40]));
    for lead in [&[][..], &[3], &[2, 3, 5], &[4, 1, 1], &[2, 3, 2, 2, 1, 3], &[2, 1, 2, 2, 3, 2]] {
        for width in [96, 128, 256] {
            for layout in [Layout::Contiguous, Layout::Transposed, Layout::Swapped, Layout::Gap(8), Layout::Every(3)] {
                with_every_tensor(lead, width, layout);
            }
        }
    }
    cases
}

fn in_place() -> Vec<BackwardCase> {
    let mut cases = Vec::new();
    for width in [7, 128, 1000, 2048, 5120, 6144, 16384, 32768] {
        for layout in [Layout::Contiguous, Layout::Offset(1), Layout::Gap(8), Layout::Every(2), Layout::Transposed] {
            for dw in [Some(Dtype::F32), None] {
                for form in Form::COMMON {
                    let few = Case { layouts: Layouts::all(layout), ..Case::new(13, width).form(form) };
                    let many = Case::new(300, width).form(form);
                    let over = |norm| BackwardCase { dw, dx_over_dy: true, ..BackwardCase::of(norm) };
                    cases.extend([over(few), over(many)]);
                }
            }
        }
    }
    cases
}
