//! Moves: a key that goes on by other numbers of its limit.

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, AnyState, Listed, Nanos, Time};

use super::super::budget::MemoryBudget;
use super::super::key::StoredKey;
use super::{StateTable, TableAsk};

/// The state of a key on its way to other numbers.
pub(in crate::memory) struct MovedState {
    algorithm: AnyAlgorithm,
    state: AnyState,
    /// How far ahead moments were promised.
    promised: Nanos,
}

impl MovedState {
    /// Returns the state with the same usage under `new`.
    pub(in crate::memory) fn under(&self, new: &AnyAlgorithm, now: Time) -> AnyState {
        let mut state = self.state.clone();
        new.carry(&mut state, &self.algorithm, now, self.promised);
        state
    }
}

impl<A: Listed, K: StoredKey> StateTable<A, K> {
    /// Returns the state of a key that is here; it stays until it is reset.
    pub(in crate::memory) fn leave(&mut self, ask: &TableAsk<'_>) -> Option<MovedState> {
        let promised = self.promised.since(ask.now.max(self.forgotten));
        let (algorithm, state) = self.here(ask)?;
        Some(MovedState {
            algorithm: algorithm.clone().into(),
            state: A::any_state(state.clone()),
            promised,
        })
    }

    /// Takes over the usage of a key; evicts it if there is no room for it.
    pub(in crate::memory) fn arrive(
        &mut self,
        ask: &TableAsk<'_>,
        left: &MovedState,
        budget: &MemoryBudget,
    ) {
        let now = ask.now.max(self.forgotten);
        let mut state = left.under(&self.algorithm.clone().into(), now);
        let state = std::mem::take(A::own_state(&mut state));
        self.promised = self.promised.max(now + left.promised);
        if state != A::State::default() && !self.put(ask, &state, budget) {
            self.algorithm.stricter(&mut self.floor, &state);
            self.evicted.budget += 1;
        }
    }

    /// Puts a state under a key; returns false if there is no room for it.
    pub(super) fn put(
        &mut self,
        ask: &TableAsk<'_>,
        state: &A::State,
        budget: &MemoryBudget,
    ) -> bool {
        if let Some((algorithm, here)) = self.here(ask) {
            algorithm.stricter(here, state);
            return true;
        }
        let has_room = self.make_room(ask, budget);
        if has_room {
            self.insert(K::new(ask.key), ask.hash, state.clone());
        }
        has_room
    }

    /// Returns true if a key with this hash is here.
    pub(in crate::memory) fn has(&self, hash: u64) -> bool {
        let is_it = |entry: &super::TableEntry<K, A::State>| entry.key.rehash(&self.hasher) == hash;
        self.entries.find(hash, is_it).is_some()
    }
}
