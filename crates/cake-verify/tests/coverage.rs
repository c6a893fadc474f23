//! What exists is used and tried: every kernel has a route and a case, every shape has a route on every architecture.

#[path = "properties/serves.rs"]
mod serves;

use std::collections::BTreeSet;

use cake_core::{Arch, DeviceInfo, Dtype, Kernel, Op, Program, Shape};
use cake_kernels::Forms;
use cake_kernels::rmsnorm::{BACKWARD, FORWARD, JOIN};
use cake_kernels::silu_gate;
use cake_rmsnorm::{BackwardSpec, CombineDw, CombineSpec, RmsNormBackward, RmsNormForward, Spec};
use cake_silu_gate::{SiluGateBackward, SiluGateForward};
use cake_verify::cases::gate::GateForm;
use cake_verify::cases::groups::{self, Profile};
use cake_verify::cases::shapes::{GATED, TUNED};
use cake_verify::cases::{CombineCase, Form};

/// Programs that no route names, each with the reason why it is kept all the same.
const UNROUTED: &[(&str, &str)] = &[
    ("rmsnorm_fwd_h6144_row_t512", FOR_RESIDUALS),
    ("rmsnorm_fwd_h7168_row_t512", FOR_RESIDUALS),
    ("rmsnorm_fwd_h8192_row_t512", FOR_RESIDUALS),
    ("rmsnorm_fwd_h16384_row_t1024", FOR_RESIDUALS),
];

const FOR_RESIDUALS: &str = "a geometry is compiled in all its forms, and this one pays with a residual only";

/// What routing is asked besides the number of rows.
const CALLS: [(bool, bool); 4] = [(true, false), (true, true), (false, false), (false, true)];

fn shapes(rows: u32) -> [Shape; 4] {
    CALLS.map(|(vectors, in_place)| Shape { rows, vectors, in_place })
}

/// Every form of the forward.
fn forward(width: u32) -> impl Iterator<Item = Spec> {
    Form::ALL.into_iter().map(move |form| Spec { width, ..form.spec() })
}

/// Every form of the backward that routing tells apart.
fn backward(width: u32) -> impl Iterator<Item = BackwardSpec> {
    forward(width).flat_map(|norm| {
        let both = BackwardSpec::new(norm);
        let dw = norm.weight.map(|_| Dtype::Bf16);
        let alone = BackwardSpec { dx: false, dw, ..both };
        let dx = BackwardSpec { dx: true, dw: None, ..both };
        let recomputing = [both, dx].map(|spec| BackwardSpec { rstd: false, ..spec });
        let few = [both, dx].map(|spec| BackwardSpec { max_sms: Some(64), ..spec });
        let any_order = BackwardSpec { deterministic: false, ..both };
        [both, dx, any_order].into_iter().chain(dw.map(|_| alone)).chain(recomputing).chain(few)
    })
}

/// Every form of the gated forward.
fn gate_forward(width: u32) -> impl Iterator<Item = cake_silu_gate::Spec> {
    let of_weight = move |weight| {
        let spec = cake_silu_gate::Spec { weight, ..cake_silu_gate::Spec::new(width) };
        GateForm::ALL.map(|GateForm { activation, first }| cake_silu_gate::Spec {
            activation,
            gate_first: first,
            ..spec
        })
    };
    [Dtype::Bf16, Dtype::F32].into_iter().flat_map(of_weight)
}

/// Every form of the gated backward that routing or the division of the rows tells apart.
fn gate_backward(width: u32) -> impl Iterator<Item = cake_silu_gate::BackwardSpec> {
    gate_forward(width).flat_map(|norm| {
        let all = cake_silu_gate::BackwardSpec::new(norm);
        let given = cake_silu_gate::BackwardSpec { rstd: true, ..all };
        let frozen = cake_silu_gate::BackwardSpec { dw: None, ..all };
        let few = cake_silu_gate::BackwardSpec { max_sms: Some(64), ..all };
        let any_order = cake_silu_gate::BackwardSpec { deterministic: false, ..all };
        [all, given, frozen, few, any_order]
    })
}

/// What has no form and no choice of programs.
const JOINS: CombineSpec = CombineSpec { width: 1000, dw: Dtype::F32, accumulate: false };

