//! The gated norm at a limit.

use std::marker::PhantomData;

use cake_core::sums::LEAF_ROWS;
use cake_core::{Dtype, Workspace};

use super::backward::subtree;
use super::{Blocks, Limit, argument, filled, judge_block, narrow};
use crate::cases::Case;
use crate::cases::gate::{GateBackwardCase, GateCase};
use crate::cases::layout::Placed;
use crate::checks::Context;
use crate::engine::gate::{GateBackwardCall, GateCall, GateGradientRow, GateRow};
use crate::engine::image::halfwords;
use crate::engine::memory::{Memory, Space};
use crate::engine::subject::Subject;
use crate::engine::target::Lane;

/// The tensors of a forward, and what they hold.
pub(super) struct Gates {
    marks: Vec<(u64, GateRow)>,
    eps: f32,
    x: Memory,
    z: Memory,
    weight: Memory,
    y: Memory,
}

impl Blocks for Gates {
    type Case = GateCase;

    fn case(limit: &Limit) -> GateCase {
        GateCase::of(Case { rstd: false, ..limit.case() })
    }

    fn tensors(_: &Limit) -> [u64; 2] {
        [2, 1]
    }

    fn new(limit: &Limit, context: &Context, lane: &Lane, _: u64) -> cake_core::Result<Gates> {
        let few = GateCase { norm: limit.few(), ..Gates::case(limit) };
        let expected = few.expected(context.seed);
        let weight = expected.weight.clone().expect("limits have a weight");
        let marks = limit.marked_rows().into_iter().enumerate().map(|(i, row)| (row, expected.row(i).clone()));
        let [in_bytes, out_bytes] = limit.bytes();
        let blocks = Gates {
            marks: marks.collect(),
            eps: few.norm.eps,
            x: filled(context, lane, in_bytes, 0)?,
            z: filled(context, lane, in_bytes, 0)?,
            weight: Memory::holding(&context.target, lane, &narrow(&weight))?,
            y: filled(context, lane, out_bytes, 0xff)?,
        };
        for (row, content) in &blocks.marks {
            blocks.x.write(lane, row * limit.pitch[0], &content.x)?;
            blocks.z.write(lane, row * limit.pitch[0], &content.z)?;
        }
        Ok(blocks)
    }

    fn call(&self, limit: &Limit) -> GateCall<'_> {
        let [inputs, outputs] = limit.pitch.map(|pitch| limit.placed(pitch));
        let of_width = Placed::new(0, vec![limit.width.into()], vec![1]);
        GateCall {
            x: argument("x", &self.x, Dtype::Bf16, inputs.clone()),
            z: argument("z", &self.z, Dtype::Bf16, inputs),
            weight: argument("weight", &self.weight, Dtype::Bf16, of_width),
            eps: self.eps,
            y: argument("y", &self.y, Dtype::Bf16, outputs),
            rstd: None,
        }
    }

    fn judge(&self, limit: &Limit, lane: &Lane) -> Result<(), String> {
        let (halves, background, pitch) = limit.output();
        let y = |(row, content): &(u64, GateRow)| (row * pitch, content.y.clone());
        judge_block("y", &self.y, lane, halves, background, self.marks.iter().map(y))
    }
}

/// Those of a backward.
pub(super) struct GateGradients {
    marks: Vec<(u64, GateGradientRow)>,
    eps: f32,
    x: Memory,
    dy: Memory,
    z: Memory,
    weight: Memory,
    dx: Memory,
    dz: Memory,
    dw: Memory,
    workspace: Option<(Memory, u64)>,
}

impl Blocks for GateGradients {
    type Case = GateBackwardCase;

    fn case(limit: &Limit) -> GateBackwardCase {
        GateBackwardCase::of(Gates::case(limit))
    }

    fn tensors(_: &Limit) -> [u64; 2] {
        [3, 2]
    }

