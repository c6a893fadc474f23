//! Tensors as the operators see them: an address, a shape, strides and a dtype, checked once at construction.

use std::fmt;
use std::marker::PhantomData;

use crate::{Dtype, Element, Error, Result};

/// Most dimensions a view can have: six leading ones and the row.
pub const MAX_RANK: usize = 7;

/// Where memory lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Host memory.
    Host,
    /// Device memory of the GPU with this ordinal.
    Cuda(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("host"),
            Place::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// A tensor that an operator reads. Cheap to copy. It exists only when every element lies inside its buffer.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    raw: RawView,
    memory: PhantomData<&'a [u8]>,
}

/// A tensor that an operator writes: as [`TensorView`], and no two of its elements share memory.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    raw: RawView,
    memory: PhantomData<&'a mut [u8]>,
}

/// What both kinds of view hold. Strides count elements; the stride of a dimension of size 1 is stored as 0.
#[derive(Clone, Copy, Debug)]
pub struct RawView {
    /// Name for errors.
    pub argument: &'static str,
    /// Where the memory lives.
    pub place: Place,
    /// Address of the first element; may be null when there are no elements.
    pub address: u64,
    /// Element type.
    pub dtype: Dtype,
    rank: usize,
    shape: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
    /// Bytes from the first element's first to the last element's last; 0 without elements.
    span: u64,
}

impl<'a> TensorView<'a> {
    /// A contiguous row-major view of a host slice, which must hold exactly the elements of `shape`.
    pub fn from_slice<E: Element>(argument: &'static str, slice: &'a [E], shape: &[u64]) -> Result<Self> {
        let (address, len) = (slice.as_ptr().expose_provenance() as u64, slice.len());
        let raw = RawView::contiguous(argument, address, len, E::DTYPE, shape)?;
        Ok(Self { raw, memory: PhantomData })
    }