/// Everything that was compiled.
fn programs() -> impl Iterator<Item = &'static Program> {
    let norms = FORWARD.iter().chain(BACKWARD).flat_map(|forms| [&forms.plain, &forms.residual]);
    norms.chain([&JOIN]).chain(silu_gate::FORWARD.iter().chain(silu_gate::BACKWARD).copied())
}

/// Widths that kernels have, and some that they have not.
fn widths(all: &[&'static Forms]) -> BTreeSet<u32> {
    let of_kernels = all.iter().flat_map(|forms| forms.kernels()).filter_map(|kernel| kernel.width);
    of_kernels.chain(TUNED).chain([1, 100, 1000, 20000, 100_000]).collect()
}

/// The same of the gated norm.
fn gate_widths() -> impl Iterator<Item = u32> {
    GATED.into_iter().chain([1, 32, 100, 192, 1000, 20000])
}

/// Kernel names that some route names: on which architecture does not matter.
fn routed<O: Op>(specs: impl Iterator<Item = O::Spec>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for spec in specs {
        for (arch, shape) in Arch::ALL.into_iter().flat_map(|arch| shapes(1).map(|shape| (arch, shape))) {
            for route in O::routes(&spec, arch, shape).routes() {
                names.extend(O::kernels(&spec, route.program).iter().map(Kernel::to_string));
            }
        }
    }
    names
}

#[test]
fn every_kernel_has_a_route_or_a_reason() {
    let mut routed = routed::<RmsNormForward>(widths(FORWARD).into_iter().flat_map(forward));
    routed.extend(self::routed::<RmsNormBackward>(widths(BACKWARD).into_iter().flat_map(backward)));
    routed.extend(self::routed::<CombineDw>([JOINS].into_iter()));
    routed.extend(self::routed::<SiluGateForward>(gate_widths().flat_map(gate_forward)));
    routed.extend(self::routed::<SiluGateBackward>(gate_widths().flat_map(gate_backward)));
    let (mut unrouted, mut needless) = (Vec::new(), Vec::new());
    for program in programs() {
        let excused = UNROUTED.iter().any(|(name, _)| *name == program.to_string());
        for kernel in program.all().map(Kernel::to_string) {
            match (routed.contains(&kernel), excused) {
                (false, false) => unrouted.push(kernel),
                (true, true) => needless.push(kernel),
                _ => {}
            }
        }
    }
    assert_eq!(unrouted, [""; 0], "give each a route, or its program a reason in UNROUTED");
    assert_eq!(needless, [""; 0], "these have a route: take their programs out of UNROUTED");
}

/// The kernels that some specifications reach.
fn tried<O: Op>(arch: Arch, specs: Vec<O::Spec>) -> Vec<String> {
    let of_spec = |spec: &O::Spec| {
        let programs = O::programs(spec, arch).into_iter();
        programs.flat_map(|program| O::kernels(spec, program)).map(Kernel::to_string).collect::<Vec<_>>()
    };
    specs.iter().flat_map(of_spec).collect()
}

#[test]
fn every_kernel_has_a_case() {
    let mut names = BTreeSet::new();
    for arch in Arch::ALL {
        names.extend(tried::<RmsNormForward>(arch, groups::specs(Profile::Quick, arch)));
        names.extend(tried::<RmsNormBackward>(arch, groups::backward::specs(Profile::Quick, arch)));
        let joins = groups::backward::combine().cases.iter().map(CombineCase::spec).collect();
        names.extend(tried::<CombineDw>(arch, joins));
        let (forward, backward) = groups::gate::specs(Profile::Quick, arch);
        names.extend(tried::<SiluGateForward>(arch, forward));
        names.extend(tried::<SiluGateBackward>(arch, backward));
    }
    for kernel in programs().flat_map(Program::all) {
        assert!(names.contains(&kernel.to_string()), "{kernel}: no case of the quick profile reaches it");
    }
}

/// Every number of rows and kind of call has a route.
fn every_call_has_a_route<O: Op>(
    specs: impl Iterator<Item = O::Spec>,
    params: impl Fn(&O::Spec, u32) -> O::Params,
    max_sms: impl Fn(&O::Spec) -> Option<u32>,
) {
    for spec in specs {
        for device in Arch::ALL.map(DeviceInfo::typical) {
            for rows in [0, 1, 2, device.sms, device.sms + 1, 4096, 65536, 1 << 20, i32::MAX as u32] {
                for shape in shapes(rows) {
                    serves::serves::<O>(&spec, params(&spec, rows), shape, &device, max_sms(&spec));
                }
            }
        }
    }
}

#[test]
fn every_forward_call_has_a_route() {
    let widths = (1..=17_000).step_by(31).chain(TUNED).chain([65_536, 131_072, u32::MAX]);
    let params = |spec: &Spec, rows| serves::forward_params(spec.width, rows);
    every_call_has_a_route::<RmsNormForward>(widths.flat_map(forward), params, |_| None);
}

#[test]
fn every_backward_call_has_a_route() {
    let widths = (1..=17_000).step_by(331).chain(TUNED).chain([65_536, 131_072]);
    every_call_has_a_route::<RmsNormBackward>(widths.flat_map(backward), serves::backward_params, |spec| spec.max_sms);
}

#[test]
fn every_gated_call_has_a_route() {
    let widths = || (1..=2000).step_by(31).chain(GATED).chain([8192, 65_536]);
    let params = |spec: &cake_silu_gate::Spec, rows| serves::gate_forward_params(spec.width, rows);
    every_call_has_a_route::<SiluGateForward>(widths().flat_map(gate_forward), params, |_| None);
    let specs = widths().flat_map(gate_backward);
    every_call_has_a_route::<SiluGateBackward>(specs, serves::gate_backward_params, |spec| spec.max_sms);
}

/// A caller allocates for the most rows it has.
#[test]
fn a_workspace_for_many_rows_serves_fewer() {
    let widths = TUNED.into_iter().chain([1, 1000, 20_000]);
    widths.flat_map(backward).for_each(|spec| serves_fewer::<RmsNormBackward>(&spec));
    [64, 128, 512, 1000].into_iter().flat_map(gate_backward).for_each(|spec| serves_fewer::<SiluGateBackward>(&spec));
}

fn serves_fewer<O: Op>(spec: &O::Spec) {
    let device = DeviceInfo::typical(Arch::Sm90);
    for program in O::programs(spec, device.arch) {
        let (mut most, mut at) = (0, 0);
        for rows in (1..5000).chain((5000..300_000).step_by(997)) {
            let bytes = O::workspace_bytes(spec, program, rows, &device);
            if bytes > most {
                (most, at) = (bytes, rows);
            }
            if rows % 499 == 0 {
                let enough = O::workspace_for_up_to(spec, program, rows, &device);
                assert!(most <= enough, "{spec:?} {program}: {enough} bytes up to {rows} rows, {most} for {at}");
            }
        }
    }
}

/// Where no other tables exist, a width without tuned programs and an unaligned layout still have one.
#[test]
fn any_width_and_any_layout_is_served() {
    for arch in Arch::ALL {
        for width in [1, 3, 769, 5376, 53_248, 262_144] {
            for spec in forward(width) {
                assert!(!RmsNormForward::programs(&spec, arch).is_empty(), "{arch} {spec:?}");
            }
            for spec in backward(width) {
                assert!(!RmsNormBackward::programs(&spec, arch).is_empty(), "{arch} {spec:?}");
            }
            for spec in gate_backward(width) {
                assert!(!SiluGateForward::programs(&spec.norm, arch).is_empty(), "{arch} {spec:?}");
                assert!(!SiluGateBackward::programs(&spec, arch).is_empty(), "{arch} {spec:?}");
            }
        }
    }
}

#[test]
fn the_gated_widths_are_those_of_the_kernels() {
    let of_kernels = silu_gate::FORWARD.iter().chain(silu_gate::BACKWARD).filter_map(|program| program.bf16[0].width);
    assert_eq!(of_kernels.collect::<BTreeSet<u32>>(), BTreeSet::from(GATED));
}

#[test]
fn the_page_on_support_lists_every_tuned_width() {
    let page = include_str!("../../../docs/support.md");
    let listed = page.split("without and with a residual:").nth(1).and_then(|rest| rest.split(". ").next());
    let listed: Vec<u32> =
        listed.expect("the page has the list").split(',').map(|w| w.trim().parse().expect(w)).collect();
    assert_eq!(listed, TUNED);
}
