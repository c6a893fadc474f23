//! Random numbers that are the same on every machine and in every run with the same seed.

/// The seed of a run unless another is asked for.
pub const DEFAULT_SEED: u64 = 0xca4e_2024_0001;

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream for a seed and a path of numbers: what is drawn, for which tensor, which row.
    pub fn new(seed: u64, path: &[u64]) -> Random {
        let mut random = Random(seed);
        for &step in path {
            random.0 = random.bits() ^ step.wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 16_777_216.0
    }

    /// Roughly normal, mean 0, variance 1: four uniform numbers added, which needs no library function.
    pub fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u32 = [0, 16, 32, 48].map(|shift| (bits >> shift) as u16).into_iter().map(u32::from).sum();
        (sum as f32 - 131_070.0) / 37_837.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, path: &[u64]| Random::new(seed, path).bits();
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(1, &[3, 2]));
        assert_ne!(first(1, &[2, 3]), first(2, &[2, 3]));
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut random = Random::new(DEFAULT_SEED, &[]);
        let drawn: Vec<f64> = (0..100_000).map(|_| f64::from(random.normal())).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let variance = drawn.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
