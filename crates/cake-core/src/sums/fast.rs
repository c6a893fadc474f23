//! The canonical sums at speed: the same bits as [`plain`](super::plain), which says what they are.
//!
//! Where [`plain`](super::plain) pads with zeros, this module leaves the addition out. That can only turn a +0 inside
//! the sum into a -0; a zero of either sign is lost in the next sum, or at last in the `+ 0.0` at the root.

use super::{CHAIN, LEAF_ROWS, UNIT, rms, with_fma};
use crate::dtype::Element;
use rayon::prelude::*;
use std::cell::Cell;

/// The column fold of the squares of a row.
pub fn sum_of_squares<E: Element>(row: &[E]) -> f32 {
    with_units(row.len(), |units| {
        with_fma(
            #[inline(always)]
            || fold(row, row, units),
        )
    })
}

/// The column fold of `a[i] * b[i]`. Both slices have the same length.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "lengths of a and b");
    with_units(a.len(), |units| {
        with_fma(
            #[inline(always)]
            || fold(a, b, units),
        )
    })
}

/// RMSNorm of one row, `y = round(x * rstd * w_eff)`; returns `rstd`. All slices hold H elements.
///
/// `offset` is added to the weight: [`rms::offset`] gives the two values in use.
pub fn rms_row<X: Element, W: Element, Y: Element>(
    x: &[X],
    weight: Option<&[W]>,
    offset: f32,
    eps: f32,
    y: &mut [Y],
) -> f32 {
    assert_eq!(x.len(), y.len(), "lengths of x and y");
    if let Some(weight) = weight {
        assert_eq!(x.len(), weight.len(), "lengths of x and weight");
    }
    with_units(x.len(), |units| {
        with_fma(
            #[inline(always)]
            || {
                let rstd = rms::rstd(fold(x, x, units), x.len(), eps);
                let xy = x.iter().zip(y);
                match weight {
                    Some(weight) => {
                        xy.zip(weight).for_each(|((x, y), w)| *y = rms::scale(*x, rstd, w.to_f32() + offset))
                    }
                    None => xy.for_each(|(x, y)| *y = rms::scale(*x, rstd, 1.0)),
                }
                rstd
            },
        )
    })
}

/// `h = round(x + residual)`, element by element. All slices have the same length.
pub fn add_row<X: Element>(x: &[X], residual: &[X], h: &mut [X]) {
    assert_eq!(x.len(), residual.len(), "lengths of x and residual");
    assert_eq!(x.len(), h.len(), "lengths of x and h");
    with_fma(
        #[inline(always)]
        || {
            for ((x, residual), h) in x.iter().zip(residual).zip(h) {
                *h = rms::add(*x, *residual);
            }
        },
    )
}

/// The input gradient of RMSNorm of one row, `dx = round(rstd * fma(-xhat, c, g))`, or with `dh`, the gradient that
/// reaches `h` directly, `dx = round(rstd * fma(-xhat, c, g) + dh)`; returns `c`. All slices hold H elements.
///
/// `offset` is added to the weight: [`rms::offset`] gives the two values in use. `x` is `h` in the residual form.
pub fn backward_row<Y: Element, X: Element, W: Element>(
    dy: &[Y],
    x: &[X],
    weight: Option<&[W]>,
    offset: f32,
    rstd: f32,
    dh: Option<&[X]>,
    dx: &mut [X],
) -> f32 {
    let width = x.len();
    assert_eq!(width, dy.len(), "lengths of x and dy");
    assert_eq!(width, dx.len(), "lengths of x and dx");
    if let Some(weight) = weight {
        assert_eq!(width, weight.len(), "lengths of x and weight");
    }
    if let Some(dh) = dh {
        assert_eq!(width, dh.len(), "lengths of x and dh");
    }
    with_scratch([width, width, width.div_ceil(UNIT)], |[g, xhat, units]| {
        with_fma(
            #[inline(always)]
            || {
                let dyg = dy.iter().zip(&mut *g);
                match weight {
                    Some(weight) => {
                        dyg.zip(weight).for_each(|((dy, g), w)| *g = rms::weighted(*dy, w.to_f32() + offset))
                    }
                    None => dyg.for_each(|(dy, g)| *g = rms::weighted(*dy, 1.0)),
                }
                x.iter().zip(&mut *xhat).for_each(|(x, xhat)| *xhat = rms::xhat(*x, rstd));

                let c = rms::projection(fold(g, xhat, units), width);
                let terms = g.iter().zip(&*xhat).zip(dx);
                match dh {
                    Some(dh) => {
                        terms.zip(dh).for_each(|(((g, xhat), dx), dh)| *dx = rms::dx(*g, *xhat, c, rstd, Some(*dh)))
                    }
                    None => terms.for_each(|((g, xhat), dx)| *dx = rms::dx(*g, *xhat, c, rstd, None)),
                }
                c
            },
        )
    })
}

