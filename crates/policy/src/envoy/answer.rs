//! Answer: the result of one call, and the amounts that it adds to the counters of its rules.
//!
//! ```text
//!   count   0 ------------ near = 0.8 limit --- limit ------------>
//!           |  within             |  within, near |  over
//! ```

use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::{RuleId, Unit};

/// Decision on a call or a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EnvoyCode {
    /// The request may proceed.
    Ok,
    /// A limit is exceeded.
    OverLimit,
}

/// The result of one call: `RateLimitResponse` without its wire format.
#[derive(Clone, Debug)]
pub struct EnvoyAnswer<'c> {
    /// For the whole call.
    pub overall: EnvoyCode,
    /// The call would have been refused, but for the global shadow mode.
    pub shadowed: bool,
    /// One for each descriptor, in their order.
    pub statuses: SmallVec<[DescriptorAnswer<'c>; 4]>,
    /// Metadata of the rules that passed, merged: the first rule with a field wins, also in tables.
    pub metadata: Map<String, Value>,
    /// True if the call was decided without the store, by `on_store_error`.
    pub without_store: bool,
}

/// Result for one descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct DescriptorAnswer<'c> {
    /// `OverLimit` if its limit is exceeded.
    pub code: EnvoyCode,
    /// The limit, if one applies that has a number.
    pub current_limit: Option<CurrentLimit<'c>>,
    /// Requests remaining in this window; 2^32 - 1 if unlimited, 0 if no limit applies.
    pub limit_remaining: u32,
    /// Seconds to the end of the window, rounded up; `None` unless a limit with a number applies.
    pub reset_after_s: Option<u64>,
    /// Hits added to the counters of its rule. `None` if no rule applies, or if hits were given
    /// back.
    pub hits: Option<Hits>,
}

/// A limit as it is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLimit<'c> {
    /// The rule's name, if it has one.
    pub name: Option<&'c str>,
    /// 0 blocks.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
    /// Number of units in the window; above 1 only if the call set it.
    pub multiplier: u32,
}

/// Name of a series of counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CounterSeries {
    /// Counters of the rule, named after its path.
    Rule(RuleId),
    /// Counters of this name, which holds values of the call: any client can make up new ones, so
    /// a registry of them must bound their number.
    Named(String),
}

/// Amounts that a call adds to the counters of one series.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hits {
    /// The series.
    pub series: CounterSeries,
    /// All hits.
    pub total_hits: u64,
    /// Hits beyond the limit.
    pub over_limit: u64,
    /// Hits beyond 0.8 of the limit, and not beyond the limit.
    pub near_limit: u64,
    /// All hits of a call that passed.
    pub within_limit: u64,
    /// Hits beyond the limit that passed because of shadow mode.
    pub shadow_mode: u64,
}

/// One counting, as seen by the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedHits {
    pub(super) limit: u64,
    pub(super) hits: u64,
    pub(super) after: u64,
    /// True if its rule is in shadow mode.
    pub(super) shadow: bool,
}

impl Hits {
    pub(super) const fn unlimited(series: CounterSeries, hits: u64) -> Self {
        Self {
            series,
            total_hits: hits,
            over_limit: 0,
            near_limit: 0,
            within_limit: hits,
            shadow_mode: 0,
        }
    }
}

impl CountedHits {
    /// Returns the amounts that the counting adds to a series.
    pub(super) fn of_series(self, series: CounterSeries) -> Hits {
        let before = self.after.saturating_sub(self.hits);
        let near = self.limit * 4 / 5; // down, as the service does
        let over = self.after > self.limit;
        let (over_limit, near_limit) = if !over {
            let beyond = self.after.saturating_sub(near.max(before));
            (0, beyond.min(self.hits))
        } else if before >= self.limit {
            (self.hits, 0)
        } else {
            (self.after - self.limit, self.limit - near.max(before))
        };
        Hits {
            series,
            total_hits: self.hits,
            over_limit,
            near_limit,
            within_limit: if over { 0 } else { self.hits },
            shadow_mode: if self.shadow { over_limit } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_split_at_the_thresholds() {
        for (limit, hits, after, [over, near, within]) in [
            (10, 1, 1, [0, 0, 1]),
            (10, 1, 8, [0, 0, 1]),
            (10, 1, 9, [0, 1, 1]),
            (10, 1, 10, [0, 1, 1]),
            (10, 1, 11, [1, 0, 0]),
            (10, 5, 9, [0, 1, 5]),
            (10, 7, 14, [4, 2, 0]), // 7 of them before: 8 is near, 9 and 10 too
            (10, 3, 17, [3, 0, 0]),
            (10, 12, 12, [2, 2, 0]),
            (0, 1, 1, [1, 0, 0]),
            (3, 1, 3, [0, 1, 1]), // near from 2.4, down: 2
            (10, 0, 10, [0, 0, 0]),
        ] {
            let shadow = true;
            let counted = CountedHits {
                limit,
                hits,
                after,
                shadow,
            };
            let split = counted.of_series(CounterSeries::Rule(RuleId(0)));
            let seen = [split.over_limit, split.near_limit, split.within_limit];
            assert_eq!(seen, [over, near, within], "{counted:?}");
            assert_eq!(split.total_hits, hits);
            assert_eq!(split.shadow_mode, over, "what the Go service counts");
        }
    }
}
