//! Sizes at which an index of 32 bits wraps: element offsets beyond 2^31 and 2^32, and the largest number of rows. The
//! memory is too large for the host to look after: inputs are zero but for a few rows, outputs must be what a zero row
//! gives everywhere else.

use cake_core::{Dtype, Error};
use cake_rmsnorm::RmsNormForward;
use rayon::prelude::*;

use super::{Context, Task};
use crate::cases::layout::Placed;
use crate::cases::values::Values;
use crate::cases::{Case, Form};
use crate::engine::call::{Arguments, Call};
use crate::engine::driver::Current;
use crate::engine::expected::{Expected, Row};
use crate::engine::image::halfwords;
use crate::engine::memory::{Argument, Memory};
use crate::engine::target::Lane;
use crate::report::Tally;

const CHECK: &str = "limits";

/// A call at a limit.
struct Limit {
    name: &'static str,
    rows: u64,
    width: u32,
    /// Elements from one row to the next, of `x` and of `y`.
    pitch: [u64; 2],
    residual: bool,
}

const fn dense(name: &'static str, rows: u64, width: u32) -> Limit {
    Limit { name, rows, width, pitch: [width as u64; 2], residual: false }
}

const FAR: u64 = (1 << 31) + 128;

const LIMITS: [Limit; 12] = [
    Limit { name: "limits/far_rows_of_x", rows: 2, width: 6144, pitch: [FAR, 6144], residual: false },
    Limit { name: "limits/far_rows_of_y", rows: 2, width: 128, pitch: [128, FAR], residual: false },
    Limit { name: "limits/far_odd_rows", rows: 3, width: 1000, pitch: [FAR + 1, FAR + 3], residual: false },
    dense("limits/exactly_2_31", 131_072, 16384),
    dense("limits/h512_beyond_2_31", 4_194_305, 512),
    dense("limits/h12288_beyond_2_31", 175_000, 12288),
    dense("limits/h256_beyond_2_31", 8_388_624, 256),
    dense("limits/h128_beyond_2_31", 16_777_217, 128),
    dense("limits/h1000_beyond_2_31", 2_147_500, 1000),
    Limit { residual: true, ..dense("limits/residual_beyond_2_31", 349_526, 6144) },
    dense("limits/beyond_2_32", 262_145, 16384),
    dense("limits/most_rows", (1 << 31) - 1, 1),
];

/// A task for each limit.
pub fn tasks() -> impl Iterator<Item = Task> {
    const WHY: &str = "an element offset or a row number wraps at 32 bits";
    LIMITS.iter().map(|limit| {
        let judge = move |context: &Context| {
            let mut tally = Tally::default();
            match reach(limit, context) {
                Ok(None) => tally.judge(CHECK, None),
                Ok(Some(reason)) => tally.skip(CHECK, format!("{}: {reason}", limit.name)),
                Err(problem) => tally.judge(CHECK, Some(format!("{}: {problem}", limit.name))),
            }
            tally
        };
        Task::new(limit.name, WHY, judge).device().alone()
    })
}

impl Limit {
    fn bytes(&self) -> [u64; 2] {
        self.pitch.map(|pitch| 2 * ((self.rows - 1) * pitch + u64::from(self.width)))
    }

    fn case(&self) -> Case {
        let form = Form { residual: self.residual, ..Form::COMMON[0] };
        Case { lead: vec![self.rows], values: Values::Normal, ..Case::new(self.rows, self.width).form(form) }
    }