    fn new(limit: &Limit, context: &Context, lane: &Lane, workspace: u64) -> cake_core::Result<GateGradients> {
        let norm = Case { rstd: false, ..limit.few() };
        let few = GateBackwardCase { forward: GateCase::of(norm), ..GateGradients::case(limit) };
        let expected = few.expected(context.seed).rows;
        let weight = expected.weight.clone().expect("limits have a weight");
        let marks = limit.marked_rows().into_iter().enumerate().map(|(i, row)| (row, expected.row(i).clone()));
        let [in_bytes, out_bytes] = limit.bytes();
        let filled = |bytes, byte| filled(context, lane, bytes, byte);
        let lent = |bytes| {
            let memory = filled(bytes, 0xff)?;
            memory.write(lane, 0, &[0; Workspace::HEADER as usize / 2])?;
            cake_core::Result::Ok((memory, bytes))
        };
        let blocks = GateGradients {
            marks: marks.collect(),
            eps: few.forward.norm.eps,
            x: filled(in_bytes, 0)?,
            dy: filled(in_bytes, 0)?,
            z: filled(in_bytes, 0)?,
            weight: Memory::holding(&context.target, lane, &narrow(&weight))?,
            dx: filled(out_bytes, 0xff)?,
            dz: filled(out_bytes, 0xff)?,
            dw: filled(4 * u64::from(limit.width), 0xff)?,
            workspace: (workspace > 0).then(|| lent(workspace)).transpose()?,
        };
        for (row, content) in &blocks.marks {
            let at = row * limit.pitch[0];
            for (memory, content) in [(&blocks.x, &content.x), (&blocks.dy, &content.dy), (&blocks.z, &content.z)] {
                memory.write(lane, at, content)?;
            }
        }
        Ok(blocks)
    }

    fn call(&self, limit: &Limit) -> GateBackwardCall<'_> {
        let [inputs, outputs] = limit.pitch.map(|pitch| limit.placed(pitch));
        let of_width = || Placed::new(0, vec![limit.width.into()], vec![1]);
        let space =
            |(memory, bytes): &(Memory, u64)| Space { address: memory.address(), bytes: *bytes, memory: PhantomData };
        GateBackwardCall {
            dy: argument("dy", &self.dy, Dtype::Bf16, inputs.clone()),
            x: argument("x", &self.x, Dtype::Bf16, inputs.clone()),
            z: argument("z", &self.z, Dtype::Bf16, inputs),
            weight: argument("weight", &self.weight, Dtype::Bf16, of_width()),
            rstd: None,
            eps: self.eps,
            dx: argument("dx", &self.dx, Dtype::Bf16, outputs.clone()),
            dz: argument("dz", &self.dz, Dtype::Bf16, outputs),
            dw: Some(argument("dw", &self.dw, Dtype::F32, of_width())),
            workspace: self.workspace.as_ref().map(space),
        }
    }

    fn judge(&self, limit: &Limit, lane: &Lane) -> Result<(), String> {
        let (halves, background, pitch) = limit.output();
        let dx = |(row, content): &(u64, GateGradientRow)| (row * pitch, content.dx.clone());
        judge_block("dx", &self.dx, lane, halves, background, self.marks.iter().map(dx))?;
        let dz = |(row, content): &(u64, GateGradientRow)| (row * pitch, content.dz.clone());
        judge_block("dz", &self.dz, lane, halves, background, self.marks.iter().map(dz))?;
        let leaves = limit.rows.div_ceil(LEAF_ROWS as u64).next_power_of_two();
        let of_column = |column: usize| {
            let term = |(row, content): &(u64, GateGradientRow)| {
                let (gradient, xhat) = content.term(column);
                (*row, gradient, xhat)
            };
            let terms: Vec<(u64, f32, f32)> = self.marks.iter().map(term).collect();
            (subtree(&terms, leaves) + 0.0).to_bits()
        };
        let dw: Vec<u32> = (0..limit.width as usize).map(of_column).collect();
        let expected = [(0, halfwords(&dw))].into_iter();
        judge_block("dw", &self.dw, lane, 2 * u64::from(limit.width), [0; 2], expected)
    }
}
