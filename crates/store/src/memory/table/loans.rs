//! Loans: permits that come back, and charges that are given back.

use ratekeeper_core::{LeaseId, Lend, Listed, Nanos, Permits, Time};

use super::{Table, TableAsk};
use crate::memory::key::StoredKey;

impl<A: Listed, K: StoredKey> Table<A, K> {
    /// Gives back a charge, if the algorithm can take it back and the key is still here. A loan
    /// to a name is released.
    pub(in crate::memory) fn give_back(&mut self, ask: &TableAsk<'_>) {
        let Some((limit, state)) = self.here(ask) else {
            return;
        };
        match ask.lend {
            Lend::To(id) if A::LENDS => {
                limit.try_release(state, ask.now, id);
            }
            Lend::Nothing if A::LENDS => {}
            _ => {
                let _ = limit.try_refund(state, ask.now, ask.cost);
            }
        }
    }

    /// Takes back all permits that a name holds; returns how many.
    pub(in crate::memory) fn release(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Permits {
        let here = self.here(ask);
        here.map_or(Permits::ZERO, |(limit, state)| {
            limit.try_release(state, ask.now, id)
        })
    }

    /// Restarts the lease of a name; returns its length, `None` if it has ended.
    pub(in crate::memory) fn renew(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Option<Nanos> {
        let (limit, state) = self.here(ask)?;
        limit.try_renew(state, ask.now, id)
    }

    /// Returns the permits on loan, of all keys.
    pub(in crate::memory) fn on_loan(&self, now: Time) -> u64 {
        let mut on_loan = 0;
        for slot in self.entries.as_slots() {
            let Some(entry) = slot else {
                continue;
            };
            on_loan += self.algorithm.on_loan(&entry.state, now);
        }
        on_loan
    }

    /// Returns the limit, and the state of a key that is here.
    pub(super) fn here(&mut self, ask: &TableAsk<'_>) -> Option<(&A, &mut A::State)> {
        let at = self.find(ask)?;
        let state = &mut self.entries.get_mut(at)?.state;
        Some((&self.algorithm, state))
    }
}
