//! The forward operator: argument checks, and the binding of a call to kernel parameters.

use cake_core::bind::{Bound, expect, expect_eps, expect_rows};
use cake_core::overlap::refuse_overlap;
use cake_core::{
    Arch, DeviceInfo, Dtype, Image, Kernel, Op, Place, Program, RawView, Result, Route, RouteTable, Shape,
};
use cake_kernels::silu_gate::forward::{ROW_TENSORS, RSTD, TENSORS, WEIGHT};
use cake_kernels::silu_gate::{self, ForwardParams};

use crate::{Forward, Spec, host, routes};

/// SiLU-gated RMSNorm forward: `y = bf16(x * rstd * w * gate(z))`, `rstd = 1 / sqrt(mean(x^2) + eps)`; with the gate first,
/// `x * gate(z)` takes the place of `x`.
#[derive(Debug)]
pub struct SiluGateForward;

/// Output pairs that may share memory, element for element; see docs/safety.md.
const IN_PLACE: &[(&str, &str)] = &[("y", "x"), ("y", "z")];

#[allow(unsafe_code)] // promises what `Op` asks for
// SAFETY: `bind` copies addresses from views that `check` has accepted, the parameter block and the images are those of
// cake-kernels, and the kernels keep to the rows, columns and strides in it (docs/safety.md).
unsafe impl Op for SiluGateForward {
    type Spec = Spec;
    type Args<'a> = Forward<'a>;
    type Params = ForwardParams;

    const NAME: &'static str = "silu_gate_fwd";

    fn check_spec(spec: &Spec) -> Result<()> {
        spec.check()
    }

    fn check(spec: &Spec, place: Place, args: &Forward<'_>) -> Result<(Shape, ForwardParams)> {
        expect_eps(args.eps)?;
        let x = args.x.raw().named("x");
        let z = args.z.raw().named("z");
        let weight = args.weight.raw().named("weight");
        let y = args.y.raw().named("y");
        let rstd = args.rstd.as_ref().map(|v| v.raw().named("rstd"));

        let lead = expect_rows(&x, spec.width)?;
        for view in [&x, &z, &y] {
            expect(view, place, Dtype::Bf16, x.shape())?;
        }
        expect(&weight, place, spec.weight, &[spec.width.into()])?;
        if let Some(view) = &rstd {
            expect(view, place, Dtype::F32, lead)?;
        }
        refuse_overlap(&[Some(&y), rstd.as_ref()], &[Some(&x), Some(&z), Some(&weight)], IN_PLACE)?;
        bind(spec, lead, &[Some(&x), Some(&z), Some(&y), rstd.as_ref(), Some(&weight)], args.eps)
    }

    fn routes(spec: &Spec, arch: Arch, shape: Shape) -> &'static RouteTable {
        routes::forward(spec, arch, shape.vectors)
    }

    fn kernels(spec: &Spec, program: &'static Program) -> &'static [Kernel] {
        program.kernels(Some(spec.weight))
    }

    fn programs(spec: &Spec, arch: Arch) -> Vec<&'static Program> {
        let serve = |kernel: &Kernel| kernel.form == spec.form() && kernel.serves(spec.width, arch);
        silu_gate::FORWARD.iter().copied().filter(|program| serve(&program.bf16[0])).collect()
    }

    fn shared_bytes(spec: &Spec, kernel: &Kernel, _: Option<&ForwardParams>) -> u32 {
        if kernel.schedule == "scan" { cake_kernels::scan_shared_bytes(kernel, spec.width) } else { 0 }
    }

    fn grid(kernel: &Kernel, params: &ForwardParams) -> u32 {
        params.rows.div_ceil(kernel.rows)
    }

    fn follow(_: &Spec, params: &mut ForwardParams, _: &Program, route: Option<&Route>, device: &DeviceInfo) {
        let ahead = route.map_or(0, |route| route.rows_ahead(device));
        params.ahead = if params.levels == 1 { ahead } else { 0 };
    }

    fn image(arch: Arch) -> Image {
        cake_kernels::image(silu_gate::OP, arch)
    }

    unsafe fn host(spec: &Spec, args: Forward<'_>) {
        // SAFETY: as the caller promises.
        unsafe { host::forward(spec, &args) };
    }
}

/// The call as routing and kernels see it. `views` are in the order of [`silu_gate::forward`].
fn bind(spec: &Spec, lead: &[u64], views: &[Option<&RawView>; TENSORS], eps: f32) -> Result<(Shape, ForwardParams)> {
    let bound = Bound::<ROW_TENSORS, TENSORS>::new(spec.width, lead, views, RSTD, &[RSTD])?;
    let [x, z, y, rstd] = bound.tensors;
    let params = ForwardParams {
        x,
        z,
        y,
        rstd,
        weight: views[WEIGHT].map_or(0, |view| view.address),
        rows: bound.shape.rows,
        levels: bound.levels,
        eps,
        width: spec.width,
        ahead: 0,
        weight_fp32: u32::from(spec.weight == Dtype::F32),
        sizes: bound.sizes,
        more: bound.more,
        column: bound.column,
        vectors: bound.vectors,
    };
    Ok((bound.shape, params))
}
