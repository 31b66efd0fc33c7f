//! A request of several charges, under the locks of the shards it touches.
//!
//! ```text
//!   sort by shard --> lock, ascending --> settle: all or none
//! ```
//!
//! Locks are taken in one order everywhere, so that no two requests wait for each other. The rules
//! are those of [`settle`](crate::settle).

use parking_lot::MutexGuard;
use ratekeeper_core::{Charge, Decision, Lend, Limit, Mode, Permits, Time};
use smallvec::SmallVec;

use super::MemoryStore;
use super::key::hash_of;
use super::shard::Shard;
use super::table::TableAsk;
use crate::settle::RequestCharges;

/// A request with its shards locked.
pub(super) struct LockedRequest<'a> {
    charges: &'a [Charge<'a>],
    /// How concurrency limits lend.
    lend: Lend,
    now: Time,
    /// One for each charge.
    places: SmallVec<[ChargePlace; 4]>,
    shards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
}

/// Where a charge is made.
#[derive(Clone, Copy)]
struct ChargePlace {
    hash: u64,
    /// Index of the shard in the store, then among the locked shards.
    shard: usize,
    /// See [`RequestCharges::earlier`].
    earlier: Option<usize>,
}

impl<'a> LockedRequest<'a> {
    /// Locks the shards that the charges need.
    pub(super) fn new(
        store: &'a MemoryStore,
        charges: &'a [Charge<'a>],
        lend: Lend,
        now: Time,
    ) -> Self {
        let place = |charge: &Charge<'_>| {
            let hash = hash_of(&store.hasher, charge.key.as_bytes());
            ChargePlace {
                hash,
                shard: store.shard_of(hash),
                earlier: None,
            }
        };
        let mut places: SmallVec<[ChargePlace; 4]> = charges.iter().map(place).collect();
        let mut order: SmallVec<[usize; 4]> = (0..charges.len()).collect();
        let rank = |at: usize| {
            let (place, charge) = (&places[at], &charges[at]);
            let key = charge.key.as_bytes();
            (place.shard, place.hash, charge.limit.id, key, at)
        };
        order.sort_unstable_by_key(|at| rank(*at));
        let mut shards = SmallVec::new();
        let (mut locked, mut last) = (None, None);
        for at in order {
            if locked != Some(places[at].shard) {
                locked = Some(places[at].shard);
                shards.push(store.lock(places[at].shard));
            }
            places[at].shard = shards.len() - 1;
            let same = |other: &usize| {
                let (a, b) = (&charges[*other], &charges[at]);
                a.limit.id == b.limit.id && a.key == b.key
            };
            places[at].earlier = last.filter(same);
            last = Some(at);
        }
        Self {
            charges,
            lend,
            now,
            places,
            shards,
        }
    }

    /// Calls `act` with the shard of a charge.
    fn with<T>(
        &mut self,
        at: usize,
        cost: Permits,
        act: impl FnOnce(&mut Shard, &Limit, &TableAsk<'_>) -> T,
    ) -> T {
        let (charge, place) = (&self.charges[at], self.places[at]);
        let ask = TableAsk {
            key: charge.key.as_bytes(),
            hash: place.hash,
            now: self.now,
            cost,
            lend: self.lend,
        };
        act(&mut self.shards[place.shard], charge.limit, &ask)
    }
}

impl RequestCharges for LockedRequest<'_> {
    fn count(&self) -> usize {
        self.charges.len()
    }

    fn mode(&self, at: usize) -> Mode {
        self.charges[at].mode
    }

    fn cost(&self, at: usize) -> Permits {
        self.charges[at].cost
    }

    fn earlier(&self, at: usize) -> Option<usize> {
        self.places[at].earlier
    }

    fn charges_even_if_refused(&self, at: usize) -> bool {
        let limit = self.charges[at].limit;
        limit.algorithm.charges_even_if_refused(self.lend)
    }

    fn look(&mut self, at: usize, cost: Permits) -> Decision {
        self.with(at, cost, Shard::look)
    }

    fn charge(&mut self, at: usize) -> Decision {
        self.with(at, self.charges[at].cost, Shard::decide)
    }

    fn give_back(&mut self, at: usize) {
        self.with(at, self.charges[at].cost, Shard::refund);
    }
}
