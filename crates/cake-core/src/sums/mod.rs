//! The canonical order of sums, on the host.
//!
//! Every sum in Cake has one order, specified in `docs/numerics.md`, and so one right bit pattern:
//!
//! - the **column fold** adds the terms of a row: units of [`UNIT`] elements, each the sum of two FMA chains of
//!   [`CHAIN`]; then the list of units is folded in half until one is left;
//! - the **row tree** adds the rows of a column: leaves of [`LEAF_ROWS`] rows, each an FMA chain; then a pairwise tree
//!   over adjacent leaves.
//!
//! | module    | holds                                                                         |
//! |-----------|-------------------------------------------------------------------------------|
//! | [`plain`] | the specification in code: small, slow, obvious                               |
//! | [`fast`]  | the same bits at speed: vector code, `rayon` across rows                      |
//! | [`rms`]   | the scalar formulas of RMSNorm, shared by both                                |
//! | [`simd`]  | [`with_fma`]: runs a closure where `f32::mul_add` is one instruction          |
//!
//! All arithmetic is `f32`, rounded to nearest even, with subnormals. A NaN is a NaN: payloads are not promised.

pub mod fast;
pub mod plain;
pub mod rms;
pub mod simd;

pub use simd::with_fma;

/// Consecutive elements of a row in one unit of the column fold.
pub const UNIT: usize = 2 * CHAIN;

/// Consecutive elements of a row in one FMA chain.
pub const CHAIN: usize = 4;

/// Consecutive rows in one leaf of the row tree.
pub const LEAF_ROWS: usize = 8;
