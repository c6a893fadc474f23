//! The host path: the same bits without a GPU, rows in parallel.
//!
//! Unsafe because tensors are made of views that in-place calls alias. Sound because `check` has accepted the call: each
//! view lies inside its buffer, an output's elements are disjoint and meet another argument only where both are the very
//! same elements, and one thread at a time works on a row: it reads the whole row before it writes any of it.
#![allow(unsafe_code)]

use cake_core::host::{HostTensor, for_each_row, sum_rows};
use cake_core::sums::{fast, rms, with_fma};
use cake_core::{Dtype, Element, RawView};
use half::bf16;

use crate::{Backward, BackwardSpec, Forward, Spec};

/// Runs a call with at least one row.
///
/// # Safety
/// `check` must have accepted the call for the host.
pub(crate) unsafe fn forward(spec: &Spec, args: &Forward<'_>) {
    match spec.weight {
        Dtype::F32 => run::<f32>(spec, args),
        _ => run::<bf16>(spec, args),
    }
}

/// Runs a call of the backward that has something to write.
///
/// # Safety
/// `check` must have accepted the call for the host.
pub(crate) unsafe fn backward(spec: &BackwardSpec, args: &Backward<'_>) {
    match spec.norm.weight {
        Dtype::F32 => run_backward::<f32>(spec, args),
        _ => run_backward::<bf16>(spec, args),
    }
}

fn run<W: Element>(spec: &Spec, args: &Forward<'_>) {
    let width = spec.width as usize;
    let weight = tensor(args.weight.raw()).all::<W>();
    let (x_rows, z_rows, y_rows) = (tensor(args.x.raw()), tensor(args.z.raw()), tensor(args.y.raw()));
    let rstds = args.rstd.as_ref().map(|view| rstd_tensor(view.raw()));

    let buffers = || ([(); 3].map(|()| vec![bf16::ZERO; width]), [(); 2].map(|()| vec![0.0; width]));
    for_each_row(x_rows.count(), width, buffers, |([x, z, y], [gates, product]), row| {
        x_rows.read(row, x);
        z_rows.read(row, z);
        spec.activation.gates(z, gates);
        let rstd = if spec.gate_first {
            multiply(x, gates, product);
            fast::rms_row(product, Some(&weight), NO_OFFSET, args.eps, y)
        } else {
            let rstd = fast::rms_row(x, Some(&weight), NO_OFFSET, args.eps, product);
            multiply(product, gates, y);
            rstd
        };
        y_rows.write(row, y);
        if let Some(rstds) = &rstds {
            rstds.write(row, &[rstd]);
        }
    });
}

fn run_backward<W: Element>(spec: &BackwardSpec, args: &Backward<'_>) {
    let (norm, width) = (&spec.norm, spec.norm.width as usize);
    let weight = tensor(args.weight.raw()).all::<W>();
    let [dy_rows, x_rows, z_rows] = [&args.dy, &args.x, &args.z].map(|view| tensor(view.raw()));
    let [dx_rows, dz_rows] = [&args.dx, &args.dz].map(|view| tensor(view.raw()));
    let rstds = args.rstd.as_ref().map(|view| rstd_tensor(view.raw()));

    let work = |buffers: &mut Buffers, row: u64, tree: Option<&mut fast::RowTree>| {
        let Buffers { dy, x, z, dx, dz, gates, slopes, product, gradient } = buffers;
        dy_rows.read(row, dy);
        x_rows.read(row, x);
        z_rows.read(row, z);
        norm.activation.gates_and_slopes(z, gates, slopes);
        let given = rstds.as_ref().map(|rstds| rstds.element(row));
        if norm.gate_first {
            multiply(x, gates, product);
            let rstd = given.unwrap_or_else(|| rms::rstd(fast::sum_of_squares(product), width, args.eps));
            if let Some(tree) = tree {
                tree.push(dy, product, rstd);
            }
            fast::backward_row(dy, product, Some(&weight), NO_OFFSET, rstd, None, gradient);
            multiply(gradient, gates, dx);
            multiply(gradient, x, product);
        } else {
            let rstd = given.unwrap_or_else(|| rms::rstd(fast::sum_of_squares(x), width, args.eps));
            multiply(dy, gates, product);
            if let Some(tree) = tree {
                tree.push(product, x, rstd);
            }
            fast::backward_row(product, x, Some(&weight), NO_OFFSET, rstd, None, dx);
            normed(x, rstd, &weight, gradient);
            multiply(dy, gradient, product);
        }
        multiply(product, slopes, dz);
        dx_rows.write(row, dx);
        dz_rows.write(row, dz);
    };
    let buffers = || Buffers::new(width);
    match &args.dw {
        None => for_each_row(x_rows.count(), width, buffers, |buffers, row| work(buffers, row, None)),
        Some(dw) => {
            let sums = sum_rows(x_rows.count(), width, buffers, |buffers, row, tree| work(buffers, row, Some(tree)));
            tensor(dw.raw()).write_root(&sums, spec.accumulate);
        }
    }
}

/// Rows of a thread.
struct Buffers {
    dy: Vec<bf16>,
    x: Vec<bf16>,
    z: Vec<bf16>,
    dx: Vec<bf16>,
    dz: Vec<bf16>,
    gates: Vec<f32>,
    slopes: Vec<f32>,
    /// What is normalised or its gradient, before `dz`'s last factor.
    product: Vec<f32>,
    /// `du`, or the normed row.
    gradient: Vec<f32>,
}

impl Buffers {
    fn new(width: usize) -> Buffers {
        let [dy, x, z, dx, dz] = [(); 5].map(|()| vec![bf16::ZERO; width]);
        let [gates, slopes, product, gradient] = [(); 4].map(|()| vec![0.0; width]);
        Buffers { dy, x, z, dx, dz, gates, slopes, product, gradient }
    }
}

/// Weights of the gated norm have no offset.
const NO_OFFSET: f32 = rms::offset(false);

/// `round(a * b)`, element by element.
fn multiply<A: Element, B: Element, C: Element>(a: &[A], b: &[B], product: &mut [C]) {
    with_fma(
        #[inline(always)]
        || {
            for ((a, b), product) in a.iter().zip(b).zip(product) {
                *product = C::from_f32(a.to_f32() * b.to_f32());
            }
        },
    );
}

/// `x * rstd * w`, element by element.
fn normed<W: Element>(x: &[bf16], rstd: f32, weight: &[W], normed: &mut [f32]) {
    with_fma(
        #[inline(always)]
        || {
            for ((x, w), normed) in x.iter().zip(weight).zip(normed) {
                *normed = rms::scale(*x, rstd, w.to_f32());
            }
        },
    );
}

fn tensor(view: &RawView) -> HostTensor<'_> {
    // SAFETY: see the head of the file.
    unsafe { HostTensor::rows(view) }
}

fn rstd_tensor(view: &RawView) -> HostTensor<'_> {
    // SAFETY: see the head of the file.
    unsafe { HostTensor::one_for_each_row(view) }
}
