//! Native: counts of durations in buckets that are powers of a base, as Prometheus computes with.
//!
//! ```text
//!   bucket    ..  -1            0        1        2     ..
//!   above     ..  2^(-2/4)  2^(-1/4)     1     2^(1/4)  ..   seconds
//!   up to     ..  2^(-1/4)      1     2^(1/4)  2^(2/4)  ..
//! ```
//!
//! Each bucket is 19 % wider than the one before it, so that a quantile is at most 9 % off. The
//! bounds are those of schema 2, the same for each process and each time, so buckets of many add up.
//! A scrape has those that are not empty, 10 or so, and only in the protobuf format.

use ratekeeper_core::Nanos;

use super::Counter;
use super::family::seconds;

/// The logarithm to base 2 of the number of buckets in which a duration doubles.
pub(super) const SCHEMA: i32 = 2;
/// Where these buckets begin, in parts of the one in which a duration doubles: powers of 2^(1/4).
const STEPS: [f64; 3] = [
    1.189_207_115_002_721,
    std::f64::consts::SQRT_2,
    1.681_792_830_507_429,
];
/// The first bucket, of durations up to 2^-24 s, which is 60 ns.
const FIRST: i32 = -96;
/// The last bucket, of those above 2^(15/4) s, which is 13 s.
const LAST: i32 = 16;
const BUCKETS: usize = 113;

/// A histogram.
#[derive(Debug)]
pub(super) struct NativeDurations {
    zero: Counter,
    buckets: [Counter; BUCKETS],
}

/// Counts of a histogram.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NativeBuckets {
    /// Durations of no time.
    pub(super) zero: u64,
    /// Buckets that are not empty, in their order, with their counts.
    pub(super) each: Vec<(i32, u64)>,
}

impl Default for NativeDurations {
    fn default() -> Self {
        Self {
            zero: Counter::default(),
            buckets: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl NativeDurations {
    pub(super) fn observe(&self, took: Nanos) {
        if took == Nanos::ZERO {
            return self.zero.add(1);
        }
        let place = bucket_of(seconds(took.as_nanos())).clamp(FIRST, LAST) - FIRST;
        let counter = usize::try_from(place)
            .ok()
            .and_then(|at| self.buckets.get(at));
        if let Some(counter) = counter {
            counter.add(1);
        }
    }

    pub(super) fn snapshot(&self) -> NativeBuckets {
        let counts = (FIRST..).zip(self.buckets.iter().map(Counter::count));
        NativeBuckets {
            zero: self.zero.count(),
            each: counts.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// Returns the bucket of a value above zero.
fn bucket_of(value: f64) -> i32 {
    // The value is `fraction * 2^exponent`, with a fraction from 1 to 2.
    let bits = value.to_bits();
    let exponent = i32::try_from(bits >> 52).unwrap_or(0) - 1_023;
    let fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1_023 << 52);
    let steps = STEPS.iter().filter(|step| fraction > **step).count();
    let within = i32::try_from(steps).unwrap_or(0) + i32::from(fraction > 1.0);
    (exponent << SCHEMA) + within
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_bucket_between_its_bounds() {
        for nanos in (0..34).flat_map(|power| [1, 3, 7].map(|more| (1_u64 << power) * more)) {
            let value = seconds(nanos);
            let bucket = bucket_of(value);
            let bound = |bucket: i32| (f64::from(bucket) / 4.0).exp2();
            let is_within = bound(bucket - 1) < value && value <= bound(bucket);
            assert!(is_within, "{value} in {bucket}");
        }
        for (value, bucket) in [
            (1.0, 0),
            (1.01, 1),
            (0.5, -4),
            (0.51, -3),
            (2.0, 4),
            (1.9, 4),
        ] {
            assert_eq!(bucket_of(value), bucket, "{value}");
        }
    }

    #[test]
    fn the_range_is_bounded() {
        let durations = NativeDurations::default();
        for nanos in [0, 1, 59, 1_000_000_000, u64::MAX] {
            durations.observe(Nanos::from_nanos(nanos));
        }
        let found = durations.snapshot();
        assert_eq!(
            (found.zero, found.each),
            (1, vec![(FIRST, 2), (0, 1), (LAST, 1)])
        );
    }
}
