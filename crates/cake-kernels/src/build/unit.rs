//! Renders the translation unit of an image, and says how it is compiled.
//!
//! A unit is the schedules' headers and, for each kernel, one wrapper that gives a template its name and its launch
//! bounds. It exists in memory only.

use std::collections::BTreeSet;
use std::fmt::Write;

use cake_core::{Arch, Dtype, Kernel, Pass};

/// NVRTC options, besides the architecture. Arithmetic means what it says: contraction, flushing and approximation are
/// never the compiler's choice.
pub(super) const OPTIONS: &[&str] = &[
    "--std=c++20",
    "-fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "-default-device",
    // Separate options: ptxas rejects them joined by a comma.
    "--ptxas-options=--warn-on-spills",
    "--ptxas-options=-v",
];

/// The translation unit that holds those of `kernels` that run on `arch`.
pub(super) fn render(kernels: impl IntoIterator<Item = &'static Kernel>, arch: Arch) -> String {
    let kernels: Vec<&Kernel> = kernels.into_iter().filter(|kernel| kernel.runs_on(arch)).collect();
    let headers: BTreeSet<String> = kernels.iter().map(|kernel| kernel.source()).collect();
    let mut unit = String::new();
    for header in headers {
        writeln!(unit, "#include \"{header}\"").expect("a String takes everything");
    }
    for kernel in kernels {
        unit.push_str(&wrapper(kernel));
    }
    unit
}

fn wrapper(kernel: &Kernel) -> String {
    let Kernel { op, pass, schedule, group, .. } = kernel;
    let bounds = match kernel.min_ctas {
        0 => format!("{}", kernel.threads()),
        ctas => format!("{}, {ctas}", kernel.threads()),
    };
    let params = match pass {
        Pass::Forward => "ForwardParams",
        Pass::Backward => "BackwardParams",
    };
    let rows = match kernel.step {
        0 => kernel.rows.to_string(),
        step => format!("{}, {step}", kernel.rows),
    };
    let width = kernel.width.unwrap_or(0);
    let form = if kernel.form.is_empty() { "plain" } else { kernel.form };
    let weight = match kernel.weight {
        Some(Dtype::Bf16) => "cake::bf16",
        Some(Dtype::F16) => "cake::f16",
        Some(Dtype::F32) => "float",
        None => "cake::none",
    };
    format!(
        "\nextern \"C\" __global__ void __launch_bounds__({bounds})\n\
         {kernel}(const __grid_constant__ cake::{op}::{params} params) {{\n    \
         cake::{op}::{pass}_{schedule}<{width}, {group}, {rows}, cake::{op}::forms::{form}, {weight}>(params);\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Kernel = Kernel {
        op: "toy",
        pass: Pass::Backward,
        form: "res",
        width: Some(6144),
        schedule: "ring",
        knob: "",
        weight: Some(Dtype::F32),
        group: 256,
        rows: 2,
        step: 4,
        min_ctas: 1,
        since: Arch::Sm90,
        vectors: true,
        cooperative: true,
    };
    static KERNELS: [Kernel; 2] = [
        RING,
        Kernel {
            pass: Pass::Forward,
            form: "",
            width: None,
            weight: Some(Dtype::Bf16),
            step: 0,
            min_ctas: 0,
            since: Arch::Sm80,
            ..RING
        },
    ];

    #[test]
    fn a_unit_is_headers_and_wrappers() {
        let expected = r#"#include "toy/bwd_ring.cuh"
#include "toy/fwd_ring.cuh"

extern "C" __global__ void __launch_bounds__(512, 1)
toy_bwd_res_h6144_ring_w32(const __grid_constant__ cake::toy::BackwardParams params) {
    cake::toy::bwd_ring<6144, 256, 2, 4, cake::toy::forms::res, float>(params);
}

extern "C" __global__ void __launch_bounds__(512)
toy_fwd_any_ring(const __grid_constant__ cake::toy::ForwardParams params) {
    cake::toy::fwd_ring<0, 256, 2, cake::toy::forms::plain, cake::bf16>(params);
}
"#;
        assert_eq!(render(&KERNELS, Arch::Sm90), expected);
    }

    #[test]
    fn a_kernel_that_does_not_run_is_left_out() {
        let unit = render(&KERNELS, Arch::Sm80);
        assert!(!unit.contains("bwd_ring") && unit.contains("fwd_ring"), "{unit}");
    }
}
