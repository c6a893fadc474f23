//! The table of forward calls that must be refused.

use cake_core::{Dtype, Place};

use super::changes::{elsewhere, next_device, renamed, reshape, retype};
use super::{Refusal, good};
use crate::cases::{Case, Form};
use crate::engine::call::Call;
use crate::engine::memory::Argument;

/// Every fault, by kind.
pub(super) const KINDS: &[(&str, &[Refusal<Case>])] = &[
    ("dtypes", DTYPES),
    ("shapes", SHAPES),
    ("places", PLACES),
    ("extents", EXTENTS),
    ("strides", STRIDES),
    ("pointers", POINTERS),
    ("overlaps", OVERLAPS),
    ("scalars", SCALARS),
    ("presence", PRESENCE),
];

const FULL: Form = Form { weight: Some(Dtype::Bf16), offset: false, residual: true };
const PLAIN: Form = Form { weight: Some(Dtype::Bf16), offset: false, residual: false };
const BARE: Form = Form { weight: None, offset: false, residual: false };

const fn full(
    name: &'static str,
    change: fn(&mut Call<'_>, Place),
    variant: &'static str,
    argument: &'static str,
) -> Refusal<Case> {
    Refusal { name, case: || good(FULL), change, expected: (variant, argument) }
}

const fn of(case: fn() -> Case, refusal: Refusal<Case>) -> Refusal<Case> {
    Refusal { case, ..refusal }
}

/// The optional arguments of the full form.
trait Present<'m> {
    fn weight(&mut self) -> &mut Argument<'m>;
    fn residual(&mut self) -> &mut Argument<'m>;
    fn h(&mut self) -> &mut Argument<'m>;
    fn rstd(&mut self) -> &mut Argument<'m>;
}

impl<'m> Present<'m> for Call<'m> {
    fn weight(&mut self) -> &mut Argument<'m> {
        self.weight.as_mut().expect("the form has a weight")
    }

    fn residual(&mut self) -> &mut Argument<'m> {
        self.residual.as_mut().expect("the form has a residual")
    }

    fn h(&mut self) -> &mut Argument<'m> {
        self.h.as_mut().expect("the form has h")
    }

    fn rstd(&mut self) -> &mut Argument<'m> {
        self.rstd.as_mut().expect("the case asks for rstd")
    }
}

const DTYPES: &[Refusal<Case>] = &[
    full("x f16", |call, _| retype(&mut call.x, Dtype::F16), "Dtype", "x"),
    full("x f32", |call, _| retype(&mut call.x, Dtype::F32), "Dtype", "x"),
    full("residual f16", |call, _| retype(call.residual(), Dtype::F16), "Dtype", "residual"),
    full("residual f32", |call, _| retype(call.residual(), Dtype::F32), "Dtype", "residual"),
    full("y f16", |call, _| retype(&mut call.y, Dtype::F16), "Dtype", "y"),
    full("y f32", |call, _| retype(&mut call.y, Dtype::F32), "Dtype", "y"),
    full("h f16", |call, _| retype(call.h(), Dtype::F16), "Dtype", "h"),
    full("h f32", |call, _| retype(call.h(), Dtype::F32), "Dtype", "h"),
    full("rstd bf16", |call, _| retype(call.rstd(), Dtype::Bf16), "Dtype", "rstd"),
    full("rstd f16", |call, _| retype(call.rstd(), Dtype::F16), "Dtype", "rstd"),
    full("weight f32 for a bf16 plan", |call, _| retype(call.weight(), Dtype::F32), "Dtype", "weight"),
    full("weight f16", |call, _| retype(call.weight(), Dtype::F16), "Dtype", "weight"),
    of(
        || good(Form { weight: Some(Dtype::F32), ..FULL }),
        full("weight bf16 for an f32 plan", |call, _| retype(call.weight(), Dtype::Bf16), "Dtype", "weight"),
    ),
];

