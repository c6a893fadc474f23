//! The backward operator: argument checks, and the binding of a call to kernel parameters.

use cake_core::bind::{Bound, argument, expect, expect_eps, expect_rows, refuse_workspace};
use cake_core::chunks::{self, Chunks, Divider};
use cake_core::overlap::refuse_overlap;
use cake_core::sums::LEAF_ROWS;
use cake_core::{
    Arch, DeviceInfo, Dtype, Image, Kernel, Op, Place, Program, RawView, Result, Route, RouteTable, Shape, Workspace,
};
use cake_kernels::silu_gate::backward::{DW, ROW_TENSORS, RSTD, TENSORS, WEIGHT};
use cake_kernels::silu_gate::{self, BackwardParams};

use crate::{Backward, BackwardSpec, host, routes};

/// SiLU-gated RMSNorm backward. With `a = dy * gate(z)`, `g = a * w` and `xhat = x * rstd`,
/// `dx = bf16(rstd * (g - xhat * mean(g * xhat)))`, `dz = bf16(dy * xhat * w * gate'(z))`, and
/// `dw = sum over the rows of a * xhat`.
#[derive(Debug)]
pub struct SiluGateBackward;

/// Output pairs that may share memory, element for element; see docs/safety.md.
const IN_PLACE: &[(&str, &str)] = &[("dx", "dy"), ("dz", "z")];

#[allow(unsafe_code)] // promises what `Op` asks for
// SAFETY: `bind` copies addresses from views that `check` has accepted, the parameter block and the images are those of
// cake-kernels, and the kernels keep to the rows, columns and strides in it and to the bytes of workspace that `Chunks`
// counts (docs/safety.md).
unsafe impl Op for SiluGateBackward {
    type Spec = BackwardSpec;
    type Args<'a> = Backward<'a>;
    type Params = BackwardParams;

    const NAME: &'static str = "silu_gate_bwd";

    fn check_spec(spec: &BackwardSpec) -> Result<()> {
        spec.check()
    }

    fn check(spec: &BackwardSpec, place: Place, args: &Backward<'_>) -> Result<(Shape, BackwardParams)> {
        if !spec.rstd {
            expect_eps(args.eps)?;
        }
        let norm = &spec.norm;
        let x = args.x.raw().named("x");
        let dy = args.dy.raw().named("dy");
        let z = args.z.raw().named("z");
        let weight = args.weight.raw().named("weight");
        let rstd = argument("rstd", args.rstd.as_ref().map(|v| v.raw()), spec.rstd)?;
        let dx = args.dx.raw().named("dx");
        let dz = args.dz.raw().named("dz");
        let dw = argument("dw", args.dw.as_ref().map(|v| v.raw()), spec.dw.is_some())?;

        let lead = expect_rows(&x, norm.width)?;
        for view in [&x, &dy, &z, &dx, &dz] {
            expect(view, place, Dtype::Bf16, x.shape())?;
        }
        expect(&weight, place, norm.weight, &[norm.width.into()])?;
        if let (Some(view), Some(dtype)) = (&dw, spec.dw) {
            expect(view, place, dtype, &[norm.width.into()])?;
        }
        if let Some(view) = &rstd {
            expect(view, place, Dtype::F32, lead)?;
        }
        let outputs = [Some(&dx), Some(&dz), dw.as_ref()];
        let inputs = [Some(&dy), Some(&x), Some(&z), Some(&weight), rstd.as_ref()];
        refuse_overlap(&outputs, &inputs, IN_PLACE)?;
        if let Some(workspace) = &args.workspace {
            refuse_workspace(workspace, place, inputs.into_iter().chain(outputs).flatten())?;
        }
        let views = [Some(&x), Some(&dy), Some(&z), Some(&dx), Some(&dz), rstd.as_ref(), Some(&weight), dw.as_ref()];
        bind(spec, lead, &views, args.eps)
    }

