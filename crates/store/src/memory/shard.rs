//! Shard: one lock, the tables of all limits for its share of the keys, a share of the budget.

use foldhash::quality::RandomState;
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Decision, Exponential, Gcra, Hybrid, Interval, Limit, LimitId, Log,
    Nanos, Permits, SubBuckets, Time, Verdict, WarmUp, Window,
};

use super::table::{Ask, Outcome, Table};
use super::{EvictionCounts, LimitUsage};

/// What a request is told that finds no room and nobody to push out.
pub(super) const NO_ROOM_RETRY: Nanos = Nanos::SECOND;
/// Entries pushed out for one new key at most: enough to free two chunks of another limit.
const MOST_EVICTED: usize = 2 * super::slab::CHUNK;
/// Entries looked at for expired ones before any is pushed out.
const SWEPT_BEFORE_EVICTION: usize = 32;
/// Bytes of a slot beside its table's.
const SLOT_BYTES: usize = size_of::<Slot>();
/// Bytes of an entry in the list of slots.
const SLOT_POINTER: usize = size_of::<Option<Box<Slot>>>();

/// A table of whichever algorithm.
#[derive(Debug)]
pub(super) enum AnyTable {
    Gcra(Table<Gcra>),
    Window(Table<Window>),
    SubBuckets(Table<SubBuckets>),
    Interval(Table<Interval>),
    Log(Table<Log>),
    Hybrid(Table<Hybrid>),
    Exponential(Table<Exponential>),
    WarmUp(Table<WarmUp>),
}

/// Runs `$body` with `$table` bound to whichever table it is.
macro_rules! with_table {
    ($any:expr, $table:ident => $body:expr) => {
        match $any {
            AnyTable::Gcra($table) => $body,
            AnyTable::Window($table) => $body,
            AnyTable::SubBuckets($table) => $body,
            AnyTable::Interval($table) => $body,
            AnyTable::Log($table) => $body,
            AnyTable::Hybrid($table) => $body,
            AnyTable::Exponential($table) => $body,
            AnyTable::WarmUp($table) => $body,
        }
    };
}

impl AnyTable {
    fn new(algorithm: &AnyAlgorithm, hasher: &RandomState) -> Self {
        let hasher = hasher.clone();
        match algorithm {
            AnyAlgorithm::Gcra(algorithm) => Self::Gcra(Table::new(*algorithm, hasher)),
            AnyAlgorithm::Window(algorithm) => Self::Window(Table::new(algorithm.clone(), hasher)),
            AnyAlgorithm::SubBuckets(algorithm) => {
                Self::SubBuckets(Table::new(algorithm.clone(), hasher))
            }
            AnyAlgorithm::Interval(algorithm) => Self::Interval(Table::new(*algorithm, hasher)),
            AnyAlgorithm::Log(algorithm) => Self::Log(Table::new(*algorithm, hasher)),
            AnyAlgorithm::Hybrid(algorithm) => Self::Hybrid(Table::new(*algorithm, hasher)),
            AnyAlgorithm::Exponential(algorithm) => {
                Self::Exponential(Table::new(*algorithm, hasher))
            }
            AnyAlgorithm::WarmUp(algorithm) => Self::WarmUp(Table::new(*algorithm, hasher)),
        }
    }

    fn bytes(&self) -> usize {
        with_table!(self, table => table.bytes())
    }

    fn len(&self) -> usize {
        with_table!(self, table => table.len())
    }

    fn evicted(&self) -> EvictionCounts {
        with_table!(self, table => table.evicted)
    }

    /// Gives back, if the algorithm can take back a charge.
    fn refund(&mut self, ask: &Ask<'_>) {
        match self {
            Self::Gcra(table) => table.refund(ask),
            Self::Window(table) => table.refund(ask),
            Self::SubBuckets(table) => table.refund(ask),
            Self::Interval(table) => table.refund(ask),
            Self::Log(table) => table.refund(ask),
            Self::Exponential(table) => table.refund(ask),
            Self::Hybrid(_) | Self::WarmUp(_) => {}
        }
    }

    /// Takes the new numbers, if the states mean the same under them.
    fn adopt(&mut self, algorithm: &AnyAlgorithm) -> bool {
        fn adopt<A: Algorithm + Clone>(table: &mut Table<A>, new: &A) -> bool {
            let keeps = new.keeps_state_of(&table.algorithm);
            if keeps {
                table.algorithm = new.clone();
            }
            keeps
        }
        match (self, algorithm) {
            (Self::Gcra(table), AnyAlgorithm::Gcra(new)) => adopt(table, new),
            (Self::Window(table), AnyAlgorithm::Window(new)) => adopt(table, new),
            (Self::SubBuckets(table), AnyAlgorithm::SubBuckets(new)) => adopt(table, new),
            (Self::Interval(table), AnyAlgorithm::Interval(new)) => adopt(table, new),
            (Self::Log(table), AnyAlgorithm::Log(new)) => adopt(table, new),
            (Self::Hybrid(table), AnyAlgorithm::Hybrid(new)) => adopt(table, new),
            (Self::Exponential(table), AnyAlgorithm::Exponential(new)) => adopt(table, new),
            (Self::WarmUp(table), AnyAlgorithm::WarmUp(new)) => adopt(table, new),
            _ => false,
        }
    }
}

