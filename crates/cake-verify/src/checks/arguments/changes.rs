//! Ways to make an argument wrong.

use cake_core::{Dtype, Place};

use crate::engine::memory::Argument;

/// The same elements under another type, with the bytes that they would need.
pub(super) fn retype(argument: &mut Argument<'_>, dtype: Dtype) {
    argument.bytes = argument.bytes / argument.dtype.size() as u64 * dtype.size() as u64;
    argument.dtype = dtype;
}

/// Another shape, row-major, with the bytes that it would need.
pub(super) fn reshape(argument: &mut Argument<'_>, shape: &[u64]) {
    argument.bytes = shape.iter().product::<u64>() * argument.dtype.size() as u64;
    argument.strides = vec![1; shape.len()];
    for dimension in (1..shape.len()).rev() {
        argument.strides[dimension - 1] = argument.strides[dimension] * shape[dimension] as i64;
    }
    argument.shape = shape.to_vec();
}

/// A place that is not the right one.
pub(super) fn elsewhere(place: Place) -> Place {
    match place {
        Place::Host => Place::Cuda(0),
        Place::Cuda(_) => Place::Host,
    }
}

/// A GPU that is not the right one.
pub(super) fn next_device(place: Place) -> Place {
    match place {
        Place::Host => Place::Cuda(1),
        Place::Cuda(ordinal) => Place::Cuda(ordinal + 1),
    }
}

/// An argument in the place of another.
pub(super) fn renamed<'m>(argument: &Argument<'m>, name: &'static str) -> Option<Argument<'m>> {
    Some(Argument { name, ..argument.clone() })
}
