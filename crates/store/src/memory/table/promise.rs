//! Promises: charges for a later moment, and the minimum wait for them.

use std::num::NonZeroU64;

use ratekeeper_core::{Decision, Listed, Nanos, Permits, Time};

use super::{StateTable, TableAsk};

/// The reason for a charge beyond the capacity.
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) enum Ahead {
    /// A caller waits, at most for this span.
    Promised(Nanos),
    /// The permits have been used already.
    Owed,
}

/// A reservation; it can be given back by [`MemoryStore::cancel`](crate::MemoryStore::cancel).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// The answer: allowed for now, for later, or denied.
    pub decision: Decision,
    /// The moment of the reservation.
    pub made: Time,
    /// Its [mark](ratekeeper_core::Receipt::mark), if it is known.
    pub mark: Option<NonZeroU64>,
}

impl<A: Listed> StateTable<A> {
    /// Returns the minimum time until `ask.cost` permits have been granted one after the other.
    pub(in crate::memory) fn at_least(&mut self, ask: &TableAsk<'_>) -> Nanos {
        if let Some((algorithm, state)) = self.here(ask) {
            return algorithm.at_least(state, ask.now, ask.cost);
        }
        let new = self.new_key(ask.now);
        match self.algorithm.at_least(&new.state, new.now, ask.cost) {
            Nanos::ZERO => Nanos::ZERO,
            wait => wait + new.lag,
        }
    }

    /// Charges for a later moment. Returns `None` if the key is new and
    /// there is no room for it: then nothing was done.
    pub(in crate::memory) fn reserve(
        &mut self,
        ask: &TableAsk<'_>,
        ahead: Ahead,
    ) -> Option<Decision> {
        let max_wait = match ahead {
            Ahead::Promised(max_wait) => max_wait,
            Ahead::Owed => Nanos::MAX,
        };
        let mut reserve = |algorithm: &A, state: &mut A::State, now| {
            algorithm
                .try_reserve(state, now, ask.cost, max_wait)
                .unwrap_or_else(|| algorithm.decide(state, now, ask.cost)) // checked by the callers
        };
        let decision = match self.here(ask) {
            Some((algorithm, state)) => Some(reserve(algorithm, state, ask.now)),
            None => self.decide_new(ask, &mut reserve),
        };
        let wait = decision.and_then(|decision| decision.verdict.wait());
        if let (Ahead::Promised(_), Some(wait)) = (ahead, wait) {
            self.promised = self.promised.max(ask.now + wait);
        }
        decision
    }

    /// Gives back a reservation, if nothing was charged since: if the key still stands where it was
    /// left then. Returns true if it was given back.
    pub(in crate::memory) fn cancel(&mut self, ask: &TableAsk<'_>, reserved: &Reserved) -> bool {
        let Some((algorithm, state)) = self.here(ask) else {
            return false;
        };
        let standing = algorithm.look(state, reserved.made, Permits::ZERO);
        let is_last = standing.reset_after == reserved.decision.reset_after;
        is_last && algorithm.try_refund(state, ask.now, ask.cost).is_some()
    }
}
