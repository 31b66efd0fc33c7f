//! Moves: keys that go on by other numbers of their limit, or by another algorithm.

use ratekeeper_core::{AnyAlgorithm, AnyState, Decision, Listed, Nanos, Permits, Time};

use super::super::budget::{MemoryBudget, Purpose};
use super::super::flat::slots_for;
use super::{StateTable, TableAsk, TableHistory};

/// The state of a key on its way to other numbers.
pub(in crate::memory) struct MovedState {
    algorithm: AnyAlgorithm,
    state: AnyState,
    used: Permits,
    /// How far ahead moments were promised.
    promised: Nanos,
}

impl<A: Listed> StateTable<A> {
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
            self.insert(ask, state.clone());
        }
        has_room
    }

    /// Returns true if a key with this hash is here.
    pub(in crate::memory) fn has(&self, hash: u64) -> bool {
        self.entries.has(hash)
    }
}

/// To another algorithm.
impl<A: Listed> StateTable<A> {
    pub(in crate::memory) fn history(&self, now: Time) -> TableHistory {
        TableHistory {
            size: self.entries.size(),
            evicted: self.evicted,
            forgotten: self.forgotten,
            floor: self.used(&self.floor, now),
            keys: self.len(),
        }
    }

    /// Empties the table; passes each key, with its usage as cost, to `each`.
    pub(in crate::memory) fn drain_used(
        &mut self,
        now: Time,
        budget: &MemoryBudget,
        each: &mut dyn FnMut(&TableAsk<'_>),
    ) {
        let bytes = self.bytes();
        for at in 0..self.slots() {
            let (Some(state), Some(hash)) = (self.entries.state(at), self.entries.hash(at)) else {
                continue;
            };
            let cost = self.used(state, now);
            self.entries.show(at, &mut |key| {
                each(&TableAsk {
                    cost,
                    ..TableAsk::new(key, hash, now, budget)
                });
            });
        }
        self.entries.clear();
        self.heap_bytes = 0;
        budget.give(bytes);
    }

    /// Takes over the history of a table before its keys are [carried](Self::carry) over.
    pub(in crate::memory) fn inherit(
        &mut self,
        history: TableHistory,
        now: Time,
        budget: &MemoryBudget,
    ) {
        self.evicted = history.evicted;
        self.forgotten = history.forgotten;
        let floor = self.used_up(history.floor, now);
        self.algorithm.stricter(&mut self.floor, &floor);
        self.resize(slots_for(history.keys), now, Purpose::Move, budget);
    }

    /// Takes over a key that had used `ask.cost` under another algorithm; evicts it if there is no
    /// room for it.
    pub(in crate::memory) fn carry(&mut self, ask: &TableAsk<'_>) {
        let state = self.used_up(ask.cost, ask.now);
        if state == A::State::default() {
            return;
        }
        let heap = self.heap_of(ask.key.len());
        if !self.entries.fill().is_full() && ask.budget.take(heap, Purpose::Move) {
            self.insert(ask, state);
        } else {
            self.algorithm.stricter(&mut self.floor, &state);
            self.evicted.budget += 1;
        }
    }

    fn used(&self, state: &A::State, now: Time) -> Permits {
        self.algorithm.usage(state, now.max(self.forgotten))
    }

    fn used_up(&self, used: Permits, now: Time) -> A::State {
        self.algorithm
            .state_with_usage(used, now.max(self.forgotten))
    }
}
