//! The host path: the same bits without a GPU, rows in parallel.
//!
//! Unsafe because views are read and written through raw addresses, as a kernel does: in-place calls alias them. Sound
//! because `check` has accepted the call: each view lies inside its buffer, an output's elements are disjoint and meet
//! another argument only where both are the very same elements, and one thread at a time works on a row: it reads the
//! whole row before it writes any of it.
#![allow(unsafe_code)]

use std::ptr;

use cake_core::sums::{LEAF_ROWS, fast, rms};
use cake_core::{Dtype, Element, RawView};
use half::bf16;
use rayon::prelude::*;

use crate::{Backward, BackwardSpec, Combine, CombineSpec, Forward, Spec};

/// Runs a call with at least one row.
///
/// # Safety
/// `check` must have accepted the call for the host.
pub(crate) unsafe fn forward(spec: &Spec, args: &Forward<'_>) {
    match spec.weight {
        Some(Dtype::F32) => run::<f32>(spec, args),
        _ => run::<bf16>(spec, args),
    }
}

/// Runs a call of the backward that has something to write.
///
/// # Safety
/// `check` must have accepted the call for the host.
pub(crate) unsafe fn backward(spec: &BackwardSpec, args: &Backward<'_>) {
    match spec.norm.weight {
        Some(Dtype::F32) => run_backward::<f32>(spec, args),
        _ => run_backward::<bf16>(spec, args),
    }
}

/// Joins shards.
///
/// # Safety
/// `check` must have accepted the call for the host.
pub(crate) unsafe fn combine(spec: &CombineSpec, args: &Combine<'_>) {
    let width = spec.width as usize;
    let view = args.shards.raw();
    let mut shards = vec![0.0; view.shape()[0] as usize * width];
    for (shard, row) in shards.chunks_mut(width).enumerate() {
        read(view, shard as u64 * view.strides()[0], row);
    }
    write_root(args.dw.raw(), spec.dw, spec.accumulate, &shards);
}

fn run<W: Element>(spec: &Spec, args: &Forward<'_>) {
    let width = spec.width as usize;
    let weight = args.weight.as_ref().map(|view| read_all::<W>(view.raw()));
    let weight = weight.as_deref();
    let offset = rms::offset(spec.offset);
    let (lead, rows) = lead_of(args.x.raw());

    let chunk = (1 << 15_u64).max(width as u64) / width as u64; // rows for a task: some ten microseconds of work
    (0..rows.div_ceil(chunk)).into_par_iter().for_each_init(
        || [(); 3].map(|()| vec![bf16::ZERO; width]),
        |[x, other, y], task| {
            for row in task * chunk..rows.min((task + 1) * chunk) {
                let start = |view: &RawView| row_offset(row, lead, view);
                read(args.x.raw(), start(args.x.raw()), x);
                if let (Some(residual), Some(h)) = (&args.residual, &args.h) {
                    read(residual.raw(), start(residual.raw()), other);
                    fast::add_row(x, other, y);
                    write(h.raw(), start(h.raw()), y);
                    x.copy_from_slice(y);
                }
                let rstd = fast::rms_row(x, weight, offset, args.eps, y);
                write(args.y.raw(), start(args.y.raw()), y);
                if let Some(view) = &args.rstd {
                    write(view.raw(), start(view.raw()), &[rstd]);
                }
            }
        },
    );
}

