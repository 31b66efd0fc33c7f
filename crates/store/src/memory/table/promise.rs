//! Promises: charges for a later moment, and the minimum wait for them.

use ratekeeper_core::{Decision, Listed, Nanos, Permits, Time};

use super::super::budget::MemoryBudget;
use super::super::key::StoredKey;
use super::{Table, TableAsk};

impl<A: Listed, K: StoredKey> Table<A, K> {
    /// Returns the minimum time until `ask.cost` permits have been granted one after the other.
    pub(in crate::memory) fn at_least(&mut self, ask: &TableAsk<'_>) -> Nanos {
        if let Some((limit, state)) = self.here(ask) {
            return limit.at_least(state, ask.now, ask.cost);
        }
        let start = self.start(ask.now);
        let wait = self.algorithm.at_least(&start.state, start.now, ask.cost);
        if wait == Nanos::ZERO {
            wait
        } else {
            wait + start.lag
        }
    }

    /// Charges for a moment at most `max_wait` from now. Returns `None` if the key is new and
    /// there is no room for it: then nothing was done.
    pub(in crate::memory) fn reserve(
        &mut self,
        ask: &TableAsk<'_>,
        max_wait: Nanos,
        budget: &MemoryBudget,
    ) -> Option<Decision> {
        let reserve = |limit: &A, state: &mut A::State, now| {
            limit
                .try_reserve(state, now, ask.cost, max_wait)
                .unwrap_or_else(|| limit.decide(state, now, ask.cost)) // it promised a moment ago
        };
        if let Some((limit, state)) = self.here(ask) {
            return Some(reserve(limit, state, ask.now));
        }
        self.begin(ask, budget, &mut |limit, state, now| {
            reserve(limit, state, now)
        })
    }

    /// Gives back the charge made at `made`, if nothing was charged since: if the key still
    /// stands where that charge left it. Returns true if it was given back.
    pub(in crate::memory) fn cancel(&mut self, ask: &TableAsk<'_>, made: &Made) -> bool {
        let Some((limit, state)) = self.here(ask) else {
            return false;
        };
        let standing = limit.look(state, made.at, Permits::ZERO);
        let is_last = standing.reset_after == made.reset_after;
        is_last && limit.try_refund(state, ask.now, ask.cost).is_some()
    }
}

/// Moment of a reservation, and `reset_after` of its key then.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) struct Made {
    pub(in crate::memory) at: Time,
    pub(in crate::memory) reset_after: Nanos,
}
