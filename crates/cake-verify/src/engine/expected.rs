//! The inputs of a case, and the canonical bits of its outputs: `cake_core::sums::plain`, the specification in code,
//! applied to each distinct row.

use std::collections::HashMap;

use cake_core::sums::{plain, rms};
use cake_core::{Dtype, Element};
use half::bf16;
use half::slice::HalfBitsSliceExt;
use rayon::prelude::*;

use crate::cases::Case;
use crate::cases::layout::Layout;

/// Inputs, and what should come of them.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The weight as f32 bits; each is a bf16 when the case's weight is.
    pub weight: Option<Vec<u32>>,
    /// The distinct rows.
    pub distinct: Vec<Row>,
    /// For each row of the call, which distinct row it is.
    pub of_row: Vec<u32>,
}

/// A row of inputs and its canonical outputs, in bits.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // named as the arguments
pub struct Row {
    pub x: Vec<u16>,
    pub residual: Option<Vec<u16>>,
    pub h: Option<Vec<u16>>,
    pub rstd: u32,
    pub y: Vec<u16>,
}

impl Expected {
    /// Of a case.
    pub fn of(case: &Case, seed: u64) -> Expected {
        let width = case.spec.width as usize;
        let weight = case.spec.weight.map(|dtype| {
            let mut weight = vec![0; width];
            case.weights.fill(seed, case.spec.offset, dtype == Dtype::Bf16, &mut weight);
            if case.layouts.weight == Layout::OneColumn {
                let first = weight[0];
                weight.fill(first);
            }
            weight
        });
        let residual_layout = case.spec.residual.then_some(case.layouts.residual);
        let mut keys: Vec<(u64, u64)> = Vec::new();
        let mut known: HashMap<(u64, u64), u32> = HashMap::new();
        let of_row = (0..case.rows())
            .map(|row| {
                let index = |layout| source_row(case, layout, row) % case.distinct;
                let key = (index(case.layouts.x), residual_layout.map_or(0, index));
                *known.entry(key).or_insert_with(|| {
                    keys.push(key);
                    keys.len() as u32 - 1
                })
            })
            .collect();
        let distinct = keys.into_par_iter().map(|key| distinct_row(case, seed, key, weight.as_deref())).collect();
        Expected { weight, distinct, of_row }
    }

    /// One row of these as a call of its own.
    pub fn alone(&self, row: usize) -> Expected {
        Expected { weight: self.weight.clone(), distinct: vec![self.row(row).clone()], of_row: vec![0] }
    }

    /// The distinct row that row `row` of the call is.
    pub fn row(&self, row: usize) -> &Row {
        &self.distinct[self.of_row[row] as usize]
    }
}

/// The row of the source that an expanded layout shows as row `row`.
fn source_row(case: &Case, layout: Layout, row: u64) -> u64 {
    match layout {
        Layout::OneRow => 0,
        Layout::OneOuter => row % case.lead.iter().skip(1).product::<u64>(),
        _ => row,
    }
}

fn distinct_row(case: &Case, seed: u64, (x_row, residual_row): (u64, u64), weight: Option<&[u32]>) -> Row {
    let width = case.spec.width as usize;
    let mut row = Row { x: vec![0; width], ..Row::default() };
    if case.spec.residual {
        let (mut x, mut residual) = (vec![0; width], vec![0; width]);
        case.values.fill(seed, residual_row, &mut x, Some(&mut residual));
        expand(&mut residual, case.layouts.residual);
        row.residual = Some(residual);
    }
    case.values.fill(seed, x_row, &mut row.x, None);
    expand(&mut row.x, case.layouts.x);
    row.compute(weight, case.spec.offset, case.eps);
    row
}

fn expand(row: &mut [u16], layout: Layout) {
    if layout == Layout::OneColumn {
        let first = row[0];
        row.fill(first);
    }
}

impl Row {
    /// Fills in the canonical outputs.
    pub fn compute(&mut self, weight: Option<&[u32]>, offset: bool, eps: f32) {
        let x: &[bf16] = self.x.reinterpret_cast();
        let mut h = vec![bf16::ZERO; x.len()];
        let normalised = match &self.residual {
            Some(residual) => {
                plain::add_row(x, residual.reinterpret_cast(), &mut h);
                &h
            }
            None => x,
        };
        let weight: Option<Vec<f32>> = weight.map(|bits| bits.iter().copied().map(f32::from_bits).collect());
        let mut y = vec![bf16::ZERO; x.len()];
        let rstd = plain::rms_row(normalised, weight.as_deref(), rms::offset(offset), eps, &mut y);
        self.rstd = rstd.to_bits();
        self.y = y.iter().map(|y| y.to_bits()).collect();
        self.h = self.residual.is_some().then(|| h.iter().map(|h| h.to_bits()).collect());
    }
}

/// The halfwords of a weight of some dtype.
pub fn weight_halfwords(bits: &[u32], dtype: Dtype) -> Vec<u16> {
    match dtype {
        Dtype::F32 => super::image::halfwords(bits),
        _ => bits.iter().map(|&bits| <bf16 as Element>::from_f32(f32::from_bits(bits)).to_bits()).collect(),
    }
}
