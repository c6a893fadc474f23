//! The host path: the same bits without a GPU, rows in parallel.
//!
//! Unsafe because views are read and written through raw addresses, as a kernel does: in-place calls alias them. Sound
//! because `check` has accepted the call: each view lies inside its buffer, an output's elements are disjoint and meet
//! another argument only where both are the very same elements, and one thread at a time works on a row: it reads the
//! whole row before it writes any of it.
#![allow(unsafe_code)]

use std::ptr;

use cake_core::sums::{fast, rms};
use cake_core::{Dtype, Element, RawView};
use half::bf16;
use rayon::prelude::*;

use crate::{Forward, Spec};

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

fn run<W: Element>(spec: &Spec, args: &Forward<'_>) {
    let width = spec.width as usize;
    let weight = args.weight.as_ref().map(|view| {
        let mut weight = vec![W::from_f32(0.0); width];
        read(view.raw(), 0, &mut weight);
        weight
    });
    let weight = weight.as_deref();
    let offset = rms::offset(spec.offset);
    let lead = args.x.raw().shape().split_last().map_or(&[][..], |(_, lead)| lead);
    let rows: u64 = lead.iter().product();

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
