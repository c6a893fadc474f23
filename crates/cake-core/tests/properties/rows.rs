//! Rows, as they are folded, bound to kernels, and read and written on the host.
#![allow(unsafe_code)] // reads and writes rows of a buffer of its own

use cake_core::bind::Bound;
use cake_core::host::{HostTensor, for_each_row, sum_rows};
use cake_core::sums::plain;
use cake_core::{Dtype, Place, RawView, TensorView, TensorViewMut};
use std::sync::Mutex;

use super::draw::Draw;

/// Offset of row `row`, in elements, by the shape of the leading dimensions alone.
fn naive(lead: &[u64], strides: &[u64], mut row: u64) -> u64 {
    let mut offset = 0;
    for (&size, &stride) in lead.iter().zip(strides).rev() {
        offset += row % size * stride;
        row /= size;
    }
    offset
}

/// Some tensors of one shape, of which one has the leading dimensions alone, as an operator binds them.
pub(crate) fn bound(bytes: &[u8]) {
    const FLAT: usize = 2;
    let mut draw = Draw::new(bytes);
    let width = 1 + draw.below(9) as u32;
    let lead: Vec<u64> = (0..1 + draw.below(6)).map(|_| draw.size()).collect();
    let shape: Vec<u64> = lead.iter().copied().chain([width.into()]).collect();
    let mut described = |flat: bool| {
        let shape = if flat { &lead } else { &shape };
        let mut step = if draw.flag() { 1 } else { draw.size() };
        let mut strides: Vec<i64> = vec![0; shape.len()];
        for (stride, &size) in strides.iter_mut().zip(shape).rev() {
            // Mostly as the next dimension follows from this one, so that some fold.
            *stride = if draw.rarely(4) { draw.size() } else { step } as i64;
            step = (*stride as u64).wrapping_mul(size);
        }
        let address = 16 + draw.below(3) * 8;
        let dtype = if flat || draw.rarely(8) { Dtype::F32 } else { Dtype::Bf16 };
        // SAFETY: never read.
        unsafe { TensorView::from_raw("x", Place::Cuda(0), address, u64::MAX, dtype, shape, &strides) }
    };
    let (x, y, flat) = (described(false), described(false), described(true));
    let (Ok(x), Ok(y), Ok(flat)) = (x, y, flat) else { return };
    let views: [Option<&RawView>; 3] = [Some(x.raw()), Some(y.raw()), Some(flat.raw())];
    let count = lead.iter().try_fold(1_u64, |count, &size| count.checked_mul(size));
    let count = if lead.contains(&0) { Some(0) } else { count };
    let bound = Bound::<3, 3>::new(width, &lead, &views, FLAT, &[FLAT]);
    assert_eq!(bound.is_ok(), count.is_some_and(|count| count < 1 << 31), "{views:?}: {bound:?}");
    let Ok(bound) = bound else { return };
    assert!((1..=6).contains(&bound.levels) && u64::from(bound.shape.rows) == count.unwrap_or(0), "{bound:?}");
    let rows = bound.shape.rows;
    let some = [0, 1, 2, rows / 3, rows / 2, rows.saturating_sub(2), rows.saturating_sub(1)];
    for row in some.into_iter().filter(|row| *row < rows) {
        for (t, view) in views.into_iter().flatten().enumerate() {
            // As the kernels find it: cuda/cake/scan.cuh.
            let mut rest = row;
            let mut at = 0;
            for level in 0..bound.levels as usize {
                let index = if level + 1 < bound.levels as usize { rest % bound.sizes[level] } else { rest };
                rest /= bound.sizes[level];
                let stride = match level {
                    0 => bound.tensors[t].pitch,
                    1 => bound.tensors[t].outer,
                    _ => bound.more[level - 2][t],
                };
                at += u64::from(index) * stride;
            }
            assert_eq!(at, naive(&lead, &view.strides()[..lead.len()], row.into()), "row {row} of {view:?}: {bound:?}");
            let (size, last) =
                (view.dtype.size() as u64, if t == FLAT { 0 } else { u64::from(width - 1) * bound.column[t] });
            assert!(
                view.address + (at + last) * size + size <= view.byte_range().1,
                "row {row} of {view:?}: {bound:?}"
            );
            let aligned = (view.address + at * size).is_multiple_of(16) && (width == 1 || bound.column[t] == 1);
            assert!(t == FLAT || bound.vectors >> t & 1 == 0 || aligned, "row {row} of {view:?}: {bound:?}");
            assert!(t == FLAT || !bound.shape.vectors || aligned && bound.levels <= 2, "{view:?}: {bound:?}");
        }
    }
}

/// A tensor in a small buffer: each row is read from where it is, and written there and nowhere else.
pub(crate) fn host(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let lead: Vec<u64> = (0..draw.below(4)).map(|_| 1 + draw.below(5)).collect();
    let width = 1 + draw.below(20);
    let shape: Vec<u64> = lead.iter().copied().chain([width]).collect();
    let strides: Vec<i64> = shape.iter().map(|_| draw.below(40) as i64).collect();
    let mut buffer: Vec<f32> = (0..4096_u16).map(f32::from).collect();
    let before = buffer.clone();
    let Ok(view) = TensorViewMut::from_slice_strided("x", &mut buffer, &shape, &strides) else { return };
    // SAFETY: the buffer outlives it, and one thread at a time uses a row.
    let rows = unsafe { HostTensor::rows(view.raw()) };
    let count = rows.count();
    assert_eq!(count, lead.iter().product::<u64>());
    let at =
        |row, column| (naive(&lead, view.raw().strides(), row) + column * view.raw().strides()[lead.len()]) as usize;
    let visited = Mutex::new(Vec::new());
    for_each_row(
        count,
        width as usize,
        || vec![0.0_f32; width as usize],
        |elements, row| {
            rows.read(row, elements);
            for (column, element) in elements.iter_mut().enumerate() {
                assert_eq!(*element, before[at(row, column as u64)], "row {row} column {column} of {view:?}");
                *element = -*element - 1.0;
            }
            rows.write(row, elements);
            visited.lock().expect("no panic under the lock").push(row);
        },
    );
    let mut visited = visited.into_inner().expect("no panic under the lock");
    visited.sort_unstable();
    assert!(visited.into_iter().eq(0..count), "{view:?}");
    let mut expected = before.clone();
    for row in 0..count {
        (0..width).for_each(|column| expected[at(row, column)] = -before[at(row, column)] - 1.0);
    }
    assert_eq!(buffer, expected, "{shape:?} {strides:?}");
}

/// Any number of rows, cut into tasks, has the sum of the whole tree.
pub(crate) fn sums(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    // Rows of 128 and fewer take tasks of more leaves than one, and many rows a number of them that is no power of two.
    let (rows, width) = (draw.below(70_000), 1 + draw.below(3) as usize);
    let term = |row: u64| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 1e3 - 8e3;
    let mut sums = vec![f32::NAN; width];
    let tasks =
        sum_rows(rows, width, || (), |(), row, tree| tree.push(&vec![term(row); width], &vec![1.0_f32; width], 1.0));
    cake_core::sums::fast::combine(width, &tasks, &mut sums);
    let expected = plain::row_tree(rows as usize, |row| (term(row as u64), 1.0));
    assert!(sums.iter().all(|sum| sum.to_bits() == expected.to_bits()), "{rows} rows of {width}: {sums:?}, {expected}");
}
