//! How far an output is from its exact values.

use serde::{Deserialize, Deserializer, Serialize};

/// Errors of one output, in ulps of the exact value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// The largest. JSON has no infinity: `null` is one.
    #[serde(deserialize_with = "or_infinity")]
    pub worst: f64,
    /// The case, coordinates and bits of the largest.
    pub at: String,
    /// How many there are of each size: see [`upper`]. Sizes beyond the last number did not occur.
    pub histogram: Vec<u64>,
}

/// Number of sizes that are told apart.
pub const BUCKETS: usize = 24;

/// Sixteenths up to one ulp, since a rounding makes errors of up to a half; then doubling.
const SIXTEENTHS: usize = 16;

/// The largest error, in ulps, that the histogram counts at an index: 0, then sixteenths up to 1, then 2, 4 .. 64, then
/// anything.
pub fn upper(bucket: usize) -> f64 {
    match bucket {
        0..=SIXTEENTHS => bucket as f64 / SIXTEENTHS as f64,
        _ if bucket + 1 < BUCKETS => 2f64.powi((bucket - SIXTEENTHS) as i32),
        _ => f64::INFINITY,
    }
}

/// Where the histogram counts an error.
fn bucket(ulps: f64) -> usize {
    (0..BUCKETS).find(|&bucket| ulps <= upper(bucket)).unwrap_or(BUCKETS - 1)
}

impl Errors {
    /// Adds an error; `at` is asked only for a new largest one.
    pub fn add(&mut self, ulps: f64, at: impl FnOnce() -> String) {
        let bucket = bucket(ulps);
        if self.histogram.len() <= bucket {
            self.histogram.resize(bucket + 1, 0);
        }
        self.histogram[bucket] += 1;
        if ulps > self.worst {
            (self.worst, self.at) = (ulps, at());
        }
    }

    /// Adds what another found.
    pub fn merge(&mut self, other: Errors) {
        if self.histogram.len() < other.histogram.len() {
            self.histogram.resize(other.histogram.len(), 0);
        }
        self.histogram.iter_mut().zip(&other.histogram).for_each(|(ours, theirs)| *ours += theirs);
        if other.worst > self.worst {
            (self.worst, self.at) = (other.worst, other.at);
        }
    }

    /// Number of errors.
    pub fn count(&self) -> u64 {
        self.histogram.iter().sum()
    }
}

fn or_infinity<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_counted_where_its_size_ends() {
        let found = [0.0, 1e-9, 0.0625, 0.0626, 0.5, 1.0, 1.01, 2.0, 64.0, 65.0, f64::INFINITY].map(bucket);
        assert_eq!(found, [0, 1, 1, 2, 8, 16, 17, 17, 22, 23, 23]);
        assert!((1..BUCKETS).all(|i| upper(i - 1) < upper(i)) && upper(BUCKETS - 1) == f64::INFINITY);
    }

    #[test]
    fn merged_errors_are_those_of_both() {
        let errors = |sizes: &[f64]| {
            let mut errors = Errors::default();
            sizes.iter().for_each(|&ulps| errors.add(ulps, || format!("at {ulps}")));
            errors
        };
        let mut merged = errors(&[0.0, 0.25]);
        merged.merge(errors(&[3.0, 0.25]));
        assert_eq!(merged, errors(&[0.25, 3.0, 0.0, 0.25]));
        assert_eq!((merged.count(), merged.worst, merged.at.as_str()), (4, 3.0, "at 3"));
        let mut the_other_way = errors(&[3.0, 0.25]);
        the_other_way.merge(errors(&[0.0, 0.25]));
        assert_eq!(merged, the_other_way);
    }

    #[test]
    fn an_infinite_error_survives_json() {
        let mut errors = Errors::default();
        errors.add(f64::INFINITY, || "overflow".into());
        let json = serde_json::to_string(&errors).unwrap();
        assert!(json.contains("\"worst\":null"), "{json}");
        assert_eq!(serde_json::from_str::<Errors>(&json).unwrap(), errors);
    }
}
