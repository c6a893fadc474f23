//! From text to rows: what each of the last bytes says about the next one.

use half::bf16;

use super::{CLASSES, CONTEXTS, WIDTH};

/// A text as training data: one row for each byte that has enough bytes before it.
pub(crate) struct Rows {
    /// `[rows, WIDTH]`, BF16: in row t, block k, column c the log-probability that byte c follows the byte seen k + 1
    /// positions before.
    pub(crate) x: Vec<bf16>,
    /// The byte to predict, for each row.
    pub(crate) next: Vec<u8>,
}

/// Added to every count, so that no probability is 0.
const SMOOTHING: f32 = 0.02;

impl Rows {
    /// Counts over the text itself: the weights then learn how far to trust each block for each byte.
    pub(crate) fn of(text: &[u8]) -> Rows {
        let logs: Vec<bf16> = (0..CONTEXTS).flat_map(|k| log_probabilities(text, k)).collect();
        let mut x = Vec::with_capacity((text.len() - CONTEXTS) * WIDTH);
        for t in CONTEXTS..text.len() {
            for k in 0..CONTEXTS {
                let seen = usize::from(text[t - 1 - k]);
                x.extend_from_slice(&logs[(k * CLASSES + seen) * CLASSES..][..CLASSES]);
            }
        }
        Rows { x, next: text[CONTEXTS..].to_vec() }
    }

    /// How many rows.
    pub(crate) fn count(&self) -> usize {
        self.next.len()
    }
}

/// `[seen, next]`: the log-probability of `next` when `seen` is k + 1 positions before it.
fn log_probabilities(text: &[u8], k: usize) -> Vec<bf16> {
    let mut counts = vec![0u32; CLASSES * CLASSES];
    for pair in text.windows(k + 2) {
        counts[usize::from(pair[0]) * CLASSES + usize::from(pair[k + 1])] += 1;
    }
    let mut logs = Vec::with_capacity(counts.len());
    for followers in counts.chunks(CLASSES) {
        let total = followers.iter().sum::<u32>() as f32 + SMOOTHING * CLASSES as f32;
        logs.extend(followers.iter().map(|&n| bf16::from_f32(libm::logf((n as f32 + SMOOTHING) / total))));
    }
    logs
}
