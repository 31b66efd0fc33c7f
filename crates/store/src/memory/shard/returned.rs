//! Returned: notes of the permits that came back, by key.
//!
//! Bounds: the notes take at most a thirty-second of the budget, beside it. A key that finds no room
//! has none: then permits that it gives back can be used once more than the limit says, each once.

use std::collections::HashMap;

use ratekeeper_core::{Limit, LimitId, Time};

use super::TableAsk;
use crate::given_back::{GiveBackNote, GivenBack};

/// Part of the budget that notes may take beside it.
const PART: usize = 32;
/// Bytes of a note: arrays and maps may be half empty.
const NOTE_BYTES: usize = 2 * (size_of::<GiveBackNote>() + size_of::<(NotedKey, GivenBack)>());

/// The notes of the keys of a shard.
#[derive(Debug)]
pub(super) struct ReturnedPermits {
    keys: HashMap<NotedKey, GivenBack>,
    /// Number of notes.
    notes: usize,
    most: usize,
    /// Keys that found no room since expired notes were last looked for.
    turned_away: usize,
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
        Self {
            keys: HashMap::new(),
            notes: 0,
            most: (shard_bytes / PART / NOTE_BYTES).max(1),
            turned_away: 0,
        }
    }

    /// Returns the notes of a key.
    pub(super) fn of(&self, key: NotedKey) -> Option<&GivenBack> {
        self.keys.get(&key)
    }

    /// Changes the notes of a key by `note`, which adds at most one. If all are in use, two of the key
    /// become one; a key with too few for that is turned away.
    pub(super) fn note(&mut self, key: NotedKey, now: Time, note: impl FnOnce(&mut GivenBack)) {
        if self.notes >= self.most && !self.make_room(key, now) {
            return;
        }
        let noted = self.keys.entry(key).or_default();
        let before = noted.len();
        note(noted);
        self.notes = self.notes - before + noted.len();
    }

    fn make_room(&mut self, key: NotedKey, now: Time) -> bool {
        if let Some(noted) = self.keys.get_mut(&key)
            && noted.join_two(now)
        {
            self.notes -= 1;
            return true;
        }
        self.turned_away += 1;
        if self.turned_away >= self.notes {
            self.forget(now); // as many steps as keys were turned away
        }
        self.notes < self.most
    }

    /// Forgets the notes that no charge needs any more, and gives memory back.
    pub(super) fn forget(&mut self, now: Time) {
        self.turned_away = 0;
        if self.keys.capacity() > 0 {
            self.keys.retain(|_, noted| {
                noted.forget(now);
                noted.len() > 0
            });
            self.notes = self.keys.values().map(GivenBack::len).sum();
            self.keys.shrink_to(2 * self.keys.len());
        }
    }
}