/// The table of a limit.
#[derive(Debug)]
struct Slot {
    /// Of the numbers that the table runs with.
    version: u32,
    /// Bytes as counted in [`Shard::used`].
    bytes: usize,
    table: AnyTable,
}

#[derive(Debug)]
pub(super) struct Shard {
    /// By limit id.
    slots: Vec<Option<Box<Slot>>>,
    /// Bytes in use.
    used: usize,
    budget: usize,
    hasher: RandomState,
}

impl Shard {
    pub(super) fn new(budget: usize, hasher: RandomState) -> Self {
        Self {
            slots: Vec::new(),
            used: 0,
            budget,
            hasher,
        }
    }

    /// Decides and charges.
    #[inline]
    pub(super) fn decide(&mut self, limit: &Limit, ask: &Ask<'_>) -> Decision {
        let id = limit.id.index();
        if !self.prepare(limit, ask.now) {
            return no_room();
        }
        let room = self.room();
        let outcome = match self.slot(id) {
            Some(slot) => with_table!(&mut slot.table, table => table.decide(ask, room)),
            None => Outcome::NoRoom,
        };
        match outcome {
            Outcome::Decided(decision) => decision,
            Outcome::Resized(decision) => {
                self.account(id);
                decision
            }
            Outcome::NoRoom => self.decide_when_full(id, ask),
        }
    }

    /// What `decide` would say, were there room.
    pub(super) fn look(&mut self, limit: &Limit, ask: &Ask<'_>) -> Decision {
        if !self.prepare(limit, ask.now) {
            return no_room();
        }
        match self.slot(limit.id.index()) {
            Some(slot) => with_table!(&mut slot.table, table => table.look(ask)),
            None => no_room(),
        }
    }

    /// Gives back.
    pub(super) fn refund(&mut self, limit: &Limit, ask: &Ask<'_>) {
        if self.prepare(limit, ask.now)
            && let Some(slot) = self.slot(limit.id.index())
        {
            slot.table.refund(ask);
        }
    }

    /// Forgets a key; says whether it was in debt.
    pub(super) fn reset(&mut self, limit: &Limit, ask: &Ask<'_>) -> bool {
        let id = limit.id.index();
        let Some(slot) = self.slot(id) else {
            return false;
        };
        let was = with_table!(&mut slot.table, table => table.reset(ask));
        self.account(id);
        was
    }

    /// The state of a key that is here and in debt.
    pub(super) fn standing(&mut self, limit: &Limit, ask: &Ask<'_>) -> Option<Decision> {
        self.slot(limit.id.index())?;
        self.prepare(limit, ask.now);
        let slot = self.slot(limit.id.index())?;
        with_table!(&slot.table, table => table.standing(ask.key, ask.hash, ask.now))
    }

    /// Shows all keys of a limit that are in debt.
    pub(super) fn each_live(
        &mut self,
        limit: &Limit,
        now: Time,
        mut show: impl FnMut(&[u8], Decision),
    ) {
        if self.slot(limit.id.index()).is_none() {
            return;
        }
        self.prepare(limit, now);
        if let Some(slot) = self.slot(limit.id.index()) {
            with_table!(&slot.table, table => {
                table.live(now).for_each(|(key, decision)| show(key, decision));
            });
        }
    }

    /// Looks at up to `count` entries of each limit, forgets those that have expired, and
    /// gives memory back.
    pub(super) fn sweep(&mut self, now: Time, count: usize) {
        for id in 0..self.slots.len() {
            let room = self.room();
            if let Some(slot) = self.slot(id) {
                with_table!(&mut slot.table, table => {
                    table.sweep(now, count);
                    table.shrink(room);
                });
                self.account(id);
            }
        }
    }

