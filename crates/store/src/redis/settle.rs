//! Applies requests to the states of their keys, once these have been read.
//!
//! The script in the store makes the same decisions; here they become answers for callers, and
//! the values that compare-and-set writes.

use std::sync::Arc;

use ratekeeper_core::{
    Algorithm as _, AnyState, Decision, GrantId, LeaseId, Lend, Mode, Nanos, Permits, Receipt,
    Time, UnixMicros,
};

use super::limits::Prepared;
use crate::act::{ActKind, AnyAnswer, ChargeCorrection, GrantAnswer};
use crate::settle::RequestStates;

/// One charge of a request.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) limit: Arc<Prepared>,
    /// Name of the key in the store.
    pub(super) name: Box<[u8]>,
    pub(super) cost: Permits,
    pub(super) mode: Mode,
    /// The lease that is released, renewed or taken back.
    pub(super) lease: Option<LeaseId>,
    pub(super) correction: ChargeCorrection,
    /// Of a charge that is given back.
    pub(super) receipt: Option<Receipt>,
    /// Earlier forms of the limit, by index, and the names under them that may still matter.
    pub(super) earlier: Vec<(usize, Box<[u8]>)>,
}

/// Performs an act on the states of its items; `place` holds the index of each item's state.
pub(super) fn settle(
    act: ActKind,
    items: &[Item],
    place: &[usize],
    states: &mut [AnyState],
    now: UnixMicros,
) -> AnyAnswer {
    act.run(&mut ItemStates {
        items,
        place,
        states,
        lend: act.lend(),
        now: now.time(),
    })
}

struct ItemStates<'a> {
    items: &'a [Item],
    place: &'a [usize],
    states: &'a mut [AnyState],
    lend: Lend,
    now: Time,
}

impl RequestStates for ItemStates<'_> {
    fn count(&self) -> usize {
        self.items.len()
    }

    fn now(&self) -> Time {
        self.now
    }

    fn mode(&self, at: usize) -> Mode {
        self.items[at].mode
    }

    fn cost(&self, at: usize) -> Permits {
        self.items[at].cost
    }

    fn earlier(&mut self, at: usize) -> Option<usize> {
        (0..at)
            .rev()
            .find(|&earlier| self.place[earlier] == self.place[at])
    }

    fn charges_even_if_refused(&self, at: usize) -> bool {
        let limit = &self.items[at].limit;
        limit.algorithm.charges_even_if_refused(self.lend)
    }

    fn look(&mut self, at: usize, cost: Permits) -> Decision {
        let (item, state) = (&self.items[at], &self.states[self.place[at]]);
        item.limit.algorithm.look(state, self.now, cost)
    }

    fn charge(&mut self, at: usize) -> Decision {
        let (item, state) = (&self.items[at], &mut self.states[self.place[at]]);
        let algorithm = &item.limit.algorithm;
        algorithm.lend(state, self.now, item.cost, self.lend)
    }

    /// Releases a loan to a name by that name; refunds other charges.
    fn give_back(&mut self, at: usize) {
        let item = &self.items[at];
        if item.lease.is_some() && item.limit.algorithm.concurrency().is_some() {
            self.release(at);
            return;
        }
        let (state, now) = (&mut self.states[self.place[at]], self.now);
        let algorithm = &item.limit.algorithm;
        let _ = match item.receipt {
            Some(receipt) => algorithm.try_give_back(state, now, item.cost, receipt),
            None => algorithm.try_refund(state, now, item.cost),
        };
    }

    fn correction(&self, at: usize) -> ChargeCorrection {
        self.items[at].correction
    }

    fn owe(&mut self, at: usize, cost: Permits) -> Decision {
        let (item, state) = (&self.items[at], &mut self.states[self.place[at]]);
        let (algorithm, now) = (&item.limit.algorithm, self.now);
        let promised = algorithm.try_reserve(state, now, cost, Nanos::MAX);
        promised.unwrap_or_else(|_| algorithm.decide(state, now, cost))
    }

    fn release(&mut self, at: usize) -> Permits {
        let (item, state) = (&self.items[at], &mut self.states[self.place[at]]);
        let release = |id| item.limit.algorithm.release(state, self.now, id);
        item.lease.map_or(Permits::ZERO, release)
    }

    fn renew(&mut self, at: usize) -> Option<Nanos> {
        let (item, state) = (&self.items[at], &mut self.states[self.place[at]]);
        item.limit.algorithm.renew(state, self.now, item.lease?)
    }

    fn ban(&mut self, at: usize, span: Nanos) -> Decision {
        let (item, state) = (&self.items[at], &mut self.states[self.place[at]]);
        let (algorithm, now) = (&item.limit.algorithm, self.now);
        let _ = algorithm.try_ban(state, now, span); // checked by the act
        algorithm.look(state, now, Permits::ZERO)
    }

    fn grant(&mut self, at: usize, id: GrantId) -> GrantAnswer {
        let (item, state) = (&self.items[at], &mut self.states[self.place[at]]);
        let algorithm = &item.limit.algorithm;
        GrantAnswer {
            granted: algorithm.try_grant(state, item.cost, id).ok(), // checked by the act
            decision: algorithm.look(state, self.now, Permits::ZERO),
        }
    }

    fn forget(&mut self, at: usize) -> bool {
        let (item, state) = (&self.items[at], &mut self.states[self.place[at]]);
        let was_there = item.limit.algorithm.expires_at(state, self.now) > self.now;
        *state = AnyState::default();
        was_there
    }
}
