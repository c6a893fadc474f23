//! The table of backward calls that must be refused. What they share with the forward is tried there at length.

use cake_core::{Dtype, Place};

use super::changes::{elsewhere, next_device, renamed, reshape, retype};
use super::{Refusal, good};
use crate::cases::{BackwardCase, Case, Form};
use crate::engine::call::BackwardCall;
use crate::engine::memory::Argument;

const FULL: Form = Form { weight: Some(Dtype::Bf16), offset: false, residual: true };

const fn full(
    name: &'static str,
    change: fn(&mut BackwardCall<'_>, Place),
    variant: &'static str,
    argument: &'static str,
) -> Refusal<BackwardCase> {
    Refusal { name, case: || BackwardCase::of(good(FULL)), change, expected: (variant, argument) }
}

const fn of(case: fn() -> BackwardCase, refusal: Refusal<BackwardCase>) -> Refusal<BackwardCase> {
    Refusal { case, ..refusal }
}

/// Computes `rstd` again.
fn recomputing() -> BackwardCase {
    BackwardCase::of(Case { rstd: false, ..good(FULL) })
}

fn frozen() -> BackwardCase {
    BackwardCase { dw: None, ..BackwardCase::of(good(FULL)) }
}

fn weights_alone() -> BackwardCase {
    BackwardCase { dx: false, ..BackwardCase::of(good(FULL)) }
}

fn plain() -> BackwardCase {
    BackwardCase::of(good(Form::COMMON[0]))
}

/// The optional arguments of the full form.
trait Present<'m> {
    fn weight(&mut self) -> &mut Argument<'m>;
    fn rstd(&mut self) -> &mut Argument<'m>;
    fn dh(&mut self) -> &mut Argument<'m>;
    fn dx(&mut self) -> &mut Argument<'m>;
    fn dw(&mut self) -> &mut Argument<'m>;
}

impl<'m> Present<'m> for BackwardCall<'m> {
    fn weight(&mut self) -> &mut Argument<'m> {
        self.weight.as_mut().expect("the form has a weight")
    }

    fn rstd(&mut self) -> &mut Argument<'m> {
        self.rstd.as_mut().expect("the case has rstd")
    }

    fn dh(&mut self) -> &mut Argument<'m> {
        self.dh.as_mut().expect("the form has dh")
    }

    fn dx(&mut self) -> &mut Argument<'m> {
        self.dx.as_mut().expect("the case asks for dx")
    }

    fn dw(&mut self) -> &mut Argument<'m> {
        self.dw.as_mut().expect("the case asks for dw")
    }
}

