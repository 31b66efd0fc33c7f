//! Tally: the counts of a limit, or of the whole service, that the history records.

use ratekeeper_core::LimitId;

use super::{Metrics, RequestResult};

/// Counts since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// For a limit, the requests that it would refuse if it were enforced; for the service, the
    /// requests that ended with an error.
    pub(crate) other: u64,
}

impl Metrics {
    /// Returns the counts of a limit; all zero if it has none.
    pub(crate) fn tally(&self, limit: LimitId) -> Tally {
        let rows = self.rows.load();
        let Some(row) = rows.get(limit.index()).and_then(Option::as_ref) else {
            return Tally::default();
        };
        row.tally()
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
        }
    }

    /// Returns when the policy was put in force, in seconds since 1970.
    pub(crate) fn applied_at_seconds(&self) -> u64 {
        let config = self.config.load();
        config
            .as_ref()
            .map_or(0, |config| config.applied_at_seconds)
    }
}
