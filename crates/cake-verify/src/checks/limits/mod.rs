//! Sizes at which an index of 32 bits wraps: element offsets beyond 2^31 and 2^32, and the largest number of rows. The
//! memory is too large for the host to look after: inputs are zero but for a few rows, outputs must be what a zero row
//! gives everywhere else.

mod backward;
mod forward;
mod gate;

use cake_core::{Dtype, Error};
use rayon::prelude::*;

use self::backward::Gradients;
use self::forward::Norms;
use self::gate::{GateGradients, Gates};
use super::operator::Operator;
use super::{Context, Task};
use crate::cases::layout::Placed;
use crate::cases::values::Values;
use crate::cases::{Case, Form};
use crate::engine::call::Arguments;
use crate::engine::driver::Current;
use crate::engine::memory::{Argument, Memory};
use crate::engine::subject::Subject;
use crate::engine::target::Lane;
use crate::report::ByProgram;

const CHECK: &str = "limits";

/// A call at a limit.
struct Limit {
    name: &'static str,
    rows: u64,
    width: u32,
    /// Elements from one row to the next, of inputs and of outputs.
    pitch: [u64; 2],
    residual: bool,
}

const fn dense(name: &'static str, rows: u64, width: u32) -> Limit {
    Limit { name, rows, width, pitch: [width as u64; 2], residual: false }
}

const FAR: u64 = (1 << 31) + 128;

