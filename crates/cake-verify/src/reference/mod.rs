//! What the operators should give, from the very bits of their inputs, in MPFR.
//!
//! Small, slow, obvious. Nothing here uses arithmetic of the crates that are judged, nor floating point of the host
//! except to carry values that are exact.

pub mod gate;
pub mod number;
pub mod rmsnorm;
