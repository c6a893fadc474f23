//! Calls of every operator, with arguments anywhere in a block of memory.
#![no_main]
#![allow(dead_code)] // a target asks some of what the modules hold

#[path = "../../crates/cake-verify/tests/properties/calls.rs"]
mod calls;
#[path = "../../crates/cake-core/tests/properties/draw.rs"]
mod draw;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| calls::calls(bytes));
