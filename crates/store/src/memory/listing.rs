//! Listing: the keys with the least remaining, few of many.

use std::cmp::Reverse;
use std::collections::BTreeMap;

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

/// Least remaining first, then the longest to reset, then by key: a total order.
type Rank = (Permits, Reverse<Nanos>, Vec<u8>);

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
        let mut listed: BTreeMap<Rank, Decision> = BTreeMap::new();
        let mut show = |key: &[u8], decision: Decision| {
            if !is_wanted(&decision) {
                return;
            }
            let (remaining, reset_after) = (decision.remaining, Reverse(decision.reset_after));
            if listed.len() >= top {
                let comes_before = |(left, reset, last): &Rank| {
                    (remaining, reset_after, key) < (*left, *reset, &**last)
                };
                let last = listed.last_entry();
                let Some(last) = last.filter(|last| comes_before(last.key())) else {
                    return;
                };
                let _passed = last.remove();
            }
            listed.insert((remaining, reset_after, key.to_vec()), decision);
        };
        for shard in 0..self.shards.len() {
            if let Some(tables) = self.lock(shard).known(limit, now) {
                tables.show_live(now, &mut show);
            }
        }
        let entries = listed.into_iter();
        entries
            .map(|((.., key), decision)| KeyEntry { key, decision })
            .collect()
    }
}
