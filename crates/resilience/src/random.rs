//! Random: what keeps clients from acting alike.
//!
//! ```text
//!   without jitter   |  #         #         #      all return at once
//!   with jitter      |  .:::..  .::::..  .:::..    the same work, spread
//! ```
//!
//! The pieces take any [`Random`]; [`SplitMix`] is enough for jitter, repeats its numbers
//! from a seed for tests, and is no source of secrets.
//!
//! Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators"
//! (2014), for `SplitMix64`; D. Lemire, "Fast random integer generation in an interval"
//! (2019), for the multiplication in place of a remainder.

use std::hash::{BuildHasher, RandomState};

use ratekeeper_core::Nanos;

/// A source of evenly distributed numbers.
pub trait Random {
    /// Returns the next number; every value of 64 bits is equally likely.
    fn draw(&mut self) -> u64;

    /// Returns a span from zero to `longest`, both included, evenly.
    fn up_to(&mut self, longest: Nanos) -> Nanos {
        // At most `longest`: the product is below (longest + 1) x 2^64. Its bias is below
        // one part in 2^64 / longest.
        let values = u128::from(longest.as_nanos()) + 1;
        let product = u128::from(self.draw()) * values;
        Nanos::from_nanos((product >> 64) as u64)
    }

    /// Returns a span in `range`, evenly; its start if it is reversed.
    fn between(&mut self, range: std::ops::RangeInclusive<Nanos>) -> Nanos {
        *range.start() + self.up_to(range.end().saturating_sub(*range.start()))
    }

    /// Returns a number from 0 to below 1, evenly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float exactly")]
    fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl<R: Random + ?Sized> Random for &mut R {
    fn draw(&mut self) -> u64 {
        (**self).draw()
    }
}

/// `SplitMix64`: eight bytes of state, the same numbers from the same seed everywhere.
///
/// ```
/// use ratekeeper_core::Nanos;
/// use ratekeeper_resilience::{Random, SplitMix};
/// let mut random = SplitMix::new(7);
/// assert!(random.up_to(Nanos::from_millis(5)) <= Nanos::from_millis(5));
/// assert_eq!(SplitMix::new(7).draw(), SplitMix::new(7).draw());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Numbers that come again with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers that differ between processes and between calls, seeded as the standard
    /// library seeds its hash maps: from the operating system.
    pub fn seeded() -> Self {
        Self(RandomState::new().hash_one(0_u8))
    }
}

impl Random for SplitMix {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    /// Draws this one number.
    struct Fixed(u64);

    impl Random for Fixed {
        fn draw(&mut self) -> u64 {
            self.0
        }
    }

    #[test]
    fn both_ends_are_reached_and_not_passed() {
        for nanos in [0, 1, 999, u64::MAX] {
            let longest = Nanos::from_nanos(nanos);
            assert_eq!(Fixed(0).up_to(longest), Nanos::ZERO);
            assert_eq!(Fixed(u64::MAX).up_to(longest), longest);
        }
        let (low, high) = (Nanos::from_nanos(3), Nanos::from_nanos(5));
        assert_eq!(Fixed(0).between(low..=high), low);
        assert_eq!(Fixed(u64::MAX).between(low..=high), high);
        assert_eq!(Fixed(u64::MAX).between(high..=low), high);
        assert!(Fixed(u64::MAX).unit() < 1.0);
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let mut random = SplitMix::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            let nanos = random.up_to(Nanos::from_nanos(9)).as_nanos();
            counts[usize::try_from(nanos).unwrap()] += 1;
        }
        // Expected 1,000 each with a standard deviation of 30.
        assert!(
            counts.iter().all(|count| (880..1_120).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(SplitMix::seeded(), SplitMix::seeded());
    }
}
