//! ci
fn main() {}
