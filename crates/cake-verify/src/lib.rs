//! Judges the Cake kernels.
//!
//! | room | holds |
//! | --- | --- |
//! | [`mod@reference`] | the right answers, from MPFR; shares no arithmetic with what is judged |
//! | [`bounds`] | how far an answer may be from them, with the derivation |
//! | [`cases`] | what is tried, as data, each group with its reason |
//! | [`engine`] | memory with canaries, views, the canonical bits, the comparison |
//! | [`checks`] | what is judged: one task for each line of the matrix |
//! | [`report`] | what a run found, as text, JSON and a page; what differs between two |
//! | [`run`], [`routes`], [`doctor`] | the commands |
//!
//! The command `cake-verify` runs every task in one process; `tests/device.rs` makes a test of each.

pub mod bench;
pub mod bounds;
pub mod cases;
pub mod checks;
pub mod doctor;
pub mod engine;
pub mod reference;
pub mod report;
pub mod routes;
pub mod run;
