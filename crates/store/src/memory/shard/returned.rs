//! Returned: permits given back to keys, for the receipts of charges that were made before.
//!
//! ```text
//!   charge a .. charge b .. give back a     b is paid earlier than its receipt says
//!                    '-- mark --> note --> give back b: less by the notes since its mark
//! ```
//!
//! It is noted only until time has paid for all charges that were made before it. Of a state that
//! was forgotten, nothing comes back.
//!
//! Bounds: notes of so many keys as take a thirty-second of the budget, beside it. Of further keys
//! nothing is noted: then permits that are given back can be used once more than the limit says.

use std::collections::HashMap;

use ratekeeper_core::{Limit, LimitId, Permits, Receipt, Time};

use super::TableAsk;

/// Part of the budget that notes may take beside it.
const PART: usize = 32;
/// Maximum number of notes of a key. Beyond, the two that are closest become one, as late as the
/// later: then a charge between them gets less back.
const MAX_NOTES: usize = 32;

/// What was given back to the keys of a shard.
#[derive(Debug)]
pub(super) struct ReturnedPermits {
    keys: HashMap<NotedKey, Vec<ReturnNote>>,
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

/// Permits that were given back at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReturnNote {
    /// Number of the note in the store.
    pub(super) number: u64,
    pub(super) at: Time,
    /// [`Permits::MAX`] if the state was forgotten.
    pub(super) permits: Permits,
    /// The moment at which time has paid for all charges before it.
    pub(super) until: Time,
}

impl ReturnedPermits {
    /// Creates the notes of a shard with that budget.
    pub(super) fn new(shard_bytes: usize) -> Self {
        let each = MAX_NOTES * size_of::<ReturnNote>();
        Self {
            keys: HashMap::new(),
            max_keys: (shard_bytes / PART / each).max(1),
        }
    }

    /// Returns the permits given back since the charge of a receipt.
    pub(super) fn since(&self, key: NotedKey, receipt: &Receipt) -> Permits {
        let notes = self.keys.get(&key).into_iter().flatten();
        let later = notes.filter(|note| match receipt.mark {
            Some(mark) => note.number > mark.get(),
            None => note.at >= receipt.made,
        });
        later.fold(Permits::ZERO, |sum, note| sum + note.permits)
    }

    /// Adds a note to a key, if there is room for it.
    pub(super) fn note(&mut self, key: NotedKey, note: ReturnNote) {
        if self.keys.len() >= self.max_keys && !self.keys.contains_key(&key) {
            self.forget(note.at);
            if self.keys.len() >= self.max_keys {
                return;
            }
        }
        let notes = self.keys.entry(key).or_default();
        notes.retain(|earlier| earlier.until > note.at);
        if notes.len() >= MAX_NOTES {
            let gap = |at: &usize| notes[at + 1].at.since(notes[*at].at);
            let closest = (0..notes.len() - 1).min_by_key(gap).unwrap_or_default();
            let earlier = notes.remove(closest);
            let joined = &mut notes[closest];
            joined.permits = joined.permits + earlier.permits;
            joined.until = joined.until.max(earlier.until);
        }
        notes.push(note);
    }

    /// Forgets the notes that no charge needs any more, and gives memory back.
    pub(super) fn forget(&mut self, now: Time) {
        if self.keys.capacity() > 0 {
            self.keys
                .retain(|_, notes| notes.iter().any(|note| note.until > now));
            self.keys.shrink_to(2 * self.keys.len());
        }
    }
}
