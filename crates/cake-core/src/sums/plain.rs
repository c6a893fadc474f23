//! The canonical sums as `docs/numerics.md` words them: small, slow, obvious. Allocates at will.

use super::{CHAIN, LEAF_ROWS, UNIT, rms};
use crate::dtype::Element;

/// The column fold of the products `a * b` of `len` terms, `term(i)` being the i-th pair `(a, b)`.
pub fn dot(len: usize, term: impl Fn(usize) -> (f32, f32)) -> f32 {
    let padded = |i| if i < len { term(i) } else { (0.0, 0.0) };
    let unit = |u| chain(CHAIN, |i| padded(UNIT * u + i)) + chain(CHAIN, |i| padded(UNIT * u + CHAIN + i));
    let mut units: Vec<f32> = (0..len.div_ceil(UNIT)).map(unit).collect();

    let mut p = units.len().next_power_of_two();
    units.resize(p, 0.0);
    while p > 1 {
        p /= 2;
        for i in 0..p {
            units[i] += units[i + p];
        }
    }
    units[0] + 0.0
}

/// The column fold of the squares of a row.
pub fn sum_of_squares<E: Element>(row: &[E]) -> f32 {
    dot(row.len(), |i| (row[i].to_f32(), row[i].to_f32()))
}

/// The row tree of one column: the sum over `rows` rows of `dy * xhat`, `term(t)` being row t's pair `(dy, xhat)`.
pub fn row_tree(rows: usize, term: impl Fn(usize) -> (f32, f32)) -> f32 {
    let leaf = |first: usize| chain(LEAF_ROWS.min(rows - first), |t| term(first + t));
    let leaves: Vec<f32> = (0..rows).step_by(LEAF_ROWS).map(leaf).collect();
    combine(&leaves)
}

/// The rest of the row tree above the roots of adjacent subtrees, in row order.
///
/// The subtrees have the same power-of-two number of leaves; rows that the last ones lack count as zero rows. A root
/// may be the result of [`row_tree`]: the +0.0 it ends with is lost in the +0.0 that ends this sum.
pub fn combine(roots: &[f32]) -> f32 {
    let mut level = roots.to_vec();
    level.resize(roots.len().next_power_of_two(), 0.0);
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| pair[0] + pair[1]).collect();
    }
    level[0] + 0.0
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
    let rstd = rms::rstd(sum_of_squares(x), x.len(), eps);
    for i in 0..x.len() {
        let w = weight.map_or(1.0, |w| w[i].to_f32() + offset);
        y[i] = rms::scale(x[i], rstd, w);
    }
    rstd
}

/// `h = round(x + residual)`, element by element.
pub fn add_row<X: Element>(x: &[X], residual: &[X], h: &mut [X]) {
    for i in 0..x.len() {
        h[i] = rms::add(x[i], residual[i]);
    }
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
    let xhat = |i: usize| rms::xhat(x[i], rstd);
    let g = |i: usize| rms::weighted(dy[i], weight.map_or(1.0, |w| w[i].to_f32() + offset));
    let c = rms::projection(dot(x.len(), |i| (g(i), xhat(i))), x.len());
    for i in 0..x.len() {
        dx[i] = rms::dx(g(i), xhat(i), c, rstd, dh.map(|dh| dh[i]));
    }
    c
}

/// An FMA chain from +0 over `len` terms.
fn chain(len: usize, term: impl Fn(usize) -> (f32, f32)) -> f32 {
    let mut acc = 0.0;
    for i in 0..len {
        let (a, b) = term(i);
        acc = a.mul_add(b, acc);
    }
    acc
}