/// Every fault.
pub(super) const REFUSALS: &[Refusal<BackwardCase>] = &[
    full("x f32", |call, _| retype(&mut call.x, Dtype::F32), "Dtype", "x"),
    full("dy f32", |call, _| retype(&mut call.dy, Dtype::F32), "Dtype", "dy"),
    full("dy f16", |call, _| retype(&mut call.dy, Dtype::F16), "Dtype", "dy"),
    full("dh f32", |call, _| retype(call.dh(), Dtype::F32), "Dtype", "dh"),
    full("dx f32", |call, _| retype(call.dx(), Dtype::F32), "Dtype", "dx"),
    full("dw bf16 for an f32 plan", |call, _| retype(call.dw(), Dtype::Bf16), "Dtype", "dw"),
    full("weight f32 for a bf16 plan", |call, _| retype(call.weight(), Dtype::F32), "Dtype", "weight"),
    full("rstd bf16", |call, _| retype(call.rstd(), Dtype::Bf16), "Dtype", "rstd"),
    full("x narrower", |call, _| reshape(&mut call.x, &[3, 4, 63]), "Shape", "x"),
    full("x a row short", |call, _| reshape(&mut call.x, &[3, 3, 64]), "Shape", "dy"),
    full("dy a row short", |call, _| reshape(&mut call.dy, &[3, 3, 64]), "Shape", "dy"),
    full("dy to be broadcast", |call, _| reshape(&mut call.dy, &[1, 1, 64]), "Shape", "dy"),
    full("dh flattened", |call, _| reshape(call.dh(), &[12, 64]), "Shape", "dh"),
    full("dx transposed", |call, _| reshape(call.dx(), &[4, 3, 64]), "Shape", "dx"),
    full("dw shorter", |call, _| reshape(call.dw(), &[63]), "Shape", "dw"),
    full("dw for each row", |call, _| reshape(call.dw(), &[12, 64]), "Shape", "dw"),
    full("weight longer", |call, _| reshape(call.weight(), &[65]), "Shape", "weight"),
    full("rstd a row short", |call, _| reshape(call.rstd(), &[3, 3]), "Shape", "rstd"),
    full("rstd flattened", |call, _| reshape(call.rstd(), &[12]), "Shape", "rstd"),
    full("rstd with a column", |call, _| reshape(call.rstd(), &[3, 4, 1]), "Shape", "rstd"),
    full("dy elsewhere", |call, place| call.dy.place = elsewhere(place), "Place", "dy"),
    full("dx elsewhere", |call, place| call.dx().place = elsewhere(place), "Place", "dx"),
    full("dw on the next device", |call, place| call.dw().place = next_device(place), "Place", "dw"),
    full("rstd elsewhere", |call, place| call.rstd().place = elsewhere(place), "Place", "rstd"),
    full("dy a byte short", |call, _| call.dy.bytes -= 1, "Extent", "dy"),
    full("dx a byte short", |call, _| call.dx().bytes -= 1, "Extent", "dx"),
    full("dw a byte short", |call, _| call.dw().bytes -= 1, "Extent", "dw"),
    full("dh a byte short", |call, _| call.dh().bytes -= 1, "Extent", "dh"),
    full("dy backwards", |call, _| call.dy.strides[1] = -64, "NegativeStride", "dy"),
    full("dx in one row", |call, _| call.dx().strides[0] = 0, "SelfOverlap", "dx"),
    full("dw in one element", |call, _| call.dw().strides[0] = 0, "SelfOverlap", "dw"),
    full("dy null", |call, _| call.dy.address = 0, "NullPointer", "dy"),
    full("dw null", |call, _| call.dw().address = 0, "NullPointer", "dw"),
    full("dx odd", |call, _| call.dx().address += 1, "Misaligned", "dx"),
    full("dw between floats", |call, _| call.dw().address += 2, "Misaligned", "dw"),
    full("dx over x", |call, _| call.dx().address = call.x.address, "Overlap", "dx over x"),
    full("dx over dh", |call, _| call.dx().address = call.dh().address, "Overlap", "dx over dh"),
    full("dx beside dy", |call, _| call.dx().address = call.dy.address + 16, "Overlap", "dx over dy"),
    full("dx over dy in another order", |call, _| over_dy_transposed(call), "Overlap", "dx over dy"),
    full("dx over a dy of one row", |call, _| over_one_row(call), "Overlap", "dx over dy"),
    full("dx over weight", |call, _| call.weight().address = call.dx().address + 128, "Overlap", "dx over weight"),
    full("dx over rstd", |call, _| call.rstd().address = call.dx().address, "Overlap", "dx over rstd"),
    full("dw in dx", |call, _| call.dw().address = call.dx().address, "Overlap", "dw over dx"),
    full("dw in x", |call, _| call.dw().address = call.x.address, "Overlap", "dw over x"),
    full("dw in dy", |call, _| call.dw().address = call.dy.address, "Overlap", "dw over dy"),
    full("dw over rstd", |call, _| call.rstd().address = call.dw().address, "Overlap", "dw over rstd"),
    full("dw over weight", |call, _| call.weight().address = call.dw().address, "Overlap", "dw over weight"),
    of(
        || BackwardCase::of(good(Form { weight: Some(Dtype::F32), ..FULL })),
        full("dw is the weight", |call, _| call.dw().address = call.weight().address, "Overlap", "dw over weight"),
    ),
    of(recomputing, full("negative eps", |call, _| call.eps = -1e-6, "Value", "eps")),
    of(recomputing, full("infinite eps", |call, _| call.eps = f32::INFINITY, "Value", "eps")),
    of(recomputing, full("NaN eps", |call, _| call.eps = f32::NAN, "Value", "eps")),
    of(recomputing, full("an rstd", |call, _| call.rstd = renamed(call.dw(), "rstd"), "Unexpected", "rstd")),
    full("no rstd", |call, _| call.rstd = None, "Missing", "rstd"),
    full("no weight", |call, _| call.weight = None, "Missing", "weight"),
    full("no dh", |call, _| call.dh = None, "Missing", "dh"),
    full("no dx", |call, _| call.dx = None, "Missing", "dx"),
    full("no dw", |call, _| call.dw = None, "Missing", "dw"),
    of(frozen, full("a dw", |call, _| call.dw = renamed(call.rstd(), "dw"), "Unexpected", "dw")),
    of(weights_alone, full("a dx", |call, _| call.dx = renamed(&call.dy, "dx"), "Unexpected", "dx")),
    of(weights_alone, full("a dh", |call, _| call.dh = renamed(&call.dy, "dh"), "Unexpected", "dh")),
    of(plain, full("a dh for a plain plan", |call, _| call.dh = renamed(&call.dy, "dh"), "Unexpected", "dh")),
];

fn over_dy_transposed(call: &mut BackwardCall<'_>) {
    call.dx().address = call.dy.address;
    call.dx().strides = vec![64, 192, 1];
}

fn over_one_row(call: &mut BackwardCall<'_>) {
    call.dy.strides = vec![0, 0, 1];
    call.dx().address = call.dy.address;
}