/// The row tree of every column, `dw[j] = sum over t of dy[t, j] * (x[t, j] * rstd[t])`, on all of `rayon`'s threads.
///
/// `dy` and `x` are `[rows, width]` row-major; `rstd` holds `rows`, `dw` `width` elements, which are overwritten. Needs
/// a buffer of `width` elements for every 512 rows, and a few of 8 KiB per thread.
pub fn row_tree<E: Element>(rows: usize, width: usize, dy: &[E], x: &[E], rstd: &[f32], dw: &mut [f32]) {
    let elements = rows.checked_mul(width).expect("rows * width fits in usize");
    assert_eq!(dy.len(), elements, "length of dy, [{rows}, {width}]");
    assert_eq!(x.len(), elements, "length of x, [{rows}, {width}]");
    assert_eq!(rstd.len(), rows, "length of rstd");
    assert_eq!(dw.len(), width, "length of dw");
    dw.par_chunks_mut(COLUMNS).enumerate().for_each(|(block, dw)| {
        let columns = dw.len();
        let mut shards = vec![0.0; rows.div_ceil(SHARD_ROWS) * columns];
        shards.par_chunks_mut(columns).enumerate().for_each(|(shard, root)| {
            let mut tree = RowTree::new(columns);
            for t in shard * SHARD_ROWS..rows.min((shard + 1) * SHARD_ROWS) {
                let start = t * width + block * COLUMNS;
                tree.push(&dy[start..start + columns], &x[start..start + columns], rstd[t]);
            }
            tree.finish(root);
        });
        combine(columns, &shards, dw);
    });
}

/// A row tree that takes its rows one at a time, for rows that do not lie in one slice.
///
/// Holds a row of `f32` per level of the tree: a binary counter of subtrees, each joined with its neighbour as soon as
/// both are whole. Tasks may share the rows, an aligned run of `LEAF_ROWS * 2^k` each; [`combine`] joins their results.
#[derive(Clone, Debug)]
pub struct RowTree {
    width: usize,
    rows: usize,
    /// A row of sums for each subtree, in row order: one for every bit of the number of whole leaves, the high bits
    /// first, then the leaf that has begun, if any.
    subtrees: Vec<f32>,
}

impl RowTree {
    /// A tree of no rows over `width` columns.
    pub fn new(width: usize) -> RowTree {
        RowTree { width, rows: 0, subtrees: Vec::new() }
    }

    /// Appends a row, the terms `dy[j] * (x[j] * rstd)`. Both slices hold `width` elements.
    pub fn push<Y: Element, X: Element>(&mut self, dy: &[Y], x: &[X], rstd: f32) {
        assert_eq!(dy.len(), self.width, "length of dy");
        assert_eq!(x.len(), self.width, "length of x");
        if self.rows.is_multiple_of(LEAF_ROWS) {
            self.subtrees.resize(self.subtrees.len() + self.width, 0.0);
        }
        let leaf = self.subtrees.len() - self.width;
        let leaf = &mut self.subtrees[leaf..];
        with_fma(
            #[inline(always)]
            || {
                for ((sum, dy), x) in leaf.iter_mut().zip(dy).zip(x) {
                    *sum = dy.to_f32().mul_add(rms::xhat(*x, rstd), *sum);
                }
            },
        );
        self.rows += 1;
        if self.rows.is_multiple_of(LEAF_ROWS) {
            // As many joins as bits that carry in the count of whole leaves.
            (0..(self.rows / LEAF_ROWS).trailing_zeros()).for_each(|_| self.join());
        }
    }

