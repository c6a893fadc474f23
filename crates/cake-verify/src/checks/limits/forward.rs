//! The forward at a limit.

use cake_core::Dtype;

use super::{Blocks, Limit, argument, filled, judge_block, narrow};
use crate::cases::Case;
use crate::cases::layout::Placed;
use crate::checks::Context;
use crate::engine::call::Call;
use crate::engine::expected::{Expected, Row};
use crate::engine::image::halfwords;
use crate::engine::memory::Memory;
use crate::engine::target::Lane;

/// The tensors, and what they hold.
pub(super) struct Norms {
    marks: Vec<(u64, Row)>,
    zero: Row,
    eps: f32,
    x: Memory,
    residual: Option<Memory>,
    weight: Memory,
    y: Memory,
    h: Option<Memory>,
    rstd: Memory,
}

impl Blocks for Norms {
    type Case = Case;

    fn case(limit: &Limit) -> Case {
        limit.case()
    }

    fn tensors(limit: &Limit) -> [u64; 2] {
        if limit.residual { [2, 2] } else { [1, 1] }
    }

    fn new(limit: &Limit, context: &Context, lane: &Lane, _: u64) -> cake_core::Result<Norms> {
        let few = limit.few();
        let expected = Expected::of(&few, context.seed);
        let weight = expected.weight.clone().expect("limits have a weight");
        let marks = limit.marked_rows().into_iter().enumerate().map(|(i, row)| (row, expected.row(i).clone()));
        let zeros = vec![0; limit.width as usize];
        let residual = limit.residual.then(|| zeros.clone());
        let mut zero = Row { x: zeros, residual, ..Row::default() };
        zero.compute(Some(&weight), few.spec.offset, few.eps);
        assert!(zero.y.iter().all(|&y| y == 0), "positive weights keep +0");

        let [x_bytes, y_bytes] = limit.bytes();
        let blocks = Norms {
            marks: marks.collect(),
            zero,
            eps: few.eps,
            x: filled(context, lane, x_bytes, 0)?,
            residual: limit.residual.then(|| filled(context, lane, x_bytes, 0)).transpose()?,
            weight: Memory::holding(&context.target, lane, &narrow(&weight))?,
            y: filled(context, lane, y_bytes, 0xff)?,
            h: limit.residual.then(|| filled(context, lane, y_bytes, 0xff)).transpose()?,
            rstd: filled(context, lane, 4 * limit.rows, 0xff)?,
        };
        for (row, content) in &blocks.marks {
            blocks.x.write(lane, row * limit.pitch[0], &content.x)?;
            if let (Some(memory), Some(residual)) = (&blocks.residual, &content.residual) {
                memory.write(lane, row * limit.pitch[0], residual)?;
            }
        }
        Ok(blocks)
    }

    fn call(&self, limit: &Limit) -> Call<'_> {
        let [inputs, outputs] = limit.pitch.map(|pitch| limit.placed(pitch));
        let of_width = Placed::new(0, vec![limit.width.into()], vec![1]);
        let residual = |memory| argument("residual", memory, Dtype::Bf16, inputs.clone());
        let h = |memory| argument("h", memory, Dtype::Bf16, outputs.clone());
        Call {
            x: argument("x", &self.x, Dtype::Bf16, inputs.clone()),
            weight: Some(argument("weight", &self.weight, Dtype::Bf16, of_width)),
            eps: self.eps,
            residual: self.residual.as_ref().map(residual),
            y: argument("y", &self.y, Dtype::Bf16, outputs.clone()),
            h: self.h.as_ref().map(h),
            rstd: Some(argument("rstd", &self.rstd, Dtype::F32, Placed::new(0, vec![limit.rows], vec![1]))),
        }
    }

    fn judge(&self, limit: &Limit, lane: &Lane) -> Result<(), String> {
        let (halves, background, pitch) = limit.output();
        let y = |(row, content): &(u64, Row)| (row * pitch, content.y.clone());
        judge_block("y", &self.y, lane, halves, background, self.marks.iter().map(y))?;
        if let Some(memory) = &self.h {
            let h = |(row, content): &(u64, Row)| (row * pitch, content.h.clone().unwrap_or_default());
            judge_block("h", memory, lane, halves, background, self.marks.iter().map(h))?;
        }
        let zero = halfwords(&[self.zero.rstd]);
        let rstd = |(row, content): &(u64, Row)| (row * 2, halfwords(&[content.rstd]));
        judge_block("rstd", &self.rstd, lane, 2 * limit.rows, [zero[0], zero[1]], self.marks.iter().map(rstd))
    }
}
