//! Watching: top keys and the recorder without a service, for the benches. No program needs it.

use ratekeeper::Answer;
use ratekeeper_core::{LimitId, Time};
use ratekeeper_policy::Policy;

use crate::recorder::Recorder;
use crate::top_keys::{TopKeys, TopKeysFound, TopOrder, TopWindow};

/// What a service keeps about its decisions.
#[derive(Debug, Default)]
pub struct Watchers {
    top_keys: TopKeys,
    recorder: Recorder,
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
    /// Creates watchers of the limits of `policy`.
    pub fn new(policy: &Policy) -> Self {
        let watchers = Self::default();
        watchers.top_keys.install(policy);
        watchers.recorder.install(policy);
        watchers
    }

    /// Counts the keys of an answer.
    pub fn count(&self, answer: &Answer) {
        self.top_keys.note(answer, |_, _| ());
    }

    /// Records the requests of an answer.
    pub fn record(&self, answer: &Answer) {
        self.recorder.note(answer);
    }

    /// Returns the `count` busiest keys of a limit, in the last hour.
    pub fn busiest(&self, limit: LimitId, count: usize, now: Time) -> WatchedKeys {
        let order = (TopOrder::Requests, TopWindow::Hour);
        let found = self.top_keys.top(limit, order, (count, now));
        let found = found.unwrap_or_else(|| TopKeysFound::none(now));
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

    /// Maximum of [`bytes`](Self::bytes), for any policy and load.
    pub const MAX_BYTES: [usize; 2] = [TopKeys::MAX_BYTES, Recorder::MAX_BYTES];
}
