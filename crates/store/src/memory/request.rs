//! A request of several charges: all or none, under the locks of the shards it touches.
//!
//! ```text
//!   sort by shard --> lock, ascending --> look at all --> charge what counts denials
//!                                                              |
//!                         charge what allows <--no-- veto? <---+
//!                                                      |
//!                                                     yes --> charge nothing more
//! ```
//!
//! A limit that counts denials is charged by every request that reaches it, whoever refuses.
//!
//! Locks are taken in one order by everybody, so nobody waits for somebody who waits. A
//! denial is decided in place in either case: it leaves the state as it was, except where
//! the limit counts denials.
//!
//! Charges of one request that name the same limit and key are judged one upon the other,
//! so that their sum stays within the bound.

use parking_lot::MutexGuard;
use ratekeeper_core::{Charge, Decision, Lend, Mode, Permits, Time};
use smallvec::SmallVec;

use super::MemoryStore;
use super::key::hash_of;
use super::shard::Shard;
use super::table::Ask;
use crate::Decisions;

/// A request with its shards locked.
pub(super) struct Request<'a> {
    charges: &'a [Charge<'a>],
    /// To whom limits of concurrency lend.
    lend: Lend,
    now: Time,
    /// In the order of shards.
    places: SmallVec<[Place; 4]>,
    shards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
    /// In the order of charges.
    each: SmallVec<[Decision; 4]>,
}

/// Where a charge is made.
#[derive(Clone, Copy)]
struct Place {
    /// Which charge.
    charge: usize,
    hash: u64,
    /// Which of the locked shards.
    shard: usize,
    /// Allowed before it to the same limit and key.
    before: Permits,
}

