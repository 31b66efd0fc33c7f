//! Returned: notes of the permits that came back, by key.
//!
//! Bounds: the notes take at most a thirty-second of the budget, beside it. A key that finds no room
//! has none: the permits that it gives back can be used once more than the limit says.

use std::collections::HashMap;

use ratekeeper_core::{Limit, LimitId, Time};

use super::TableAsk;
use crate::given_back::{GiveBackNote, GivenBack, MAX_NOTES};

/// Part of the budget that notes may take beside it.
const PART: usize = 32;

/// The notes of the keys of a shard.
#[derive(Debug)]
pub(super) struct ReturnedPermits {
    keys: HashMap<NotedKey, GivenBack>,
    max_keys: usize,
}

/// A key of a limit, under all of its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct NotedKey {
    family: LimitId,
    hash: u64,
}

impl NotedKey {
    pub(super) fn new(limit: &Limit, ask: &TableAsk<'_>) -> Self {
        let (family, _) = limit.family();
        let hash = ask.hash;
        Self { family, hash }
    }
}

impl ReturnedPermits {
    /// Creates the notes of a shard with that budget.
    pub(super) fn new(shard_bytes: usize) -> Self {
        let each = MAX_NOTES * size_of::<GiveBackNote>();
        Self {
            keys: HashMap::new(),
            max_keys: (shard_bytes / PART / each).max(1),
        }
    }

    /// Returns the notes of a key.
    pub(super) fn of(&self, key: NotedKey) -> Option<&GivenBack> {
        self.keys.get(&key)
    }

    /// Adds a note to a key, if there is room for it.
    pub(super) fn note(&mut self, key: NotedKey, note: GiveBackNote) {
        if self.keys.len() >= self.max_keys && !self.keys.contains_key(&key) {
            self.forget(note.at);
            if self.keys.len() >= self.max_keys {
                return;
            }
        }
        self.keys.entry(key).or_default().note(note);
    }

    /// Forgets the notes that no charge needs any more, and gives memory back.
    pub(super) fn forget(&mut self, now: Time) {
        if self.keys.capacity() > 0 {
            self.keys.retain(|_, notes| notes.is_needed(now));
            self.keys.shrink_to(2 * self.keys.len());
        }
    }
}
