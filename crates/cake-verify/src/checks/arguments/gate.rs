//! The tables of calls of the gated norm that must be refused. What they share with the norm is tried there at length.

use cake_core::{Dtype, Place};

use super::Refusal;
use super::changes::{elsewhere, next_device, renamed, reshape, retype};
use crate::cases::gate::{GateBackwardCase, GateCase};
use crate::cases::{Case, Form};
use crate::engine::gate::{GateBackwardCall, GateCall};
use crate::engine::memory::Argument;

const fn forward(
    name: &'static str,
    change: fn(&mut GateCall<'_>, Place),
    variant: &'static str,
    argument: &'static str,
) -> Refusal<GateCase> {
    Refusal { name, case: good, change, expected: (variant, argument) }
}

const fn backward(
    name: &'static str,
    change: fn(&mut GateBackwardCall<'_>, Place),
    variant: &'static str,
    argument: &'static str,
) -> Refusal<GateBackwardCase> {
    Refusal { name, case: good_backward, change, expected: (variant, argument) }
}

const fn of(case: fn() -> GateBackwardCase, refusal: Refusal<GateBackwardCase>) -> Refusal<GateBackwardCase> {
    Refusal { case, ..refusal }
}

/// Three tokens of four heads.
fn good() -> GateCase {
    GateCase::of(super::good(Form::COMMON[0]))
}

/// From the inputs alone.
fn good_backward() -> GateBackwardCase {
    GateBackwardCase::of(GateCase::of(Case { rstd: false, ..super::good(Form::COMMON[0]) }))
}

fn given() -> GateBackwardCase {
    GateBackwardCase::of(good())
}

fn frozen() -> GateBackwardCase {
    GateBackwardCase { dw: None, ..good_backward() }
}

fn rstd<'c, 'm>(argument: &'c mut Option<Argument<'m>>) -> &'c mut Argument<'m> {
    argument.as_mut().expect("the case has rstd")
}

fn dw<'c, 'm>(call: &'c mut GateBackwardCall<'m>) -> &'c mut Argument<'m> {
    call.dw.as_mut().expect("the case asks for dw")
}

/// Every fault of a forward.
pub(super) const FORWARD: &[Refusal<GateCase>] = &[
    forward("x f32", |call, _| retype(&mut call.x, Dtype::F32), "Dtype", "x"),
    forward("z f32", |call, _| retype(&mut call.z, Dtype::F32), "Dtype", "z"),
    forward("z f16", |call, _| retype(&mut call.z, Dtype::F16), "Dtype", "z"),
    forward("y f32", |call, _| retype(&mut call.y, Dtype::F32), "Dtype", "y"),
    forward("weight f32 for a bf16 plan", |call, _| retype(&mut call.weight, Dtype::F32), "Dtype", "weight"),
    forward("rstd bf16", |call, _| retype(rstd(&mut call.rstd), Dtype::Bf16), "Dtype", "rstd"),
    forward("x of all heads", |call, _| reshape(&mut call.x, &[3, 256]), "Shape", "x"),
    forward("z of all heads", |call, _| reshape(&mut call.z, &[3, 256]), "Shape", "z"),
    forward("z a head short", |call, _| reshape(&mut call.z, &[3, 3, 64]), "Shape", "z"),
    forward("z of one head", |call, _| reshape(&mut call.z, &[3, 1, 64]), "Shape", "z"),
    forward("z heads first", |call, _| reshape(&mut call.z, &[4, 3, 64]), "Shape", "z"),
    forward("y flattened", |call, _| reshape(&mut call.y, &[12, 64]), "Shape", "y"),
    forward("weight of all heads", |call, _| reshape(&mut call.weight, &[256]), "Shape", "weight"),
    forward("weight for each head", |call, _| reshape(&mut call.weight, &[4, 64]), "Shape", "weight"),
    forward("weight shorter", |call, _| reshape(&mut call.weight, &[63]), "Shape", "weight"),
    forward("rstd for each token", |call, _| reshape(rstd(&mut call.rstd), &[3]), "Shape", "rstd"),
    forward("rstd flattened", |call, _| reshape(rstd(&mut call.rstd), &[12]), "Shape", "rstd"),
    forward("2^31 rows", |call, _| every_activation(call, &[1 << 31, 64]), "Size", "x"),
    forward("2^31 tokens and heads", |call, _| every_activation(call, &[1 << 25, 1 << 6, 64]), "Size", "x"),
    forward("z elsewhere", |call, place| call.z.place = elsewhere(place), "Place", "z"),
    forward("z on the next device", |call, place| call.z.place = next_device(place), "Place", "z"),
    forward("weight elsewhere", |call, place| call.weight.place = elsewhere(place), "Place", "weight"),
    forward("z a byte short", |call, _| call.z.bytes -= 1, "Extent", "z"),
    forward("z with a long token stride", |call, _| call.z.strides[0] += 1, "Extent", "z"),
    forward("z backwards", |call, _| call.z.strides[1] = -64, "NegativeStride", "z"),
    forward("y in one head", |call, _| call.y.strides[1] = 0, "SelfOverlap", "y"),
    forward("z null", |call, _| call.z.address = 0, "NullPointer", "z"),
    forward("weight null", |call, _| call.weight.address = 0, "NullPointer", "weight"),
    forward("z odd", |call, _| call.z.address += 1, "Misaligned", "z"),
    forward("y beside x", |call, _| call.y.address = call.x.address + 16, "Overlap", "y over x"),
    forward("y beside z", |call, _| call.y.address = call.z.address + 16, "Overlap", "y over z"),
    forward("y over z in another order", |call, _| over_z_transposed(call), "Overlap", "y over z"),
    forward("y over a z of one row", |call, _| over_one_row(call), "Overlap", "y over z"),
    forward("y over weight", |call, _| call.weight.address = call.y.address + 128, "Overlap", "y over weight"),
    forward("rstd in y", |call, _| rstd(&mut call.rstd).address = call.y.address, "Overlap", "rstd over y"),
    forward("rstd in z", |call, _| rstd(&mut call.rstd).address = call.z.address, "Overlap", "rstd over z"),
    forward("negative eps", |call, _| call.eps = -1e-6, "Value", "eps"),
    forward("NaN eps", |call, _| call.eps = f32::NAN, "Value", "eps"),
];

/// Every fault of a backward.
pub(super) const BACKWARD: &[Refusal<GateBackwardCase>] = &[
    backward("dy f32", |call, _| retype(&mut call.dy, Dtype::F32), "Dtype", "dy"),
    backward("z f32", |call, _| retype(&mut call.z, Dtype::F32), "Dtype", "z"),
    backward("dx f32", |call, _| retype(&mut call.dx, Dtype::F32), "Dtype", "dx"),
    backward("dz f16", |call, _| retype(&mut call.dz, Dtype::F16), "Dtype", "dz"),
    backward("dw bf16 for an f32 plan", |call, _| retype(dw(call), Dtype::Bf16), "Dtype", "dw"),
    backward("weight f32 for a bf16 plan", |call, _| retype(&mut call.weight, Dtype::F32), "Dtype", "weight"),
    backward("x a head short", |call, _| reshape(&mut call.x, &[3, 3, 64]), "Shape", "dy"),
    backward("dy to be broadcast", |call, _| reshape(&mut call.dy, &[1, 1, 64]), "Shape", "dy"),
    backward("z a head short", |call, _| reshape(&mut call.z, &[3, 3, 64]), "Shape", "z"),
    backward("dx heads first", |call, _| reshape(&mut call.dx, &[4, 3, 64]), "Shape", "dx"),
    backward("dz flattened", |call, _| reshape(&mut call.dz, &[12, 64]), "Shape", "dz"),
    backward("weight of all heads", |call, _| reshape(&mut call.weight, &[256]), "Shape", "weight"),
    backward("dw of all heads", |call, _| reshape(dw(call), &[256]), "Shape", "dw"),
    backward("dw for each row", |call, _| reshape(dw(call), &[12, 64]), "Shape", "dw"),
    of(given, backward("rstd for each token", |call, _| reshape(rstd(&mut call.rstd), &[3]), "Shape", "rstd")),
    of(given, backward("rstd bf16", |call, _| retype(rstd(&mut call.rstd), Dtype::Bf16), "Dtype", "rstd")),
    backward("dz elsewhere", |call, place| call.dz.place = elsewhere(place), "Place", "dz"),
    backward("dw on the next device", |call, place| dw(call).place = next_device(place), "Place", "dw"),
    backward("dz a byte short", |call, _| call.dz.bytes -= 1, "Extent", "dz"),
    backward("z a byte short", |call, _| call.z.bytes -= 1, "Extent", "z"),
    backward("dz in one token", |call, _| call.dz.strides[0] = 0, "SelfOverlap", "dz"),
    backward("dw in one element", |call, _| dw(call).strides[0] = 0, "SelfOverlap", "dw"),
    backward("dz null", |call, _| call.dz.address = 0, "NullPointer", "dz"),
    backward("dz odd", |call, _| call.dz.address += 1, "Misaligned", "dz"),
    backward("dx over x", |call, _| call.dx.address = call.x.address, "Overlap", "dx over x"),
    backward("dx over z", |call, _| call.dx.address = call.z.address, "Overlap", "dx over z"),
    backward("dx beside dy", |call, _| call.dx.address = call.dy.address + 16, "Overlap", "dx over dy"),
    backward("dz over x", |call, _| call.dz.address = call.x.address, "Overlap", "dz over x"),
    backward("dz over dy", |call, _| call.dz.address = call.dy.address, "Overlap", "dz over dy"),
    backward("dz beside z", |call, _| call.dz.address = call.z.address + 16, "Overlap", "dz over z"),
    backward("dz over dx", |call, _| call.dz.address = call.dx.address, "Overlap", "dz over dx"),
    backward("dz over weight", |call, _| call.weight.address = call.dz.address + 128, "Overlap", "dz over weight"),
    backward("dw in dz", |call, _| dw(call).address = call.dz.address, "Overlap", "dw over dz"),
    backward("dw in z", |call, _| dw(call).address = call.z.address, "Overlap", "dw over z"),
    backward("dw over weight", |call, _| call.weight.address = dw(call).address, "Overlap", "dw over weight"),
    of(
        given,
        backward("dz over rstd", |call, _| rstd(&mut call.rstd).address = call.dz.address, "Overlap", "dz over rstd"),
    ),
    backward("negative eps", |call, _| call.eps = -1e-6, "Value", "eps"),
    backward("infinite eps", |call, _| call.eps = f32::INFINITY, "Value", "eps"),
    backward("an rstd", |call, _| call.rstd = renamed(dw(call), "rstd"), "Unexpected", "rstd"),
    of(given, backward("no rstd", |call, _| call.rstd = None, "Missing", "rstd")),
    backward("no dw", |call, _| call.dw = None, "Missing", "dw"),
    of(frozen, backward("a dw", |call, _| call.dw = renamed(&call.weight, "dw"), "Unexpected", "dw")),
];

fn every_activation(call: &mut GateCall<'_>, shape: &[u64]) {
    // Far apart, and far from anything real, so that it is the number of rows that is refused.
    for (i, argument) in [&mut call.x, &mut call.z, &mut call.y].into_iter().enumerate() {
        reshape(argument, shape);
        argument.address = (i as u64 + 1) << 44;
    }
    let rstd = rstd(&mut call.rstd);
    reshape(rstd, &shape[..shape.len() - 1]);
    rstd.address = 5 << 44;
}

fn over_z_transposed(call: &mut GateCall<'_>) {
    call.y.address = call.z.address;
    call.y.strides = vec![64, 192, 1];
}

fn over_one_row(call: &mut GateCall<'_>) {
    call.z.strides = vec![0, 0, 1];
    call.y.address = call.z.address;
}
