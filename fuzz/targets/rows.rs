//! Rows, as they are bound to kernels, and as the host reads and writes them.
#![no_main]
#![allow(dead_code)] // a target asks some of what the modules hold

#[path = "../../crates/cake-core/tests/properties/draw.rs"]
mod draw;
#[path = "../../crates/cake-core/tests/properties/rows.rs"]
mod rows;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rows::bound(bytes);
    rows::host(bytes);
});
