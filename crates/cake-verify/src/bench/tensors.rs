//! The tensors of a row in device memory, and the check of what a call wrote.

use std::marker::PhantomData;

use anyhow::Result;
use cake_core::{Buffer, Dtype, Op, Place};
use cake_rmsnorm::{ForwardPlan, RmsNormForward};
use half::bf16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use rayon::prelude::*;

use super::driver::Gpu;
use super::rows::Row;
use crate::cases::layout::{Layout, Placed};
use crate::cases::values::{Values, Weights};
use crate::engine::call::Call;
use crate::engine::expected::{self, weight_halfwords};
use crate::engine::image::{POISON, halfwords};
use crate::engine::memory::Argument;

/// Inputs repeat after this many rows, a prime: the host makes so many, the device copies them.
const DISTINCT: u64 = 61;

/// Most rows of a result that are compared with the canonical bits, the first and the last among them.
const CHECKED: u64 = 16;

const EPS: f32 = 1e-6;

/// Everything that calls of one row need.
#[derive(Debug)]
pub struct Tensors {
    row: Row,
    /// Pairs of an input and an output: `x` and `y`, `residual` and `h`.
    pairs: Vec<(Tensor, Tensor)>,
    rstd: Tensor,
    weight: Option<Tensor>,
    /// What the buffers of `x` and `residual` hold, over and over.
    patterns: [Vec<u16>; 2],
    /// As f32 bits.
    weight_bits: Option<Vec<u32>>,
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
        let spec = row.spec;
        let width = u64::from(spec.width);
        let place = Place::Cuda(gpu.device().info().ordinal);
        let tensor = |name, dtype: Dtype, placed: Placed, least: u64| -> Result<Tensor> {
            let bytes = (placed.offset + placed.span) * dtype.size() as u64;
            Ok(Tensor { name, dtype, placed, place, buffer: Buffer::new(gpu.device(), bytes.max(least))? })
        };
        let activation =
            |name, layout: Layout| tensor(name, Dtype::Bf16, layout.place(&row.lead, width), row.bytes_of_copy());
        let patterns = patterns(seed, width);
        let mut pairs = vec![(activation("x", row.inputs)?, activation("y", row.outputs)?)];
        if spec.residual {
            pairs.push((activation("residual", row.inputs)?, activation("h", row.outputs)?));
        }
        for ((input, _), pattern) in pairs.iter().zip(&patterns) {
            let fits = (input.buffer.bytes() as usize / 2).min(pattern.len());
            input.buffer.write::<bf16>(gpu.stream(), 0, pattern[..fits].reinterpret_cast())?;
            gpu.repeat(&input.buffer, 2 * fits as u64)?;
        }
        let rstd = tensor("rstd", Dtype::F32, Layout::Contiguous.place(&row.lead, 1).without_columns(), 0)?;
        let (mut weight, mut weight_bits) = (None, None);
        if let Some(dtype) = spec.weight {
            let mut bits = vec![0; spec.width as usize];
            Weights::Usual.fill(seed, spec.offset, dtype == Dtype::Bf16, &mut bits);
            let tensor = tensor("weight", dtype, Layout::Contiguous.place(&[], width), 0)?;
            let content = weight_halfwords(&bits, dtype);
            tensor.buffer.write::<bf16>(gpu.stream(), 0, content.reinterpret_cast())?;
            (weight, weight_bits) = (Some(tensor), Some(bits));
        }
        gpu.stream().synchronize()?;
        Ok(Tensors { row: row.clone(), pairs, rstd, weight, patterns, weight_bits })
    }

    /// The call.
    pub fn call(&self, rstd: bool) -> Call<'_> {
        let ((x, y), other) = (&self.pairs[0], self.pairs.get(1));
        Call {
            x: x.argument(),
            weight: self.weight.as_ref().map(Tensor::argument),
            eps: EPS,
            residual: other.map(|(residual, _)| residual.argument()),
            y: y.argument(),
            h: other.map(|(_, h)| h.argument()),
            rstd: rstd.then(|| self.rstd.argument()),
        }
    }

    /// Whether the layouts allow tuned programs.
    pub fn allow_vectors(&self) -> Result<bool> {
        let call = self.call(true);
        Ok(RmsNormForward::check(&self.row.spec, call.x.place, &call.views()?)?.0.vectors)
    }

    /// Queues the device's copy of each input over its output.
    pub fn copy(&self, gpu: &Gpu) -> Result<()> {
        self.pairs
            .iter()
            .try_for_each(|(input, output)| gpu.copy(&output.buffer, &input.buffer, self.row.bytes_of_copy()))
    }

    /// Runs a plan once over poisoned outputs. What differs from the canonical bits in the first, the last and some
    /// other rows; nothing, it is to be hoped.
    pub fn check(&self, gpu: &Gpu, plan: &ForwardPlan) -> Result<Option<String>> {
        let poisoned = self.pairs.iter().map(|(_, output)| output).chain([&self.rstd]);
        for tensor in poisoned {
            tensor.buffer.fill(gpu.stream(), POISON as u8)?;
        }
        plan.run(gpu.stream(), self.call(true).views()?)?;
        gpu.stream().synchronize()?;

        let inputs: Vec<Vec<u64>> = self.pairs.iter().map(|(input, _)| input.row_offsets()).collect();
        let outputs: Vec<Vec<u64>> = self.pairs.iter().map(|(_, output)| output.row_offsets()).collect();
        for row in checked(self.row.count()) {
            let expected = self.expected(&inputs, row);
            let rstd = halfwords(&[expected.rstd]);
            let actual = self.rstd.read(gpu, row, 2)?;
            let mut found = difference(&self.rstd, row, &rstd, &actual);
            let contents = [Some(&expected.y), expected.h.as_ref()];
            for (((_, output), offsets), content) in self.pairs.iter().zip(&outputs).zip(contents).rev() {
                let content = content.expect("the second pair is that of the residual form");
                let actual = output.read(gpu, offsets[row as usize], content.len())?;
                found = found.or_else(|| difference(output, row, content, &actual));
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The canonical results of a row. `inputs` are the offsets of all rows of each input.
    fn expected(&self, inputs: &[Vec<u64>], row: u64) -> expected::Row {
        let mut contents = inputs.iter().zip(&self.patterns).map(|(offsets, pattern)| {
            let first = offsets[row as usize] as usize;
            (first..first + self.row.spec.width as usize).map(|at| pattern[at % pattern.len()]).collect()
        });
        let x = contents.next().expect("every call has x");
        let mut row = expected::Row { x, residual: contents.next(), ..expected::Row::default() };
        row.compute(self.weight_bits.as_deref(), self.row.spec.offset, EPS);
        row
    }
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

    /// Of each row of an activation, in elements.
    fn row_offsets(&self) -> Vec<u64> {
        self.placed.row_offsets(self.placed.shape.len() - 1)
    }

    /// Halfwords from element `at` on.
    fn read(&self, gpu: &Gpu, at: u64, count: usize) -> Result<Vec<u16>> {
        let mut content = vec![bf16::ZERO; count];
        self.buffer.read(gpu.stream(), at * self.dtype.size() as u64, &mut content)?;
        Ok(content.reinterpret_cast().to_vec())
    }
}

/// What `x` and `residual` hold: [`DISTINCT`] rows of ordinary numbers each.
fn patterns(seed: u64, width: u64) -> [Vec<u16>; 2] {
    [0, 1].map(|which| {
        let mut pattern = vec![0; (DISTINCT * width) as usize];
        pattern.par_chunks_mut(width as usize).enumerate().for_each(|(row, content)| {
            Values::Normal.fill(seed, 2 * row as u64 + which, content, None);
        });
        pattern
    })
}

/// The rows that are compared, of `count`.
fn checked(count: u64) -> Vec<u64> {
    let picked = CHECKED.min(count);
    (0..picked).map(|i| if picked == 1 { 0 } else { i * (count - 1) / (picked - 1) }).collect()
}

fn difference(tensor: &Tensor, row: u64, expected: &[u16], actual: &[u16]) -> Option<String> {
    let at = expected.iter().zip(actual).position(|(expected, actual)| expected != actual)?;
    let (name, expected, actual) = (tensor.name, expected[at], actual[at]);
    Some(format!("{name}, row {row}, halfword {at}: expected {expected:#06x}, got {actual:#06x}"))
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

    #[test]
    fn inputs_differ_from_row_to_row_and_from_each_other() {
        let [x, residual] = patterns(1, 8);
        let rows: Vec<&[u16]> = x.chunks(8).chain(residual.chunks(8)).collect();
        assert_eq!(rows.len() as u64, 2 * DISTINCT);
        assert!((1..rows.len()).all(|i| !rows[..i].contains(&rows[i])));
    }
}
