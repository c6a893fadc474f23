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
use crate::cases::values::Values;

/// Inputs, and what should come of them.
#[derive(Clone, Debug)]
pub struct Expected<R = Row> {
    /// The weight as f32 bits; each is a bf16 when the case's weight is.
    pub weight: Option<Vec<u32>>,
    /// The distinct rows.
    pub distinct: Vec<R>,
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
        let layouts = [Some(case.layouts.x), case.spec.residual.then_some(case.layouts.residual)];
        Expected::gather(case, seed, layouts, |keys, weight| distinct_row(case, seed, keys, weight))
    }
}

impl<R: Clone + Send> Expected<R> {
    /// The weight and the distinct rows of a case. Which source rows the inputs show depends on their `layouts`; `make`
    /// gets the weight, and for each input the number of its source row.
    pub(super) fn gather<const N: usize>(
        case: &Case,
        seed: u64,
        layouts: [Option<Layout>; N],
        make: impl Fn([u64; N], Option<&[u32]>) -> R + Sync,
    ) -> Expected<R> {
        let weight = case.spec.weight.map(|dtype| {
            let mut weight = vec![0; case.spec.width as usize];
            case.weights.fill(seed, case.spec.offset, dtype == Dtype::Bf16, &mut weight);
            expand(&mut weight, case.layouts.weight);
            weight
        });
        let mut keys: Vec<[u64; N]> = Vec::new();
        let mut known: HashMap<[u64; N], u32> = HashMap::new();
        let of_row = (0..case.rows())
            .map(|row| {
                let key =
                    layouts.map(|layout| layout.map_or(0, |layout| source_row(case, layout, row) % case.distinct));
                *known.entry(key).or_insert_with(|| {
                    keys.push(key);
                    keys.len() as u32 - 1
                })
            })
            .collect();
        let distinct = keys.into_par_iter().map(|key| make(key, weight.as_deref())).collect();
        Expected { weight, distinct, of_row }
    }

    /// One row of these as a call of its own.
    pub fn alone(&self, row: usize) -> Expected<R> {
        Expected { weight: self.weight.clone(), distinct: vec![self.row(row).clone()], of_row: vec![0] }
    }

    /// The distinct row that row `row` of the call is.
    pub fn row(&self, row: usize) -> &R {
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

fn distinct_row(case: &Case, seed: u64, [x_row, residual_row]: [u64; 2], weight: Option<&[u32]>) -> Row {
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

/// A row of inputs in bits, as a layout shows it.
pub(super) fn filled(values: Values, seed: u64, row: u64, width: usize, layout: Layout) -> Vec<u16> {
    let mut content = vec![0; width];
    values.fill(seed, row, &mut content, None);
    expand(&mut content, layout);
    content
}

/// What a layout makes of a row.
fn expand<T: Copy>(row: &mut [T], layout: Layout) {
    if let (Layout::OneColumn, &[first, ..]) = (layout, &*row) {
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
        let weight = weight.map(floats);
        let mut y = vec![bf16::ZERO; x.len()];
        let rstd = plain::rms_row(normalised, weight.as_deref(), rms::offset(offset), eps, &mut y);
        self.rstd = rstd.to_bits();
        self.y = y.iter().map(|y| y.to_bits()).collect();
        self.h = self.residual.is_some().then(|| h.iter().map(|h| h.to_bits()).collect());
    }
}

/// The values of f32 bits.
pub(super) fn floats(bits: &[u32]) -> Vec<f32> {
    bits.iter().copied().map(f32::from_bits).collect()
}

/// The halfwords of a weight of some dtype.
pub fn weight_halfwords(bits: &[u32], dtype: Dtype) -> Vec<u16> {
    match dtype {
        Dtype::F32 => super::image::halfwords(bits),
        _ => bits.iter().map(|&bits| <bf16 as Element>::from_f32(f32::from_bits(bits)).to_bits()).collect(),
    }
}
