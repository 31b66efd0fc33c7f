//! Saving and restoring the states of a table.

use ratekeeper_core::{Decision, Listed, Permits, Time};

use super::super::flat::HashSpan;
use super::super::limit_tables::KeySize;
use super::super::saved::{SavedState, SectionWriter};
use super::{StateTable, TableAsk, TableEntry};

impl<A: Listed, K: KeySize> StateTable<A, K> {
    /// Number of slots, including empty ones.
    pub(in crate::memory) fn slots(&self) -> usize {
        self.entries.slots()
    }

    /// Appends the states of keys in `span` that are in debt, and with the first span the floor.
    pub(in crate::memory) fn save(&self, span: &HashSpan, now: Time, to: &mut SectionWriter<'_>) {
        if *span.start() == 0 && self.is_live(&self.floor, now) {
            to.floor(&self.algorithm, &self.floor, K::CLASS, now);
        }
        let hash = |entry: &TableEntry<K, A::State>| entry.key.rehash(&self.hasher);
        self.entries.each_in(span, hash, |entry| {
            if self.is_live(&entry.state, now) {
                let (algorithm, state) = (&self.algorithm, &entry.state);
                entry.key.show(|key| to.key(algorithm, state, key, now));
            }
        });
    }

    /// Puts a saved state under a key that is not in debt, unless it has expired meanwhile.
    /// Returns `None` if there is no room: then nothing was done.
    pub(in crate::memory) fn restore(
        &mut self,
        ask: &TableAsk<'_>,
        saved: &SavedState<'_>,
    ) -> Option<Decision> {
        let state = saved.under(&mut self.algorithm);
        let decision = self.algorithm.look(&state, ask.now, Permits::ZERO);
        if !self.is_live(&state, ask.now) {
            return Some(decision);
        }
        self.put(ask, &state).then_some(decision)
    }

    /// Raises the floor to a saved one.
    pub(in crate::memory) fn restore_floor(&mut self, saved: &SavedState<'_>, now: Time) {
        let floor = saved.under(&mut self.algorithm);
        if self.is_live(&floor, now) {
            self.algorithm.stricter(&mut self.floor, &floor);
        }
    }

    fn is_live(&self, state: &A::State, now: Time) -> bool {
        *state != A::State::default() && self.algorithm.expires_at(state, now) > now
    }
}