    /// The first row, the last, and those on both sides of each multiple of 2^31 elements, or bytes.
    fn marked_rows(&self) -> Vec<u64> {
        let mut rows = vec![0, self.rows - 1, self.rows / 2];
        for pitch in self.pitch {
            for power in [30u32, 31, 32, 33] {
                let at = (1u64 << power) / pitch;
                rows.extend([at.saturating_sub(1), at, at + 1]);
            }
        }
        rows.retain(|&row| row < self.rows);
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

/// Runs a limit; a reason when it cannot be run here.
fn reach(limit: &Limit, context: &Context) -> Result<Option<String>, String> {
    let device = context.target.device().ok_or("needs a GPU")?;
    let [x_bytes, y_bytes] = limit.bytes();
    let copies = if limit.residual { 2 } else { 1 };
    let needed = copies * (x_bytes + y_bytes) + 4 * limit.rows + (1 << 30);
    let free = Current::primary(device)?.free_bytes()?;
    if needed > free {
        return Ok(Some(format!("needs {} GiB of device memory, {} are free", needed >> 30, free >> 30)));
    }
    let case = limit.case();
    let marked = limit.marked_rows();
    let marks = Marks::new(&case, context.seed, &marked);
    for way in context.target.plans::<RmsNormForward>(&case.spec).map_err(text)?.iter() {
        let lane = context.target.lane().map_err(text)?;
        let result = (|| {
            let memory = Blocks::new(limit, context, &lane, &marks).map_err(text)?;
            memory.call(limit, &case).run(&way.plan, &lane).map_err(text)?;
            memory.judge(limit, &lane, &marks)
        })();
        result.map_err(|problem| format!("{}: {problem}", way.name))?;
    }
    Ok(None)
}

/// The rows that are not zero, and what a zero row gives.
struct Marks {
    rows: Vec<(u64, Row)>,
    zero: Row,
    weight: Vec<u32>,
}

impl Marks {
    fn new(case: &Case, seed: u64, marked: &[u64]) -> Marks {
        let width = case.spec.width as usize;
        let few = Case { lead: vec![marked.len() as u64], distinct: u64::MAX, ..case.clone() };
        let expected = Expected::of(&few, seed);
        let weight = expected.weight.clone().expect("limits have a weight");
        let rows = marked.iter().enumerate().map(|(i, &row)| (row, expected.row(i).clone())).collect();
        let zeros = vec![0; width];
        let residual = case.spec.residual.then(|| zeros.clone());
        let mut zero = Row { x: zeros, residual, ..Row::default() };
        zero.compute(Some(&weight), case.spec.offset, case.eps);
        assert!(zero.y.iter().all(|&y| y == 0), "positive weights keep +0");
        Marks { rows, zero, weight }
    }
}

struct Blocks {
    x: Memory,
    residual: Option<Memory>,
    weight: Memory,
    y: Memory,
    h: Option<Memory>,
    rstd: Memory,
}

impl Blocks {
    fn new(limit: &Limit, context: &Context, lane: &Lane, marks: &Marks) -> cake_core::Result<Blocks> {
        let [x_bytes, y_bytes] = limit.bytes();
        let device = context.target.device().expect("limits run on a GPU");
        let filled = |bytes, byte| {
            let memory = Memory::on_device(device, bytes)?;
            memory.fill(lane, byte)?;
            Ok::<_, Error>(memory)
        };
        let narrow: Vec<u16> = marks.weight.iter().map(|bits| (bits >> 16) as u16).collect();
        let blocks = Blocks {
            x: filled(x_bytes, 0)?,
            residual: limit.residual.then(|| filled(x_bytes, 0)).transpose()?,
            weight: Memory::holding(&context.target, lane, &narrow)?,
            y: filled(y_bytes, 0xff)?,
            h: limit.residual.then(|| filled(y_bytes, 0xff)).transpose()?,
            rstd: filled(4 * limit.rows, 0xff)?,
        };
        for (row, content) in &marks.rows {
            blocks.x.write(lane, row * limit.pitch[0], &content.x)?;
            if let (Some(memory), Some(residual)) = (&blocks.residual, &content.residual) {
                memory.write(lane, row * limit.pitch[0], residual)?;
            }
        }
        Ok(blocks)
    }

    fn call(&self, limit: &Limit, case: &Case) -> Call<'_> {
        let width = u64::from(limit.width);
        let placed = |pitch: u64| Placed::new(0, vec![limit.rows, width], vec![pitch as i64, 1]);
        let [inputs, outputs] = limit.pitch;
        Call {
            x: argument("x", &self.x, Dtype::Bf16, placed(inputs)),
            weight: Some(argument("weight", &self.weight, Dtype::Bf16, Placed::new(0, vec![width], vec![1]))),
            eps: case.eps,
            residual: self.residual.as_ref().map(|memory| argument("residual", memory, Dtype::Bf16, placed(inputs))),
            y: argument("y", &self.y, Dtype::Bf16, placed(outputs)),
            h: self.h.as_ref().map(|memory| argument("h", memory, Dtype::Bf16, placed(outputs))),
            rstd: Some(argument("rstd", &self.rstd, Dtype::F32, Placed::new(0, vec![limit.rows], vec![1]))),
        }
    }

    fn judge(&self, limit: &Limit, lane: &Lane, marks: &Marks) -> Result<(), String> {
        let ([_, bytes], pitch) = (limit.bytes(), limit.pitch[1]);
        // Where rows are apart every row is marked, and what lies between them must stay as it was.
        let background = if pitch == u64::from(limit.width) { [0; 2] } else { [0xffff; 2] };
        let y = |(row, content): &(u64, Row)| (row * pitch, content.y.clone());
        judge_block("y", &self.y, lane, bytes / 2, background, marks.rows.iter().map(y))?;
        if let Some(memory) = &self.h {
            let h = |(row, content): &(u64, Row)| (row * pitch, content.h.clone().unwrap_or_default());
            judge_block("h", memory, lane, bytes / 2, background, marks.rows.iter().map(h))?;
        }
        let zero = halfwords(&[marks.zero.rstd]);
        let rstd = |(row, content): &(u64, Row)| (row * 2, halfwords(&[content.rstd]));
        judge_block("rstd", &self.rstd, lane, 2 * limit.rows, [zero[0], zero[1]], marks.rows.iter().map(rstd))
    }
}

/// A block of `halves` halfwords must hold `marked`, pairs of a place and a content, and `background` everywhere else.
fn judge_block(
    name: &str,
    memory: &Memory,
    lane: &Lane,
    halves: u64,
    background: [u16; 2],
    marked: impl Iterator<Item = (u64, Vec<u16>)>,
) -> Result<(), String> {
    const CHUNK: u64 = 1 << 27;
    let marked: Vec<(u64, Vec<u16>)> = marked.collect();
    let mut image = vec![0; CHUNK.min(halves) as usize];
    for start in (0..halves).step_by(CHUNK as usize) {
        let image = &mut image[..CHUNK.min(halves - start) as usize];
        memory.read(lane, start, image).map_err(text)?;
        for (at, content) in &marked {
            for (i, &expected) in content.iter().enumerate() {
                let Some(actual) = (at + i as u64).checked_sub(start).and_then(|at| image.get_mut(at as usize)) else {
                    continue;
                };
                if *actual != expected {
                    let at = at + i as u64;
                    return Err(format!(
                        "{name} halfword {at} of {halves}: expected {expected:#06x}, got {actual:#06x}"
                    ));
                }
                *actual = background[(at + i as u64) as usize % 2];
            }
        }
        const PIECE: usize = 1 << 20;
        let odd = image.par_chunks(PIECE).enumerate().find_map_first(|(i, piece)| {
            let odd = piece.chunks(2).position(|pair| pair != &background[..pair.len()])?;
            Some(start + (i * PIECE + 2 * odd) as u64)
        });
        if let Some(at) = odd {
            let [a, b] = background;
            return Err(format!("{name} halfword {at} of {halves}: expected {a:#06x} {b:#06x}, got something else"));
        }
    }
    Ok(())
}

fn argument<'m>(name: &'static str, memory: &'m Memory, dtype: Dtype, placed: Placed) -> Argument<'m> {
    Argument {
        name,
        place: memory.place(),
        address: memory.address(),
        bytes: placed.span * dtype.size() as u64,
        dtype,
        shape: placed.shape,
        strides: placed.strides,
        memory: std::marker::PhantomData,
    }
}

fn text(error: Error) -> String {
    error.to_string()
}
