//! The backward operator: argument checks, and the binding of a call to kernel parameters.

use cake_core::bind::{Bound, argument, expect, expect_eps, expect_rows, refuse_workspace};
use cake_core::chunks::{self, Chunks, Divider};
use cake_core::overlap::refuse_overlap;
use cake_core::sums::{self, LEAF_ROWS};
use cake_core::{
    Arch, DeviceInfo, Dtype, Image, Kernel, Op, Place, Program, RawView, Result, Route, RouteTable, Shape, Workspace,
};
use cake_kernels::rmsnorm::backward::{DW, ROW_TENSORS, RSTD, TENSORS, WEIGHT};
use cake_kernels::rmsnorm::{self, BackwardParams};

use crate::{Backward, BackwardSpec, host, routes};

/// RMSNorm backward. With `g = dy * w` and `xhat = x * rstd`, `dx = bf16(rstd * (g - xhat * mean(g * xhat)) [+ dh])` and
/// `dw = sum over the rows of dy * xhat`.
#[derive(Debug)]
pub struct RmsNormBackward;

/// Output pairs that may share memory, element for element; see docs/safety.md.
const IN_PLACE: &[(&str, &str)] = &[("dx", "dy")];

#[allow(unsafe_code)] // promises what `Op` asks for
// SAFETY: `bind` copies addresses from views that `check` has accepted, the parameter block and the images are those of
// cake-kernels, and the kernels keep to the rows, columns and strides in it and to the bytes of workspace that `Chunks`
// counts (docs/safety.md).
unsafe impl Op for RmsNormBackward {
    type Spec = BackwardSpec;
    type Args<'a> = Backward<'a>;
    type Params = BackwardParams;

    const NAME: &'static str = "rmsnorm_bwd";

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
        let weight = argument("weight", args.weight.as_ref().map(|v| v.raw()), norm.weight.is_some())?;
        let rstd = argument("rstd", args.rstd.as_ref().map(|v| v.raw()), spec.rstd)?;
        let dh = argument("dh", args.dh.as_ref().map(|v| v.raw()), norm.residual && spec.dx)?;
        let dx = argument("dx", args.dx.as_ref().map(|v| v.raw()), spec.dx)?;
        let dw = argument("dw", args.dw.as_ref().map(|v| v.raw()), spec.dw.is_some())?;

