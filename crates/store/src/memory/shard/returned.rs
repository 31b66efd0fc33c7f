//! Returned: permits given back to keys, for the receipts of charges that were made before.
//!
//! ```text
//!   charge a .. charge b .. give back a     b is paid earlier than its receipt says
//!                    '-- mark --> note --> give back b: less by the notes since its mark
//! ```
//!
//! Only what was given back while other charges stood is noted, and only until time has paid for
//! all charges that were made before it. Of a state that was forgotten, nothing comes back.
//!
//! Bounds: [`MAX_KEYS`] for each shard. Of further keys nothing is noted: then permits that are
//! given back can be used once more than the limit says.

use std::collections::HashMap;

use ratekeeper_core::{LimitId, Permits, Receipt, Time};

/// Maximum number of keys of a shard with notes.
const MAX_KEYS: usize = 256;
/// Maximum number of notes of a key. Beyond, the two that are closest become one, as late as the
/// later: then a charge between them gets less back.
const MAX_NOTES: usize = 32;

/// What was given back to the keys of a shard, by the family of the limit and the hash of the key.
#[derive(Debug, Default)]
pub(super) struct ReturnedPermits(HashMap<(LimitId, u64), Vec<ReturnNote>>);

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
    /// Returns the permits given back since the charge of a receipt.
    pub(super) fn since(&self, key: (LimitId, u64), receipt: &Receipt) -> Permits {
        let notes = self.0.get(&key).into_iter().flatten();
        let later = notes.filter(|note| match receipt.mark {
            Some(mark) => note.number > mark.get(),
            None => note.at >= receipt.made,
        });
        later.fold(Permits::ZERO, |sum, note| sum + note.permits)
    }

    /// Adds a note to a key, if there is room for it.
    pub(super) fn note(&mut self, key: (LimitId, u64), note: ReturnNote) {
        if self.0.len() >= MAX_KEYS && !self.0.contains_key(&key) {
            self.forget(note.at);
            if self.0.len() >= MAX_KEYS {
                return;
            }
        }
        let notes = self.0.entry(key).or_default();
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
        if self.0.capacity() > 0 {
            self.0
                .retain(|_, notes| notes.iter().any(|note| note.until > now));
            self.0.shrink_to(2 * self.0.len());
        }
    }
}
