//! Whether a call's route serves it.

use cake_core::{DeviceInfo, Op, Shape, Workspace};
use cake_kernels::{RowTensor, rmsnorm, silu_gate};

/// The route of a call names a program that serves it, with a grid and shared memory that the device has, on no more SMs
/// than it may occupy, and a workspace as large as one for up to so many rows.
pub(crate) fn serves<O: Op>(
    spec: &O::Spec,
    mut params: O::Params,
    shape: Shape,
    device: &DeviceInfo,
    max_sms: Option<u32>,
) {
    let call = || format!("{} {spec:?} {shape:?} on {} SMs", device.arch, device.sms);
    let route = O::routes(spec, device.arch, shape).route(device, shape.rows);
    let program = route.program;
    let served = O::programs(spec, device.arch);
    assert!(served.iter().any(|served| std::ptr::eq(*served, program)), "{}: {program} does not serve", call());
    if O::is_idle(spec, shape) {
        return;
    }
    assert_eq!(O::obstacle(spec, program, shape), None, "{}: {program}", call());
    O::follow(spec, &mut params, program, Some(route), device);
    for kernel in O::kernels(spec, program) {
        let grid = O::grid(kernel, &params);
        assert!((1..1 << 31).contains(&grid), "{}: {grid} CTAs of {kernel}", call());
        if let Some(most) = max_sms.filter(|_| kernel.cooperative) {
            assert!(grid <= most, "{}: {grid} CTAs of {kernel}", call());
        }
        assert!(max_sms.is_none() || kernel.cooperative, "{}: {kernel} takes any number of SMs", call());
        let shared = O::shared_bytes(spec, kernel, Some(&params));
        let most = device.shared_per_cta.min(O::shared_bytes(spec, kernel, None));
        assert!(shared <= most, "{}: {kernel}: {shared} of {most} shared bytes", call());
    }
    let bytes = O::workspace_bytes(spec, program, shape.rows, device);
    assert!(bytes == 0 || bytes >= Workspace::HEADER, "{}: {program}: {bytes} bytes", call());
    let most = O::workspace_for_up_to(spec, program, shape.rows, device);
    assert!(bytes <= most, "{}: {program}: {bytes} bytes, {most} for as many rows", call());
}

/// What routing and grids look at in a call's parameters.
pub(crate) fn forward_params(width: u32, rows: u32) -> rmsnorm::ForwardParams {
    rmsnorm::ForwardParams { rows, width, ..Default::default() }
}

pub(crate) fn backward_params(spec: &cake_rmsnorm::BackwardSpec, rows: u32) -> rmsnorm::BackwardParams {
    let dx = RowTensor { address: spec.dx.into(), ..RowTensor::default() };
    rmsnorm::BackwardParams { rows, width: spec.norm.width, dx, dw: spec.dw.is_some().into(), ..Default::default() }
}

pub(crate) fn gate_forward_params(width: u32, rows: u32) -> silu_gate::ForwardParams {
    silu_gate::ForwardParams { rows, width, ..Default::default() }
}

pub(crate) fn gate_backward_params(spec: &cake_silu_gate::BackwardSpec, rows: u32) -> silu_gate::BackwardParams {
    silu_gate::BackwardParams { rows, width: spec.norm.width, dw: spec.dw.is_some().into(), ..Default::default() }
}
