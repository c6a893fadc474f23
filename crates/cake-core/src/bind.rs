//! From views to kernel parameters: what operators on rows check and bind alike.

use crate::rows::{self, RowTensor};
use crate::{Dtype, Error, MAX_RANK, Place, RawView, Result, Shape, Workspace, sums};

/// An optional argument under its name, present exactly when the plan has use for it.
pub fn argument(name: &'static str, view: Option<&RawView>, wanted: bool) -> Result<Option<RawView>> {
    match (view, wanted) {
        (None, true) => Err(Error::Missing { argument: name, because: "the plan was made with it" }),
        (Some(_), false) => Err(Error::Unexpected { argument: name, because: "the plan was made without it" }),
        (view, _) => Ok(view.map(|view| view.named(name))),
    }
}

/// Refuses a view of another place, dtype or shape.
pub fn expect(view: &RawView, place: Place, dtype: Dtype, shape: &[u64]) -> Result<()> {
    let argument = view.argument;
    if view.place != place {
        return Err(Error::Place { argument, expected: place, actual: view.place });
    }
    if view.dtype != dtype {
        return Err(Error::Dtype { argument, expected: dtype.name(), actual: view.dtype });
    }
    if view.shape() != shape {
        return Err(Error::Shape { argument, expected: shape.to_vec(), actual: view.shape().to_vec() });
    }
    Ok(())
}

/// The leading dimensions of `x`, whose last one must be `width`; `[1]` for a single row.
pub fn expect_rows(x: &RawView, width: u32) -> Result<&[u64]> {
    let (&columns, lead) = x.shape().split_last().expect("a view has a dimension");
    if columns != u64::from(width) {
        let expected = [lead, &[width.into()]].concat();
        return Err(Error::Shape { argument: x.argument, expected, actual: x.shape().to_vec() });
    }
    Ok(if lead.is_empty() { &[1] } else { lead })
}

/// Refuses an `eps` that is not finite, or negative.
pub fn expect_eps(eps: f32) -> Result<()> {
    match sums::rms::eps_is_valid(eps) {
        true => Ok(()),
        false => Err(Error::Value { argument: "eps", expected: "a finite number, 0 or more", actual: eps.into() }),
    }
}

/// Refuses a weight of another dtype than BF16 and FP32; the same for its gradient.
pub fn expect_weight_dtype(argument: &'static str, dtype: Dtype) -> Result<()> {
    match dtype {
        Dtype::F16 => Err(Error::Dtype { argument, expected: "bf16 or f32", actual: dtype }),
        _ => Ok(()),
    }
}

/// Refuses a size or limit of 0.
pub fn expect_some(argument: &'static str, size: u32) -> Result<()> {
    match size {
        0 => Err(Error::Size { argument, expected: "1 or more", actual: 0 }),
        _ => Ok(()),
    }
}

/// Refuses a workspace that shares bytes with a tensor.
pub fn refuse_workspace<'a>(
    workspace: &Workspace,
    place: Place,
    tensors: impl Iterator<Item = &'a RawView>,
) -> Result<()> {
    let range = workspace.range();
    for view in tensors.filter(|view| view.place == place) {
        let other_range = view.byte_range();
        if range.0 < other_range.1 && other_range.0 < range.1 {
            return Err(Error::Overlap {
                output: "workspace",
                output_range: range,
                other: view.argument,
                other_range,
                hint: "",
            });
        }
    }
    Ok(())
}

/// T tensors of a call, of which the first R have rows: the fields of a parameter block.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as in the parameter blocks
pub struct Bound<const R: usize, const T: usize> {
    pub shape: Shape,
    pub levels: u32,
    pub sizes: [u32; rows::MAX_LEVELS],
    pub tensors: [RowTensor; R],
    pub more: [[u64; R]; rows::MAX_LEVELS - 2],
    pub column: [u64; T],
    pub vectors: u32,
}

impl<const R: usize, const T: usize> Bound<R, T> {
    /// Folds the leading dimensions. Tensor `flat` has these alone, without columns; all programs access the tensors
    /// `single` element by element.
    pub fn new(width: u32, lead: &[u64], views: &[Option<&RawView>; T], flat: usize, single: &[usize]) -> Result<Self> {
        let lead_strides: [[u64; MAX_RANK]; R] = std::array::from_fn(|t| {
            let mut strides = [0; MAX_RANK];
            let own = views[t].map_or(&[][..], RawView::strides);
            let own = if t == flat { own } else { &own[..own.len().saturating_sub(1)] };
            strides[..own.len()].copy_from_slice(own);
            strides
        });
        let rows = rows::fold(lead, lead_strides.each_ref().map(|strides| &strides[..lead.len()]));
        let count = u32::try_from(rows.count).ok().filter(|&count| count <= i32::MAX as u32);
        let count =
            count.ok_or(Error::Size { argument: "x", expected: "at most 2^31 - 1 rows", actual: rows.count })?;

        let mut column = [0; T];
        let mut vectors = 0;
        for t in (0..T).filter(|&t| t != flat) {
            let Some(view) = views[t] else { continue };
            column[t] = *view.strides().last().expect("a view has a dimension");
            let steps = if t < R { &rows.strides[t][..] } else { &[] };
            let aligned = |bytes: u64| bytes.is_multiple_of(16);
            let all_aligned = (column[t] == 1 || width == 1)
                && aligned(view.address)
                // May wrap only beside a size of 0, and by a multiple of 16.
                && steps.iter().all(|step| aligned(step.wrapping_mul(view.dtype.size() as u64)));
            vectors |= u32::from(all_aligned) << t;
        }
        let mut judged = (0..T).filter(|t| !single.contains(t) && views[*t].is_some());
        let all_vectors = rows.levels <= 2 && judged.all(|t| vectors >> t & 1 == 1);
        Ok(Bound {
            shape: Shape { rows: count, vectors: all_vectors, in_place: false },
            levels: rows.levels as u32,
            sizes: rows.sizes.map(|size| size as u32),
            tensors: std::array::from_fn(|t| RowTensor {
                address: views[t].map_or(0, |view| view.address),
                pitch: rows.strides[t][0],
                outer: rows.strides[t][1],
            }),
            more: std::array::from_fn(|level| std::array::from_fn(|t| rows.strides[t][level + 2])),
            column,
            vectors,
        })
    }
}
