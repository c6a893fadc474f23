//! The forward operator: argument checks, and the binding of a call to kernel parameters.

use cake_core::bind::{Bound, argument, expect, expect_eps, expect_rows};
use cake_core::overlap::refuse_overlap;
use cake_core::{
    Arch, DeviceInfo, Dtype, Image, Kernel, Op, Place, Program, RawView, Result, Route, RouteTable, Shape, sums,
};
use cake_kernels::rmsnorm::{self, ForwardParams, ROW_TENSORS, RSTD, TENSORS, WEIGHT};

use crate::{Forward, Spec, host, routes};

/// RMSNorm forward: `y = bf16(x * rstd * w)`, `rstd = 1 / sqrt(mean(x^2) + eps)`, with `x` replaced by
/// `h = bf16(x + residual)` in the residual form.
#[derive(Debug)]
pub struct RmsNormForward;

/// Output pairs that may share memory, element for element; see docs/safety.md.
const IN_PLACE: &[(&str, &str)] = &[("y", "x"), ("h", "residual")];

#[allow(unsafe_code)] // promises what `Op` asks for
// SAFETY: `bind` copies addresses from views that `check` has accepted, the parameter block and the images are those of
// cake-kernels, and the kernels keep to the rows, columns and strides in it (docs/safety.md).
unsafe impl Op for RmsNormForward {
    type Spec = Spec;
    type Args<'a> = Forward<'a>;
    type Params = ForwardParams;

    const NAME: &'static str = "rmsnorm_fwd";

    fn check_spec(spec: &Spec) -> Result<()> {
        spec.check()
    }

    fn check(spec: &Spec, place: Place, args: &Forward<'_>) -> Result<(Shape, ForwardParams)> {
        expect_eps(args.eps)?;
        let x = args.x.raw().named("x");
        let y = args.y.raw().named("y");
        let weight = argument("weight", args.weight.as_ref().map(|v| v.raw()), spec.weight.is_some())?;
        let residual = argument("residual", args.residual.as_ref().map(|v| v.raw()), spec.residual)?;
        let h = argument("h", args.h.as_ref().map(|v| v.raw()), spec.residual)?;
        let rstd = args.rstd.as_ref().map(|v| v.raw().named("rstd"));

        let lead = expect_rows(&x, spec.width)?;
        for view in [Some(&x), Some(&y), residual.as_ref(), h.as_ref()].into_iter().flatten() {
            expect(view, place, Dtype::Bf16, x.shape())?;
        }
        if let Some(view) = &weight {
            expect(
                view,
                place,
                spec.weight.expect("argument() matched the weight with the plan"),
                &[spec.width.into()],
            )?;
        }
        if let Some(view) = &rstd {
            expect(view, place, Dtype::F32, lead)?;
        }
        refuse_overlap(
            &[Some(&y), h.as_ref(), rstd.as_ref()],
            &[Some(&x), weight.as_ref(), residual.as_ref()],
            IN_PLACE,
        )?;

        let views = [Some(&x), residual.as_ref(), Some(&y), h.as_ref(), rstd.as_ref(), weight.as_ref()];
        bind(spec, lead, &views, args.eps)
    }

    fn routes(spec: &Spec, arch: Arch, shape: Shape) -> &'static RouteTable {
        routes::forward(spec, arch, shape.vectors)
    }

    fn kernels(spec: &Spec, program: &'static Program) -> &'static [Kernel] {
        program.kernels(spec.weight)
    }

    fn programs(spec: &Spec, arch: Arch) -> Vec<&'static Program> {
        let forms = rmsnorm::FORWARD.iter().map(|forms| if spec.residual { &forms.residual } else { &forms.plain });
        forms.filter(|program| program.bf16[0].serves(spec.width, arch)).collect()
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
        cake_kernels::image(rmsnorm::OP, arch)
    }

    unsafe fn host(spec: &Spec, args: Forward<'_>) {
        // SAFETY: as the caller promises.
        unsafe { host::forward(spec, &args) };
    }
}

/// The call as routing and kernels see it. `views` are in the order of [`ForwardParams`].
fn bind(spec: &Spec, lead: &[u64], views: &[Option<&RawView>; TENSORS], eps: f32) -> Result<(Shape, ForwardParams)> {
    let bound = Bound::<ROW_TENSORS, TENSORS>::new(spec.width, lead, views, RSTD, &[RSTD])?;
    let [x, residual, y, h, rstd] = bound.tensors;
    let params = ForwardParams {
        y,
        rstd,
        x,
        residual,
        weight: views[WEIGHT].map_or(0, |view| view.address),
        rows: bound.shape.rows,
        levels: bound.levels,
        h,
        eps,
        offset: sums::rms::offset(spec.offset),
        ahead: 0,
        width: spec.width,
        sizes: bound.sizes,
        more: bound.more,
        column: bound.column,
        vectors: bound.vectors,
    };
    Ok((bound.shape, params))
}
