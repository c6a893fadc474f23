//! The host path of operators on rows: their tensors in host memory, and rows in parallel.
//!
//! Unsafe because views are read and written through raw addresses, as a kernel does: in-place calls alias them. Sound
//! because of what [`HostTensor::rows`] asks for: a checked view lies inside its buffer.
#![allow(unsafe_code)]

use std::ptr;

use rayon::prelude::*;

use crate::sums::{LEAF_ROWS, fast, rms};
use crate::{Dtype, Element, RawView};

/// A tensor of a call that was accepted for the host. Rows are counted in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct HostTensor<'v> {
    view: &'v RawView,
    /// Leading dimensions.
    lead: &'v [u64],
}

impl<'v> HostTensor<'v> {
    /// Rows along the last dimension; a view of one dimension is one row.
    ///
    /// # Safety
    /// While the value is used, the view's memory must be allocated. No thread may write a row while another one reads or
    /// writes the same elements, of this tensor or of another.
    pub unsafe fn rows(view: &'v RawView) -> Self {
        HostTensor { view, lead: view.shape().split_last().map_or(&[][..], |(_, lead)| lead) }
    }

    /// One element for each row: all dimensions are leading ones.
    ///
    /// # Safety
    /// As [`HostTensor::rows`].
    pub unsafe fn one_for_each_row(view: &'v RawView) -> Self {
        HostTensor { view, lead: view.shape() }
    }

    /// Rows in all.
    pub fn count(&self) -> u64 {
        // May saturate only beside a size of 0: an accepted call has fewer than 2^31 rows.
        self.lead.iter().fold(1, |count: u64, &size| count.saturating_mul(size))
    }

    /// Reads a row of elements of the view's dtype, as long as `row`.
    pub fn read<E: Element>(&self, row: u64, elements: &mut [E]) {
        let (start, step) = self.place(row, elements.len());
        if step == 1 {
            // SAFETY: in range, as `place` says; `elements` is a reference, and so no part of the view.
            unsafe { ptr::copy_nonoverlapping(start, elements.as_mut_ptr(), elements.len()) };
        } else {
            for (column, element) in elements.iter_mut().enumerate() {
                // SAFETY: likewise.
                *element = unsafe { start.add(column * step).read() };
            }
        }
    }

    /// Writes a row, likewise.
    pub fn write<E: Element>(&self, row: u64, elements: &[E]) {
        let (start, step) = self.place(row, elements.len());
        if step == 1 {
            // SAFETY: as for `read`.
            unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), start, elements.len()) };
        } else {
            for (column, element) in elements.iter().enumerate() {
                // SAFETY: likewise.
                unsafe { start.add(column * step).write(*element) };
            }
        }
    }

    /// The element of a tensor that has one for each row.
    pub fn element<E: Element>(&self, row: u64) -> E {
        let mut element = [E::from_f32(0.0)];
        self.read(row, &mut element);
        element[0]
    }

    /// The elements of a tensor that is one row.
    pub fn all<E: Element>(&self) -> Vec<E> {
        let mut elements = vec![E::from_f32(0.0); self.columns()];
        self.read(0, &mut elements);
        elements
    }

    /// Writes a tensor that is one row as a weight gradient: the root of the row tree, and before that joins the sums of
    /// adjacent subtrees, rows of `sums`.
    pub fn write_root(&self, sums: &[f32], accumulate: bool) {
        let mut root = vec![0.0; self.columns()];
        fast::combine(root.len(), sums, &mut root);
        match self.view.dtype {
            Dtype::F32 => self.write_gradient::<f32>(&root, accumulate),
            Dtype::Bf16 => self.write_gradient::<half::bf16>(&root, accumulate),
            Dtype::F16 => self.write_gradient::<half::f16>(&root, accumulate),
        }
    }

    fn write_gradient<E: Element>(&self, root: &[f32], accumulate: bool) {
        let old = accumulate.then(|| self.all::<E>());
        let old = |column: usize| old.as_ref().map(|old| old[column]);
        let dw: Vec<E> = root.iter().enumerate().map(|(column, sum)| rms::accumulate(old(column), *sum)).collect();
        self.write(0, &dw);
    }

    /// Columns of a row.
    fn columns(&self) -> usize {
        self.view.shape()[self.lead.len()..].first().map_or(1, |&columns| columns as usize)
    }

    /// Address of a row's first element, and the stride of its `columns`, which are in range.
    fn place<E: Element>(&self, row: u64, columns: usize) -> (*mut E, usize) {
        assert!(row < self.count() && columns == self.columns(), "row {row} of {columns} columns of {:?}", self.view);
        assert_eq!(E::DTYPE, self.view.dtype, "dtype of {}", self.view.argument);
        let mut rest = row;
        let dimensions = self.lead.iter().zip(self.view.strides()).rev();
        let offset = dimensions.fold(0, |offset, (&size, &stride)| {
            let index = rest % size;
            rest /= size;
            offset + index * stride
        });
        let address = self.view.address + offset * size_of::<E>() as u64;
        let step = self.view.strides()[self.lead.len()..].first().map_or(1, |&step| step as usize);
        (ptr::with_exposed_provenance_mut(address as usize), step)
    }
}

/// Does `work` for every row, on all of `rayon`'s threads, each with buffers of its own.
pub fn for_each_row<B: Send>(
    rows: u64,
    width: usize,
    buffers: impl Fn() -> B + Sync + Send,
    work: impl Fn(&mut B, u64) + Sync + Send,
) {
    let chunk = (1 << 15_u64).max(width as u64) / width as u64; // rows for a task: some ten microseconds of work
    (0..rows.div_ceil(chunk)).into_par_iter().for_each_init(&buffers, |buffers, task| {
        (task * chunk..rows.min((task + 1) * chunk)).for_each(|row| work(buffers, row));
    });
}

/// As [`for_each_row`], where `work` adds each row to a row tree in the end: the sums of adjacent subtrees, for
/// [`HostTensor::write_root`].
pub fn sum_rows<B: Send>(
    rows: u64,
    width: usize,
    buffers: impl Fn() -> B + Sync + Send,
    work: impl Fn(&mut B, u64, &mut fast::RowTree) + Sync + Send,
) -> Vec<f32> {
    // Rows for a task: a subtree of the row tree, and few enough tasks that their sums take little memory.
    let leaves = rows.div_ceil(LEAF_ROWS as u64 * 64).max((1_u64 << 15).div_ceil(LEAF_ROWS as u64 * width as u64));
    let chunk = LEAF_ROWS as u64 * leaves.next_power_of_two();
    let mut sums = vec![0.0; rows.div_ceil(chunk) as usize * width];
    sums.par_chunks_mut(width).enumerate().for_each_init(&buffers, |buffers, (task, sum)| {
        let mut tree = fast::RowTree::new(width);
        let first = task as u64 * chunk;
        (first..rows.min(first + chunk)).for_each(|row| work(buffers, row, &mut tree));
        tree.finish(sum);
    });
    sums
}
