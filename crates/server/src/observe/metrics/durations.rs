//! Durations: histograms of times, and where decisions were made.

use ratekeeper_core::Nanos;
use strum::VariantNames;

use super::family::DurationsSnapshot;
use crate::counter::Counter;

/// Upper bounds of the buckets of decision time, in nanoseconds; the last has none.
pub(super) const BUCKETS: [u64; 12] = [
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
];
/// Upper bounds of the buckets of waits in queues, in nanoseconds; the last has none.
pub(super) const WAITS: [u64; 9] = [
    1_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    15_000_000_000,
    60_000_000_000,
];

/// Waits of requests in queues.
pub(super) type Waits = Durations<{ WAITS.len() + 1 }>;

/// Where a decision was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum DecisionPath {
    /// In the memory of this process.
    Local,
    /// By a store that other processes share.
    Store,
}

/// A histogram with `N` buckets, the last of which has no upper bound.
#[derive(Debug)]
pub(super) struct Durations<const N: usize> {
    buckets: [Counter; N],
    sum_nanos: Counter,
}

/// The times of the decisions of one protocol, made at one place.
pub(super) type DecisionTimes = Durations<{ BUCKETS.len() + 1 }>;

impl<const N: usize> Default for Durations<N> {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_nanos: Counter::default(),
        }
    }
}

impl<const N: usize> Durations<N> {
    /// Counts a duration; `edges` are the upper bounds of the buckets, in nanoseconds.
    pub(super) fn observe(&self, took: Nanos, edges: &[u64]) {
        let lower = edges.iter().take_while(|&&edge| edge < took.as_nanos());
        if let Some(counter) = self.buckets.get(lower.count()) {
            counter.add(1);
        }
        self.sum_nanos.add(took.as_nanos());
    }

    /// Adds the durations of another one.
    pub(super) fn add(&self, other: &Self) {
        for (mine, theirs) in self.buckets.iter().zip(&other.buckets) {
            mine.add(theirs.count());
        }
        self.sum_nanos.add(other.sum_nanos.count());
    }

    pub(super) fn snapshot(&self, edges: &[u64]) -> DurationsSnapshot {
        let counts = self.buckets.iter().map(Counter::count);
        DurationsSnapshot::new(edges.iter().copied(), counts, self.sum_nanos.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_that_holds_them() {
        let durations = Durations::<{ BUCKETS.len() + 1 }>::default();
        for nanos in [0, 500, 501, 2_000_000_000] {
            durations.observe(Nanos::from_nanos(nanos), &BUCKETS);
        }
        let counts: Vec<u64> = durations.buckets.iter().map(Counter::count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
