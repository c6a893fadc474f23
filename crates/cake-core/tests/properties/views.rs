//! Views at the ends of their arithmetic: what is accepted lies in its buffer, and what does is accepted.
#![allow(unsafe_code)] // no view is ever read or written

use std::collections::BTreeSet;

use cake_core::overlap::overlap;
use cake_core::{Dtype, Place, RawView, TensorView, TensorViewMut};

use super::draw::Draw;

/// What a caller says of a tensor.
#[derive(Clone, Debug)]
struct Described {
    place: Place,
    address: u64,
    bytes: u64,
    dtype: Dtype,
    shape: Vec<u64>,
    strides: Vec<i64>,
}

impl Described {
    fn new(draw: &mut Draw<'_>) -> Described {
        let dtype = draw.one_of(&[Dtype::Bf16, Dtype::F32, Dtype::F16]);
        let shape: Vec<u64> = (0..draw.below(10)).map(|_| draw.size()).collect();
        let ranks = if draw.rarely(16) { draw.below(10) as usize } else { shape.len() };
        let mut strides: Vec<i64> = (0..ranks).map(|_| draw.stride()).collect();
        if draw.flag() && ranks == shape.len() {
            let mut step = 1_u64;
            for (stride, &size) in strides.iter_mut().zip(&shape).rev() {
                *stride = step as i64;
                step = step.wrapping_mul(size);
            }
        }
        let (address, slack) = (draw.size().wrapping_mul(draw.one_of(&[16, 2, 4, 1])), draw.below(4));
        let mut described =
            Described { place: draw.one_of(&[Place::Host, Place::Cuda(0)]), address, bytes: 0, dtype, shape, strides };
        // Mostly what is needed, or next to it.
        let needed = described.needed().unwrap_or(u128::MAX).min(u64::MAX.into()) as u64;
        described.bytes = if draw.rarely(8) { draw.size() } else { needed.saturating_add(1).saturating_sub(slack) };
        described
    }

    fn empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Dimensions along which there is a step to take.
    fn steps(&self) -> impl Iterator<Item = (u64, i64)> {
        self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|(size, _)| *size > 1)
    }

    /// Bytes from the first element's first to the last one's last; `None` where 128 bits do not hold them.
    fn needed(&self) -> Option<u128> {
        if self.empty() {
            return Some(0);
        }
        let far = |(size, stride): (u64, i64)| u128::from(size - 1).checked_mul(stride.unsigned_abs().into());
        let last = self.steps().try_fold(0_u128, |last, step| last.checked_add(far(step)?))?;
        last.checked_add(1)?.checked_mul(self.dtype.size() as u128)
    }

    fn fits(&self) -> bool {
        let sensible = (1..=7).contains(&self.shape.len()) && self.strides.len() == self.shape.len();
        let forwards = self.steps().all(|(_, stride)| stride >= 0);
        let inside = self.needed().is_some_and(|needed| {
            let place = needed == 0 || self.address != 0 && self.address.is_multiple_of(self.dtype.size() as u64);
            needed <= self.bytes.into() && u128::from(self.address) + needed <= u64::MAX.into() && place
        });
        sensible && forwards && inside
    }

    fn view(&self) -> cake_core::Result<TensorView<'_>> {
        let Described { place, address, bytes, dtype, shape, strides } = self;
        // SAFETY: never read.
        unsafe { TensorView::from_raw("a", *place, *address, *bytes, *dtype, shape, strides) }
    }

    fn view_mut(&self) -> cake_core::Result<TensorViewMut<'_>> {
        let Described { place, address, bytes, dtype, shape, strides } = self;
        // SAFETY: never written.
        unsafe { TensorViewMut::from_raw("b", *place, *address, *bytes, *dtype, shape, strides) }
    }
}

/// First bytes of all elements, unless they are many.
fn elements(view: &RawView) -> Option<Vec<u64>> {
    if view.is_empty() {
        return Some(Vec::new());
    }
    let mut offsets = vec![0_u64];
    for (&size, &stride) in view.shape().iter().zip(view.strides()) {
        if u128::from(size) * offsets.len() as u128 > 64 {
            return None;
        }
        offsets = offsets.iter().flat_map(|offset| (0..size).map(move |i| offset + i * stride)).collect();
    }
    Some(offsets.iter().map(|offset| view.address + offset * view.dtype.size() as u64).collect())
}

fn bytes_of(view: &RawView) -> Option<Vec<u64>> {
    let size = view.dtype.size() as u64;
    Some(elements(view)?.into_iter().flat_map(|first| first..first + size).collect())
}

/// Two views, each as an input and as an output; and whether they meet.
pub(crate) fn views(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let a = Described::new(&mut draw);
    let mut b = Described::new(&mut draw);
    if draw.flag() {
        (b.place, b.address) = (a.place, a.address.wrapping_add(draw.below(32)));
    }
    for described in [&a, &b] {
        let view = described.view();
        assert_eq!(view.is_ok(), described.fits(), "{described:?}: {view:?}");
        let output = described.view_mut();
        assert!(output.is_err() || view.is_ok(), "{described:?}: {output:?}");
        for error in [view.as_ref().err(), output.as_ref().err()].into_iter().flatten() {
            assert!(!error.to_string().is_empty());
        }
        let Ok(view) = view else { continue };
        let (first, last) = view.raw().byte_range();
        assert!(first == described.address && last - first <= described.bytes, "{described:?}: {view:?}");
        let Some(bytes) = bytes_of(view.raw()) else { continue };
        assert!(bytes.iter().all(|byte| (first..last).contains(byte)), "{described:?}: {view:?}");
        let distinct = bytes.iter().collect::<BTreeSet<_>>().len() == bytes.len();
        assert!(output.is_err() || distinct, "{described:?}: {output:?}");
    }
    let (Ok(a), Ok(b)) = (a.view(), b.view()) else { return };
    let meet = overlap(a.raw(), b.raw());
    assert_eq!(meet, overlap(b.raw(), a.raw()), "{a:?} {b:?}");
    assert_eq!(overlap(a.raw(), a.raw()), !a.raw().is_empty(), "{a:?}");
    if let (Some(of_a), Some(of_b)) = (bytes_of(a.raw()), bytes_of(b.raw())) {
        let shared = a.raw().place == b.raw().place && of_a.iter().any(|byte| of_b.contains(byte));
        assert_eq!(meet, shared, "{a:?} {b:?}");
    }
}
