//! Properties of calls, routes and names, each a function of bytes that `fuzz/` asks too.

mod calls;
#[path = "../../../cake-core/tests/properties/draw.rs"]
mod draw;
mod routes;
mod serves;
mod texts;

use proptest::prelude::*;

/// As many bytes as a property draws, or fewer.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..240)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_writes_its_outputs_or_is_refused(bytes in bytes()) {
        calls::calls(&bytes);
    }

    #[test]
    fn a_route_leads_to_a_program_that_serves(bytes in bytes()) {
        routes::routes(&bytes);
    }

    #[test]
    fn names_are_known_or_refused(bytes in bytes()) {
        texts::names(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_spoilt_image_is_refused(bytes in bytes()) {
        texts::images(&bytes);
    }
}
