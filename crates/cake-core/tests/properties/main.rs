//! Properties of arguments, each a function of bytes that `fuzz/` asks too.

mod draw;
mod rows;
mod views;

use proptest::prelude::*;

/// As many bytes as a property draws, or fewer.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_accepted_view_lies_in_its_buffer(bytes in bytes()) {
        views::views(&bytes);
    }

    #[test]
    fn a_bound_row_is_where_its_indices_say(bytes in bytes()) {
        rows::bound(&bytes);
    }

    #[test]
    fn the_host_reads_and_writes_rows_in_place(bytes in bytes()) {
        rows::host(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_in_tasks_have_the_sum_of_all(bytes in bytes()) {
        rows::sums(&bytes);
    }
}
