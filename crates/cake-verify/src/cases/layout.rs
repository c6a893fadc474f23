//! Where the elements of a tensor lie.

/// A layout, for any shape. Inputs take all of them; outputs those in which elements are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Row-major, from an aligned address.
    #[default]
    Contiguous,
    /// Row-major, this many elements beyond an aligned address.
    Offset(u64),
    /// Rows this many elements further apart than they are wide.
    Gap(u64),
    /// Rows this many widths apart.
    Pitch(u64),
    /// Columns from this one on of a buffer that is three times as wide, and a bit.
    Slice(u64),
    /// Every n-th element of a buffer.
    Every(u64),
    /// The transpose of a row-major buffer: the first dimension is the innermost.
    Transposed,
    /// The first dimension innermost of the leading ones, rows whole: `[T, heads, D]` stored as `[heads, T, D]`.
    Swapped,
    /// One row for all: stride 0 in every leading dimension.
    OneRow,
    /// One row for all indices of the first dimension.
    OneOuter,
    /// One element for all columns: stride 0 in the last dimension, rows whole.
    OneColumn,
    /// These strides of the leading dimensions, and 1.
    Strides(&'static [i64]),
}

/// A layout of one shape: offset, strides and extent, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Of the first element from an aligned address.
    pub offset: u64,
    /// Sizes, as given.
    pub shape: Vec<u64>,
    /// Outermost first.
    pub strides: Vec<i64>,
    /// From the first element to one past the last; 0 without elements.
    pub span: u64,
}

impl Layout {
    /// Whether two elements of a tensor with this layout can share memory.
    pub fn expands(self) -> bool {
        matches!(self, Layout::OneRow | Layout::OneOuter | Layout::OneColumn)
    }

    /// Places a tensor of shape `lead` x `width`.
    pub fn place(self, lead: &[u64], width: u64) -> Placed {
        let shape: Vec<u64> = [lead, &[width]].concat();
        let rows = shape.len() - 1;
        let (mut offset, mut column, mut pitch) = (0, 1, width);
        match self {
            Layout::Offset(elements) => offset = elements,
            Layout::Gap(elements) => pitch = width + elements,
            Layout::Pitch(widths) => pitch = width * widths,
            Layout::Slice(first) => (offset, pitch) = (first, 3 * width + 8),
            Layout::Every(n) => (column, pitch) = (n, width * n),
            Layout::OneColumn => column = 0,
            _ => {}
        }
        let mut strides = vec![0; shape.len()];
        strides[rows] = column;
        let mut order: Vec<usize> = (0..rows).rev().collect();
        if self == Layout::Swapped {
            order.reverse();
        }
        let mut step = pitch;
        for dimension in order {
            strides[dimension] = step;
            step *= shape[dimension].max(1);
        }
        match self {
            Layout::Transposed => {
                let mut step = 1;
                for (stride, size) in strides.iter_mut().zip(&shape) {
                    *stride = step;
                    step *= (*size).max(1);
                }
            }
            Layout::OneRow => strides[..rows].fill(0),
            Layout::OneOuter if rows > 0 => strides[0] = 0,
            Layout::Strides(given) => {
                assert_eq!(given.len(), rows, "a stride for each leading dimension of {shape:?}");
                for (stride, &given) in strides.iter_mut().zip(given) {
                    *stride = given as u64;
                }
            }
            _ => {}
        }
        Placed::new(offset, shape, strides.into_iter().map(|stride| stride as i64).collect())
    }
}

impl Placed {
    /// Measures the extent. Strides of dimensions of size 1 do not count.
    pub fn new(offset: u64, shape: Vec<u64>, strides: Vec<i64>) -> Placed {
        let last: u64 = shape.iter().zip(&strides).filter(|(n, _)| **n > 1).map(|(n, s)| (n - 1) * *s as u64).sum();
        let span = if shape.contains(&0) { 0 } else { last + 1 };
        Placed { offset, shape, strides, span }
    }

    /// The same without its last dimension: one element for each row.
    pub fn without_columns(mut self) -> Placed {
        self.shape.pop();
        self.strides.pop();
        Placed::new(self.offset, self.shape, self.strides)
    }

    /// For each row, in row-major order of the leading dimensions, the offset of its first element.
    pub fn row_offsets(&self, leading: usize) -> Vec<u64> {
        let mut offsets = vec![self.offset];
        for (&size, &stride) in self.shape.iter().zip(&self.strides).take(leading) {
            offsets =
                offsets.iter().flat_map(|&at| (0..size).map(move |i| at + i.wrapping_mul(stride as u64))).collect();
        }
        offsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strides(layout: Layout) -> Vec<i64> {
        layout.place(&[2, 3], 4).strides
    }

    #[test]
    fn layouts_are_what_they_say() {
        assert_eq!(strides(Layout::Contiguous), [12, 4, 1]);
        assert_eq!(strides(Layout::Gap(1)), [15, 5, 1]);
        assert_eq!(strides(Layout::Pitch(2)), [24, 8, 1]);
        assert_eq!(strides(Layout::Slice(3)), [60, 20, 1]);
        assert_eq!(strides(Layout::Every(2)), [24, 8, 2]);
        assert_eq!(strides(Layout::Transposed), [1, 2, 6]);
        assert_eq!(strides(Layout::Swapped), [4, 8, 1]);
        assert_eq!(strides(Layout::OneRow), [0, 0, 1]);
        assert_eq!(strides(Layout::OneOuter), [0, 4, 1]);
        assert_eq!(strides(Layout::OneColumn), [12, 4, 0]);
        assert_eq!(strides(Layout::Strides(&[100, 7])), [100, 7, 1]);
    }

    #[test]
    fn rows_are_found_where_the_strides_put_them() {
        assert_eq!(Layout::Swapped.place(&[2, 3], 4).row_offsets(2), [0, 8, 16, 4, 12, 20]);
        assert_eq!(Layout::Slice(3).place(&[2], 4).row_offsets(1), [3, 23]);
        let placed = Layout::Gap(1).place(&[3], 1).without_columns();
        assert_eq!((placed.strides.as_slice(), placed.span), ([2].as_slice(), 5));
    }

    #[test]
    fn strides_of_single_elements_take_no_room() {
        assert_eq!(Placed::new(0, vec![1, 8], vec![1 << 40, 1]).span, 8);
        assert_eq!(Layout::Contiguous.place(&[0], 8).span, 0);
    }
}
