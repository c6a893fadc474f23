//! The protocol of the grid barrier, mirrored by `cuda/cake/grid_barrier.cuh`.

/// A barrier across all CTAs of a cooperative launch: one 32-bit word, in the header of a [`Workspace`](crate::Workspace).
///
/// In each round the first CTA adds `2^31 - (ctas - 1)` and every other CTA adds 1. The sum of a round is 2^31: its last
/// arrival flips bit 31 and leaves the lower bits at zero, ready for the next round and the next launch. A CTA has passed
/// once bit 31 differs from what it was before its own arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridBarrier {
    ctas: u32,
}

impl GridBarrier {
    /// A barrier for this many CTAs, 1 to 2^30. That they run at the same time is the launch's promise.
    pub const fn new(ctas: u32) -> GridBarrier {
        assert!(ctas >= 1 && ctas <= 1 << 30, "a grid barrier joins 1 to 2^30 CTAs");
        GridBarrier { ctas }
    }

    /// What a CTA adds to the word when it arrives.
    pub const fn arrival(self, cta: u32) -> u32 {
        if cta == 0 { (1 << 31) - (self.ctas - 1) } else { 1 }
    }

    /// Whether a CTA that saw `before` when it arrived may go on when it sees `now`.
    pub const fn passed(before: u32, now: u32) -> bool {
        (before ^ now) >> 31 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::GridBarrier;
    use std::collections::HashSet;

    /// Where each CTA is: the round it is in, and the word before its arrival if it waits.
    type State = (u32, Vec<(u32, Option<u32>)>);

    /// Every state that some interleaving of arrivals and passings reaches, from a word at rest with bit 31 as given.
    fn explore(ctas: u32, rounds: u32, word: u32) {
        let barrier = GridBarrier::new(ctas);
        let mut seen: HashSet<State> = HashSet::new();
        let mut open: Vec<State> = vec![(word, vec![(0, None); ctas as usize])];
        let mut finished = 0;
        while let Some(state) = open.pop() {
            if !seen.insert(state.clone()) {
                continue;
            }
            let (word, places) = &state;
            let (first, last) = (places.iter().map(|p| p.0).min().unwrap(), places.iter().map(|p| p.0).max().unwrap());
            assert!(last - first <= 1, "a CTA is two rounds ahead: {state:?}");
            // Whoever is in the later round has passed: everyone must have arrived in the earlier one.
            let all_arrived = places.iter().all(|&(round, before)| round > first || before.is_some());
            assert!(last == first || all_arrived, "passed before all arrived: {state:?}");
            let mut next = Vec::new();
            for cta in 0..places.len() {
                let (round, before) = places[cta];
                let mut moved = (*word, places.clone());
                match before {
                    None if round < rounds => {
                        moved.0 = word.wrapping_add(barrier.arrival(cta as u32));
                        moved.1[cta].1 = Some(*word);
                        next.push(moved);
                    }
                    Some(before) if GridBarrier::passed(before, *word) => {
                        moved.1[cta] = (round + 1, None);
                        next.push(moved);
                    }
                    _ => {}
                }
            }
            if next.is_empty() {
                assert!(places.iter().all(|&place| place == (rounds, None)), "stuck: {state:?}");
                assert_eq!(word & !(1 << 31), 0, "the word does not rest at zero");
                finished += 1;
            }
            open.extend(next);
        }
        assert_eq!(finished, 1);
    }

    #[test]
    fn every_interleaving_of_up_to_four_ctas_passes_together_and_ends_at_rest() {
        for ctas in 1..=4 {
            for word in [0, 1 << 31] {
                explore(ctas, 3, word);
            }
        }
    }
}
