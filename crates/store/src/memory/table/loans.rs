//! Loans: permits that come back, and charges that are given back.

use ratekeeper_core::{LeaseId, Lend, Listed, Nanos, Permits, Time};

use super::{StateTable, TableAsk};

impl<A: Listed> StateTable<A> {
    /// Gives back a charge, if the algorithm can take it back and the key is still here. A loan
    /// to a name is released.
    pub(in crate::memory) fn give_back(&mut self, ask: &TableAsk<'_>) {
        let Some((algorithm, state)) = self.here(ask) else {
            return;
        };
        if let Some(receipt) = ask.receipt {
            let _ = algorithm.try_give_back(state, ask.now, ask.cost, receipt);
            return;
        }
        match ask.lend {
            Lend::To(id) if A::LENDS => {
                algorithm.try_release(state, ask.now, id);
            }
            Lend::Nothing if A::LENDS => {}
            _ => {
                let _ = algorithm.try_refund(state, ask.now, ask.cost);
            }
        }
    }

    /// Takes back all permits that a name holds; returns how many.
    pub(in crate::memory) fn release(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Permits {
        match self.here(ask) {
            Some((algorithm, state)) => algorithm.try_release(state, ask.now, id),
            None => Permits::ZERO,
        }
    }

    /// Restarts the lease of a name; returns its length, `None` if it has ended.
    pub(in crate::memory) fn renew(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Option<Nanos> {
        let (algorithm, state) = self.here(ask)?;
        algorithm.try_renew(state, ask.now, id)
    }

    /// Returns the permits on loan, of all keys.
    pub(in crate::memory) fn on_loan(&self, now: Time) -> u64 {
        let mut on_loan = 0;
        for at in 0..self.slots() {
            let state = self.entries.state(at);
            on_loan += state.map_or(0, |state| self.algorithm.on_loan(state, now));
        }
        on_loan
    }
}
