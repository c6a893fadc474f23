//! The machinery that runs a case: memory with canaries, views, the expected bits, the comparison.

pub mod call;
pub mod compare;
pub mod driver;
pub mod expected;
pub mod gate;
pub mod gradients;
pub mod image;
pub mod memory;
pub mod setup;
pub mod shards;
pub mod subject;
pub mod target;