const SHAPES: &[Refusal<Case>] = &[
    full("x narrower", |call, _| call.x.shape[2] = 63, "Shape", "x"),
    full("x wider", |call, _| reshape(&mut call.x, &[3, 4, 65]), "Shape", "x"),
    full("x a row short", |call, _| reshape(&mut call.x, &[3, 3, 64]), "Shape", "y"),
    full("y narrower", |call, _| call.y.shape[2] = 63, "Shape", "y"),
    full("y a row short", |call, _| reshape(&mut call.y, &[3, 3, 64]), "Shape", "y"),
    full("y a row more", |call, _| reshape(&mut call.y, &[3, 5, 64]), "Shape", "y"),
    full("y flattened", |call, _| reshape(&mut call.y, &[12, 64]), "Shape", "y"),
    full("y transposed", |call, _| reshape(&mut call.y, &[4, 3, 64]), "Shape", "y"),
    full("residual a row short", |call, _| reshape(call.residual(), &[2, 4, 64]), "Shape", "residual"),
    full("residual to be broadcast", |call, _| reshape(call.residual(), &[1, 1, 64]), "Shape", "residual"),
    full("h a row short", |call, _| reshape(call.h(), &[2, 4, 64]), "Shape", "h"),
    full("rstd a row short", |call, _| reshape(call.rstd(), &[3, 3]), "Shape", "rstd"),
    full("rstd flattened", |call, _| reshape(call.rstd(), &[12]), "Shape", "rstd"),
    full("rstd with a column", |call, _| reshape(call.rstd(), &[3, 4, 1]), "Shape", "rstd"),
    full("weight shorter", |call, _| reshape(call.weight(), &[63]), "Shape", "weight"),
    full("weight longer", |call, _| reshape(call.weight(), &[65]), "Shape", "weight"),
    full("weight a row", |call, _| reshape(call.weight(), &[1, 64]), "Shape", "weight"),
    full("weight a column", |call, _| reshape(call.weight(), &[64, 1]), "Shape", "weight"),
    full("weight one element", |call, _| reshape(call.weight(), &[1]), "Shape", "weight"),
    full("x without dimensions", |call, _| reshape(&mut call.x, &[]), "Rank", "x"),
    full("y of 8 dimensions", |call, _| reshape(&mut call.y, &[3, 1, 1, 1, 1, 1, 4, 64]), "Rank", "y"),
    full("x with a stride too few", |call, _| call.x.strides.truncate(2), "Strides", "x"),
    full("2^31 rows", |call, _| every_activation(call, &[1 << 31, 64]), "Size", "x"),
    full(
        "2^64 rows",
        |call, _| (call.x.shape, call.x.strides) = (vec![1 << 32, 1 << 32, 64], vec![0, 0, 1]),
        "Shape",
        "y",
    ),
];

fn every_activation(call: &mut Call<'_>, shape: &[u64]) {
    let rows = shape[..shape.len() - 1].to_vec();
    // Far apart, and far from anything real, so that it is the number of rows that is refused.
    for (i, argument) in [&mut call.x, &mut call.y].into_iter().enumerate() {
        reshape(argument, shape);
        argument.address = (i as u64 + 1) << 44;
    }
    for (i, argument) in [call.residual.as_mut(), call.h.as_mut()].into_iter().flatten().enumerate() {
        reshape(argument, shape);
        argument.address = (i as u64 + 3) << 44;
    }
    if let Some(rstd) = &mut call.rstd {
        reshape(rstd, &rows);
        rstd.address = 5 << 44;
    }
}

