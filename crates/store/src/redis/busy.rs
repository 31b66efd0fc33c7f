//! Busy keys: by which of its keys a request shares an exchange.
//!
//! ```text
//!   (user 1, address)  (user 2, address)  (user 3, address)     all in the queue of the address
//! ```
//!
//! Exchanges that have a key in common and are in different queues race with one another, so a request
//! with several keys goes to the queue of the key that most requests of late have had.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use super::batch::RedisRequest;

/// Maximum number of keys. When it is reached, half of each count is forgotten, and keys that have
/// none left.
const MAX_KEYS: usize = 1_024;

/// How often each key was asked for of late, by the hash of its name.
#[derive(Debug, Default)]
pub(super) struct BusyKeys {
    hasher: RandomState,
    counts: Mutex<HashMap<u64, u32, RandomState>>,
}

impl BusyKeys {
    /// Counts the keys of a request, and returns the hash of the busiest; `None` without keys.
    pub(super) fn busiest(&self, ask: &RedisRequest) -> Option<u64> {
        let mut counts = self.counts.lock();
        if counts.len() >= MAX_KEYS {
            counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        let hashes = ask
            .items
            .iter()
            .map(|item| self.hasher.hash_one(&item.name));
        hashes.max_by_key(|hash| {
            let count = counts.entry(*hash).or_default();
            *count = count.saturating_add(1);
            *count
        })
    }
}
