//! Restoring the states of a shard.

use ratekeeper_core::Limit;

use super::super::saved::SavedState;
use super::super::table::TableAsk;
use super::Shard;

impl Shard {
    /// Puts a saved state under a key. Without room, keys are evicted as for a new key.
    pub(in crate::memory) fn restore(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        saved: &SavedState<'_>,
    ) {
        // Without room it is forgotten.
        let _ = self.with_room(limit, ask, |tables, budget| {
            tables.restore(ask, saved, budget)
        });
        self.note_home(limit, ask);
    }
}
