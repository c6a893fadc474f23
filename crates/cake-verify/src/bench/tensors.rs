//! The tensors of a row in device memory, and the check of what its calls wrote.

use std::marker::PhantomData;

use anyhow::Result;
use cake_core::{Buffer, Dtype, Element, Place};
use half::bf16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::answers::{Answers, DH, DX, DY, DZ, EPS, H, RESIDUAL, X, Y, Z, row_offset};
use super::driver::Gpu;
use super::rows::Row;
use crate::cases::layout::{Layout, Placed};
use crate::engine::call::{BackwardCall, Call};
use crate::engine::expected::weight_halfwords;
use crate::engine::gate::{GateBackwardCall, GateCall};
use crate::engine::image::{POISON, halfwords};
use crate::engine::memory::Argument;

/// Most rows of a result that are compared with the canonical bits, the first and the last among them. Of `dw` every
/// column is.
const CHECKED: u64 = 16;

/// Everything that the calls of one row need, and the reference.
#[derive(Debug)]
pub struct Tensors {
    row: Row,
    inputs: [Option<Tensor>; 5],
    outputs: [Option<Tensor>; 4],
    rstd: Tensor,
    dw: Option<Tensor>,
    weight: Option<Tensor>,
    answers: Answers,
}

#[derive(Debug)]
struct Tensor {
    name: &'static str,
    dtype: Dtype,
    placed: Placed,
    place: Place,
    buffer: Buffer,
}

impl Tensors {
    /// Takes the memory and fills the inputs.
    pub fn new(gpu: &Gpu, row: &Row, seed: u64) -> Result<Tensors> {
        let (width, dtype) = (u64::from(row.spec.width), Dtype::Bf16);
        let tensor = |name, dtype: Dtype, placed: Placed, least: u64| -> Result<Tensor> {
            let bytes = (placed.offset + placed.span) * dtype.size() as u64;
            Ok(Tensor {
                name,
                dtype,
                placed,
                place: gpu.stream().place(),
                buffer: Buffer::new(gpu.device(), bytes.max(least))?,
            })
        };
        // The references take a little more than a tensor of each stream: their share of `rstd` and of the weight.
        let least = row.bytes_of_copy().max(row.bytes_of_add());
        let activation = |name, layout: Layout, wanted: bool| {
            wanted.then(|| tensor(name, dtype, layout.place(&row.lead, width), least)).transpose()
        };
        let of_width = |name, dtype: Option<Dtype>| {
            dtype.map(|dtype| tensor(name, dtype, Layout::Contiguous.place(&[], width), 0)).transpose()
        };
        let (forward, backward, residual) = (row.forward(), row.backward(), row.spec.residual);
        let tensors = Tensors {
            inputs: [
                activation("x", row.inputs, true)?,
                activation("residual", row.inputs, forward && residual)?,
                activation("dy", Layout::Contiguous, backward.is_some())?,
                activation("dh", Layout::Contiguous, backward.is_some() && residual)?,
                activation("z", Layout::Contiguous, row.gate)?,
            ],
            outputs: [
                activation("h", row.outputs, forward && residual)?,
                activation("y", row.outputs, forward)?,
                activation("dx", Layout::Contiguous, backward.is_some())?,
                activation("dz", Layout::Contiguous, backward.is_some() && row.gate)?,
            ],
            rstd: tensor("rstd", Dtype::F32, Layout::Contiguous.place(&row.lead, 1).without_columns(), 0)?,
            dw: of_width("dw", backward.and_then(|spec| spec.dw))?,
            weight: of_width("weight", row.spec.weight)?,
            answers: Answers::new(row, seed),
            row: row.clone(),
        };
        for (input, pattern) in tensors.inputs.iter().zip(&tensors.answers.patterns) {
            let Some(input) = input else { continue };
            let pattern: &[bf16] = pattern.reinterpret_cast();
            repeat(gpu, &input.buffer, pattern)?;
        }
        if let (Some(weight), Some(bits)) = (&tensors.weight, &tensors.answers.weight) {
            let content = weight_halfwords(bits, weight.dtype);
            weight.buffer.write::<bf16>(gpu.stream(), 0, content.reinterpret_cast())?;
        }
        if !forward {
            repeat(gpu, &tensors.rstd.buffer, &tensors.answers.rstd())?;
        }
        gpu.stream().synchronize()?;
        Ok(tensors)
    }

