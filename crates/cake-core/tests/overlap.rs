//! `overlap` against looking at every byte, and views against their buffers, over small random layouts.

use std::collections::BTreeSet;

use cake_core::overlap::overlap;
use cake_core::{TensorView, TensorViewMut};
use proptest::prelude::*;

/// A layout in a small buffer: offset, shape, strides, and bytes of an element.
#[derive(Clone, Debug)]
struct Small {
    offset: usize,
    shape: Vec<u64>,
    strides: Vec<i64>,
    wide: bool,
}

const BUFFER: usize = 256;

fn small() -> impl Strategy<Value = Small> {
    let dimension = (1..5u64, prop_oneof![0..8i64, 0..40i64]);
    (0..48usize, prop::collection::vec(dimension, 1..4), any::<bool>()).prop_map(|(offset, dimensions, wide)| {
        let (shape, strides) = dimensions.into_iter().unzip();
        Small { offset, shape, strides, wide }
    })
}

impl Small {
    /// Bytes of the buffer that elements occupy; the same byte twice when elements share it.
    fn bytes(&self) -> Vec<usize> {
        let mut elements = vec![self.offset];
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let steps = |at: usize| (0..size as usize).map(move |i| at + i * stride as usize);
            elements = elements.into_iter().flat_map(steps).collect();
        }
        let size = if self.wide { 4 } else { 2 };
        elements.into_iter().flat_map(|element| element * size..(element + 1) * size).collect()
    }

    fn disjoint_elements(&self) -> bool {
        let bytes = self.bytes();
        bytes.iter().collect::<BTreeSet<_>>().len() == bytes.len()
    }

    /// The layout as a view of the buffer, where it fits.
    fn view<'b>(&self, buffer: &'b [f32]) -> Option<TensorView<'b>> {
        if self.wide {
            TensorView::from_slice_strided("a", buffer.get(self.offset..)?, &self.shape, &self.strides).ok()
        } else {
            let halves = halves(buffer);
            TensorView::from_slice_strided("a", halves.get(self.offset..)?, &self.shape, &self.strides).ok()
        }
    }
}

/// A float buffer's memory as bf16; only its addresses are used.
fn halves(buffer: &[f32]) -> &[half::bf16] {
    let (before, halves, after) = bytes::as_halves(buffer);
    assert!(before == 0 && after == 0);
    halves
}

mod bytes {
    #![allow(unsafe_code)] // reinterprets plain numbers

    /// Halfwords of a float slice, and the bytes that are left over on both sides: none.
    pub(super) fn as_halves(buffer: &[f32]) -> (usize, &[half::bf16], usize) {
        // SAFETY: every bit pattern is a bf16.
        let (before, halves, after) = unsafe { buffer.align_to() };
        (before.len(), halves, after.len())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn overlap_is_what_looking_at_every_byte_says(a in small(), b in small()) {
        let buffer = [0.0f32; BUFFER];
        let (Some(view_a), Some(view_b)) = (a.view(&buffer), b.view(&buffer)) else { return Ok(()) };
        let bytes: BTreeSet<usize> = a.bytes().into_iter().collect();
        let shared = b.bytes().iter().any(|byte| bytes.contains(byte));
        prop_assert_eq!(overlap(view_a.raw(), view_b.raw()), shared);
        prop_assert_eq!(overlap(view_b.raw(), view_a.raw()), shared);
    }

    #[test]
    fn views_stay_inside_their_buffers(small in small(), length in 0..BUFFER) {
        let buffer = vec![0.0f32; length];
        let bytes = 4 * length;
        let fits = small.bytes().iter().all(|byte| *byte < bytes);
        let first = small.offset * if small.wide { 4 } else { 2 };
        let view = small.view(&buffer);
        prop_assert_eq!(view.is_some(), fits && first <= bytes, "{:?}", view);
        if let Some(view) = view {
            let (start, end) = view.raw().byte_range();
            let base = buffer.as_ptr() as u64;
            prop_assert!(base <= start && end <= base + bytes as u64);
        }
    }

    #[test]
    fn an_accepted_output_has_disjoint_elements(small in small()) {
        let mut buffer = [0.0f32; BUFFER];
        let accepted = TensorViewMut::from_slice_strided("y", &mut buffer, &small.shape, &small.strides).is_ok();
        let wide = Small { offset: 0, wide: true, ..small };
        if accepted {
            prop_assert!(wide.disjoint_elements());
        }
    }
}

/// Row-major, pitched, transposed and sliced outputs are accepted: refusing everything would pass the test above.
#[test]
fn usual_outputs_are_accepted() {
    let mut buffer = [0.0f32; BUFFER];
    for strides in [[12, 4, 1], [15, 5, 1], [1, 2, 6], [4, 8, 1], [24, 8, 2], [40, 12, 3]] {
        let view = TensorViewMut::from_slice_strided("y", &mut buffer, &[2, 3, 4], &strides);
        assert!(view.is_ok(), "{strides:?}: {view:?}");
    }
}