fn run_backward<W: Element>(spec: &BackwardSpec, args: &Backward<'_>) {
    let width = spec.norm.width as usize;
    let weight = args.weight.as_ref().map(|view| read_all::<W>(view.raw()));
    let weight = weight.as_deref();
    let offset = rms::offset(spec.norm.offset);
    let (lead, rows) = lead_of(args.x.raw());

    // Rows for a task: a subtree of the row tree, and few enough tasks that their sums take little memory.
    let leaves = rows.div_ceil(LEAF_ROWS as u64 * 64).max((1_u64 << 15).div_ceil(LEAF_ROWS as u64 * width as u64));
    let chunk = LEAF_ROWS as u64 * leaves.next_power_of_two();
    let mut sums = vec![0.0; if spec.dw.is_some() { rows.div_ceil(chunk) as usize * width } else { 0 }];
    let task = |[x, dy, dh, dx]: &mut [Vec<bf16>; 4], task: u64, sum: Option<&mut [f32]>| {
        let mut tree = sum.as_ref().map(|_| fast::RowTree::new(width));
        for row in task * chunk..rows.min((task + 1) * chunk) {
            let start = |view: &RawView| row_offset(row, lead, view);
            read(args.x.raw(), start(args.x.raw()), x);
            read(args.dy.raw(), start(args.dy.raw()), dy);
            let rstd = match &args.rstd {
                Some(view) => {
                    let mut rstd = [0.0];
                    read(view.raw(), start(view.raw()), &mut rstd);
                    rstd[0]
                }
                None => rms::rstd(fast::sum_of_squares(x), width, args.eps),
            };
            if let Some(tree) = &mut tree {
                tree.push(dy, x, rstd);
            }
            let Some(view) = &args.dx else { continue };
            let dh = args.dh.as_ref().map(|view| {
                read(view.raw(), start(view.raw()), dh);
                &dh[..]
            });
            fast::backward_row(dy, x, weight, offset, rstd, dh, dx);
            write(view.raw(), start(view.raw()), dx);
        }
        if let (Some(tree), Some(sum)) = (tree, sum) {
            tree.finish(sum);
        }
    };
    let buffers = || [(); 4].map(|()| vec![bf16::ZERO; width]);
    match spec.dw {
        None => (0..rows.div_ceil(chunk)).into_par_iter().for_each_init(buffers, |rows, at| task(rows, at, None)),
        Some(dtype) => {
            let tasks = sums.par_chunks_mut(width).enumerate();
            tasks.for_each_init(buffers, |rows, (at, sum)| task(rows, at as u64, Some(sum)));
            let view = args.dw.as_ref().expect("check() matched dw with the plan").raw();
            write_root(view, dtype, spec.accumulate, &sums);
        }
    }
}

/// Joins the sums of adjacent subtrees, rows of a width, and writes the root.
fn write_root(dw: &RawView, dtype: Dtype, accumulate: bool, sums: &[f32]) {
    let mut root = vec![0.0; dw.shape()[0] as usize];
    fast::combine(root.len(), sums, &mut root);
    match dtype {
        Dtype::F32 => write_weight_gradient::<f32>(dw, &root, accumulate),
        _ => write_weight_gradient::<bf16>(dw, &root, accumulate),
    }
}

fn write_weight_gradient<E: Element>(view: &RawView, root: &[f32], accumulate: bool) {
    let old = accumulate.then(|| read_all::<E>(view));
    let old = |column: usize| old.as_ref().map(|old| old[column]);
    let dw: Vec<E> = root.iter().enumerate().map(|(column, sum)| rms::accumulate(old(column), *sum)).collect();
    write(view, 0, &dw);
}

/// The leading dimensions of a view with rows, and how many rows they are.
fn lead_of(view: &RawView) -> (&[u64], u64) {
    let lead = view.shape().split_last().map_or(&[][..], |(_, lead)| lead);
    (lead, lead.iter().product())
}

/// The elements of a view of one dimension.
fn read_all<E: Element>(view: &RawView) -> Vec<E> {
    let mut elements = vec![E::from_f32(0.0); view.shape()[0] as usize];
    read(view, 0, &mut elements);
    elements
}

/// Elements from a view's first to the first of a row, the rows counted in row-major order over `lead`.
fn row_offset(row: u64, lead: &[u64], view: &RawView) -> u64 {
    let mut rest = row;
    let dimensions = lead.iter().zip(view.strides()).rev();
    dimensions.fold(0, |offset, (&size, &stride)| {
        let index = rest % size;
        rest /= size;
        offset + index * stride
    })
}

/// Reads a row that starts `offset` elements into the view.
fn read<E: Element>(view: &RawView, offset: u64, row: &mut [E]) {
    let (start, step) = (address::<E>(view, offset), column_stride(view));
    if step == 1 {
        // SAFETY: see the head of the file; `row` is a buffer of this thread.
        unsafe { ptr::copy_nonoverlapping(start, row.as_mut_ptr(), row.len()) };
    } else {
        for (column, element) in row.iter_mut().enumerate() {
            // SAFETY: see the head of the file.
            *element = unsafe { start.add(column * step).read() };
        }
    }
}

/// Writes a row that starts `offset` elements into the view.
fn write<E: Element>(view: &RawView, offset: u64, row: &[E]) {
    let (start, step) = (address::<E>(view, offset), column_stride(view));
    if step == 1 {
        // SAFETY: see the head of the file; `row` is a buffer of this thread.
        unsafe { ptr::copy_nonoverlapping(row.as_ptr(), start, row.len()) };
    } else {
        for (column, element) in row.iter().enumerate() {
            // SAFETY: see the head of the file.
            unsafe { start.add(column * step).write(*element) };
        }
    }
}

fn address<E>(view: &RawView, offset: u64) -> *mut E {
    ptr::with_exposed_provenance_mut((view.address + offset * size_of::<E>() as u64) as usize)
}

fn column_stride(view: &RawView) -> usize {
    view.strides().last().map_or(1, |&step| step as usize)
}