    /// The call of the norm's forward, if the row has it.
    pub fn forward(&self, rstd: bool) -> Option<Call<'_>> {
        (self.row.forward() && !self.row.gate).then(|| Call {
            x: argument(&self.inputs[X]).expect("every row has x"),
            weight: argument(&self.weight),
            eps: EPS,
            residual: argument(&self.inputs[RESIDUAL]),
            y: argument(&self.outputs[Y]).expect("every forward has y"),
            h: argument(&self.outputs[H]),
            rstd: rstd.then(|| self.rstd.argument()),
        })
    }

    /// The call of the gated forward, if the row has it.
    pub fn gate_forward(&self) -> Option<GateCall<'_>> {
        (self.row.forward() && self.row.gate).then(|| GateCall {
            x: argument(&self.inputs[X]).expect("every row has x"),
            z: argument(&self.inputs[Z]).expect("every gate has z"),
            weight: argument(&self.weight).expect("a gated norm has a weight"),
            eps: EPS,
            y: argument(&self.outputs[Y]).expect("every forward has y"),
            rstd: None,
        })
    }

    /// The call of the gated backward, if the row has it, without a workspace.
    pub fn gate_backward(&self) -> Option<GateBackwardCall<'_>> {
        self.row.backward().filter(|_| self.row.gate).map(|_| GateBackwardCall {
            dy: argument(&self.inputs[DY]).expect("every backward has dy"),
            x: argument(&self.inputs[X]).expect("every row has x"),
            z: argument(&self.inputs[Z]).expect("every gate has z"),
            weight: argument(&self.weight).expect("a gated norm has a weight"),
            rstd: None,
            eps: EPS,
            dx: argument(&self.outputs[DX]).expect("every backward of a gate has dx"),
            dz: argument(&self.outputs[DZ]).expect("every backward of a gate has dz"),
            dw: argument(&self.dw),
            workspace: None,
        })
    }

    /// The call of the norm's backward, if the row has it, without a workspace.
    pub fn backward(&self) -> Option<BackwardCall<'_>> {
        self.row.backward().filter(|_| !self.row.gate).map(|spec| BackwardCall {
            dy: argument(&self.inputs[DY]).expect("every backward has dy"),
            x: argument(&self.outputs[H]).or_else(|| argument(&self.inputs[X])).expect("every row has x"),
            weight: argument(&self.weight),
            rstd: Some(self.rstd.argument()),
            eps: EPS,
            dh: argument(&self.inputs[DH]).filter(|_| spec.dx),
            dx: argument(&self.outputs[DX]).filter(|_| spec.dx),
            dw: argument(&self.dw),
            workspace: None,
        })
    }

    /// Queues what moves as many bytes. For the forward the device's copy of `x` over `y`, and of `residual` over `h`;
    /// for the backward an addition of `x`, `dy`, and `dh` if there is one, over `dx`; with a gate, of `x` and `z` over `y`, and
    /// of `x`, `dy` and `z` over `dx` and `dz`.
    pub fn reference(&self, gpu: &Gpu) -> Result<()> {
        let input = |at: usize| self.inputs[at].as_ref().map(|tensor| &tensor.buffer);
        let output = |at: usize| self.outputs[at].as_ref().map(|tensor| &tensor.buffer);
        if self.row.gate {
            if let (Some(x), Some(z), Some(y)) = (input(X), input(Z), output(Y)) {
                gpu.add(&[y], &[x, z], self.row.bytes_of_copy())?;
            }
            let tensors = (input(X), input(DY), input(Z), output(DX), output(DZ));
            if let (Some(x), Some(dy), Some(z), Some(dx), Some(dz)) = tensors {
                gpu.add(&[dx, dz], &[x, dy, z], self.row.bytes_of_add())?;
            }
            return Ok(());
        }
        for (from, to) in [(X, Y), (RESIDUAL, H)] {
            if let (Some(from), Some(to)) = (input(from), output(to)) {
                gpu.copy(to, from, self.row.bytes_of_copy())?;
            }
        }
        let Some(dx) = output(DX) else { return Ok(()) };
        let added: Vec<&Buffer> = [X, DY, DH].into_iter().filter_map(input).collect();
        gpu.add(&[dx], &added, self.row.bytes_of_add())
    }

    /// Runs the row's calls once over poisoned outputs. What differs from the canonical bits in the first, the last and
    /// some other rows, or in `dw`; nothing, it is to be hoped.
    pub fn check(&self, gpu: &Gpu, calls: &mut dyn FnMut() -> Result<()>) -> Result<Option<String>> {
        let rstd = Some(&self.rstd).filter(|_| self.row.forward() && !self.row.gate);
        for tensor in self.outputs.iter().flatten().chain(&self.dw).chain(rstd) {
            tensor.buffer.fill(gpu.stream(), POISON as u8)?;
        }
        calls()?;
        gpu.stream().synchronize()?;

        for row in checked(self.row.count()) {
            let answer = self.answers.row(row);
            let activations = self.outputs.iter().zip(answer.outputs()).filter_map(|(output, content)| {
                let output = output.as_ref()?;
                Some((output, row_offset(&output.placed, row), content?.to_vec()))
            });
            let rstd = rstd.map(|rstd| (rstd, row, halfwords(&[answer.rstd()])));
            for (tensor, at, content) in rstd.into_iter().chain(activations) {
                let found = tensor.difference(gpu, &format!("row {row}"), at, &content)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        self.dw.as_ref().map_or(Ok(None), |dw| dw.difference(gpu, "all rows", 0, &self.answers.dw()))
    }
}

fn argument(tensor: &Option<Tensor>) -> Option<Argument<'_>> {
    tensor.as_ref().map(Tensor::argument)
}

