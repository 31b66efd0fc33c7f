//! A request, under the locks of the shards it touches.
//!
//! ```text
//!   one charge --> its own short way
//!   several    --> sort by shard --> lock, ascending --> settle: all or none
//! ```
//!
//! Locks are taken in one order everywhere, so that no two requests wait for each other. The rules
//! are those of [`settle`](crate::settle).

use std::num::NonZeroU64;

use ratekeeper_core::{Call, Charge, Decision, GrantId, Lend, Limit, Mode, Nanos, Permits, Time};
use smallvec::SmallVec;

use super::MemoryStore;
use super::key::hash_of;
use super::shard::Shard;
use super::table::{Ahead, TableAsk};
use crate::act::{ActItem, ChargeCorrection, GrantAnswer};
use crate::lock::LockGuard;
use crate::settle::RequestStates;

/// A request; its shards are locked when a state is first needed.
pub(super) struct MemoryRequest<'a, I> {
    store: &'a MemoryStore,
    items: &'a [I],
    /// How concurrency limits lend.
    lend: Lend,
    now: Time,
    locked: Option<LockedShards<'a>>,
    /// Mark of the charge that was [made alone](RequestStates::decide_alone).
    mark_alone: u64,
}

/// The locked shards of a request.
struct LockedShards<'a> {
    /// One for each item.
    places: SmallVec<[ItemPlace; 4]>,
    shards: SmallVec<[LockGuard<'a, Shard>; 4]>,
}

/// Where the state of an item is.
#[derive(Clone, Copy)]
struct ItemPlace {
    hash: u64,
    /// Index of the shard in the store, then among the locked shards.
    shard: usize,
    /// See [`RequestStates::earlier`].
    earlier: Option<usize>,
}

impl<'a> LockedShards<'a> {
    /// Locks the shards that the items need.
    fn new<'i>(store: &'a MemoryStore, items: &[impl ActItem<'i>]) -> Self {
        let charge_of = |at: usize| items[at].charge();
        let place = |item: &_| {
            let hash = hash_of(&store.hasher, ActItem::charge(*item).key.as_bytes());
            ItemPlace {
                hash,
                shard: store.shard_of(hash),
                earlier: None,
            }
        };
        let mut places: SmallVec<[ItemPlace; 4]> = items.iter().map(place).collect();
        let mut order: SmallVec<[usize; 4]> = (0..items.len()).collect();
        let rank = |at: usize| {
            let (place, charge) = (&places[at], charge_of(at));
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
                let (a, b) = (charge_of(*other), charge_of(at));
                a.limit.id == b.limit.id && a.key == b.key
            };
            places[at].earlier = last.filter(same);
            last = Some(at);
        }
        Self { places, shards }
    }
}

impl<'a, 'i, I: ActItem<'i>> MemoryRequest<'a, I> {
    pub(super) const fn new(store: &'a MemoryStore, items: &'a [I], lend: Lend, now: Time) -> Self {
        Self {
            store,
            items,
            lend,
            now,
            locked: None,
            mark_alone: 0,
        }
    }

    fn locked(&mut self) -> &mut LockedShards<'a> {
        let (store, items) = (self.store, self.items);
        self.locked
            .get_or_insert_with(|| LockedShards::new(store, items))
    }

    fn charge_of(&self, at: usize) -> Charge<'i> {
        self.items[at].charge()
    }

    /// Calls `act` with the shard of an item.
    fn with<T>(
        &mut self,
        at: usize,
        cost: Permits,
        act: impl FnOnce(&mut Shard, &Limit, &TableAsk<'_>) -> T,
    ) -> T {
        let (charge, lend, now) = (self.charge_of(at), self.lend, self.now);
        let receipt = self.items[at].receipt();
        let budget = &self.store.budget;
        let locked = self.locked();
        let place = locked.places[at];
        let ask = TableAsk {
            cost,
            lend,
            receipt,
            ..TableAsk::new(charge.key.as_bytes(), place.hash, now, budget)
        };
        act(&mut locked.shards[place.shard], charge.limit, &ask)
    }
}

impl<'i, I: ActItem<'i>> RequestStates for MemoryRequest<'_, I> {
    fn count(&self) -> usize {
        self.items.len()
    }

    fn now(&self) -> Time {
        self.now
    }

    fn mode(&self, at: usize) -> Mode {
        self.charge_of(at).mode
    }

    fn cost(&self, at: usize) -> Permits {
        self.charge_of(at).cost
    }

    fn earlier(&mut self, at: usize) -> Option<usize> {
        self.locked().places[at].earlier
    }

    fn mark(&self) -> Option<NonZeroU64> {
        let last = self.locked.is_some().then(|| self.store.marks.last());
        NonZeroU64::new(last.unwrap_or(self.mark_alone))
    }

    fn charges_even_if_refused(&self, at: usize) -> bool {
        let limit = self.charge_of(at).limit;
        limit.algorithm.charges_even_if_refused(self.lend)
    }

    fn look(&mut self, at: usize, cost: Permits) -> Decision {
        if self.mode(at) == Mode::Once {
            return self.with(at, cost, Shard::look_at_condition);
        }
        self.with(at, cost, Shard::look)
    }

    fn charge(&mut self, at: usize) -> Decision {
        self.with(at, self.cost(at), Shard::decide)
    }

    fn give_back(&mut self, at: usize) {
        self.with(at, self.cost(at), Shard::refund);
    }

    fn correction(&self, at: usize) -> ChargeCorrection {
        self.items[at].correction()
    }

    fn owe(&mut self, at: usize, cost: Permits) -> Decision {
        let promises = self.charge_of(at).limit.algorithm.supports(Call::Reserve);
        match promises {
            Ok(()) => self.with(at, cost, |shard, limit, ask| {
                shard.reserve(limit, ask, Ahead::Owed)
            }),
            Err(_) => self.with(at, cost, Shard::decide),
        }
    }

    fn ban(&mut self, at: usize, span: Nanos) -> Decision {
        self.with(at, Permits::ZERO, |shard, limit, ask| {
            shard.with_room(limit, ask, |tables| tables.ban(ask, span))
        })
    }

    fn grant(&mut self, at: usize, id: GrantId) -> GrantAnswer {
        self.with(at, self.cost(at), |shard, limit, ask| {
            shard.grant(limit, ask, id)
        })
    }

    fn forget(&mut self, at: usize) -> bool {
        self.with(at, self.cost(at), Shard::reset)
    }

    fn release(&mut self, at: usize) -> Permits {
        let Some(lease) = self.items[at].lease() else {
            return Permits::ZERO;
        };
        self.with(at, Permits::ZERO, |shard, limit, ask| {
            let tables = shard.at_home(limit, ask);
            tables.map_or(Permits::ZERO, |tables| tables.release(ask, lease))
        })
    }

    fn renew(&mut self, at: usize) -> Option<Nanos> {
        let lease = self.items[at].lease()?;
        self.with(at, Permits::ZERO, |shard, limit, ask| {
            shard.at_home(limit, ask)?.renew(ask, lease)
        })
    }

    #[inline]
    fn decide_alone(&mut self) -> Option<Decision> {
        match self.items {
            [item] if self.lend == Lend::Unnamed => {
                let (decision, mark) = self.store.decide_marked(&item.charge(), self.now);
                self.mark_alone = mark;
                Some(decision)
            }
            _ => None,
        }
    }
}