const PLACES: &[Refusal<Case>] = &[
    full("x elsewhere", |call, place| call.x.place = elsewhere(place), "Place", "x"),
    full("x on the next device", |call, place| call.x.place = next_device(place), "Place", "x"),
    full("residual elsewhere", |call, place| call.residual().place = elsewhere(place), "Place", "residual"),
    full("weight elsewhere", |call, place| call.weight().place = elsewhere(place), "Place", "weight"),
    full("weight on the next device", |call, place| call.weight().place = next_device(place), "Place", "weight"),
    full("y elsewhere", |call, place| call.y.place = elsewhere(place), "Place", "y"),
    full("h elsewhere", |call, place| call.h().place = elsewhere(place), "Place", "h"),
    full("rstd elsewhere", |call, place| call.rstd().place = elsewhere(place), "Place", "rstd"),
];

const EXTENTS: &[Refusal<Case>] = &[
    full("x a byte short", |call, _| call.x.bytes -= 1, "Extent", "x"),
    full("residual a byte short", |call, _| call.residual().bytes -= 1, "Extent", "residual"),
    full("weight a byte short", |call, _| call.weight().bytes -= 1, "Extent", "weight"),
    full("y a byte short", |call, _| call.y.bytes -= 1, "Extent", "y"),
    full("h a byte short", |call, _| call.h().bytes -= 1, "Extent", "h"),
    full("rstd a byte short", |call, _| call.rstd().bytes -= 1, "Extent", "rstd"),
    full("y of no bytes", |call, _| call.y.bytes = 0, "Extent", "y"),
    full("x with a long row stride", |call, _| call.x.strides[0] += 1, "Extent", "x"),
    full("y with a long column stride", |call, _| call.y.strides = vec![512, 128, 2], "Extent", "y"),
    full("x with a stride that wraps 64 bits to 0", |call, _| call.x.strides[0] = 1 << 62, "Extent", "x"),
    full("y with a stride that wraps 64 bits to 0", |call, _| call.y.strides[0] = 1 << 62, "Extent", "y"),
    full("x with the largest stride", |call, _| call.x.strides[0] = i64::MAX, "Extent", "x"),
    full("x with a size that wraps 64 bits", |call, _| call.x.shape[0] = 1 << 58, "Extent", "x"),
    full("x at the end of the address space", |call, _| call.x.address = u64::MAX - 255, "AddressRange", "x"),
];

const STRIDES: &[Refusal<Case>] = &[
    full("x backwards", |call, _| call.x.strides[1] = -64, "NegativeStride", "x"),
    full("y backwards", |call, _| call.y.strides[2] = -1, "NegativeStride", "y"),
    full("weight backwards", |call, _| call.weight().strides[0] = -1, "NegativeStride", "weight"),
    full("y in one row", |call, _| call.y.strides[0] = 0, "SelfOverlap", "y"),
    full("y in one column", |call, _| call.y.strides[2] = 0, "SelfOverlap", "y"),
    full("y rows overlap", |call, _| call.y.strides[1] = 63, "SelfOverlap", "y"),
    full("y blocks overlap", |call, _| call.y.strides[0] = 255, "SelfOverlap", "y"),
    full("h in one row", |call, _| call.h().strides[1] = 0, "SelfOverlap", "h"),
    full("rstd in one element", |call, _| call.rstd().strides = vec![0, 0], "SelfOverlap", "rstd"),
    full("rstd rows overlap", |call, _| call.rstd().strides = vec![3, 1], "SelfOverlap", "rstd"),
];

const POINTERS: &[Refusal<Case>] = &[
    full("x null", |call, _| call.x.address = 0, "NullPointer", "x"),
    full("residual null", |call, _| call.residual().address = 0, "NullPointer", "residual"),
    full("weight null", |call, _| call.weight().address = 0, "NullPointer", "weight"),
    full("y null", |call, _| call.y.address = 0, "NullPointer", "y"),
    full("h null", |call, _| call.h().address = 0, "NullPointer", "h"),
    full("rstd null", |call, _| call.rstd().address = 0, "NullPointer", "rstd"),
    full("x odd", |call, _| call.x.address += 1, "Misaligned", "x"),
    full("weight odd", |call, _| call.weight().address += 1, "Misaligned", "weight"),
    full("y odd", |call, _| call.y.address += 1, "Misaligned", "y"),
    full("h odd", |call, _| call.h().address += 1, "Misaligned", "h"),
    full("rstd between floats", |call, _| call.rstd().address += 2, "Misaligned", "rstd"),
    of(
        || good(Form { weight: Some(Dtype::F32), ..FULL }),
        full("f32 weight between floats", |call, _| call.weight().address += 2, "Misaligned", "weight"),
    ),
];

