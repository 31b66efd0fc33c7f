//! Random: numbers that are reproducible from their seed.

use ratekeeper_resilience::{Random as _, SplitMix};

/// Returns a number above 0 and at most 1, so that its logarithm is finite.
pub(crate) fn open_unit(random: &mut SplitMix) -> f64 {
    random.unit() + f64::EPSILON / 2.0 // the sum is exact
}

/// Draws one of `0..n`, number `k` with a weight of `1 / (k + 1)^exponent`: G. Zipf, "Human
/// behavior and the principle of least effort", 1949. Few keys get most of the traffic.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    /// Sums of the weights up to and including each number.
    sums: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(n: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=n).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Self {
            sums: sums.collect(),
        }
    }

    pub(crate) fn draw(&self, random: &mut SplitMix) -> usize {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let drawn = open_unit(random) * total;
        let rank = self.sums.partition_point(|&sum| sum < drawn);
        rank.min(self.sums.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_zipf_gets_its_share() {
        let (zipf, mut random) = (Zipf::new(10, 1.0), SplitMix::new(1));
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[zipf.draw(&mut random)] += 1;
        }
        // Shares 1/(k * H(10)): 34.1 % and 3.4 %, with standard deviations of 0.5 and 0.2 %.
        assert!((3_220..3_600).contains(&counts[0]), "{counts:?}");
        assert!((270..420).contains(&counts[9]), "{counts:?}");
    }

    #[test]
    fn an_exponent_of_zero_is_even() {
        let (zipf, mut random) = (Zipf::new(4, 0.0), SplitMix::new(1));
        let mut counts = [0_u32; 4];
        for _ in 0..10_000 {
            counts[zipf.draw(&mut random)] += 1;
        }
        assert!(
            counts.iter().all(|count| (2_300..2_700).contains(count)),
            "{counts:?}"
        );
    }
}