        let lead = expect_rows(&x, norm.width)?;
        for view in [Some(&x), Some(&dy), dh.as_ref(), dx.as_ref()].into_iter().flatten() {
            expect(view, place, Dtype::Bf16, x.shape())?;
        }
        for (view, dtype) in [(&weight, norm.weight), (&dw, spec.dw)] {
            let Some(view) = view else { continue };
            expect(view, place, dtype.expect("argument() matched it with the plan"), &[norm.width.into()])?;
        }
        if let Some(view) = &rstd {
            expect(view, place, Dtype::F32, lead)?;
        }
        let inputs = [Some(&x), Some(&dy), weight.as_ref(), rstd.as_ref(), dh.as_ref()];
        refuse_overlap(&[dx.as_ref(), dw.as_ref()], &inputs, IN_PLACE)?;
        if let Some(workspace) = &args.workspace {
            let tensors = inputs.into_iter().chain([dx.as_ref(), dw.as_ref()]).flatten();
            refuse_workspace(workspace, place, tensors)?;
        }
        let views = [Some(&x), Some(&dy), dx.as_ref(), dh.as_ref(), rstd.as_ref(), weight.as_ref(), dw.as_ref()];
        bind(spec, lead, &views, args.eps)
    }

    fn routes(spec: &BackwardSpec, arch: Arch, shape: Shape) -> &'static RouteTable {
        routes::backward(spec, arch, shape)
    }

    fn obstacle(spec: &BackwardSpec, program: &'static Program, shape: Shape) -> Option<&'static str> {
        let kernel = &Self::kernels(spec, program)[0];
        if kernel.vectors && !shape.vectors {
            return Some("needs 16-byte aligned rows with at most two levels of row strides");
        }
        if kernel.vectors && !spec.rstd {
            return Some("needs rstd");
        }
        if kernel.schedule != "split" || spec.dw.is_none() {
            return None;
        }
        if leaves_each(kernel, shape.rows, MOST_COLUMNS) > MOST_LEAVES {
            return Some("takes no more rows than 64 leaves for each thread");
        }
        match (spec, shape) {
            (BackwardSpec { max_sms: Some(_), .. }, _) => Some("takes any number of SMs"),
            (_, Shape { in_place: true, .. }) => Some("reads dy for dw while it writes dx"),
            _ => None,
        }
    }

    fn kernels(spec: &BackwardSpec, program: &'static Program) -> &'static [Kernel] {
        program.kernels(spec.norm.weight)
    }

    fn programs(spec: &BackwardSpec, arch: Arch) -> Vec<&'static Program> {
        let residual = spec.norm.residual && spec.dx;
        let forms = rmsnorm::BACKWARD.iter().map(|forms| if residual { &forms.residual } else { &forms.plain });
        let serve = |program: &&'static Program| {
            program.bf16[0].serves(spec.norm.width, arch) && !Self::kernels(spec, program).is_empty()
        };
        forms.filter(serve).collect()
    }

    fn shared_bytes(spec: &BackwardSpec, kernel: &Kernel, params: Option<&BackwardParams>) -> u32 {
        let join = chunks::join_bytes(kernel);
        match kernel.schedule {
            "scan" => join.max(cake_kernels::scan_shared_bytes(kernel, spec.norm.width)),
            "split" if spec.dw.is_none() => 0,
            "split" => 2 * join * split_levels(kernel, params).max(1),
            _ => {
                let levels = params.map_or(31, |params| params.shared_levels);
                join.max(chunks::walk_bytes(spec.norm.width, kernel, levels))
            }
        }
    }

    fn grid(kernel: &Kernel, params: &BackwardParams) -> u32 {
        if kernel.schedule != "split" {
            return params.ctas;
        }
        let columns = if params.dw == 0 { 0 } else { params.width.div_ceil(8 * params.columns) };
        let rows = if params.dx.address == 0 { 0 } else { params.rows.div_ceil(kernel.rows) };
        columns + rows
    }

    fn follow(
        spec: &BackwardSpec,
        params: &mut BackwardParams,
        program: &Program,
        route: Option<&Route>,
        device: &DeviceInfo,
    ) {
        let kernel = &program.kernels(spec.norm.weight)[0];
        if kernel.schedule == "split" {
            let ahead = route.map_or(0, |route| route.rows_ahead(device));
            params.ahead = if params.levels == 1 { ahead } else { 0 };
            params.columns = split_columns(kernel, params, device);
            return;
        }
        let Chunks { rows, count, ctas, shared_levels, .. } = divider(spec, kernel, device).chunks(params.rows);
        (params.chunk, params.chunks, params.ctas, params.shared_levels) = (rows, count, ctas, shared_levels);
        // Without a fold to wait for, fetching ahead comes too early: at H = 6144, T = 65536 dw alone took 592 us so, 408 without.
        params.ahead = route.filter(|_| spec.dx).map_or(0, |route| route.half_rows_ahead / 2);
    }

    fn is_idle(spec: &BackwardSpec, shape: Shape) -> bool {
        shape.rows == 0 && (spec.dw.is_none() || spec.accumulate)
    }

    fn workspace_bytes(spec: &BackwardSpec, program: &Program, rows: u32, device: &DeviceInfo) -> u64 {
        let kernel = &program.kernels(spec.norm.weight)[0];
        if kernel.schedule == "split" || spec.dw.is_none() {
            return 0;
        }
        divider(spec, kernel, device).chunks(rows).workspace
    }

    fn workspace_for_up_to(spec: &BackwardSpec, program: &Program, rows: u32, device: &DeviceInfo) -> u64 {
        let kernel = &program.kernels(spec.norm.weight)[0];
        if kernel.schedule == "split" || spec.dw.is_none() {
            return 0;
        }
        divider(spec, kernel, device).workspace_for_up_to(rows)
    }

    fn workspace<'b>(args: &'b mut Backward<'_>) -> Option<&'b mut Workspace> {
        args.workspace.as_deref_mut()
    }

    fn lend(params: &mut BackwardParams, address: u64) {
        params.workspace = address;
    }

    fn image(arch: Arch) -> Image {
        cake_kernels::image(rmsnorm::OP, arch)
    }

    unsafe fn host(spec: &BackwardSpec, args: Backward<'_>) {
        // SAFETY: as the caller promises.
        unsafe { host::backward(spec, &args) };
    }
}

