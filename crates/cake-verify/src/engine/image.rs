//! Tensors inside images: blocks of halfwords with a margin on each side.

use cake_core::Dtype;

use super::memory::{Argument, Memory};
use crate::cases::layout::Placed;
use std::marker::PhantomData;

/// Halfwords before and after a tensor; a multiple of the alignment of blocks.
pub const MARGIN: usize = 256;

/// What outputs hold before a call: NaN, in either dtype.
pub const POISON: u16 = 0xffff;

/// What surrounds outputs, gaps between their rows included. As a bf16 it is a small negative number.
pub const CANARY: u16 = 0xa5a5;

/// Where the elements of a tensor are in its image.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: Dtype,
    placed: Placed,
    columns: usize,
    column_stride: usize,
    /// Offset of each row, in elements.
    rows: Vec<u64>,
}

impl Tensor {
    /// `[.., columns]`.
    pub fn rows(dtype: Dtype, placed: Placed) -> Tensor {
        let (columns, stride) = (*placed.shape.last().expect("a column"), *placed.strides.last().expect("a column"));
        let rows = placed.row_offsets(placed.shape.len() - 1);
        Tensor { dtype, placed, columns: columns as usize, column_stride: stride as usize, rows }
    }

    /// `[..]`, one element for each row.
    pub fn one_for_each_row(dtype: Dtype, placed: Placed) -> Tensor {
        let rows = placed.row_offsets(placed.shape.len());
        Tensor { dtype, placed, columns: 1, column_stride: 1, rows }
    }

    /// Halfwords of an element.
    fn halves(&self) -> usize {
        self.dtype.size() / 2
    }

    /// An image with `background` all over.
    pub fn image(&self, background: u16) -> Vec<u16> {
        vec![background; 2 * MARGIN + (self.placed.offset + self.placed.span) as usize * self.halves()]
    }

    /// Halfword of an element.
    fn at(&self, row: usize, column: usize) -> usize {
        MARGIN + (self.rows[row] as usize + column * self.column_stride) * self.halves()
    }

    /// Writes a row, given as halfwords.
    pub fn write_row(&self, image: &mut [u16], row: usize, content: &[u16]) {
        let halves = self.halves();
        debug_assert_eq!(content.len(), self.columns * halves);
        if self.column_stride == 1 {
            let at = self.at(row, 0);
            image[at..at + content.len()].copy_from_slice(content);
        } else {
            for (column, element) in content.chunks_exact(halves).enumerate() {
                let at = self.at(row, column);
                image[at..at + halves].copy_from_slice(element);
            }
        }
    }

    /// Writes every row.
    pub fn write_rows<'r>(&self, image: &mut [u16], content: impl Fn(usize) -> &'r [u16]) {
        (0..self.rows.len()).for_each(|row| self.write_row(image, row, content(row)));
    }

    /// Writes one halfword all over the elements.
    pub fn fill(&self, image: &mut [u16], halfword: u16) {
        let content = vec![halfword; self.columns * self.halves()];
        self.write_rows(image, |_| &content);
    }

    /// The bits of an element.
    pub fn bits(&self, image: &[u16], row: usize, column: usize) -> u32 {
        let at = self.at(row, column);
        match self.halves() {
            1 => u32::from(image[at]),
            _ => u32::from(image[at]) | u32::from(image[at + 1]) << 16,
        }
    }

    /// Sets the bits of an element.
    pub fn set_bits(&self, image: &mut [u16], row: usize, column: usize, bits: u32) {
        let at = self.at(row, column);
        image[at] = bits as u16;
        if self.halves() == 2 {
            image[at + 1] = (bits >> 16) as u16;
        }
    }

    /// Copies the elements from one image to another.
    pub fn copy(&self, from: &[u16], to: &mut [u16]) {
        for row in 0..self.rows.len() {
            (0..self.columns).for_each(|column| self.set_bits(to, row, column, self.bits(from, row, column)));
        }
    }

    /// Rows and columns.
    pub fn size(&self) -> (usize, usize) {
        (self.rows.len(), self.columns)
    }

    /// Type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The tensor in a block that holds its image, as a caller would describe it: exactly its extent.
    pub fn argument<'m>(&self, name: &'static str, memory: &'m Memory) -> Argument<'m> {
        let size = self.dtype.size() as u64;
        Argument {
            name,
            place: memory.place(),
            address: memory.address() + 2 * MARGIN as u64 + self.placed.offset * size,
            bytes: self.placed.span * size,
            dtype: self.dtype,
            shape: self.placed.shape.clone(),
            strides: self.placed.strides.clone(),
            memory: PhantomData,
        }
    }
}

/// The halfwords of f32 bits.
pub fn halfwords(bits: &[u32]) -> Vec<u16> {
    bits.iter().flat_map(|&bits| [bits as u16, (bits >> 16) as u16]).collect()
}
