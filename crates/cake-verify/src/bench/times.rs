//! Times in a histogram, and what is reported of them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Times of one engine at one row, or of one kind of host call.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

/// What is kept of [`Times`]: nanoseconds, exact to one part in ten thousand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // percentiles by their number
pub struct Summary {
    pub samples: u64,
    pub mean: f64,
    pub min: u64,
    pub p01: u64,
    pub p10: u64,
    pub p25: u64,
    pub p50: u64,
    pub p75: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

impl Times {
    /// None yet.
    pub fn new() -> Times {
        // A minute is far beyond any sample; longer ones count as one.
        Times(Histogram::new_with_bounds(1, 60_000_000_000, 4).expect("the bounds are in order"))
    }

    /// Adds one, in nanoseconds.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// The figures.
    pub fn summary(&self) -> Summary {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Summary {
            samples: self.0.len(),
            mean: self.0.mean(),
            min: self.0.min(),
            p01: at(0.01),
            p10: at(0.10),
            p25: at(0.25),
            p50: at(0.50),
            p75: at(0.75),
            p90: at(0.90),
            p99: at(0.99),
            max: self.0.max(),
        }
    }
}

impl Default for Times {
    fn default() -> Times {
        Times::new()
    }
}

impl Summary {
    /// Of [`Summary::figures`].
    pub const NAMES: [&str; 11] = ["samples", "mean", "min", "p01", "p10", "p25", "p50", "p75", "p90", "p99", "max"];

    /// Every figure, in the order of [`Summary::NAMES`].
    pub fn figures(&self) -> [f64; 11] {
        let Summary { samples, mean, min, p01, p10, p25, p50, p75, p90, p99, max } = *self;
        let [samples, min] = [samples, min].map(|value| value as f64);
        let [p01, p10, p25, p50, p75, p90, p99, max] = [p01, p10, p25, p50, p75, p90, p99, max].map(|ns| ns as f64);
        [samples, mean, min, p01, p10, p25, p50, p75, p90, p99, max]
    }
}

/// GB/s at which `bytes` move in some time; bytes in a nanosecond are the same number.
pub fn rate(bytes: u64, nanoseconds: u64) -> Option<f64> {
    (bytes > 0 && nanoseconds > 0).then(|| bytes as f64 / nanoseconds as f64)
}

/// How fast something is beside a reference that moves as many bytes, in per cent: 100 when both take the same time.
pub fn percent_of_reference(reference: u64, own: u64) -> Option<f64> {
    (reference > 0 && own > 0).then(|| 100.0 * reference as f64 / own as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_the_unit_of_the_samples() {
        let mut times = Times::new();
        (1..=100).for_each(|i| times.record(i * 1000));
        let summary = times.summary();
        assert_eq!(summary.samples, 100);
        let expected =
            [(summary.min, 1e3), (summary.p10, 1e4), (summary.p50, 5e4), (summary.p90, 9e4), (summary.max, 1e5)];
        for (actual, expected) in expected {
            assert!((actual as f64 / expected - 1.0).abs() < 1e-4, "{actual} is not {expected}");
        }
        assert!((summary.mean / 50_500.0 - 1.0).abs() < 1e-4, "{}", summary.mean);
    }

    #[test]
    fn short_and_endless_times_are_kept() {
        let mut times = Times::new();
        [0, 1, u64::MAX].into_iter().for_each(|time| times.record(time));
        let summary = times.summary();
        assert_eq!((summary.samples, summary.min, summary.p50), (3, 0, 1));
        assert!(summary.max >= 60_000_000_000);
    }

    #[test]
    fn rates_are_in_gigabytes_a_second() {
        assert_eq!(rate(4_000_000, 1_000), Some(4000.0));
        assert_eq!((rate(0, 1), rate(1, 0)), (None, None));
    }

    #[test]
    fn a_call_that_takes_twice_as_long_as_the_reference_has_half_its_rate() {
        assert_eq!(percent_of_reference(100, 200), Some(50.0));
        assert_eq!(percent_of_reference(100, 80), Some(125.0));
        assert_eq!((percent_of_reference(0, 1), percent_of_reference(1, 0)), (None, None));
    }
}