    /// A view of host elements at any non-negative `strides` (in elements), starting at the slice's first element.
    pub fn from_slice_strided<E: Element>(
        argument: &'static str,
        slice: &'a [E],
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self> {
        let bytes = size_of_val(slice) as u64;
        let address = slice.as_ptr().expose_provenance() as u64;
        let raw = RawView::new(argument, Place::Host, address, bytes, E::DTYPE, shape, strides)?;
        Ok(Self { raw, memory: PhantomData })
    }

    /// A view of memory that the type system does not know: `bytes` readable bytes at `address` on `place`, `strides` in
    /// elements.
    ///
    /// # Safety
    /// The memory must stay allocated, and must not be written by others, until the work of every call that took this
    /// view has finished; for a device that is when its stream has passed the call, not when the call returns.
    #[allow(unsafe_code)] // declares the contract; the body is checked arithmetic
    pub unsafe fn from_raw(
        argument: &'static str,
        place: Place,
        address: u64,
        bytes: u64,
        dtype: Dtype,
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self> {
        Ok(Self { raw: RawView::new(argument, place, address, bytes, dtype, shape, strides)?, memory: PhantomData })
    }

    /// Address, shape, strides, dtype.
    pub fn raw(&self) -> &RawView {
        &self.raw
    }
}

impl<'a> TensorViewMut<'a> {
    /// A contiguous row-major view of a host slice, which must hold exactly the elements of `shape`.
    pub fn from_slice<E: Element>(argument: &'static str, slice: &'a mut [E], shape: &[u64]) -> Result<Self> {
        let (address, len) = (slice.as_mut_ptr().expose_provenance() as u64, slice.len());
        let raw = RawView::contiguous(argument, address, len, E::DTYPE, shape)?;
        Ok(Self { raw, memory: PhantomData })
    }

    /// A view of host elements at any `strides` (in elements) under which no two elements share memory.
    pub fn from_slice_strided<E: Element>(
        argument: &'static str,
        slice: &'a mut [E],
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self> {
        let bytes = size_of_val(slice) as u64;
        let address = slice.as_mut_ptr().expose_provenance() as u64;
        let raw = RawView::new(argument, Place::Host, address, bytes, E::DTYPE, shape, strides)?;
        raw.refuse_self_overlap()?;
        Ok(Self { raw, memory: PhantomData })
    }

    /// As [`TensorView::from_raw`], for memory that is written.
    ///
    /// # Safety
    /// As [`TensorView::from_raw`]; moreover nothing else may read or write the elements until that work has finished.
    /// The same memory may be given as an input of the same call where the operator lists the pair as allowed.
    #[allow(unsafe_code)] // declares the contract; the body is checked arithmetic
    pub unsafe fn from_raw(
        argument: &'static str,
        place: Place,
        address: u64,
        bytes: u64,
        dtype: Dtype,
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self> {
        let raw = RawView::new(argument, place, address, bytes, dtype, shape, strides)?;
        raw.refuse_self_overlap()?;
        Ok(Self { raw, memory: PhantomData })
    }

    /// Address, shape, strides, dtype.
    pub fn raw(&self) -> &RawView {
        &self.raw
    }
}

impl RawView {
    fn contiguous(argument: &'static str, address: u64, len: usize, dtype: Dtype, shape: &[u64]) -> Result<Self> {
        let elements = match shape.contains(&0) {
            true => Some(0),
            false => shape.iter().try_fold(1u64, |n, &size| n.checked_mul(size)),
        };
        if elements != Some(len as u64) {
            return Err(Error::Shape { argument, expected: vec![len as u64], actual: shape.to_vec() });
        }
        let mut strides = [0; MAX_RANK];
        let mut step = 1u64;
        for (stride, &size) in strides.iter_mut().zip(shape).rev() {
            *stride = i64::try_from(step).unwrap_or(i64::MAX); // beside a size of 0, where no stride is taken
            step = step.saturating_mul(size);
        }
        let strides = &strides[..shape.len().min(MAX_RANK)];
        Self::new(argument, Place::Host, address, len as u64 * dtype.size() as u64, dtype, shape, strides)
    }

    fn new(
        argument: &'static str,
        place: Place,
        address: u64,
        bytes: u64,
        dtype: Dtype,
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self> {
        if !(1..=MAX_RANK).contains(&shape.len()) {
            return Err(Error::Rank { argument, expected: "1 to 7", actual: shape.len() });
        }
        if strides.len() != shape.len() {
            return Err(Error::Strides { argument, expected: shape.len(), actual: strides.len() });
        }
        let mut raw = RawView {
            argument,
            place,
            address,
            dtype,
            rank: shape.len(),
            shape: [1; MAX_RANK],
            strides: [0; MAX_RANK],
            span: 0,
        };
        raw.shape[..shape.len()].copy_from_slice(shape);
        for (dimension, (&size, &stride)) in shape.iter().zip(strides).enumerate() {
            if size > 1 {
                raw.strides[dimension] =
                    u64::try_from(stride).map_err(|_| Error::NegativeStride { argument, dimension, actual: stride })?;
            }
        }
        let needed = raw.needed_bytes().unwrap_or(u128::MAX);
        if needed > bytes as u128 {
            let (shape, strides) = (raw.shape().to_vec(), raw.strides().to_vec());
            return Err(Error::Extent { argument, shape, strides, needed, held: bytes });
        }
        if address as u128 + needed > u64::MAX as u128 {
            return Err(Error::AddressRange { argument, address, bytes: needed as u64 });
        }
        if needed > 0 && address == 0 {
            return Err(Error::NullPointer { argument, bytes: needed as u64 });
        }
        if needed > 0 && !address.is_multiple_of(dtype.size() as u64) {
            return Err(Error::Misaligned { argument, expected: dtype.size() as u64, address });
        }
        raw.span = needed as u64;
        Ok(raw)
    }

    /// The same view under the name that an operator gives the argument.
    pub fn named(self, argument: &'static str) -> Self {
        Self { argument, ..self }
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.shape[..self.rank]
    }

    /// Strides in elements, outermost first; 0 where the size is 1.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank]
    }

    /// Whether some dimension has size 0.
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// The span, before it is known to fit the buffer; `None` when no integer holds it.
    fn needed_bytes(&self) -> Option<u128> {
        if self.is_empty() {
            return Some(0);
        }
        let mut last: u128 = 0;
        for (&size, &stride) in self.shape().iter().zip(self.strides()) {
            last = last.checked_add((size as u128 - 1).checked_mul(stride as u128)?)?;
        }
        last.checked_add(1)?.checked_mul(self.dtype.size() as u128)
    }

    /// First byte and one past the last byte that the view touches.
    pub fn byte_range(&self) -> (u64, u64) {
        (self.address, self.address + self.span)
    }

    /// Whether both views place the same elements at the same addresses.
    pub fn same_elements(&self, other: &RawView) -> bool {
        (self.place, self.address, self.dtype) == (other.place, other.address, other.dtype)
            && self.shape() == other.shape()
            && self.strides() == other.strides()
    }

    /// Refuses layouts in which two elements share memory. Accepts those in which, ordered by stride, each stride is at
    /// least the span of the smaller ones; exotic interleavings beyond that are refused too.
    fn refuse_self_overlap(&self) -> Result<()> {
        let mut dims: Vec<(u64, u64)> =
            self.strides().iter().copied().zip(self.shape().iter().copied()).filter(|&(_, n)| n > 1).collect();
        dims.sort_unstable();
        let mut span: u128 = 1;
        for (stride, size) in dims {
            if (stride as u128) < span && !self.is_empty() {
                let (shape, strides) = (self.shape().to_vec(), self.strides().to_vec());
                return Err(Error::SelfOverlap { argument: self.argument, shape, strides });
            }
            span = span.saturating_add((size as u128 - 1).saturating_mul(stride as u128));
        }
        Ok(())
    }
}
