//! The backward at a limit. Zero rows add nothing to `dw`, but the marked rows keep their places in the row tree.

use std::marker::PhantomData;

use cake_core::sums::{LEAF_ROWS, rms};
use cake_core::{Dtype, Workspace};
use half::bf16;

use super::{Blocks, Limit, argument, filled, judge_block, narrow};
use crate::cases::BackwardCase;
use crate::cases::layout::Placed;
use crate::checks::Context;
use crate::engine::call::BackwardCall;
use crate::engine::gradients::{self, GradientRow};
use crate::engine::image::halfwords;
use crate::engine::memory::{Memory, Space};
use crate::engine::target::Lane;

/// The tensors, and what they hold.
pub(super) struct Gradients {
    marks: Vec<(u64, GradientRow)>,
    eps: f32,
    x: Memory,
    dy: Memory,
    dh: Option<Memory>,
    rstd: Memory,
    weight: Memory,
    dx: Memory,
    dw: Memory,
    workspace: Option<(Memory, u64)>,
}

impl Blocks for Gradients {
    type Case = BackwardCase;

    fn case(limit: &Limit) -> BackwardCase {
        BackwardCase::of(limit.case())
    }

    fn tensors(limit: &Limit) -> [u64; 2] {
        if limit.residual { [3, 1] } else { [2, 1] }
    }

    fn new(limit: &Limit, context: &Context, lane: &Lane, workspace: u64) -> cake_core::Result<Gradients> {
        let few = BackwardCase::of(limit.few());
        let expected = gradients::Gradients::of(&few, context.seed).rows;
        let weight = expected.weight.clone().expect("limits have a weight");
        let marks = limit.marked_rows().into_iter().enumerate().map(|(i, row)| (row, expected.row(i).clone()));
        let [in_bytes, out_bytes] = limit.bytes();
        let filled = |bytes, byte| filled(context, lane, bytes, byte);
        let lent = |bytes| {
            let memory = filled(bytes, 0xff)?;
            memory.write(lane, 0, &[0; Workspace::HEADER as usize / 2])?;
            cake_core::Result::Ok((memory, bytes))
        };
        let blocks = Gradients {
            marks: marks.collect(),
            eps: few.norm.eps,
            x: filled(in_bytes, 0)?,
            dy: filled(in_bytes, 0)?,
            dh: limit.residual.then(|| filled(in_bytes, 0)).transpose()?,
            // 0x3f3f3f3f is a number between 1/2 and 1.
            rstd: filled(4 * limit.rows, 0x3f)?,
            weight: Memory::holding(&context.target, lane, &narrow(&weight))?,
            dx: filled(out_bytes, 0xff)?,
            dw: filled(4 * u64::from(limit.width), 0xff)?,
            workspace: (workspace > 0).then(|| lent(workspace)).transpose()?,
        };
        for (row, content) in &blocks.marks {
            let at = row * limit.pitch[0];
            blocks.x.write(lane, at, &content.x)?;
            blocks.dy.write(lane, at, &content.dy)?;
            if let (Some(memory), Some(dh)) = (&blocks.dh, &content.dh) {
                memory.write(lane, at, dh)?;
            }
            blocks.rstd.write(lane, 2 * row, &halfwords(&[content.rstd]))?;
        }
        Ok(blocks)
    }

    fn call(&self, limit: &Limit) -> BackwardCall<'_> {
        let [inputs, outputs] = limit.pitch.map(|pitch| limit.placed(pitch));
        let of_width = Placed::new(0, vec![limit.width.into()], vec![1]);
        let dh = |memory| argument("dh", memory, Dtype::Bf16, inputs.clone());
        let space = |(memory, bytes): &(Memory, u64)| {
            let address = memory.address();
            Space { address, bytes: *bytes, memory: PhantomData }
        };
        BackwardCall {
            dy: argument("dy", &self.dy, Dtype::Bf16, inputs.clone()),
            x: argument("x", &self.x, Dtype::Bf16, inputs.clone()),
            weight: Some(argument("weight", &self.weight, Dtype::Bf16, of_width.clone())),
            rstd: Some(argument("rstd", &self.rstd, Dtype::F32, Placed::new(0, vec![limit.rows], vec![1]))),
            eps: self.eps,
            dh: self.dh.as_ref().map(dh),
            dx: Some(argument("dx", &self.dx, Dtype::Bf16, outputs)),
            dw: Some(argument("dw", &self.dw, Dtype::F32, of_width)),
            workspace: self.workspace.as_ref().map(space),
        }
    }

    fn judge(&self, limit: &Limit, lane: &Lane) -> Result<(), String> {
        let (halves, background, pitch) = limit.output();
        let dx = |(row, content): &(u64, GradientRow)| (row * pitch, content.dx.clone());
        judge_block("dx", &self.dx, lane, halves, background, self.marks.iter().map(dx))?;
        let dw: Vec<u32> = (0..limit.width as usize).map(|column| self.dw(limit, column).to_bits()).collect();
        let expected = [(0, halfwords(&dw))].into_iter();
        judge_block("dw", &self.dw, lane, 2 * u64::from(limit.width), [0; 2], expected)
    }
}

impl Gradients {
    /// The row tree of a column.
    fn dw(&self, limit: &Limit, column: usize) -> f32 {
        let term = |(row, content): &(u64, GradientRow)| {
            let xhat = rms::xhat(bf16::from_bits(content.x[column]), f32::from_bits(content.rstd));
            (*row, f32::from(bf16::from_bits(content.dy[column])), xhat)
        };
        let terms: Vec<(u64, f32, f32)> = self.marks.iter().map(term).collect();
        subtree(&terms, limit.rows.div_ceil(LEAF_ROWS as u64).next_power_of_two()) + 0.0
    }
}

/// An aligned subtree of so many leaves, whose rows are zero but for these: triples of a row, `dy` and `xhat`.
pub(super) fn subtree(terms: &[(u64, f32, f32)], leaves: u64) -> f32 {
    match (terms, leaves) {
        ([], _) => 0.0,
        (_, 1) => terms.iter().fold(0.0, |sum, (_, dy, xhat)| dy.mul_add(*xhat, sum)),
        _ => {
            let (rows, half) = (LEAF_ROWS as u64 * leaves, leaves / 2);
            let middle = terms.partition_point(|(row, ..)| row % rows < rows / 2);
            subtree(&terms[..middle], half) + subtree(&terms[middle..], half)
        }
    }
}

#[cfg(test)]
mod tests {
    use cake_core::sums::plain;

    use super::*;

    #[test]
    fn a_tree_of_a_few_rows_is_that_of_all() {
        let marked =
            [(0, 1.5, 1.25), (7, 1e-7, 3.0), (8, -2.5, 1.1), (100, 0.3, 0.7), (101, 1e7, 1.3), (999, -3.0, 1e-3)];
        let of_row = |t| marked.iter().find(|(row, ..)| *row == t as u64).map_or((0.0, 0.7), |(_, a, b)| (*a, *b));
        for rows in [1000, 1001, 1024, 5000] {
            let leaves = (rows as u64).div_ceil(LEAF_ROWS as u64).next_power_of_two();
            let (all, few) = (plain::row_tree(rows, of_row), subtree(&marked, leaves) + 0.0);
            assert_eq!(few.to_bits(), all.to_bits(), "{rows} rows");
        }
    }
}
