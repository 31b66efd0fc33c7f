//! Saving and restoring the states of a shard.

use ratekeeper_core::{Limit, Time};

use super::super::flat::HashSpan;
use super::super::key::SizeClass;
use super::super::saved::{SavedState, SectionWriter};
use super::super::table::TableAsk;
use super::Shard;

impl Shard {
    /// Returns the number of slots in which the keys of a limit are.
    pub(in crate::memory) fn slots_of(&mut self, limit: &Limit, now: Time) -> usize {
        self.known(limit, now).map_or(0, |tables| tables.slots())
    }

    /// Appends the states of keys of a limit in `span` that are in debt.
    pub(in crate::memory) fn save(
        &mut self,
        limit: &Limit,
        span: &HashSpan,
        now: Time,
        to: &mut SectionWriter<'_>,
    ) {
        if let Some(tables) = self.known(limit, now) {
            tables.save(span, now, to);
        }
    }

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

    /// Raises the floor of keys of a size to a saved one.
    pub(in crate::memory) fn restore_floor(
        &mut self,
        limit: &Limit,
        size: SizeClass,
        saved: &SavedState<'_>,
        now: Time,
    ) {
        if let Some(tables) = self.tables_of(limit, now) {
            tables.restore_floor(size, saved, now);
        }
    }
}
