//! Shard: one lock, and the tables of all limits for its share of the keys.

use std::cell::Cell;
use std::sync::Arc;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Decision, Gcra, GrantId, Limit, LimitId, Nanos, Tat, Time,
};
use smallvec::SmallVec;

use super::LimitUsage;
use super::budget::{MemoryBudget, Purpose};
use super::flat::Flat;
use super::key::KeyHasher;
use super::limit_tables::{AnyTables, KeySize, TABLES_BYTES};
use super::table::{MovedState, TableAsk};
use super::tables_box::TablesBox;
use crate::act::GrantAnswer;
use crate::given_back::{GiveBackNote, Marks, StateChange};
use homes::Home;
use returned::{NotedKey, ReturnedPermits};

/// `retry_after` of a request that finds no room and no key to evict.
const NO_ROOM_RETRY: Nanos = Nanos::SECOND;
/// How long at most a charge is open for which permits that came back are noted: reports may come
/// within a day.
const LONGEST_NOTE: Nanos = Nanos::from_secs(86_400);
/// Maximum number of keys evicted for one new key: one, unless the new key is longer.
const MAX_EVICTED: usize = 16;

mod homes;
mod promise;
mod returned;
#[cfg(test)]
mod tests;

#[derive(Debug)]
#[repr(C)] // a list of one limit is on the cache line of the lock
pub(super) struct Shard {
    /// The tables of each limit, by its id.
    limits: SmallVec<[Option<TablesBox>; 1]>,
    homes: Flat<Home>,
    budget: Arc<MemoryBudget>,
    hasher: KeyHasher,
    new_tables: NewTables,
    returned: ReturnedPermits,
    /// Of all shards.
    marks: Arc<Marks>,
}

/// Makes the tables of a limit, if its algorithm is one that the store has.
pub(super) type NewTables = fn(&Limit, &KeyHasher) -> Option<TablesBox>;

/// Operations of requests.
impl Shard {
    pub(super) fn new(
        budget: Arc<MemoryBudget>,
        bytes: usize,
        marks: Arc<Marks>,
        hasher: KeyHasher,
        new_tables: NewTables,
    ) -> Self {
        Self {
            limits: SmallVec::new(),
            homes: Flat::new(),
            budget,
            hasher,
            new_tables,
            returned: ReturnedPermits::new(bytes),
            marks,
        }
    }

    /// Returns the state of a key and the algorithm of its table, if it is here and found at the
    /// first guess, and its GCRA limit has not changed: the table may believe deeper debts than the
    /// limit, of earlier parameters.
    #[expect(clippy::inline_always, reason = "see `MemoryStore::decide_one`")]
    #[inline(always)]
    pub(super) fn likely<K: KeySize>(
        &mut self,
        limit: &Limit,
        hash: u64,
        probe: &K::Probe<'_>,
    ) -> Option<(&Gcra, &mut Tat)> {
        match self.limits.get_mut(limit.id.index())? {
            Some(TablesBox::Gcra(tables)) if tables.version == limit.version => {
                K::table_of(tables).likely(hash, probe)
            }
            _ => None,
        }
    }

