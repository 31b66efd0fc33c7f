//! Promises: operations of a shard for callers that wait or plan.

use ratekeeper_core::{Decision, Limit, Nanos, Time, Verdict};

use super::super::table::{Made, TableAsk};
use super::Shard;

impl Shard {
    /// Charges at `ask.now`, if that may pass by `by`; otherwise charges nothing.
    pub(in crate::memory) fn take(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        by: Time,
    ) -> Decision {
        let looked = self.look(limit, ask);
        let passes = match looked.verdict {
            Verdict::Allow => true,
            Verdict::AllowAfter(wait) => ask.now + wait <= by,
            _ => false,
        };
        if passes {
            self.decide(limit, ask)
        } else {
            looked
        }
    }

    /// Returns the minimum time until `ask.cost` permits have been granted one after the other.
    pub(in crate::memory) fn at_least(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Nanos {
        match self.prepare(limit, ask.now).and_then(|id| self.slot(id)) {
            Some(slot) => slot.at_least(ask),
            None => Nanos::ZERO, // not known
        }
    }

    /// Charges for a moment at most `max_wait` from now; the algorithm supports reservations.
    pub(in crate::memory) fn reserve(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        max_wait: Nanos,
    ) -> Decision {
        let reserve = |shard: &mut Self| shard.try_reserve(limit, ask, max_wait);
        match reserve(self) {
            Some(decision) => decision,
            None => self.when_full(limit, ask, &reserve),
        }
    }

    /// Returns `None` if there is no room.
    fn try_reserve(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        max_wait: Nanos,
    ) -> Option<Decision> {
        let id = self.prepare(limit, ask.now)?;
        let slot = self.slots.get_mut(id)?.as_deref_mut()?;
        slot.reserve(ask, max_wait, &self.budget)
    }

    /// Gives back a reservation, if nothing was charged since; returns true if it did.
    pub(in crate::memory) fn cancel(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        made: &Made,
    ) -> bool {
        let slot = self.prepare(limit, ask.now).and_then(|id| self.slot(id));
        slot.is_some_and(|slot| slot.cancel(ask, made))
    }
}