    /// Adds what this shard holds to the usage of each limit, by id.
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
            let (usage, evicted) = (&mut limits[index], slot.table.evicted());
            usage.keys += slot.table.len();
            usage.bytes += slot.bytes;
            usage.evicted.idle += evicted.idle;
            usage.evicted.budget += evicted.budget;
        }
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    fn room(&self) -> usize {
        self.budget.saturating_sub(self.used)
    }

    #[inline]
    fn slot(&mut self, id: usize) -> Option<&mut Slot> {
        self.slots.get_mut(id)?.as_deref_mut()
    }

    /// `None` if the key is new and there is no room for it.
    fn try_decide(&mut self, id: usize, ask: &Ask<'_>) -> Option<Decision> {
        let room = self.room();
        let slot = self.slot(id)?;
        match with_table!(&mut slot.table, table => table.decide(ask, room)) {
            Outcome::Decided(decision) => Some(decision),
            Outcome::Resized(decision) => {
                self.account(id);
                Some(decision)
            }
            Outcome::NoRoom => None,
        }
    }

    /// Makes room for a new key: forgets what has expired, pushes out keys of the limit that
    /// takes the most, then of this limit, and then gives up.
    #[cold]
    fn decide_when_full(&mut self, id: usize, ask: &Ask<'_>) -> Decision {
        self.sweep_one(id, ask.now);
        for victim in [self.fullest(), id] {
            for _ in 0..MOST_EVICTED {
                if let Some(decision) = self.try_decide(id, ask) {
                    return decision;
                }
                if !self.evict(victim, ask.now) {
                    break;
                }
            }
        }
        no_room()
    }

    fn sweep_one(&mut self, id: usize, now: Time) {
        if let Some(slot) = self.slot(id) {
            with_table!(&mut slot.table, table => table.sweep(now, SWEPT_BEFORE_EVICTION));
            self.account(id);
        }
    }

    /// The limit that takes the most bytes.
    fn fullest(&self) -> usize {
        let bytes = |slot: &Option<Box<Slot>>| slot.as_ref().map_or(0, |slot| slot.bytes);
        let by_bytes = self.slots.iter().map(bytes).enumerate();
        by_bytes
            .max_by_key(|&(_, bytes)| bytes)
            .map_or(0, |(id, _)| id)
    }

    /// Pushes out one key of a limit; false if it has none.
    fn evict(&mut self, id: usize, now: Time) -> bool {
        let Some(slot) = self.slot(id) else {
            return false;
        };
        let evicted = with_table!(&mut slot.table, table => table.evict(now));
        self.account(id);
        evicted
    }

    /// Counts the bytes of a table anew.
    fn account(&mut self, id: usize) {
        if let Some(slot) = self.slot(id) {
            let before = std::mem::replace(&mut slot.bytes, slot.table.bytes() + SLOT_BYTES);
            let after = slot.bytes;
            self.used = self.used - before + after;
        }
    }

    /// Sees to it that the limit has a table, and that the table runs with numbers at least
    /// as new as the limit's. False if there is no room for a table.
    #[inline]
    fn prepare(&mut self, limit: &Limit, now: Time) -> bool {
        match self.slot(limit.id.index()) {
            Some(slot) if slot.version >= limit.version => true,
            Some(_) => {
                self.convert(limit, now);
                true
            }
            None => self.create(limit, now),
        }
    }

    #[cold]
    fn create(&mut self, limit: &Limit, now: Time) -> bool {
        let id = limit.id.index();
        let slots = id.saturating_add(1).saturating_sub(self.slots.len());
        let list = if slots > self.slots.capacity() - self.slots.len() {
            // The old list lives until the new one is filled.
            id.saturating_add(1).saturating_mul(SLOT_POINTER)
        } else {
            0
        };
        let table = AnyTable::new(&limit.algorithm, &self.hasher);
        let needed = list.saturating_add(table.bytes() + SLOT_BYTES);
        for _ in 0..MOST_EVICTED {
            if needed <= self.room() || !self.evict(self.fullest(), now) {
                break;
            }
        }
        if needed > self.room() {
            return false;
        }
        let before = self.slots.capacity();
        self.slots.reserve_exact(slots);
        self.used += (self.slots.capacity() - before) * SLOT_POINTER;
        if self.slots.len() <= id {
            self.slots.resize_with(id + 1, || None);
        }
        self.slots[id] = Some(Box::new(Slot {
            version: limit.version,
            bytes: 0,
            table,
        }));
        self.account(id);
        true
    }

    /// Brings a table to newer numbers, once.
    #[cold]
    fn convert(&mut self, limit: &Limit, now: Time) {
        let id = limit.id.index();
        let (budget, used) = (self.budget, self.used);
        let hasher = self.hasher.clone();
        let Some(slot) = self.slot(id) else { return };
        slot.version = limit.version;
        if !slot.table.adopt(&limit.algorithm) {
            let others = used - slot.bytes;
            let new = AnyTable::new(&limit.algorithm, &hasher);
            let mut old = std::mem::replace(&mut slot.table, new);
            carry_over(&mut old, &mut slot.table, now, |bytes| {
                budget.saturating_sub(others + bytes)
            });
        }
        self.account(id);
    }
}

/// Charges what was used under the old algorithm to fresh states of the new one. A key for
/// which `room` (given the bytes of both tables) has none left is pushed out.
fn carry_over(old: &mut AnyTable, new: &mut AnyTable, now: Time, room: impl Fn(usize) -> usize) {
    let (floor, evicted, forgotten) = with_table!(old, table => {
        (table.floor_used(now), table.evicted, table.forgotten())
    });
    with_table!(new, table => {
        table.inherit_history(evicted, forgotten);
        table.raise_floor(floor, now);
    });
    while let Some((key, used)) = with_table!(old, table => table.pop_used(now)) {
        let room = room(old.bytes() + new.bytes() + SLOT_BYTES);
        with_table!(new, table => table.carry(key, used, now, room));
    }
}

/// What a request is told that finds no room.
pub(super) fn no_room() -> Decision {
    Decision {
        verdict: Verdict::Deny {
            retry_after: NO_ROOM_RETRY,
        },
        remaining: Permits::ZERO,
        reset_after: NO_ROOM_RETRY,
    }
}
