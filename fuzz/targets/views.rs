//! Views at the ends of their arithmetic.
#![no_main]
#![allow(dead_code)] // a target asks some of what the modules hold

#[path = "../../crates/cake-core/tests/properties/draw.rs"]
mod draw;
#[path = "../../crates/cake-core/tests/properties/views.rs"]
mod views;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| views::views(bytes));
