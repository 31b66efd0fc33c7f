//! Promises: charges for a later moment, and what those who wait need to know.

use ratekeeper_core::{Algorithm, Decision, Nanos, Permits, Refund, Reserve};

use super::super::budget::Budget;
use super::super::key::StoredKey;
use super::{Ask, Table};

impl<A: Algorithm, K: StoredKey> Table<A, K> {
    /// How long at least until `ask.cost` permits have been granted one after the other.
    pub(in crate::memory) fn at_least(&mut self, ask: &Ask<'_>) -> Nanos {
        if let Some(entry) = self.find(ask).and_then(|at| self.entries.get(at)) {
            return self.algorithm.at_least(&entry.state, ask.now, ask.cost);
        }
        let start = self.start(ask.now);
        let wait = self.algorithm.at_least(&start.state, start.now, ask.cost);
        if wait == Nanos::ZERO {
            wait
        } else {
            wait + start.lag
        }
    }
}

impl<A: Reserve, K: StoredKey> Table<A, K> {
    /// Charges for a moment at most `max_wait` from now. `None` if the key is new and there is
    /// no room for it: then nothing was done.
    pub(in crate::memory) fn reserve(
        &mut self,
        ask: &Ask<'_>,
        max_wait: Nanos,
        budget: &Budget,
    ) -> Option<Decision> {
        if let Some(entry) = self.find(ask).and_then(|at| self.entries.get_mut(at)) {
            let (algorithm, state) = (&self.algorithm, &mut entry.state);
            return Some(algorithm.reserve(state, ask.now, ask.cost, max_wait));
        }
        self.begin(ask, budget, |algorithm, state, now| {
            algorithm.reserve(state, now, ask.cost, max_wait)
        })
    }
}

impl<A: Refund, K: StoredKey> Table<A, K> {
    /// Gives back what was charged at `made`, if nothing was charged since: if the key still
    /// stands where that charge left it. Says whether it did.
    pub(in crate::memory) fn cancel(&mut self, ask: &Ask<'_>, made: &Made) -> bool {
        let Some(entry) = self.find(ask).and_then(|at| self.entries.get_mut(at)) else {
            return false;
        };
        let stands = self.algorithm.look(&entry.state, made.at, Permits::ZERO);
        let is_last = stands.reset_after == made.reset_after;
        if is_last {
            self.algorithm.refund(&mut entry.state, ask.now, ask.cost);
        }
        is_last
    }
}

/// When something was reserved, and where that left the key.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) struct Made {
    pub(in crate::memory) at: ratekeeper_core::Time,
    pub(in crate::memory) reset_after: Nanos,
}
