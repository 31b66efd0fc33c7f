//! Saving and restoring the states of a table.

use ratekeeper_core::{Decision, Listed, Permits, Time};

use super::super::flat::{HashSpan, each_in};
use super::super::saved::{SavedState, SectionWriter};
use super::{StateTable, TableAsk};

impl<A: Listed> StateTable<A> {
    /// Number of slots, including empty ones.
    pub(in crate::memory) fn slots(&self) -> usize {
        self.entries.fill().slots
    }

    /// Appends the states of keys in `span` that are in debt, and with the first span the floor.
    pub(in crate::memory) fn save(&self, span: &HashSpan, now: Time, to: &mut SectionWriter<'_>) {
        if *span.start() == 0 && self.is_live(&self.floor, now) {
            to.floor(&self.algorithm, &self.floor, self.entries.size(), now);
        }
        let entries = &self.entries;
        each_in(self.slots(), span, &|at| entries.hash(at), &mut |at| {
            if let Some(state) = entries.state(at).filter(|state| self.is_live(state, now)) {
                entries.show(at, &mut |key| to.key(&self.algorithm, state, key, now));
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
