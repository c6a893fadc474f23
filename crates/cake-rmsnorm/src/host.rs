//! The host path: the same bits without a GPU, rows in parallel.
//!
//! Unsafe because tensors are made of views that in-place calls alias. Sound because `check` has accepted the call: each
//! view lies inside its buffer, an output's elements are disjoint and meet another argument only where both are the very
//! same elements, and one thread at a time works on a row: it reads the whole row before it writes any of it.
#![allow(unsafe_code)]

use cake_core::host::{HostTensor, for_each_row, sum_rows};
use cake_core::sums::{fast, rms};
use cake_core::{Dtype, Element, RawView};
use half::bf16;

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
    let shards = tensor(args.shards.raw());
    let mut sums = vec![0.0; shards.count() as usize * width];
    sums.chunks_mut(width).enumerate().for_each(|(shard, row)| shards.read(shard as u64, row));
    tensor(args.dw.raw()).write_root(&sums, spec.accumulate);
}

fn run<W: Element>(spec: &Spec, args: &Forward<'_>) {
    let width = spec.width as usize;
    let weight = args.weight.as_ref().map(|view| tensor(view.raw()).all::<W>());
    let weight = weight.as_deref();
    let offset = rms::offset(spec.offset);
    let (x_rows, y_rows) = (tensor(args.x.raw()), tensor(args.y.raw()));
    let residual_rows = args.residual.as_ref().map(|view| tensor(view.raw()));
    let h_rows = args.h.as_ref().map(|view| tensor(view.raw()));
    let rstds = args.rstd.as_ref().map(|view| rstd_tensor(view.raw()));

    let buffers = || [(); 3].map(|()| vec![bf16::ZERO; width]);
    for_each_row(x_rows.count(), width, buffers, |[x, other, y], row| {
        x_rows.read(row, x);
        if let (Some(residual), Some(h)) = (&residual_rows, &h_rows) {
            residual.read(row, other);
            fast::add_row(x, other, y);
            h.write(row, y);
            x.copy_from_slice(y);
        }
        let rstd = fast::rms_row(x, weight, offset, args.eps, y);
        y_rows.write(row, y);
        if let Some(rstds) = &rstds {
            rstds.write(row, &[rstd]);
        }
    });
}

fn run_backward<W: Element>(spec: &BackwardSpec, args: &Backward<'_>) {
    let width = spec.norm.width as usize;
    let weight = args.weight.as_ref().map(|view| tensor(view.raw()).all::<W>());
    let weight = weight.as_deref();
    let offset = rms::offset(spec.norm.offset);
    let (x_rows, dy_rows) = (tensor(args.x.raw()), tensor(args.dy.raw()));
    let dx_rows = args.dx.as_ref().map(|view| tensor(view.raw()));
    let dh_rows = args.dh.as_ref().map(|view| tensor(view.raw()));
    let rstds = args.rstd.as_ref().map(|view| rstd_tensor(view.raw()));

    let work = |[x, dy, dh, dx]: &mut [Vec<bf16>; 4], row: u64, tree: Option<&mut fast::RowTree>| {
        x_rows.read(row, x);
        dy_rows.read(row, dy);
        let rstd = match &rstds {
            Some(rstds) => rstds.element(row),
            None => rms::rstd(fast::sum_of_squares(x), width, args.eps),
        };
        if let Some(tree) = tree {
            tree.push(dy, x, rstd);
        }
        let Some(dx_rows) = &dx_rows else { return };
        let dh = dh_rows.as_ref().map(|rows| {
            rows.read(row, dh);
            &dh[..]
        });
        fast::backward_row(dy, x, weight, offset, rstd, dh, dx);
        dx_rows.write(row, dx);
    };
    let buffers = || [(); 4].map(|()| vec![bf16::ZERO; width]);
    match &args.dw {
        None => for_each_row(x_rows.count(), width, buffers, |rows, row| work(rows, row, None)),
        Some(dw) => {
            let sums = sum_rows(x_rows.count(), width, buffers, |rows, row, tree| work(rows, row, Some(tree)));
            tensor(dw.raw()).write_root(&sums, spec.accumulate);
        }
    }
}

fn tensor(view: &RawView) -> HostTensor<'_> {
    // SAFETY: see the head of the file.
    unsafe { HostTensor::rows(view) }
}

fn rstd_tensor(view: &RawView) -> HostTensor<'_> {
    // SAFETY: see the head of the file.
    unsafe { HostTensor::one_for_each_row(view) }
}
