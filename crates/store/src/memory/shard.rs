//! Shard: one lock, and the tables of all limits for its share of the keys.

use std::cell::Cell;
use std::sync::Arc;

use foldhash::quality::RandomState;
use ratekeeper_core::{
    Algorithm as _, AnyState, Decision, GrantId, LeaseId, Limit, LimitId, Nanos, Permits, Tat,
    Time, Verdict,
};

use super::budget::{MemoryBudget, Purpose};
use super::slot::{AnySlot, KeySize, SLOT_BYTES};
use super::slot_box::SlotBox;
use super::table::TableAsk;
use super::{LimitUsage, Loans};
use crate::act::GrantAnswer;

/// `retry_after` of a request that finds no room and no key to push out.
const NO_ROOM_RETRY: Nanos = Nanos::SECOND;
/// Maximum number of keys pushed out for one new key: one, unless the new key is longer.
const MAX_EVICTED: usize = 16;
/// Slots looked at for expired entries before any key is pushed out.
const SWEPT_BEFORE_EVICTION: usize = 32;

mod promise;
mod saved;

#[derive(Debug)]
pub(super) struct Shard {
    /// By limit id.
    slots: Vec<Option<SlotBox>>,
    budget: Arc<MemoryBudget>,
    hasher: RandomState,
}

/// Operations of requests.
impl Shard {
    pub(super) fn new(budget: Arc<MemoryBudget>, hasher: RandomState) -> Self {
        Self {
            slots: Vec::new(),
            budget,
            hasher,
        }
    }

