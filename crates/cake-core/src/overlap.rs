//! Which arguments of a call may share memory, asked in one place.

use crate::view::RawView;
use crate::{Error, Result};

/// Refuses a call in which an output shares memory with another argument.
///
/// `outputs`, those that are present, are checked against each other and against `inputs`. A pair `(output, input)` in `in_place` may share
/// memory when both views place the same elements at the same addresses. Strides are respected: interleaved slices
/// that touch no common byte are accepted, in all but exotic layouts (see [`overlap`]).
pub fn refuse_overlap(
    outputs: &[Option<&RawView>],
    inputs: &[Option<&RawView>],
    in_place: &[(&'static str, &'static str)],
) -> Result<()> {
    for (i, output) in outputs.iter().enumerate() {
        let Some(output) = output else { continue };
        for other in outputs[..i].iter().chain(inputs).flatten() {
            if !overlap(output, other) {
                continue;
            }
            let listed = in_place.contains(&(output.argument, other.argument));
            if listed && output.same_elements(other) {
                continue;
            }
            return Err(Error::Overlap {
                output: output.argument,
                output_range: output.byte_range(),
                other: other.argument,
                other_range: other.byte_range(),
                hint: if listed { " or the very same elements" } else { "" },
            });
        }
    }
    Ok(())
}

/// Whether some byte belongs to an element of `a` and to an element of `b`.
///
/// Exact for every layout that nests (each stride at least the span of the smaller ones) and for most others; where the
/// search would be long the answer is `true`, the safe side.
pub fn overlap(a: &RawView, b: &RawView) -> bool {
    if a.place != b.place || a.is_empty() || b.is_empty() {
        return false;
    }
    let ((a0, a1), (b0, b1)) = (a.byte_range(), b.byte_range());
    if a1 <= b0 || b1 <= a0 {
        return false;
    }
    // An element of `a` at offset p covers [p, p + size_a), one of `b` at q covers [q, q + size_b); they meet when
    // -size_a < p - q < size_b. p - q is a sum of (stride * index) terms, those of `b` counted negative.
    let mut terms: Vec<Term> = Vec::new();
    for (view, sign) in [(a, 1i128), (b, -1)] {
        let size = view.dtype.size() as i128;
        for (&n, &stride) in view.shape().iter().zip(view.strides()) {
            let (step, reach) = (stride as i128 * size, n as i128 - 1);
            if step == 0 || reach == 0 {
                continue;
            }
            let (low, high) = if sign > 0 { (0, reach) } else { (-reach, 0) };
            match terms.iter_mut().find(|term| term.step == step) {
                Some(term) => (term.low, term.high) = (term.low + low, term.high + high),
                None => terms.push(Term { step, low, high }),
            }
        }
    }
    terms.sort_unstable_by_key(|term| -term.step);
    let base = a0 as i128 - b0 as i128;
    let mut budget = 100_000;
    reaches(&terms, 1 - a.dtype.size() as i128 - base, b.dtype.size() as i128 - 1 - base, &mut budget)
}

/// `step * m` for every whole m in `low..=high`.
struct Term {
    step: i128,
    low: i128,
    high: i128,
}

/// Whether some choice of one m per term sums to a value in `low..=high`.
fn reaches(terms: &[Term], low: i128, high: i128, budget: &mut u32) -> bool {
    let Some((term, rest)) = terms.split_first() else {
        return low <= 0 && 0 <= high;
    };
    let rest_low: i128 = rest.iter().map(|t| t.step * t.low).sum();
    let rest_high: i128 = rest.iter().map(|t| t.step * t.high).sum();
    // Only m with low <= step * m + (something in rest_low..=rest_high) <= high can help.
    let first = (low - rest_high).div_euclid(term.step) + i128::from((low - rest_high).rem_euclid(term.step) != 0);
    let last = (high - rest_low).div_euclid(term.step);
    for m in first.max(term.low)..=last.min(term.high) {
        *budget = budget.saturating_sub(1);
        if *budget == 0 || reaches(rest, low - term.step * m, high - term.step * m, budget) {
            return true;
        }
    }
    false
}