impl<'a> Request<'a> {
    /// Locks what the charges need, and looks at all of them.
    pub(super) fn new(
        store: &'a MemoryStore,
        charges: &'a [Charge<'a>],
        lend: Lend,
        now: Time,
    ) -> Self {
        let place = |(index, charge): (usize, &Charge<'_>)| {
            let hash = hash_of(&store.hasher, charge.key.as_bytes());
            Place {
                charge: index,
                hash,
                shard: store.shard_of(hash),
                before: Permits::ZERO,
            }
        };
        let mut places: SmallVec<[Place; 4]> = charges.iter().enumerate().map(place).collect();
        places.sort_unstable_by_key(|place| {
            let charge = &charges[place.charge];
            let key = charge.key.as_bytes();
            (place.shard, place.hash, charge.limit.id, key, place.charge)
        });
        let mut shards = SmallVec::new();
        let mut locked = None;
        for place in &mut places {
            if locked != Some(place.shard) {
                locked = Some(place.shard);
                shards.push(store.lock(place.shard));
            }
            place.shard = shards.len() - 1;
        }
        let mut request = Self {
            charges,
            lend,
            now,
            places,
            shards,
            each: SmallVec::from_elem(super::shard::no_room(), charges.len()),
        };
        request.judge();
        request
    }

    /// No enforcing charge denies.
    fn admitted(&self) -> bool {
        let veto = |(charge, decision): (&Charge<'_>, &Decision)| {
            charge.mode == Mode::Enforce && !decision.verdict.allows()
        };
        !self.charges.iter().zip(&self.each).any(veto)
    }

    /// What [`decide`](Self::decide) would say, and how everything stands.
    pub(super) fn look(mut self) -> Decisions {
        let admitted = self.admitted();
        self.show_standing();
        self.answer(admitted)
    }

    /// Charges all that allow, or none; and what counts denials in either case.
    pub(super) fn decide(mut self) -> Decisions {
        self.charge_regardless();
        let admitted = self.admitted();
        self.charge_denials();
        let admitted = admitted && self.charge_all();
        if !admitted {
            self.show_standing();
        }
        self.answer(admitted)
    }

    /// Whether the charge is made whatever becomes of the request.
    fn is_regardless(&self, place: &Place) -> bool {
        let limit = self.charges[place.charge].limit;
        limit.algorithm.takes_regardless(self.lend)
    }

    /// Makes the charges that do not depend on one another's verdicts.
    fn charge_regardless(&mut self) {
        for at in 0..self.places.len() {
            let place = self.places[at];
            if self.is_regardless(&place) {
                let judged = self.each[place.charge].verdict;
                let cost = self.charges[place.charge].cost;
                let mut decision = self.with(&place, cost, Shard::decide);
                if !judged.allows() {
                    decision.verdict = judged;
                }
                self.each[place.charge] = decision;
            }
        }
    }

    /// Looks at every charge as if those before it to the same limit and key were made.
    fn judge(&mut self) {
        let mut last: Option<Place> = None;
        for at in 0..self.places.len() {
            let mut place = self.places[at];
            if let Some(last) = last.filter(|last| self.same(last, &place)) {
                place.before = last.before;
                if self.each[last.charge].verdict.allows() || self.is_regardless(&last) {
                    place.before = place.before + self.charges[last.charge].cost;
                }
                self.places[at] = place;
            }
            let cost = place.before + self.charges[place.charge].cost;
            self.each[place.charge] = self.with(&place, cost, Shard::look);
            last = Some(place);
        }
    }

    /// Decides denials in place: a debt that the clock made too long is cut now.
    fn charge_denials(&mut self) {
        for at in 0..self.places.len() {
            let place = self.places[at];
            // What is denied only because of an earlier charge of this request might be
            // allowed if that one is not made, and must not be charged.
            let alone = place.before == Permits::ZERO;
            let free = !self.is_regardless(&place);
            if free && alone && !self.each[place.charge].verdict.allows() {
                let cost = self.charges[place.charge].cost;
                self.each[place.charge] = self.with(&place, cost, Shard::decide);
            }
        }
    }

    /// Charges what allows. Everything has been looked at under the same locks, so only want
    /// of memory can still deny; then what was charged is given back. (What an algorithm
    /// without refunds was charged stays charged: less is admitted, never more.)
    fn charge_all(&mut self) -> bool {
        for at in 0..self.places.len() {
            let place = self.places[at];
            if !self.each[place.charge].verdict.allows() || self.is_regardless(&place) {
                continue;
            }
            let charge = &self.charges[place.charge];
            let decision = self.with(&place, charge.cost, Shard::decide);
            let charged = decision.verdict.allows();
            if !charged && charge.mode == Mode::Enforce {
                self.give_back(at);
                self.each[place.charge] = decision;
                return false;
            }
            self.each[place.charge] = decision;
        }
        true
    }

    /// Gives back what the first `count` places were charged.
    fn give_back(&mut self, count: usize) {
        for at in 0..count {
            let place = self.places[at];
            if self.each[place.charge].verdict.allows() && !self.is_regardless(&place) {
                let cost = self.charges[place.charge].cost;
                self.with(&place, cost, Shard::refund);
            }
        }
    }

    /// What would have passed shows the state as it stands.
    fn show_standing(&mut self) {
        for at in 0..self.places.len() {
            let place = self.places[at];
            let decision = self.each[place.charge];
            if decision.verdict.allows() {
                let standing = self.with(&place, Permits::ZERO, Shard::look);
                self.each[place.charge] = Decision {
                    verdict: decision.verdict,
                    ..standing
                };
            }
        }
    }

    fn answer(self, admitted: bool) -> Decisions {
        Decisions {
            admitted,
            each: self.each,
        }
    }

    fn same(&self, a: &Place, b: &Place) -> bool {
        let (a, b) = (&self.charges[a.charge], &self.charges[b.charge]);
        a.limit.id == b.limit.id && a.key == b.key
    }

    /// Does something to a charge's shard.
    fn with<T>(
        &mut self,
        place: &Place,
        cost: Permits,
        act: impl FnOnce(&mut Shard, &ratekeeper_core::Limit, &Ask<'_>) -> T,
    ) -> T {
        let charge = &self.charges[place.charge];
        let ask = Ask {
            key: charge.key.as_bytes(),
            hash: place.hash,
            now: self.now,
            cost,
            lend: self.lend,
        };
        act(&mut self.shards[place.shard], charge.limit, &ask)
    }
}
