//! What a view must refuse, and what it must not, at the ends of its arithmetic.

use cake_core::bind::Bound;
use cake_core::overlap::overlap;
use cake_core::rows::fold;
use cake_core::{Element, Error, TensorView, TensorViewMut};
use half::bf16;

#[test]
fn an_extent_beyond_128_bits_is_refused() {
    // (2^127 + 1) elements of 2 bytes: modulo 2^128 they would need 2 bytes.
    let one = [bf16::ZERO];
    let view = TensorView::from_slice_strided("x", &one, &[(1 << 63) + 1; 4], &[1 << 62; 4]);
    assert!(matches!(view, Err(Error::Extent { argument: "x", held: 2, .. })), "{view:?}");
    // The last element would be 2^128 elements away, and modulo 2^128 nowhere.
    let sizes = [3 << 62, 3 << 62, 3 << 62, 3 << 62, 3 << 62, 1 << 62].map(|last: u64| last + 1);
    let view = TensorView::from_slice_strided("x", &one, &sizes, &[1 << 62; 6]);
    assert!(matches!(view, Err(Error::Extent { argument: "x", held: 2, .. })), "{view:?}");
    let mut one = one;
    let view = TensorViewMut::from_slice_strided("y", &mut one, &[u64::MAX; 7], &[i64::MAX; 7]);
    assert!(matches!(view, Err(Error::Extent { argument: "y", .. })), "{view:?}");
}

#[test]
fn no_elements_are_no_elements_whatever_the_other_sizes() {
    let none: [bf16; 0] = [];
    for shape in [[0, 1 << 40, 1 << 40, 128], [1 << 40, 1 << 40, 128, 0], [1 << 40, 0, 1 << 40, 1 << 40]] {
        let view = TensorView::from_slice("x", &none, &shape).expect("there is nothing to reach");
        assert!(view.raw().is_empty());
        let rows = fold(&shape[..3], [&view.raw().strides()[..3]]);
        assert_eq!(rows.count == 0, shape[..3].contains(&0));
    }
}

#[test]
fn a_stride_beside_a_size_of_0_is_never_taken() {
    let none: [f32; 0] = [];
    let shape = [5, 0, 1];
    let view =
        TensorView::from_slice_strided("x", &none, &shape, &[i64::MAX, 1, 1]).expect("there is nothing to reach");
    let bound = Bound::<1, 1>::new(1, &shape[..2], &[Some(view.raw())], 1, &[]).expect("no rows are no rows");
    assert_eq!(bound.shape.rows, 0);
}

#[test]
fn a_refusal_names_what_is_wrong() {
    let four = [bf16::ZERO; 4];
    let view = TensorView::from_slice_strided("x", &four, &[2, 2], &[1]);
    assert!(matches!(view, Err(Error::Strides { argument: "x", expected: 2, actual: 1 })), "{view:?}");
    let place = cake_core::Place::Host;
    #[allow(unsafe_code)] // never read: the address wraps, and the view is refused
    // SAFETY: as above.
    let view = unsafe { TensorView::from_raw("x", place, u64::MAX - 3, 16, cake_core::Dtype::Bf16, &[8], &[1]) };
    assert!(matches!(view, Err(Error::AddressRange { argument: "x", bytes: 16, .. })), "{view:?}");
}

#[test]
fn a_dimension_of_one_may_have_any_stride() {
    let four = [bf16::ZERO; 4];
    let view = TensorView::from_slice_strided("x", &four, &[1, 4], &[1 << 40, 1]).expect("the stride is never taken");
    assert_eq!(view.raw().strides(), [0, 1]);
    assert_eq!(view.raw().byte_range().1 - view.raw().byte_range().0, 8);
}

/// These two touch no common byte: one lies at even, the other at odd elements. Finding that out takes longer than the
/// search may, and then the answer is the safe one.
#[test]
fn a_search_that_is_too_long_counts_as_an_overlap() {
    let buffer = vec![bf16::ZERO; 400_000];
    let shape = [40, 40, 40, 8];
    let even = TensorView::from_slice_strided("x", &buffer, &shape, &[8006, 502, 30, 2]).expect("inside the buffer");
    let odd =
        TensorView::from_slice_strided("y", &buffer[1..], &shape, &[8010, 506, 34, 2]).expect("inside the buffer");
    assert!(overlap(even.raw(), odd.raw()));
}

#[test]
fn elements_are_what_their_dtype_says() {
    fn agrees<E: Element>() -> bool {
        size_of::<E>() == E::DTYPE.size()
    }
    assert!(agrees::<bf16>() && agrees::<half::f16>() && agrees::<f32>());
}