    /// Decides and charges.
    #[inline(never)]
    pub(super) fn decide(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Decision {
        self.follow(limit, ask);
        self.with_room(limit, ask, |tables| tables.decide(ask))
    }

    /// Returns the decision that `decide` would make if there were room.
    pub(super) fn look(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Decision {
        let left = self.left_elsewhere(limit, ask).into_iter();
        let left: Vec<MovedState> = left.map(|(_, left)| left).collect();
        match self.tables_of(limit, ask.now) {
            Some(tables) => tables.look_at(ask, &left),
            None => no_room(),
        }
    }

    /// Returns the decision that `decide` would make if there were room, also where there is none:
    /// a condition that denies for want of room would let the request pass uncounted.
    pub(super) fn look_at_condition(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Decision {
        if self.tables_of(limit, ask.now).is_some() {
            return self.look(limit, ask);
        }
        let empty = (self.new_tables)(limit, &self.hasher);
        empty.map_or_else(no_room, |mut tables| tables.look_at(ask, &[]))
    }

    /// Gives back a charge: nothing of one that other numbers made, or before its key was reset.
    pub(super) fn refund(&mut self, limit: &Limit, ask: &TableAsk<'_>) {
        let mut ask = *ask;
        let key = NotedKey::new(limit, &ask);
        let tables = self.tables(limit.id.index());
        if tables.is_some_and(|tables| tables.changed() > limit.version) {
            return;
        }
        if let Some(receipt) = &mut ask.receipt {
            let notes = self.returned.of(key);
            let is_forgotten = notes.is_some_and(|notes| !notes.complete(receipt));
            if is_forgotten || receipt.paid <= ask.now {
                return;
            }
        }
        let Some(tables) = self.at_home(limit, &ask) else {
            return;
        };
        let Some(before) = tables.standing(&ask) else {
            return;
        };
        tables.give_back(&ask);
        let after = tables.standing(&ask);
        // Time pays for no charge of the others.
        let is_paid_by_time = !matches!(
            limit.algorithm,
            AnyAlgorithm::Balance(_) | AnyAlgorithm::Concurrency(_)
        );
        // Where nothing is owed, the receipts of a key without notes say so by themselves.
        let is_known = after.is_none() && ask.receipt.is_some() && self.returned.of(key).is_none();
        if after != Some(before) && is_paid_by_time && !is_known {
            let left = after.map_or(Nanos::ZERO, |after| after.reset_after);
            let sooner = before.reset_after.saturating_sub(left);
            let change = self.noted_change(&ask, before);
            let note = GiveBackNote {
                change,
                of: ask.receipt,
                permits: ask.cost,
                sooner: limit.algorithm.is_paid_in_order().then_some(sooner),
            };
            self.returned.note(key, ask.now, |noted| noted.note(note));
        }
    }

    /// Returns a change of a state that stood like this before.
    fn noted_change(&self, ask: &TableAsk<'_>, before: Decision) -> StateChange {
        StateChange {
            number: self.marks.next(),
            at: ask.now,
            until: ask.now + before.reset_after.min(LONGEST_NOTE),
        }
    }

    /// Adds the cost to the balance of a key, unless a grant with this id was made before.
    pub(super) fn grant(&mut self, limit: &Limit, ask: &TableAsk<'_>, id: GrantId) -> GrantAnswer {
        let granted = Cell::new(None);
        let decision = self.with_room(limit, ask, |tables| {
            let (result, decision) = tables.grant(ask, id)?;
            granted.set(result);
            Some(decision)
        });
        let granted = granted.get();
        GrantAnswer { granted, decision }
    }

    /// Forgets a key; returns true if it was in debt.
    pub(super) fn reset(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> bool {
        let standing = self.at_home(limit, ask).and_then(|it| it.standing(ask));
        if let Some(standing) = standing {
            let change = self.noted_change(ask, standing);
            let key = NotedKey::new(limit, ask);
            self.returned
                .note(key, ask.now, |noted| noted.note_forgotten(change));
        }
        let elsewhere = self.left_elsewhere(limit, ask).into_iter();
        let ids = elsewhere.map(|(id, _)| id).chain([limit.id]);
        ids.filter(|id| self.forget(*id, ask)).count() > 0
    }

    fn forget(&mut self, id: LimitId, ask: &TableAsk<'_>) -> bool {
        let tables = self.tables(id.index());
        tables.is_some_and(|tables| tables.reset(ask))
    }

    /// Looks at up to `count` slots of each table, forgets expired states, and gives memory back.
    pub(super) fn sweep(&mut self, now: Time, count: usize) {
        let budget = &*self.budget;
        for tables in self.limits.iter_mut().flatten() {
            tables.sweep(now, count, budget);
        }
        self.returned.forget(now);
    }

    /// Adds the usage in this shard to each limit's, by id.
    pub(super) fn add_usage(&mut self, usage: &mut Vec<LimitUsage>) {
        for (index, tables) in self.limits.iter_mut().enumerate() {
            let Some(tables) = tables else { continue };
            while usage.len() <= index {
                let id = u32::try_from(usage.len()).map_or(LimitId::new(u32::MAX), LimitId::new);
                usage.push(LimitUsage {
                    id,
                    ..LimitUsage::default()
                });
            }
            tables.add_usage(&mut usage[index]);
        }
    }
}

/// Making room, and keeping up with newer policies.
impl Shard {
    #[inline]
    pub(super) fn tables(&mut self, id: usize) -> Option<&mut dyn AnyTables> {
        match self.limits.get_mut(id)? {
            Some(tables) => Some(&mut **tables),
            None => None,
        }
    }

    /// Returns the tables of a limit, with parameters at least as new as the limit's; `None` if
    /// there is no room for them.
    #[inline]
    pub(super) fn tables_of(&mut self, limit: &Limit, now: Time) -> Option<&mut dyn AnyTables> {
        let id = self.prepare(limit, now)?;
        self.tables(id)
    }

    /// As [`tables_of`](Self::tables_of), but `None` for a limit that has none yet.
    pub(super) fn known(&mut self, limit: &Limit, now: Time) -> Option<&mut dyn AnyTables> {
        self.tables(limit.id.index())?;
        self.tables_of(limit, now)
    }

    /// Returns the answer of `call`. If it finds no room, makes room and calls it again; then
    /// denies.
    #[inline]
    pub(super) fn with_room(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        call: impl Fn(&mut dyn AnyTables) -> Option<Decision>,
    ) -> Decision {
        match self.tables_of(limit, ask.now).and_then(&call) {
            Some(decision) => decision,
            None => self.when_full(limit, ask, &call),
        }
    }

    /// Makes room for a new key: forgets expired states, has a limit that takes twice as much
    /// give up a third, else keys of another size of this limit, evicts keys of this size, and
    /// then gives up.
    #[cold]
    #[inline(never)]
    fn when_full(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        call: &dyn Fn(&mut dyn AnyTables) -> Option<Decision>,
    ) -> Decision {
        let (id, now) = (limit.id.index(), ask.now);
        let tables = self.tables(id);
        let forgot = tables.is_some_and(|tables| tables.forget_some(ask));
        if forgot && let Some(decision) = self.tables_of(limit, now).and_then(call) {
            return decision;
        }
        let squeezed = self.squeeze_fullest(id, now)
            || self
                .tables(id)
                .is_some_and(|tables| tables.squeeze_for(ask));
        if squeezed && let Some(decision) = self.tables_of(limit, now).and_then(call) {
            return decision;
        }
        for _ in 0..MAX_EVICTED {
            let Some(tables) = self.tables(id) else { break };
            if !tables.evict(ask) {
                break;
            }
            if let Some(decision) = self.tables_of(limit, now).and_then(call) {
                return decision;
            }
            if let Some(tables) = self.tables(id) {
                tables.forget_some(ask);
            }
        }
        no_room()
    }

    /// Has the largest limit give up a third, if it takes more than twice as much as limit `id`.
    fn squeeze_fullest(&mut self, id: usize, now: Time) -> bool {
        let budget = Arc::clone(&self.budget);
        let own = self.tables(id).map_or(0, |tables| tables.bytes());
        let limits = self.limits.iter_mut().flatten();
        let fullest = limits.max_by_key(|tables| tables.bytes());
        fullest.is_some_and(|tables| tables.bytes() / 2 > own && tables.squeeze(now, &budget))
    }

    /// Ensures that the limit has tables, with parameters at least as new as the limit's. Returns
    /// the limit's index; `None` if there is no room for them.
    #[inline]
    fn prepare(&mut self, limit: &Limit, now: Time) -> Option<usize> {
        let id = limit.id.index();
        match self.tables(id) {
            Some(tables) if tables.version() >= limit.version => Some(id),
            Some(_) => {
                self.convert(limit, now);
                Some(id)
            }
            None => self.create(limit, now).then_some(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn create(&mut self, limit: &Limit, now: Time) -> bool {
        let id = limit.id.index();
        if !self.take_tables(id) {
            let squeezed = self.squeeze_fullest(id, now);
            if !squeezed || !self.take_tables(id) {
                return false;
            }
        }
        if self.limits.len() <= id {
            self.limits.reserve_exact(id + 1 - self.limits.len());
            self.limits.resize_with(id + 1, || None);
        }
        self.limits[id] = (self.new_tables)(limit, &self.hasher);
        let is_new = self.limits[id].is_some();
        if !is_new {
            self.budget.give(TABLES_BYTES);
        }
        is_new
    }

    /// Takes the bytes of the tables and of the longer list; the old list lives until the new one
    /// is filled, and is then given back. A list of one limit is in place.
    fn take_tables(&mut self, id: usize) -> bool {
        let bytes = |limits: usize| limits.saturating_mul(size_of::<Option<TablesBox>>());
        let (old, new) = (self.limits.capacity(), id.saturating_add(1));
        let (list, old) = match self.limits.spilled() {
            _ if new <= old => (0, 0),
            true => (bytes(new), bytes(old)),
            false => (bytes(new), 0),
        };
        let taken = self
            .budget
            .take(list.saturating_add(TABLES_BYTES), Purpose::Grow);
        if taken {
            self.budget.give(old);
        }
        taken
    }

    /// Updates a limit to newer parameters, once.
    #[cold]
    #[inline(never)]
    fn convert(&mut self, limit: &Limit, now: Time) {
        let Some(Some(tables)) = self.limits.get_mut(limit.id.index()) else {
            return;
        };
        if !tables.adopt(limit, now, &self.budget)
            && let Some(mut new) = (self.new_tables)(limit, &self.hasher)
        {
            tables.move_to(&mut *new, now, &self.budget);
            *tables = new;
        }
    }
}

/// Returns the denial of a request that finds no room.
pub(super) fn no_room() -> Decision {
    Decision::deny_all(NO_ROOM_RETRY)
}
