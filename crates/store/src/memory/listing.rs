//! Listing: the keys with the least remaining, few of many.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use ratekeeper_core::{Decision, Limit, Nanos, Permits, Time};

use super::MemoryStore;

/// One key of a limit, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyEntry {
    /// The key's bytes; see [`Key::parts`](ratekeeper_core::Key::parts).
    pub key: Vec<u8>,
    /// The state, unchanged.
    pub decision: Decision,
}

/// Keeps the `top` keys with the least remaining of all that are shown.
pub(super) struct Listing {
    top: usize,
    /// Has the key with the largest remaining on top: the first to go.
    kept: BinaryHeap<Ranked>,
}

impl Listing {
    pub(super) fn new(top: usize) -> Self {
        Self {
            top,
            kept: BinaryHeap::new(),
        }
    }

    pub(super) fn show(&mut self, key: &[u8], decision: Decision) {
        if self.kept.len() >= self.top {
            match self.kept.peek() {
                Some(last) if rank(key, decision) < last.rank() => self.kept.pop(),
                _ => return,
            };
        }
        let key = key.to_vec();
        self.kept.push(Ranked(KeyEntry { key, decision }));
    }

    pub(super) fn into_entries(self) -> Vec<KeyEntry> {
        let sorted = self.kept.into_sorted_vec();
        sorted.into_iter().map(|Ranked(entry)| entry).collect()
    }
}

/// Least remaining first, then the longest to reset, then by key: a total order.
fn rank(key: &[u8], decision: Decision) -> (Permits, Reverse<Nanos>, &[u8]) {
    (decision.remaining, Reverse(decision.reset_after), key)
}

#[derive(PartialEq, Eq)]
struct Ranked(KeyEntry);

impl Ranked {
    fn rank(&self) -> (Permits, Reverse<Nanos>, &[u8]) {
        rank(&self.0.key, self.0.decision)
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl MemoryStore {
    /// Returns the `top` keys of a limit with the least remaining; keys that owe nothing are left
    /// out. Shards are walked one after the other: concurrent changes may be seen or not.
    pub fn keys(&self, limit: &Limit, top: usize, now: Time) -> Vec<KeyEntry> {
        self.keys_where(limit, top, now, |_| true)
    }

    /// Returns the `top` banned keys of a limit with the longest time to their reset, like
    /// [`keys`](Self::keys).
    pub fn bans(&self, limit: &Limit, top: usize, now: Time) -> Vec<KeyEntry> {
        self.keys_where(limit, top, now, |decision| decision.verdict.is_ban())
    }

    fn keys_where(
        &self,
        limit: &Limit,
        top: usize,
        now: Time,
        is_wanted: impl Fn(&Decision) -> bool,
    ) -> Vec<KeyEntry> {
        let mut listing = Listing::new(top);
        for shard in 0..self.shards.len() {
            let show = |key: &[u8], decision| {
                if is_wanted(&decision) {
                    listing.show(key, decision);
                }
            };
            self.lock(shard).each_live(limit, now, show);
        }
        listing.into_entries()
    }
}