    /// Writes to `dw`, of `width` elements, the tree's root over the rows so far, +0 if there are none.
    pub fn finish(mut self, dw: &mut [f32]) {
        assert_eq!(dw.len(), self.width, "length of dw");
        self.subtrees.resize(self.subtrees.len().max(self.width), 0.0);
        while self.subtrees.len() > self.width {
            self.join();
        }
        dw.iter_mut().zip(self.subtrees).for_each(|(dw, sum)| *dw = sum + 0.0);
    }

    /// Adds the last subtree to the one before it.
    fn join(&mut self) {
        let middle = self.subtrees.len() - self.width;
        let (left, right) = self.subtrees.split_at_mut(middle);
        add(&mut left[middle - self.width..], right);
        self.subtrees.truncate(middle);
    }
}

/// The rest of the row tree above the `dw` of shards, for every column: see [`plain::combine`](super::plain::combine).
///
/// `shards` is `[shards, width]` row-major in row order; each shard is a multiple of `LEAF_ROWS` rows and, the last
/// ones excepted, the same power-of-two multiple. `dw` holds `width` elements, which are overwritten.
pub fn combine(width: usize, shards: &[f32], dw: &mut [f32]) {
    assert_eq!(dw.len(), width, "length of dw");
    assert_eq!(shards.len() % width.max(1), 0, "length of shards, rows of {width}");
    let mut sums = shards.to_vec();
    let mut near = width.max(1);
    while near < sums.len() {
        for pair in sums.chunks_mut(2 * near) {
            let (left, right) = pair.split_at_mut(near.min(pair.len()));
            add(&mut left[..width], right);
        }
        near *= 2;
    }
    sums.resize(width.max(sums.len()), 0.0);
    dw.iter_mut().zip(sums).for_each(|(dw, sum)| *dw = sum + 0.0);
}

/// The column fold over `a.len()` terms, with `units` as scratch.
#[inline(always)]
fn fold<A: Element, B: Element>(a: &[A], b: &[B], units: &mut [f32]) -> f32 {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<UNIT>(), b.as_chunks::<UNIT>());
    for ((a, b), sum) in a.iter().zip(b).zip(&mut *units) {
        *sum = unit(a, b);
    }
    if !a_tail.is_empty() {
        units[a.len()] = unit(a_tail, b_tail);
    }

    let mut p = units.len().next_power_of_two();
    let mut units = units;
    while p > 1 {
        p /= 2;
        let (near, far) = units.split_at_mut(p);
        add(near, far);
        units = near;
    }
    units.first().map_or(0.0, |root| root + 0.0)
}

/// The sum of two chains; a slice of fewer than `UNIT` elements is a row's tail.
#[inline(always)]
fn unit<A: Element, B: Element>(a: &[A], b: &[B]) -> f32 {
    let mut chains = [0.0f32; 2];
    for i in 0..a.len().min(UNIT) {
        let acc = &mut chains[i / CHAIN];
        *acc = a[i].to_f32().mul_add(b[i].to_f32(), *acc);
    }
    chains[0] + chains[1]
}

/// Lends this thread's scratch for the units of a row of `len` elements, which hold anything.
fn with_units<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    with_scratch([len.div_ceil(UNIT)], |[units]| f(units))
}

/// Lends slices of this thread's scratch of the lengths `lens`, which hold anything.
fn with_scratch<const N: usize, R>(lens: [usize; N], f: impl FnOnce([&mut [f32]; N]) -> R) -> R {
    thread_local!(static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) });
    let mut scratch = SCRATCH.take();
    let total = lens.iter().sum();
    if scratch.len() < total {
        scratch.resize(total, 0.0);
    }
    let mut rest = &mut *scratch;
    let result = f(lens.map(|len| rest.split_off_mut(..len).expect("the scratch holds the sum of lens")));
    SCRATCH.set(scratch);
    result
}

/// Adds `far` to as many elements of `near`.
#[inline(always)]
fn add(near: &mut [f32], far: &[f32]) {
    near.iter_mut().zip(far).for_each(|(near, far)| *near += far);
}

/// Columns per task of the row tree: a leaf's 8 KiB stay in the first-level cache. A page of BF16 from each row; with
/// half as many, reading takes half as long again.
const COLUMNS: usize = 2048;

/// Rows per task of the row tree: some hundred microseconds of work.
const SHARD_ROWS: usize = 64 * LEAF_ROWS;