/// Fills a buffer with a pattern, over and over.
fn repeat<E: Element>(gpu: &Gpu, buffer: &Buffer, pattern: &[E]) -> Result<()> {
    let fits = pattern.len().min(buffer.bytes() as usize / size_of::<E>());
    buffer.write(gpu.stream(), 0, &pattern[..fits])?;
    gpu.repeat(buffer, size_of_val(&pattern[..fits]) as u64)
}

impl Tensor {
    fn argument(&self) -> Argument<'_> {
        let size = self.dtype.size() as u64;
        Argument {
            name: self.name,
            place: self.place,
            address: self.buffer.address() + self.placed.offset * size,
            bytes: self.placed.span * size,
            dtype: self.dtype,
            shape: self.placed.shape.clone(),
            strides: self.placed.strides.clone(),
            memory: PhantomData,
        }
    }

    /// What differs from the halfwords expected from element `at` on.
    fn difference(&self, gpu: &Gpu, part: &str, at: u64, expected: &[u16]) -> Result<Option<String>> {
        let mut actual = vec![bf16::ZERO; expected.len()];
        self.buffer.read(gpu.stream(), at * self.dtype.size() as u64, &mut actual)?;
        let actual: &[u16] = actual.reinterpret_cast();
        Ok(expected.iter().zip(actual).position(|(expected, actual)| expected != actual).map(|at| {
            let (name, expected, actual) = (self.name, expected[at], actual[at]);
            format!("{name}, {part}, halfword {at}: expected {expected:#06x}, got {actual:#06x}")
        }))
    }
}

/// The rows that are compared, of `count`.
fn checked(count: u64) -> Vec<u64> {
    let picked = CHECKED.min(count);
    (0..picked).map(|i| if picked == 1 { 0 } else { i * (count - 1) / (picked - 1) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_row_are_checked() {
        assert_eq!(checked(1), [0]);
        assert_eq!(checked(2), [0, 1]);
        assert_eq!(checked(16), (0..16).collect::<Vec<_>>());
        let rows = checked(65536);
        assert_eq!((rows[0], rows[15], rows.len()), (0, 65535, 16));
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