const OVERLAPS: &[Refusal<Case>] = &[
    full("y beside x by 8 elements", |call, _| call.y.address = call.x.address + 16, "Overlap", "y over x"),
    full("y before x by 1 element", |call, _| call.y.address = call.x.address - 2, "Overlap", "y over x"),
    full(
        "y on the last element of x",
        |call, _| call.y.address = call.x.address + call.x.bytes - 2,
        "Overlap",
        "y over x",
    ),
    full("y over x in another order", |call, _| over_x_transposed(call), "Overlap", "y over x"),
    full("y over x, an input of one row", |call, _| over_one_row(call), "Overlap", "y over x"),
    full("y over residual", |call, _| call.y.address = call.residual().address, "Overlap", "y over residual"),
    full("y over weight", |call, _| call.weight().address = call.y.address + 128, "Overlap", "y over weight"),
    full("h over x", |call, _| call.h().address = call.x.address, "Overlap", "h over x"),
    full("h over y", |call, _| call.h().address = call.y.address, "Overlap", "h over y"),
    full("h beside residual", |call, _| call.h().address = call.residual().address + 2, "Overlap", "h over residual"),
    full("h over weight", |call, _| call.weight().address = call.h().address, "Overlap", "h over weight"),
    full("rstd in y", |call, _| call.rstd().address = call.y.address + 64, "Overlap", "rstd over y"),
    full("rstd in x", |call, _| call.rstd().address = call.x.address, "Overlap", "rstd over x"),
    full("rstd in h", |call, _| call.rstd().address = call.h().address, "Overlap", "rstd over h"),
    full("rstd in residual", |call, _| call.rstd().address = call.residual().address, "Overlap", "rstd over residual"),
    full("rstd in weight", |call, _| call.rstd().address = call.weight().address, "Overlap", "rstd over weight"),
];

fn over_x_transposed(call: &mut Call<'_>) {
    call.y.address = call.x.address;
    call.y.strides = vec![64, 192, 1];
}

fn over_one_row(call: &mut Call<'_>) {
    call.x.strides = vec![0, 0, 1];
    call.y.address = call.x.address;
}

const SCALARS: &[Refusal<Case>] = &[
    full("negative eps", |call, _| call.eps = -1e-6, "Value", "eps"),
    full("smallest negative eps", |call, _| call.eps = -1e-45, "Value", "eps"),
    full("infinite eps", |call, _| call.eps = f32::INFINITY, "Value", "eps"),
    full("negative infinite eps", |call, _| call.eps = f32::NEG_INFINITY, "Value", "eps"),
    full("NaN eps", |call, _| call.eps = f32::NAN, "Value", "eps"),
];

const PRESENCE: &[Refusal<Case>] = &[
    full("no weight", |call, _| call.weight = None, "Missing", "weight"),
    full("no residual", |call, _| call.residual = None, "Missing", "residual"),
    full("no h", |call, _| call.h = None, "Missing", "h"),
    of(
        || good(PLAIN),
        full(
            "a residual for a plain plan",
            |call, _| call.residual = renamed(&call.x, "residual"),
            "Unexpected",
            "residual",
        ),
    ),
    of(|| good(PLAIN), full("h for a plain plan", |call, _| call.h = renamed(&call.y, "h"), "Unexpected", "h")),
    of(
        || good(BARE),
        full("a weight for a plan without", |call, _| call.weight = renamed(&call.x, "weight"), "Unexpected", "weight"),
    ),
];