    /// Returns the state of a key, if it is here and found at the first guess, and its GCRA limit
    /// has not changed.
    #[expect(
        clippy::inline_always,
        reason = "for the fast path, see `MemoryStore::decide_one`"
    )]
    #[inline(always)]
    pub(super) fn likely<K: KeySize>(
        &mut self,
        limit: &Limit,
        hash: u64,
        probe: &K::Probe<'_>,
    ) -> Option<&mut Tat> {
        match self.slots.get_mut(limit.id.index())? {
            Some(SlotBox::Gcra(slot)) if slot.version == limit.version => {
                K::table_of(slot).likely(hash, probe)
            }
            _ => None,
        }
    }

    /// Decides and charges.
    #[inline(never)]
    pub(super) fn decide(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Decision {
        match self.try_decide(limit, ask) {
            Some(decision) => decision,
            None => self.when_full(limit, ask, &|shard| shard.try_decide(limit, ask)),
        }
    }

    /// Returns `None` if there is no room.
    fn try_decide(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Option<Decision> {
        let id = self.prepare(limit, ask.now)?;
        let slot = self.slots.get_mut(id)?.as_deref_mut()?;
        slot.decide(ask, &self.budget)
    }

    /// Returns the decision that `decide` would make if there were room.
    pub(super) fn look(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Decision {
        match self.prepare(limit, ask.now).and_then(|id| self.slot(id)) {
            Some(slot) => slot.look(ask),
            None => no_room(),
        }
    }

    /// Returns the decision that `decide` would make if there were room, also where there is none:
    /// a condition that denies for want of room would let the request pass uncounted.
    pub(super) fn look_at_condition(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Decision {
        match self.prepare(limit, ask.now).and_then(|id| self.slot(id)) {
            Some(slot) => slot.look(ask),
            None => limit.algorithm.look(&AnyState::Fresh, ask.now, ask.cost),
        }
    }

    /// Gives back a charge.
    pub(super) fn refund(&mut self, limit: &Limit, ask: &TableAsk<'_>) {
        if let Some(slot) = self.prepare(limit, ask.now).and_then(|id| self.slot(id)) {
            slot.give_back(ask);
        }
    }

    /// Takes back all permits that a name holds; returns their number.
    pub(super) fn release(&mut self, limit: &Limit, ask: &TableAsk<'_>, id: LeaseId) -> Permits {
        let slot = self.known(limit, ask.now);
        slot.map_or(Permits::ZERO, |slot| slot.release(ask, id))
    }

    /// Restarts the lease of a name; returns its length, `None` if it has ended.
    pub(super) fn renew(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        id: LeaseId,
    ) -> Option<Nanos> {
        self.known(limit, ask.now)?.renew(ask, id)
    }

    /// Adds the permits that a limit has on loan here.
    pub(super) fn add_loans(&mut self, limit: &Limit, now: Time, loans: &mut Loans) {
        if let Some((in_use, lapsed)) = self.known(limit, now).and_then(|slot| slot.loans(now)) {
            loans.in_use += in_use;
            loans.lapsed += lapsed;
        }
    }

    /// Bans a key for `span`, or lifts its ban if that is zero; returns the decision afterwards.
    pub(super) fn ban(&mut self, limit: &Limit, ask: &TableAsk<'_>, span: Nanos) -> Decision {
        let ban = |shard: &mut Self| {
            let id = shard.prepare(limit, ask.now)?;
            let slot = shard.slots.get_mut(id)?.as_deref_mut()?;
            slot.ban(ask, span, &shard.budget)
        };
        match ban(self) {
            Some(decision) => decision,
            None => self.when_full(limit, ask, &ban),
        }
    }

    /// Adds the cost to the balance of a key, unless a grant with this id was made before.
    pub(super) fn grant(&mut self, limit: &Limit, ask: &TableAsk<'_>, id: GrantId) -> GrantAnswer {
        let granted = Cell::new(None);
        let grant = |shard: &mut Self| {
            let at = shard.prepare(limit, ask.now)?;
            let slot = shard.slots.get_mut(at)?.as_deref_mut()?;
            let (result, decision) = slot.grant(ask, id, &shard.budget)?;
            granted.set(result);
            Some(decision)
        };
        let decision = match grant(self) {
            Some(decision) => decision,
            None => self.when_full(limit, ask, &grant),
        };
        let granted = granted.get();
        GrantAnswer { granted, decision }
    }

    /// Forgets a key; returns true if it was in debt.
    pub(super) fn reset(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> bool {
        let budget = Arc::clone(&self.budget);
        let Some(slot) = self.slot(limit.id.index()) else {
            return false;
        };
        slot.reset(ask, &budget)
    }

    /// Returns the state of a key that is here and in debt.
    pub(super) fn standing(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Option<Decision> {
        self.known(limit, ask.now)?.standing(ask)
    }

    /// Shows all keys of a limit that are in debt.
    pub(super) fn each_live(
        &mut self,
        limit: &Limit,
        now: Time,
        mut show: impl FnMut(&[u8], Decision),
    ) {
        if let Some(slot) = self.known(limit, now) {
            slot.show_live(now, &mut show);
        }
    }

    /// Looks at up to `count` slots of each table, forgets expired states, and gives memory back.
    pub(super) fn sweep(&mut self, now: Time, count: usize) {
        let budget = &*self.budget;
        for slot in self.slots.iter_mut().flatten() {
            slot.sweep(now, count, budget);
        }
    }

    /// Adds the usage in this shard to that of each limit, by id.
    pub(super) fn add_usage(&self, limits: &mut Vec<LimitUsage>) {
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            while limits.len() <= index {
                let id = u32::try_from(limits.len()).map_or(LimitId::new(u32::MAX), LimitId::new);
                limits.push(LimitUsage {
                    id,
                    ..LimitUsage::default()
                });
            }
            slot.add_usage(&mut limits[index]);
        }
    }
}

/// Making room, and keeping up with newer policies.
impl Shard {
    #[inline]
    fn slot(&mut self, id: usize) -> Option<&mut dyn AnySlot> {
        match self.slots.get_mut(id)? {
            Some(slot) => Some(&mut **slot),
            None => None,
        }
    }

    /// Returns the slot of a limit that has one, with parameters at least as new as the limit's.
    fn known(&mut self, limit: &Limit, now: Time) -> Option<&mut dyn AnySlot> {
        self.slot(limit.id.index())?;
        let id = self.prepare(limit, now)?;
        self.slot(id)
    }

    /// Makes room for a new key: forgets expired states, has a limit that takes twice as much
    /// give up a third, else keys of another size of this limit, pushes out keys of this size,
    /// and then gives up.
    #[cold]
    #[inline(never)]
    fn when_full(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
        decide: &dyn Fn(&mut Self) -> Option<Decision>,
    ) -> Decision {
        let (id, now) = (limit.id.index(), ask.now);
        let budget = Arc::clone(&self.budget);
        if let Some(slot) = self.slot(id) {
            slot.sweep_for(ask, SWEPT_BEFORE_EVICTION, &budget);
        }
        if let Some(decision) = decide(self) {
            return decision;
        }
        let squeezed = self.squeeze_fullest(id, now)
            || self
                .slot(id)
                .is_some_and(|slot| slot.squeeze_for(ask, &budget));
        if squeezed && let Some(decision) = decide(self) {
            return decision;
        }
        for _ in 0..MAX_EVICTED {
            let Some(slot) = self.slot(id) else { break };
            if !slot.evict_for(ask, &budget) {
                break;
            }
            if let Some(decision) = decide(self) {
                return decision;
            }
        }
        no_room()
    }

    /// Has the largest limit give up a third, if it takes more than twice as much as limit `id`.
    fn squeeze_fullest(&mut self, id: usize, now: Time) -> bool {
        let budget = Arc::clone(&self.budget);
        let own = self.slot(id).map_or(0, |slot| slot.bytes());
        let slots = self.slots.iter_mut().flatten();
        let fullest = slots.max_by_key(|slot| slot.bytes());
        fullest.is_some_and(|slot| slot.bytes() / 2 > own && slot.squeeze(now, &budget))
    }

    /// Ensures that the limit has a slot, with parameters at least as new as the limit's. Returns
    /// the limit's index; `None` if there is no room for a slot.
    #[inline]
    fn prepare(&mut self, limit: &Limit, now: Time) -> Option<usize> {
        let id = limit.id.index();
        match self.slot(id) {
            Some(slot) if slot.version() >= limit.version => Some(id),
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
        if !self.take_slot(id) {
            let squeezed = self.squeeze_fullest(id, now);
            if !squeezed || !self.take_slot(id) {
                return false;
            }
        }
        if self.slots.len() <= id {
            self.slots.reserve_exact(id + 1 - self.slots.len());
            self.slots.resize_with(id + 1, || None);
        }
        self.slots[id] = Some(SlotBox::new(limit, &self.hasher));
        true
    }

    /// Takes the bytes of a slot and of the longer list; the old list lives until the new one is
    /// filled, and is then given back.
    fn take_slot(&mut self, id: usize) -> bool {
        const POINTER: usize = size_of::<Option<SlotBox>>();
        let old = self.slots.capacity().saturating_mul(POINTER);
        let new = id.saturating_add(1).saturating_mul(POINTER);
        let (list, old) = if new > old { (new, old) } else { (0, 0) };
        let taken = self
            .budget
            .take(list.saturating_add(SLOT_BYTES), Purpose::Grow);
        if taken {
            self.budget.give(old);
        }
        taken
    }

    /// Updates a limit to newer parameters, once.
    #[cold]
    #[inline(never)]
    fn convert(&mut self, limit: &Limit, now: Time) {
        let Some(slot) = self.slots.get_mut(limit.id.index()) else {
            return;
        };
        if let Some(old) = slot
            && !old.adopt(limit, now, &self.budget)
        {
            let mut new = SlotBox::new(limit, &self.hasher);
            old.move_to(&mut *new, now, &self.budget);
            *slot = Some(new);
        }
    }
}

/// Returns the denial of a request that finds no room.
pub(super) fn no_room() -> Decision {
    Decision {
        verdict: Verdict::Deny {
            retry_after: NO_ROOM_RETRY,
        },
        remaining: Permits::ZERO,
        reset_after: NO_ROOM_RETRY,
        more_after: NO_ROOM_RETRY,
    }
}
