//! The part of the model above the norm: logits, cross-entropy and their gradient, on the host.

use cake_core::Element;
use half::bf16;
use rayon::prelude::*;

use super::{CLASSES, CONTEXTS, WIDTH};

/// For each row: `logits[c] = sum over k of y[k * CLASSES + c]`, and the cross-entropy of their softmax against the next
/// byte. Returns the mean in bits and writes the gradient of the summed nats, rounded to BF16, to `dy`.
///
/// Rows run in parallel; every sum has a fixed order, whatever the number of threads.
pub(super) fn loss(y: &[bf16], next: &[u8], dy: &mut [bf16]) -> f64 {
    let mut nats = vec![0f32; next.len()];
    y.par_chunks(WIDTH)
        .zip(dy.par_chunks_mut(WIDTH))
        .zip(next.par_iter().zip(&mut nats))
        .for_each(|((y, dy), (&next, nats))| *nats = row(y, usize::from(next), dy));
    let sum: f64 = nats.iter().map(|&nats| f64::from(nats)).sum();
    sum / next.len() as f64 / std::f64::consts::LN_2
}

fn row(y: &[bf16], next: usize, dy: &mut [bf16]) -> f32 {
    let mut logits = [0f32; CLASSES];
    for block in y.chunks_exact(CLASSES) {
        logits.iter_mut().zip(block).for_each(|(logit, y)| *logit += y.to_f32());
    }
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers = logits.map(|logit| libm::expf(logit - top));
    let sum: f32 = powers.iter().sum();

    let (first, others) = dy.split_at_mut(CLASSES);
    for (c, dy) in first.iter_mut().enumerate() {
        let target = if c == next { 1.0 } else { 0.0 };
        *dy = Element::from_f32(powers[c] / sum - target);
    }
    // A logit is a plain sum of its blocks, so they share its gradient.
    for k in 0..CONTEXTS - 1 {
        others[k * CLASSES..][..CLASSES].copy_from_slice(first);
    }
    libm::logf(sum) + top - logits[next]
}
