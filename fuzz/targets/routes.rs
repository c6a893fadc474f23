//! Routes of every call on every device.
#![no_main]
#![allow(dead_code)] // a target asks some of what the modules hold

#[path = "../../crates/cake-core/tests/properties/draw.rs"]
mod draw;
#[path = "../../crates/cake-verify/tests/properties/routes.rs"]
mod routes;
#[path = "../../crates/cake-verify/tests/properties/serves.rs"]
mod serves;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| routes::routes(bytes));
