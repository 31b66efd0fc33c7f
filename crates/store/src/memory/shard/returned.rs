//! Returned: notes of the permits that came back, by key.
//!
//! Bounds: the notes take at most a thirty-second of the budget, beside it. A key that finds no room
//! has none: then permits that it gives back can be used once more than the limit says, each once.

use std::collections::HashMap;

use ratekeeper_core::{Limit, LimitId, Time};

use super::TableAsk;
use crate::given_back::{GivenBack, Step};

/// Part of the budget that notes may take beside it.
const PART: usize = 32;
/// Bytes of a step: arrays may be half empty.
const STEP_BYTES: usize = 2 * size_of::<Step>();
/// A key counts as so many steps beside its own.
const KEY_STEPS: usize = size_of::<(NotedKey, GivenBack)>().div_ceil(size_of::<Step>());
/// Maximum number of steps that a note adds.
const NOTE_STEPS: usize = 2;

/// The notes of the keys of a shard.
#[derive(Debug)]
pub(super) struct ReturnedPermits {
    keys: HashMap<NotedKey, GivenBack>,
    /// Number of steps in use.
    steps: usize,
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
            steps: 0,
            most: shard_bytes / PART / STEP_BYTES,
            turned_away: 0,
        }
    }

    /// Returns the notes of a key.
    pub(super) fn of(&self, key: NotedKey) -> Option<&GivenBack> {
        self.keys.get(&key)
    }

    /// Changes the notes of a key by `note`, which adds one at most. If there is no room, steps of the
    /// key are joined; a key with too few for that is turned away.
    pub(super) fn note(&mut self, key: NotedKey, now: Time, note: impl FnOnce(&mut GivenBack)) {
        if !self.has_room() && !self.make_room(key, now) {
            return;
        }
        let noted = self.keys.entry(key).or_default();
        let before = steps(noted);
        note(noted);
        self.steps = self.steps - before + steps(noted);
    }

    fn has_room(&self) -> bool {
        self.steps + KEY_STEPS + NOTE_STEPS <= self.most
    }

    fn make_room(&mut self, key: NotedKey, now: Time) -> bool {
        if let Some(noted) = self.keys.get_mut(&key) {
            let joined = (0..NOTE_STEPS).take_while(|_| noted.join_two()).count();
            self.steps -= joined;
            if joined == NOTE_STEPS {
                return true;
            }
        }
        self.turned_away += 1;
        if self.turned_away >= self.steps {
            self.forget(now); // as many steps as keys were turned away
        }
        self.has_room()
    }

    /// Forgets what no charge needs any more, and gives memory back.
    pub(super) fn forget(&mut self, now: Time) {
        self.turned_away = 0;
        if self.keys.capacity() > 0 {
            self.keys.retain(|_, noted| {
                noted.forget(now);
                !noted.is_empty()
            });
            self.steps = self.keys.values().map(steps).sum();
            self.keys.shrink_to(2 * self.keys.len());
        }
    }
}

/// Returns the steps that the notes of a key count as.
fn steps(noted: &GivenBack) -> usize {
    match noted.len() {
        0 => 0,
        steps => KEY_STEPS + steps,
    }
}
