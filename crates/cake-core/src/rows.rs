//! Folding the leading dimensions of several tensors into rows.

/// Most levels of row indices that remain after folding.
pub const MAX_LEVELS: usize = 6;

/// Where the rows of a tensor are, as kernels take it: mirrored by `cuda/cake/rows.cuh`. Strides count elements; levels of
/// row indices are counted from the innermost.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowTensor {
    /// Address of the first element; 0 when the tensor is absent.
    pub address: u64,
    /// Stride of level 0.
    pub pitch: u64,
    /// Stride of level 1.
    pub outer: u64,
}

/// The leading dimensions of `N` tensors of one shape, folded as far as all of them allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows<const N: usize> {
    /// Rows in all.
    pub count: u64,
    /// Levels in use, 1 to [`MAX_LEVELS`]; one level means that every tensor has a single row pitch.
    pub levels: usize,
    /// Sizes, innermost level first; 1 beyond `levels`.
    pub sizes: [u64; MAX_LEVELS],
    /// For each tensor the strides in elements, innermost level first.
    pub strides: [[u64; MAX_LEVELS]; N],
}

/// Folds `shape`, the leading dimensions outermost first, with the strides that each tensor has there.
pub fn fold<const N: usize>(shape: &[u64], strides: [&[u64]; N]) -> Rows<N> {
    let mut rows = Rows {
        count: shape.iter().fold(1, |n: u64, &size| n.saturating_mul(size)),
        levels: 0,
        sizes: [1; MAX_LEVELS],
        strides: [[0; MAX_LEVELS]; N],
    };
    for dimension in (0..shape.len()).rev().filter(|&d| shape[d] != 1) {
        let joins = rows.levels > 0 && {
            let (inner, size) = (rows.levels - 1, rows.sizes[rows.levels - 1]);
            (0..N).all(|n| strides[n][dimension] == rows.strides[n][inner].wrapping_mul(size))
        };
        if joins {
            // May wrap only beside a size of 0, where there is no row to find.
            rows.sizes[rows.levels - 1] = rows.sizes[rows.levels - 1].wrapping_mul(shape[dimension]);
        } else {
            rows.sizes[rows.levels] = shape[dimension];
            for n in 0..N {
                rows.strides[n][rows.levels] = strides[n][dimension];
            }
            rows.levels += 1;
        }
    }
    rows.levels = rows.levels.max(1);
    rows
}