const FORWARD: [Limit; 12] = [
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

const BACKWARD: [Limit; 8] = [
    Limit { name: "limits/backward_far_rows_of_dy", rows: 2, width: 6144, pitch: [FAR, 6144], residual: false },
    Limit { name: "limits/backward_far_rows_of_dx", rows: 2, width: 128, pitch: [128, FAR], residual: false },
    Limit { name: "limits/backward_far_odd_rows", rows: 3, width: 1000, pitch: [FAR + 1, FAR + 3], residual: false },
    dense("limits/backward_h128_beyond_2_31", 16_777_217, 128),
    dense("limits/backward_h1000_beyond_2_31", 2_147_500, 1000),
    Limit { residual: true, ..dense("limits/backward_residual_beyond_2_31", 349_526, 6144) },
    dense("limits/backward_beyond_2_32", 262_145, 16384),
    dense("limits/backward_most_rows", (1 << 31) - 1, 1),
];

const GATE: [Limit; 4] = [
    Limit { name: "limits/gate_far_rows_of_x", rows: 2, width: 128, pitch: [FAR, 128], residual: false },
    Limit { name: "limits/gate_far_odd_rows", rows: 3, width: 100, pitch: [FAR + 1, FAR + 3], residual: false },
    dense("limits/gate_beyond_2_31", 16_777_217, 128),
    dense("limits/gate_most_rows", (1 << 31) - 1, 1),
];

const GATE_BACKWARD: [Limit; 5] = [
    Limit { name: "limits/gate_backward_far_rows", rows: 2, width: 128, pitch: [FAR, FAR], residual: false },
    Limit {
        name: "limits/gate_backward_far_odd_rows",
        rows: 3,
        width: 100,
        pitch: [FAR + 1, FAR + 3],
        residual: false,
    },
    dense("limits/gate_backward_beyond_2_31", 16_777_217, 128),
    // Beyond this the levels of the row tree do not fit shared memory.
    dense("limits/gate_backward_beyond_2_32", 8_388_609, 512),
    dense("limits/gate_backward_most_rows", (1 << 31) - 1, 1),
];

/// A task for each limit.
pub fn tasks() -> impl Iterator<Item = Task> {
    let forward = FORWARD.iter().map(task::<Norms>);
    let norms = forward.chain(BACKWARD.iter().map(task::<Gradients>));
    let gates = GATE.iter().map(task::<Gates>);
    norms.chain(gates).chain(GATE_BACKWARD.iter().map(task::<GateGradients>))
}

fn task<B: Blocks>(limit: &'static Limit) -> Task {
    const WHY: &str = "an element offset or a row number wraps at 32 bits";
    let judge = move |context: &Context| {
        let mut results = ByProgram::default();
        let reached = reach::<B>(&mut results, limit, context);
        let routed = results.at(context.target.routed());
        match reached {
            Ok(None) => {}
            Ok(Some(reason)) => routed.skip(CHECK, format!("{}: {reason}", limit.name)),
            Err(problem) => routed.judge(CHECK, Some(format!("{}: {problem}", limit.name))),
        }
        results
    };
    Task::by_program(limit.name, WHY, judge).device().alone().of(Operator::of::<<B::Case as Subject>::Op>())
}

impl Limit {
    /// Bytes of an input, and of an output.
    fn bytes(&self) -> [u64; 2] {
        self.pitch.map(|pitch| 2 * ((self.rows - 1) * pitch + u64::from(self.width)))
    }

    /// Halfwords of an output, what lies beside its marked rows, and elements from one row to the next.
    fn output(&self) -> (u64, [u16; 2], u64) {
        let ([_, bytes], pitch) = (self.bytes(), self.pitch[1]);
        // Where rows are apart every row is marked, and what lies between them must stay as it was.
        let background = if pitch == u64::from(self.width) { [0; 2] } else { [0xffff; 2] };
        (bytes / 2, background, pitch)
    }

    /// Rows of activations, this far apart.
    fn placed(&self, pitch: u64) -> Placed {
        Placed::new(0, vec![self.rows, self.width.into()], vec![pitch as i64, 1])
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

    /// The case that has only the marked rows.
    fn few(&self) -> Case {
        Case { lead: vec![self.marked_rows().len() as u64], distinct: u64::MAX, ..self.case() }
    }
}

/// The tensors of a call at a limit, in device memory.
trait Blocks: Sized {
    type Case: Subject;

    /// The case.
    fn case(limit: &Limit) -> Self::Case;
    /// How many inputs and outputs there are with rows of the case's width.
    fn tensors(limit: &Limit) -> [u64; 2];
    /// With the marked rows in the inputs.
    fn new(limit: &Limit, context: &Context, lane: &Lane, workspace: u64) -> cake_core::Result<Self>;
    /// The call.
    fn call(&self, limit: &Limit) -> <Self::Case as Subject>::Call<'_>;
    /// Whether the outputs are what they must be.
    fn judge(&self, limit: &Limit, lane: &Lane) -> Result<(), String>;
}

/// Runs a limit by every program that can serve it; a reason when it cannot be run here.
fn reach<B: Blocks>(results: &mut ByProgram, limit: &Limit, context: &Context) -> Result<Option<String>, String> {
    let device = context.target.device().ok_or("needs a GPU")?;
    let [inputs, outputs] = B::tensors(limit);
    let [in_bytes, out_bytes] = limit.bytes();
    let spec = B::case(limit).spec();
    let ways = context.target.plans::<<B::Case as Subject>::Op>(&spec).map_err(text)?;
    let workspaces = ways.iter().map(|way| way.plan.workspace_bytes(limit.rows as u32));
    let workspace = workspaces.max().unwrap_or(0);
    let needed = inputs * in_bytes + outputs * out_bytes + 4 * limit.rows + workspace + (1 << 30);
    let free = Current::primary(device)?.free_bytes()?;
    if needed > free {
        return Ok(Some(format!("needs {} GiB of device memory, {} are free", needed >> 30, free >> 30)));
    }
    for way in ways.iter() {
        let lane = context.target.lane().map_err(text)?;
        let serve = || {
            let workspace = way.plan.workspace_bytes(limit.rows as u32);
            let blocks = B::new(limit, context, &lane, workspace).map_err(text)?;
            let call = blocks.call(limit);
            if way.obstacle(&spec, call.check(&spec, &lane).map_err(text)?).is_some() {
                return Ok(false);
            }
            call.run(&way.plan, &lane).map_err(text)?;
            blocks.judge(limit, &lane).map(|()| true)
        };
        let what = |problem: String| format!("{} {}: {problem}", limit.name, way.name);
        match serve() {
            Ok(false) => {}
            result => results.at(&way.name).judge(CHECK, result.err().map(what)),
        }
    }
    Ok(None)
}

/// A block of device memory that holds one byte all over.
fn filled(context: &Context, lane: &Lane, bytes: u64, byte: u8) -> cake_core::Result<Memory> {
    let memory = Memory::on_device(context.target.device().expect("limits run on a GPU"), bytes)?;
    memory.fill(lane, byte)?;
    Ok(memory)
}

/// Halfwords of a bf16 weight.
fn narrow(bits: &[u32]) -> Vec<u16> {
    bits.iter().map(|bits| (bits >> 16) as u16).collect()
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
