//! Routes: every call on every device leads to a program that serves it, with what the device has.

use cake_core::{Arch, DeviceInfo, Dtype, Shape};
use cake_kernels::rmsnorm::FORWARD_WIDTHS;
use cake_rmsnorm::{RmsNormBackward, RmsNormForward};
use cake_silu_gate::{Activation, SiluGateBackward, SiluGateForward};

use super::draw::Draw;
use super::serves::{backward_params, forward_params, gate_backward_params, gate_forward_params, serves};

/// Any call of any operator.
pub(crate) fn routes(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let arch = draw.one_of(&Arch::ALL);
    let sms = if draw.flag() { DeviceInfo::typical(arch).sms } else { 1 + draw.below(256) as u32 };
    let device = DeviceInfo { sms, ..DeviceInfo::typical(arch) };
    let tuned = FORWARD_WIDTHS.map(u64::from);
    let width = if draw.flag() { draw.one_of(&tuned) } else { 1 + draw.below(262_144) } as u32;
    let rows = (draw.size() % (1 << 31)) as u32;
    let shape = Shape { rows, vectors: draw.flag(), in_place: draw.flag() };
    let weight = draw.one_of(&[Some(Dtype::Bf16), Some(Dtype::F32), None]);
    let norm = cake_rmsnorm::Spec { width, weight, offset: weight.is_some() && draw.flag(), residual: draw.flag() };
    let dw = weight.filter(|_| draw.flag()).map(|_| draw.one_of(&[Dtype::Bf16, Dtype::F32]));
    let spec = cake_rmsnorm::BackwardSpec {
        norm,
        rstd: draw.flag(),
        dx: dw.is_none() || draw.flag(),
        dw,
        accumulate: dw.is_some() && draw.flag(),
        deterministic: !draw.rarely(4),
        max_sms: draw.rarely(4).then(|| 1 + draw.below(256) as u32),
    };
    serves::<RmsNormForward>(&norm, forward_params(width, rows), shape, &device, None);
    serves::<RmsNormBackward>(&spec, backward_params(&spec, rows), shape, &device, spec.max_sms);

    let width = if draw.flag() { draw.one_of(&[64, 128, 256, 512]) } else { width };
    let gate = cake_silu_gate::Spec {
        width,
        weight: weight.unwrap_or(Dtype::Bf16),
        activation: draw.one_of(&[Activation::Silu, Activation::Sigmoid]),
        gate_first: draw.flag(),
    };
    let cake_rmsnorm::BackwardSpec { rstd, dw, accumulate, deterministic, max_sms, .. } = spec;
    let spec = cake_silu_gate::BackwardSpec { norm: gate, rstd, dw, accumulate, deterministic, max_sms };
    serves::<SiluGateForward>(&gate, gate_forward_params(width, rows), shape, &device, None);
    serves::<SiluGateBackward>(&spec, gate_backward_params(&spec, rows), shape, &device, max_sms);
}
