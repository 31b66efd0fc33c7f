//! Moves: a key that goes on by other numbers of its limit.

use ratekeeper_core::{AnyAlgorithm, AnyState, Decision, Listed, Nanos, Permits, Time};

use super::super::key::StoredKey;
use super::{StateTable, TableAsk};

/// The state of a key on its way to other numbers.
pub(in crate::memory) struct MovedState {
    algorithm: AnyAlgorithm,
    state: AnyState,
    used: Permits,
    /// How far ahead moments were promised.
    promised: Nanos,
}

impl<A: Listed, K: StoredKey> StateTable<A, K> {
    /// Returns the state of a key that is here; it stays until it is reset.
    pub(in crate::memory) fn leave(&mut self, ask: &TableAsk<'_>) -> Option<MovedState> {
        let now = ask.now.max(self.forgotten);
        let promised = self.promised.since(now);
        let (algorithm, state) = self.here(ask)?;
        Some(MovedState {
            algorithm: algorithm.clone().into(),
            state: A::any_state(state.clone()),
            used: algorithm.usage(state, now),
            promised,
        })
    }

    /// Returns a state with the same usage by the numbers of this table, which believes it from now
    /// on.
    fn carry_here(&mut self, left: &MovedState, now: Time) -> A::State {
        let Some(old) = A::of(&left.algorithm) else {
            return self.algorithm.state_with_usage(left.used, now);
        };
        let mut state = A::with_state(&left.state, Clone::clone);
        self.algorithm.carry(&mut state, old, now, left.promised);
        self.algorithm.succeed(old);
        state
    }

    /// Returns the decision that `decide` would make once these states of the key have
    /// [arrived](Self::arrive).
    pub(in crate::memory) fn look_at(
        &mut self,
        ask: &TableAsk<'_>,
        left: &[MovedState],
    ) -> Decision {
        let mut strictest = None;
        for left in left {
            let mut state = self.carry_here(left, ask.now);
            if let Some(other) = &strictest {
                self.algorithm.stricter(&mut state, other);
            }
            strictest = Some(state);
        }
        match strictest {
            Some(state) => self.algorithm.look(&state, ask.now, ask.cost),
            None => self.look(ask),
        }
    }

    /// Takes over the usage of a key; evicts it if there is no room for it.
    pub(in crate::memory) fn arrive(&mut self, ask: &TableAsk<'_>, left: &MovedState) {
        let now = ask.now.max(self.forgotten);
        let state = self.carry_here(left, now);
        self.promised = self.promised.max(now + left.promised);
        if state != A::State::default() && !self.put(ask, &state) {
            self.algorithm.stricter(&mut self.floor, &state);
            self.evicted.budget += 1;
        }
    }

    /// Puts a state under a key; returns false if there is no room for it.
    pub(super) fn put(&mut self, ask: &TableAsk<'_>, state: &A::State) -> bool {
        if let Some((algorithm, here)) = self.here(ask) {
            algorithm.stricter(here, state);
            return true;
        }
        let has_room = self.make_room(ask);
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
