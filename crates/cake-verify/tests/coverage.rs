//! What exists is used and tried: every kernel has a route and a case, every shape has a route on every architecture.

use std::collections::BTreeSet;

use cake_core::{Arch, DeviceInfo, Kernel, Op, Shape};
use cake_kernels::rmsnorm::{FORWARD, ForwardParams};
use cake_rmsnorm::{RmsNormForward, Spec};
use cake_verify::cases::groups::{Profile, specs};
use cake_verify::cases::shapes::TUNED;
use cake_verify::cases::{ALIGNED, Form};

/// Programs that no route names, each with the reason why it is kept all the same.
const UNROUTED: &[(&str, &str)] = &[
    ("rmsnorm_fwd_h6144_row_t512", FOR_RESIDUALS),
    ("rmsnorm_fwd_h7168_row_t512", FOR_RESIDUALS),
    ("rmsnorm_fwd_h8192_row_t512", FOR_RESIDUALS),
    ("rmsnorm_fwd_h16384_row_t1024", FOR_RESIDUALS),
];

const FOR_RESIDUALS: &str = "a geometry is compiled in all its forms, and this one pays with a residual only";

/// Kernel names that some route names: on which architecture does not matter.
fn routed() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let kernel_widths = FORWARD.iter().flat_map(|forms| forms.kernels()).filter_map(|kernel| kernel.width);
    let widths: BTreeSet<u32> = kernel_widths.chain(TUNED).chain([1, 100, 1000, 20000, 100_000]).collect();
    for arch in Arch::ALL {
        for &width in &widths {
            for form in Form::ALL {
                let spec = Spec { width, ..form.spec() };
                for vectors in [false, true] {
                    for route in RmsNormForward::routes(&spec, arch, Shape { vectors, ..ALIGNED }).routes() {
                        names.extend(RmsNormForward::kernels(&spec, route.program).iter().map(Kernel::to_string));
                    }
                }
            }
        }
    }
    names
}

#[test]
fn every_kernel_has_a_route_or_a_reason() {
    let routed = routed();
    let (mut unrouted, mut needless) = (Vec::new(), Vec::new());
    for program in FORWARD.iter().flat_map(|forms| [&forms.plain, &forms.residual]) {
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

#[test]
fn every_kernel_has_a_case() {
    let mut tried = BTreeSet::new();
    for arch in Arch::ALL {
        for spec in specs(Profile::Quick, arch) {
            for program in RmsNormForward::programs(&spec, arch) {
                tried.extend(RmsNormForward::kernels(&spec, program).iter().map(Kernel::to_string));
            }
        }
    }
    for kernel in FORWARD.iter().flat_map(|forms| forms.kernels()) {
        assert!(tried.contains(&kernel.to_string()), "{kernel}: no case of the quick profile reaches it");
    }
}

#[test]
fn every_route_names_a_program_that_serves_the_specification() {
    for arch in Arch::ALL {
        for width in (1..=17_000).step_by(7).chain(TUNED).chain([65_536, 131_072, u32::MAX]) {
            for form in Form::ALL {
                let spec = Spec { width, ..form.spec() };
                let served = RmsNormForward::programs(&spec, arch);
                for vectors in [false, true] {
                    for route in RmsNormForward::routes(&spec, arch, Shape { vectors, ..ALIGNED }).routes() {
                        let listed = served.iter().any(|program| std::ptr::eq(*program, route.program));
                        assert!(listed, "{arch} {spec:?}: {} is routed but does not serve", route.program);
                        let kernels = RmsNormForward::kernels(&spec, route.program);
                        let ignores_layout = vectors || kernels.iter().all(|kernel| !kernel.vectors);
                        assert!(ignores_layout, "{arch} {spec:?}: {} needs aligned rows", route.program);
                    }
                }
            }
        }
    }
}

#[test]
fn every_number_of_rows_has_a_route() {
    for arch in Arch::ALL {
        let device = DeviceInfo::typical(arch);
        for width in (1..=17_000).step_by(31).chain(TUNED) {
            for vectors in [false, true] {
                let table = RmsNormForward::routes(&Spec::new(width), arch, Shape { vectors, ..ALIGNED });
                for rows in [1, 2, device.sms, device.sms + 1, 4096, 65536, 1 << 20, i32::MAX as u32] {
                    let route = table.route(&device, rows);
                    for kernel in RmsNormForward::kernels(&Spec::new(width), route.program) {
                        let params = ForwardParams { rows, width, ..ForwardParams::default() };
                        assert!(RmsNormForward::grid(kernel, &params) >= 1, "{kernel}");
                        let shared = RmsNormForward::shared_bytes(&Spec::new(width), kernel, None);
                        assert!(shared <= device.shared_per_cta, "{arch} {kernel}: {shared} bytes of shared memory");
                    }
                }
            }
        }
    }
}

/// Where no other tables exist, a width without tuned programs and an unaligned layout still have one.
#[test]
fn any_width_and_any_layout_is_served() {
    for arch in Arch::ALL {
        for width in [1, 3, 769, 5376, 53_248, 262_144] {
            for form in Form::ALL {
                assert!(!RmsNormForward::programs(&Spec { width, ..form.spec() }, arch).is_empty(), "{arch} h{width}");
            }
        }
    }
}

#[test]
fn the_page_on_support_lists_every_tuned_width() {
    let page = include_str!("../../../docs/support.md");
    let listed = page.split("without and with a residual:").nth(1).and_then(|rest| rest.split(". ").next());
    let listed: Vec<u32> =
        listed.expect("the page has the list").split(',').map(|w| w.trim().parse().expect(w)).collect();
    assert_eq!(listed, TUNED);
}
