//! Promises: operations of a shard for callers that wait or plan.

use ratekeeper_core::{Decision, Limit, Receipt, Time, Verdict};

use super::super::table::{Ahead, Reserved, TableAsk};
use super::Shard;
use super::returned::NotedKey;

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

    /// Charges for a later moment; the algorithm supports reservations.
    pub(in crate::memory) fn reserve(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        ahead: Ahead,
    ) -> Decision {
        self.follow(limit, ask);
        self.with_room(limit, ask, |tables| tables.reserve(ask, ahead))
    }

    /// Gives back a reservation, if nothing was charged or given back since; returns true if it did.
    pub(in crate::memory) fn cancel(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        reserved: &Reserved,
    ) -> bool {
        let receipt = Receipt {
            mark: reserved.mark,
            ..Receipt::of(&reserved.decision, reserved.made)
        };
        let key = NotedKey::new(limit, ask);
        let notes = self.returned.of(key);
        if notes.is_some_and(|notes| notes.any_since(&receipt)) {
            return false; // the state may be as it was though others were charged
        }
        let tables = self.at_home(limit, ask);
        tables.is_some_and(|tables| tables.cancel(ask, reserved))
    }
}