    fn routes(spec: &BackwardSpec, arch: Arch, shape: Shape) -> &'static RouteTable {
        routes::backward(spec, arch, shape.vectors && levels_fit(spec, shape))
    }

    fn obstacle(spec: &BackwardSpec, program: &'static Program, shape: Shape) -> Option<&'static str> {
        let kernel = &program.bf16[0];
        if kernel.vectors && !shape.vectors {
            return Some("needs 16-byte aligned rows with at most two levels of row strides");
        }
        if kernel.vectors && !levels_fit(spec, shape) {
            return Some("takes no more than 2^32 elements");
        }
        let many = kernel.schedule == "few" && shape.rows.div_ceil(kernel.rows) > MOST_FEW;
        many.then_some("takes no more than 2048 CTAs have rows for")
    }

    fn kernels(spec: &BackwardSpec, program: &'static Program) -> &'static [Kernel] {
        program.kernels(Some(spec.norm.weight))
    }

    fn programs(spec: &BackwardSpec, arch: Arch) -> Vec<&'static Program> {
        let serve = |kernel: &Kernel| kernel.form == spec.norm.form() && kernel.serves(spec.norm.width, arch);
        silu_gate::BACKWARD.iter().copied().filter(|program| serve(&program.bf16[0])).collect()
    }

    fn shared_bytes(spec: &BackwardSpec, kernel: &Kernel, params: Option<&BackwardParams>) -> u32 {
        let own = match kernel.schedule {
            "scan" => cake_kernels::scan_shared_bytes(kernel, spec.norm.width),
            "few" => 8 * spec.norm.width * kernel.rows, // both factors of each row's terms
            _ => {
                let share = |params: &BackwardParams| params.chunk / (LEAF_ROWS as u32 * kernel.rows);
                chunks::walk_bytes(spec.norm.width, kernel, params.map_or(31, |params| share(params).ilog2()))
            }
        };
        own.max(chunks::join_bytes(kernel))
    }

    fn grid(_: &Kernel, params: &BackwardParams) -> u32 {
        params.ctas
    }

    fn follow(
        spec: &BackwardSpec,
        params: &mut BackwardParams,
        program: &Program,
        route: Option<&Route>,
        device: &DeviceInfo,
    ) {
        let Chunks { rows, large, count, ctas, .. } = chunks(spec, program, params.rows, device);
        (params.chunk, params.large, params.chunks, params.ctas) = (rows, large, count, ctas);
        params.ahead = route.map_or(0, |route| route.half_rows_ahead / 2);
    }

    fn is_idle(spec: &BackwardSpec, shape: Shape) -> bool {
        shape.rows == 0 && (spec.dw.is_none() || spec.accumulate)
    }

    fn workspace_bytes(spec: &BackwardSpec, program: &Program, rows: u32, device: &DeviceInfo) -> u64 {
        spec.dw.map_or(0, |_| chunks(spec, program, rows, device).workspace)
    }

    fn workspace_for_up_to(spec: &BackwardSpec, program: &Program, rows: u32, device: &DeviceInfo) -> u64 {
        let divider = divider(spec, program, device);
        match (spec.dw, divider.kernel.schedule) {
            (None, _) => 0,
            (_, "few") => Self::workspace_bytes(spec, program, rows, device),
            _ => divider.workspace_for_up_to(rows),
        }
    }

    fn workspace<'b>(args: &'b mut Backward<'_>) -> Option<&'b mut Workspace> {
        args.workspace.as_deref_mut()
    }

    fn lend(params: &mut BackwardParams, address: u64) {
        params.workspace = address;
    }

    fn image(arch: Arch) -> Image {
        cake_kernels::image(silu_gate::OP, arch)
    }

    unsafe fn host(spec: &BackwardSpec, args: Backward<'_>) {
        // SAFETY: as the caller promises.
        unsafe { host::backward(spec, &args) };
    }
}

/// How the rows of a call are divided.
fn divider<'a>(spec: &BackwardSpec, program: &Program, device: &'a DeviceInfo) -> Divider<'a> {
    let kernel = &program.kernels(Some(spec.norm.weight))[0];
    Divider {
        width: spec.norm.width,
        kernel,
        device,
        max_sms: spec.max_sms,
        unordered: !spec.deterministic,
        narrow: kernel.vectors,
    }
}

/// Whether a call has so few rows that all levels of their tree fit the shared memory of every architecture: 2048 chunks of
/// 4096 rows have 6 levels of 16 KiB at a width of 512, and fewer bytes where rows are narrower.
fn levels_fit(spec: &BackwardSpec, shape: Shape) -> bool {
    u64::from(shape.rows) * u64::from(spec.norm.width) <= 1 << 32
}

/// Chunks of the `few` schedule, at most.
const MOST_FEW: u32 = 2048;

/// The chunks of a call.
fn chunks(spec: &BackwardSpec, program: &Program, rows: u32, device: &DeviceInfo) -> Chunks {
    let divider = divider(spec, program, device);
    if divider.kernel.schedule == "few" { divider.chunks_of(rows, divider.kernel.rows) } else { divider.chunks(rows) }
}

/// The call as routing and kernels see it. `views` are in the order of [`silu_gate::backward`].
fn bind(
    spec: &BackwardSpec,
    lead: &[u64],
    views: &[Option<&RawView>; TENSORS],
    eps: f32,
) -> Result<(Shape, BackwardParams)> {
    let bound = Bound::<ROW_TENSORS, TENSORS>::new(spec.norm.width, lead, views, RSTD, &[RSTD, DW])?;
    let [x, dy, z, dx, dz, rstd] = bound.tensors;
    let address = |t: usize| views[t].map_or(0, |view| view.address);
    let params = BackwardParams {
        x,
        dy,
        z,
        dx,
        dz,
        rstd,
        weight: address(WEIGHT),
        dw: address(DW),
        rows: bound.shape.rows,
        levels: bound.levels,
        eps,
        width: spec.norm.width,
        weight_fp32: u32::from(spec.norm.weight == Dtype::F32),
        dw_fp32: u32::from(spec.dw == Some(Dtype::F32)),
        accumulate: u32::from(spec.accumulate),
        unordered: u32::from(!spec.deterministic),
        sizes: bound.sizes,
        more: bound.more,
        column: bound.column,
        vectors: bound.vectors,
        ..BackwardParams::default()
    };
    Ok((bound.shape, params))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;

    /// The estimate was fitted to runs on an H200 with these numbers of rows: its choices are within 2 % of the best of what was
    /// tried there. Other numbers of rows have not been measured.
    #[test]
    fn chunks_are_near_the_best_that_were_measured() {
        let device = DeviceInfo::typical(Arch::Sm90);
        let spec = BackwardSpec::new(Spec::new(128));
        let best = |rows| {
            let Chunks { rows, large, count, .. } = chunks(&spec, &silu_gate::H128_WALK, rows, &device);
            (rows, large, count)
        };
        assert_eq!(device.sms, 132);
        assert_eq!(best(32_768), (128, 256, 256));
        assert_eq!(best(131_072), (512, 256, 256));
        assert_eq!(best(364_800), (1024, 357, 357));
        assert_eq!(best(456_000), (1024, 396, 791));
        assert_eq!(best(524_288), (2048, 256, 256));
        assert_eq!(best(547_200), (512, 1069, 1069));
        assert_eq!(best(786_432), (2048, 384, 384));
        assert_eq!(best(1_571_376), (2048, 768, 768)); // (4096, 384, 384) measured the same
    }
}
