//! Watching: passes each decision to the counters of top keys and to the recorder.
//!
//! ```text
//!                        .--> top keys   the busiest keys, the most refused
//!   answer --each limit--+
//!                        '--> recorder   the last hour, for `GET /v1/whatif`
//! ```
//!
//! A key is hashed once for both.

use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;
use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{LimitId, Time};
use ratekeeper_policy::Policy;

use super::denial_log::{LimitLog, LoggedDenial};
use super::recorder::Recorder;
use super::top_keys::{TopKeys, TopOrder, TopWindow};
use crate::observe::history;

/// The counted keys and the record of a service; public for the benches.
#[derive(Debug, Default)]
pub struct Watchers {
    pub(crate) top_keys: TopKeys,
    pub(crate) recorder: Recorder,
    /// Seeded for this process, so that no client can aim at the counter of another.
    hasher: RandomState,
}

/// The list of the busiest keys.
#[derive(Clone, Debug)]
pub struct WatchedKeys {
    /// Each key, with its number of requests and the maximum error of that.
    pub keys: Vec<(Vec<u8>, u64, u64)>,
    /// Maximum number of requests of a key that is not listed.
    pub unlisted_at_most: u64,
}

impl Watchers {
    /// Maximum number of bytes of the counted keys, the records, and the history of the dashboard,
    /// for any policy and load.
    pub const MAX_BYTES: [usize; 3] = [TopKeys::MAX_BYTES, Recorder::MAX_BYTES, history::MAX_BYTES];

    /// Creates watchers of the limits of `policy`.
    pub fn new(policy: &Policy) -> Self {
        let watchers = Self::default();
        watchers.install(policy);
        watchers
    }

    /// Makes room for the limits of `policy`. A limit whose `key` has not changed keeps its
    /// counts and its record.
    pub(crate) fn install(&self, policy: &Policy) {
        self.top_keys.install(policy);
        self.recorder.install(policy);
    }

    /// Notes the decisions of an answer.
    pub fn note(&self, answer: &Answer) {
        let note = self.noting(answer, |_, _| ());
        answer.outcomes().for_each(|outcome| note(&outcome));
    }

    /// Returns the function that notes each decision of an answer; `log` receives the denials, and
    /// those of soft limits.
    pub(crate) fn noting(
        &self,
        answer: &Answer,
        log: impl Fn(LoggedDenial<'_>, &LimitLog),
    ) -> impl Fn(&Outcome<'_>) {
        let refused = answer.outcomes().filter(Outcome::refuses);
        let refusing = if answer.allowed() { 0 } else { refused.count() };
        move |outcome| {
            if !outcome.is_asked {
                return;
            }
            let hash = self.hasher.hash_one(outcome.key.as_bytes());
            // No other limit refuses, so that the number of this one decides.
            if refusing == usize::from(outcome.refuses()) {
                self.recorder.note(outcome, hash, answer.decided_at());
            }
            self.top_keys.note(answer, outcome, hash, &log);
        }
    }

    /// Returns the `count` busiest keys of a limit, in the last hour.
    pub fn busiest(&self, limit: LimitId, count: usize, now: Time) -> WatchedKeys {
        let (by, window) = (TopOrder::Requests, TopWindow::Hour);
        let found = self.top_keys.top(limit, by, window, count, now);
        let each = found.keys.into_iter();
        WatchedKeys {
            keys: each
                .map(|key| (key.key, key.requests.count, key.requests.error))
                .collect(),
            unlisted_at_most: found.unlisted_at_most,
        }
    }

    /// Returns the number of bytes of the counted keys, and of the records.
    pub fn bytes(&self) -> [usize; 2] {
        [self.top_keys.bytes(), self.recorder.bytes()]
    }
}