/// How the rows of a call are divided.
fn divider<'a>(spec: &BackwardSpec, kernel: &'a Kernel, device: &'a DeviceInfo) -> Divider<'a> {
    Divider {
        width: spec.norm.width,
        kernel,
        device,
        max_sms: spec.max_sms,
        unordered: !spec.deterministic,
        narrow: false,
    }
}

/// The call as routing and kernels see it. `views` are in the order of [`rmsnorm::backward`].
fn bind(
    spec: &BackwardSpec,
    lead: &[u64],
    views: &[Option<&RawView>; TENSORS],
    eps: f32,
) -> Result<(Shape, BackwardParams)> {
    let bound = Bound::<ROW_TENSORS, TENSORS>::new(spec.norm.width, lead, views, RSTD, &[RSTD, DW])?;
    let [x, dy, dx, dh, rstd] = bound.tensors;
    let address = |t: usize| views[t].map_or(0, |view: &RawView| view.address);
    let params = BackwardParams {
        x,
        dy,
        rstd,
        dx,
        dh,
        weight: address(WEIGHT),
        dw: address(DW),
        rows: bound.shape.rows,
        levels: bound.levels,
        eps,
        offset: sums::rms::offset(spec.norm.offset),
        width: spec.norm.width,
        dw_fp32: u32::from(spec.dw == Some(Dtype::F32)),
        accumulate: u32::from(spec.accumulate),
        unordered: u32::from(!spec.deterministic),
        sizes: bound.sizes,
        more: bound.more,
        column: bound.column,
        vectors: bound.vectors,
        ..BackwardParams::default()
    };
    let in_place = dx.address != 0 && dx.address == dy.address;
    Ok((Shape { in_place, ..bound.shape }, params))
}

/// Units of columns for a CTA of the `split` schedule whose rows are whole cache lines.
const MOST_COLUMNS: u32 = 8;

/// Leaves for a thread of the `split` schedule, at most: 6 levels wait in shared memory.
const MOST_LEAVES: u32 = 64;

/// Adjacent leaves that a thread of the `split` schedule adds up, with `columns` units of columns for a CTA.
fn leaves_each(kernel: &Kernel, rows: u32, columns: u32) -> u32 {
    let lanes = kernel.threads() / columns;
    rows.div_ceil(LEAF_ROWS as u32).div_ceil(lanes).next_power_of_two()
}

/// Levels of a thread's tree in the `split` schedule: for a call, or the most.
fn split_levels(kernel: &Kernel, params: Option<&BackwardParams>) -> u32 {
    let leaves = |params: &BackwardParams| leaves_each(kernel, params.rows, params.columns);
    params.map_or(MOST_LEAVES, leaves).ilog2()
}

/// Units of columns for a CTA of the `split` schedule: the most, or fewer where that would leave SMs without work.
fn split_columns(kernel: &Kernel, params: &BackwardParams, device: &DeviceInfo) -> u32 {
    let units = params.width / 8;
    let mut columns = MOST_COLUMNS;
    while columns > 1 && leaves_each(kernel, params.rows, columns) > 1 && 2 * units / columns <= device.sms {
        columns /= 2;
    }
    columns
}
