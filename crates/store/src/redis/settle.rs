//! Settling: all charges of a request or none, over states that are at hand.
//!
//! ```text
//!   judge all --> charge what counts denials --> admitted? --no--> show how all stands
//!                                                    |
//!                                                   yes ---> charge what allows
//! ```
//!
//! The same rules as in memory. The script in the store follows them too; here they say what
//! callers are told, and what compare-and-set writes.

use std::sync::Arc;

use ratekeeper_core::{Decision, LeaseId, Lend, Mode, Nanos, Permits, UnixMicros};
use smallvec::SmallVec;

use super::limits::Prepared;
use super::state::State;
use crate::Decisions;

/// One charge of a request.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) limit: Arc<Prepared>,
    /// Of the key in the store.
    pub(super) name: Box<[u8]>,
    pub(super) cost: Permits,
    pub(super) mode: Mode,
    /// Whose lease is released, renewed or taken back.
    pub(super) lease: Option<LeaseId>,
}

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// Limits of concurrency lend as it says.
    Decide(Lend),
    Look,
    Refund,
    Reset,
    /// As a reset, and without a mark: nothing is left.
    Erase,
    Release,
    Renew,
}

/// What a request is answered.
#[derive(Debug)]
pub(super) enum Outcome {
    Decided(Decisions),
    Refunded,
    WereThere(SmallVec<[bool; 4]>),
    Released(SmallVec<[Permits; 4]>),
    Renewed(SmallVec<[Option<Nanos>; 4]>),
}

/// Does what the request wants to the states of its items; `place` says which state is whose.
pub(super) fn settle(
    act: Act,
    items: &[Item],
    place: &[usize],
    states: &mut [State],
    now: UnixMicros,
) -> Outcome {
    let mut table = Table {
        items,
        place,
        states,
        now,
    };
    match act {
        Act::Decide(lend) => Outcome::Decided(table.decide(lend)),
        Act::Look => Outcome::Decided(table.look()),
        Act::Refund => {
            (0..items.len()).for_each(|at| table.take_back(at));
            Outcome::Refunded
        }
        Act::Reset | Act::Erase => {
            let were_there = (0..items.len()).map(|at| table.forget(at));
            Outcome::WereThere(were_there.collect())
        }
        Act::Release => {
            let released = (0..items.len()).map(|at| table.release(at));
            Outcome::Released(released.collect())
        }
        Act::Renew => Outcome::Renewed((0..items.len()).map(|at| table.renew(at)).collect()),
    }
}

struct Table<'a> {
    items: &'a [Item],
    place: &'a [usize],
    states: &'a mut [State],
    now: UnixMicros,
}

impl Table<'_> {
    fn decide(&mut self, lend: Lend) -> Decisions {
        let (mut each, before) = self.judge(lend);
        let free: SmallVec<[bool; 4]> = (0..each.len())
            .map(|at| !self.is_regardless(at, lend))
            .collect();
        for (at, decision) in each.iter_mut().enumerate().filter(|(at, _)| !free[*at]) {
            let judged = decision.verdict;
            *decision = self.charge(at, lend);
            if !judged.allows() {
                decision.verdict = judged;
            }
        }
        let admitted = self.admitted(&each);
        for (at, decision) in each.iter_mut().enumerate().filter(|(at, _)| free[*at]) {
            // What is denied only because of an earlier charge of this request might be
            // allowed if that one is not made, and must not be charged.
            if !decision.verdict.allows() && before[at] == Permits::ZERO {
                *decision = self.charge(at, lend);
            }
        }
        if admitted {
            for (at, decision) in each.iter_mut().enumerate().filter(|(at, _)| free[*at]) {
                if decision.verdict.allows() {
                    *decision = self.charge(at, lend);
                }
            }
        } else {
            self.show_standing(&mut each);
        }
        Decisions { admitted, each }
    }

    /// Whether the charge is made whatever becomes of the request.
    fn is_regardless(&self, at: usize, lend: Lend) -> bool {
        self.items[at].limit.algorithm.takes_regardless(lend)
    }

    fn look(&mut self) -> Decisions {
        let (mut each, _) = self.judge(Lend::Nothing);
        let admitted = self.admitted(&each);
        self.show_standing(&mut each);
        Decisions { admitted, each }
    }

    /// Looks at every charge as if those before it to the same key were made; and says what
    /// those were.
    fn judge(&self, lend: Lend) -> (SmallVec<[Decision; 4]>, SmallVec<[Permits; 4]>) {
        let mut each = SmallVec::<[Decision; 4]>::new();
        let mut before = SmallVec::<[Permits; 4]>::new();
        for (at, item) in self.items.iter().enumerate() {
            let earlier = (0..at)
                .rev()
                .find(|&earlier| self.place[earlier] == self.place[at]);
            let spent = earlier.map_or(Permits::ZERO, |earlier| {
                let made = each[earlier].verdict.allows() || self.is_regardless(earlier, lend);
                before[earlier]
                    + if made {
                        self.items[earlier].cost
                    } else {
                        Permits::ZERO
                    }
            });
            let state = &self.states[self.place[at]];
            each.push(state.look(&item.limit.algorithm, self.now, spent + item.cost));
            before.push(spent);
        }
        (each, before)
    }

    fn admitted(&self, each: &[Decision]) -> bool {
        let veto = |(item, decision): (&Item, &Decision)| {
            item.mode == Mode::Enforce && !decision.verdict.allows()
        };
        !self.items.iter().zip(each).any(veto)
    }

    fn charge(&mut self, at: usize, lend: Lend) -> Decision {
        let item = &self.items[at];
        self.states[self.place[at]].decide(&item.limit.algorithm, self.now, item.cost, lend)
    }

    /// What would have passed shows the state as it stands.
    fn show_standing(&self, each: &mut [Decision]) {
        for (at, decision) in each.iter_mut().enumerate() {
            if decision.verdict.allows() {
                let state = &self.states[self.place[at]];
                let verdict = decision.verdict;
                let limit = &self.items[at].limit;
                let standing = state.look(&limit.algorithm, self.now, Permits::ZERO);
                *decision = Decision {
                    verdict,
                    ..standing
                };
            }
        }
    }

    /// What was lent to a name comes back by it.
    fn take_back(&mut self, at: usize) {
        let item = &self.items[at];
        if item.lease.is_some() && item.limit.algorithm.concurrency().is_some() {
            self.release(at);
            return;
        }
        let state = &mut self.states[self.place[at]];
        state.refund(&item.limit.algorithm, self.now, item.cost);
    }

    fn release(&mut self, at: usize) -> Permits {
        let item = &self.items[at];
        let state = &mut self.states[self.place[at]];
        let release = |id| state.release(&item.limit.algorithm, self.now, id);
        item.lease.map_or(Permits::ZERO, release)
    }

    fn renew(&mut self, at: usize) -> Option<Nanos> {
        let item = &self.items[at];
        let state = &mut self.states[self.place[at]];
        state.renew(&item.limit.algorithm, self.now, item.lease?)
    }

    fn forget(&mut self, at: usize) -> bool {
        let algorithm = &self.items[at].limit.algorithm;
        let state = &mut self.states[self.place[at]];
        let there = state.lasts(algorithm, self.now) > 0;
        *state = State::default();
        there
    }
}
