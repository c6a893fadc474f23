//! The table of joins that must be refused.

use cake_core::{Dtype, Place};

use super::Refusal;
use super::changes::{elsewhere, reshape, retype};
use crate::cases::{Case, CombineCase};
use crate::engine::call::CombineCall;

const fn join(
    name: &'static str,
    change: fn(&mut CombineCall<'_>, Place),
    variant: &'static str,
    argument: &'static str,
) -> Refusal<CombineCase> {
    let case = || CombineCase { norm: Case::new(4, 64), dw: Dtype::F32, accumulate: false };
    Refusal { name, case, change, expected: (variant, argument) }
}

/// Every fault.
pub(super) const REFUSALS: &[Refusal<CombineCase>] = &[
    join("shards bf16", |call, _| retype(&mut call.shards, Dtype::Bf16), "Dtype", "shards"),
    join("dw bf16 for an f32 plan", |call, _| retype(&mut call.dw, Dtype::Bf16), "Dtype", "dw"),
    join("shards narrower", |call, _| reshape(&mut call.shards, &[4, 63]), "Shape", "shards"),
    join("one shard without its dimension", |call, _| reshape(&mut call.shards, &[64]), "Rank", "shards"),
    join("shards of rows", |call, _| reshape(&mut call.shards, &[2, 2, 64]), "Rank", "shards"),
    join("dw longer", |call, _| reshape(&mut call.dw, &[65]), "Shape", "dw"),
    join("dw a row", |call, _| reshape(&mut call.dw, &[1, 64]), "Shape", "dw"),
    join("shards elsewhere", |call, place| call.shards.place = elsewhere(place), "Place", "shards"),
    join("dw elsewhere", |call, place| call.dw.place = elsewhere(place), "Place", "dw"),
    join("shards a byte short", |call, _| call.shards.bytes -= 1, "Extent", "shards"),
    join("dw a byte short", |call, _| call.dw.bytes -= 1, "Extent", "dw"),
    join("dw in one element", |call, _| call.dw.strides[0] = 0, "SelfOverlap", "dw"),
    join("dw null", |call, _| call.dw.address = 0, "NullPointer", "dw"),
    join("dw over a shard", |call, _| call.dw.address = call.shards.address + 256, "Overlap", "dw over shards"),
];
