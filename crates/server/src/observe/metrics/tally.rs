//! Tally: the counts of a limit, or of the whole service, that the history records.

use std::sync::atomic::Ordering;

use ratekeeper_core::LimitId;
use strum::VariantNames;

use super::durations::{BUCKETS, WAITS, Waits};
use super::{DurationsSnapshot, Metrics, ReportResult, RequestResult};
use crate::counter::Counter;

/// Counts since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// For a limit, the requests that it would refuse if it were enforced; for the service, the
    /// requests that ended with an error.
    pub(crate) other: u64,
    /// Highest share of the limit that a key had spent since the last reading, in percent.
    pub(crate) highest: u8,
}

/// Requests of a limit since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct KeyCounts {
    /// Requests that it decided.
    pub(crate) requests: u64,
    /// Those without a part of its key.
    pub(crate) missing: u64,
}

impl Metrics {
    /// Returns the counts of a limit, all zero if it has none; the highest share begins anew.
    pub(crate) fn take_tally(&self, limit: LimitId) -> Tally {
        self.row(limit).map_or_else(Tally::default, |row| Tally {
            highest: row.take_highest(),
            ..row.tally()
        })
    }

    /// Returns the denials of requests without priority for which a limit had room, and its denials
    /// by plan.
    pub(crate) fn denials(&self, limit: LimitId) -> (u64, Vec<(Box<str>, u64)>) {
        let row = self.row(limit);
        row.map_or_else(<_>::default, |row| {
            (row.shed.count(), row.denials_by_plan())
        })
    }

    /// Returns the counts of all requests.
    pub(crate) fn total(&self) -> Tally {
        let all = |result: RequestResult| {
            let each = self.requests.iter();
            each.map(|counters| counters[result as usize].count()).sum()
        };
        Tally {
            allowed: all(RequestResult::Allowed),
            denied: all(RequestResult::Denied),
            other: all(RequestResult::Error),
            highest: 0,
        }
    }

    /// Returns the requests of a limit, and those without a part of its key.
    pub(crate) fn key_counts(&self, limit: LimitId) -> KeyCounts {
        let row = self.row(limit);
        KeyCounts {
            requests: self.decisions(limit).iter().map(|(_, count)| count).sum(),
            missing: row.map_or(0, |row| row.key_missing.count()),
        }
    }

    /// Returns the number of requests allowed with most of a limit spent.
    pub(crate) fn near(&self, limit: LimitId) -> u64 {
        self.row(limit).map_or(0, |row| row.counts().near)
    }

    /// Returns the times of all decisions since the start.
    pub(crate) fn decision_times(&self) -> DurationsSnapshot {
        let [[first, rest @ ..], others @ ..] = &self.durations;
        let mut all = first.snapshot(&BUCKETS);
        let others = rest.iter().chain(others.as_flattened());
        for one in others {
            all.add(&one.snapshot(&BUCKETS));
        }
        all
    }

    /// Returns the times that requests waited in queues since the start.
    pub(crate) fn queue_waits(&self) -> DurationsSnapshot {
        let mut all = Waits::default().snapshot(&WAITS);
        for row in self.rows.load().iter().flatten() {
            if let Some(waits) = &row.waits {
                all.add(&waits.snapshot(&WAITS));
            }
        }
        all
    }

    /// Returns the number of reports since the start, by result.
    pub(crate) fn reports(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.process.reports.iter().map(Counter::count);
        ReportResult::VARIANTS.iter().copied().zip(counts)
    }

    /// Returns when the policy was put in force, in seconds since 1970.
    pub(crate) fn applied_at_seconds(&self) -> u64 {
        self.applied_at.load(Ordering::Relaxed)
    }
}
