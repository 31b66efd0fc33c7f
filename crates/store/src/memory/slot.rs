//! Slot: the tables of one limit in one shard, one for each size of key.
//!
//! ```text
//!   key of 8 bytes at most  --> word table        longer --> short table, long table
//! ```

use foldhash::quality::RandomState;
use ratekeeper_core::{Decision, GrantId, Granted, LeaseId, Limit, Listed, Nanos, Permits, Time};

use super::LimitUsage;
use super::budget::MemoryBudget;
use super::flat::HashSpan;
use super::key::{LongKey, ShortKey, SizeClass, StoredKey, WordKey};
use super::saved::{SavedState, SectionWriter};
use super::table::{History, Made, Table, TableAsk};

/// Bytes that a slot counts for, the same for every algorithm, so that a limit that changes its
/// algorithm needs no other amount.
pub(super) const SLOT_BYTES: usize = 608;

/// The tables of a limit.
pub(super) struct Slot<A: Listed> {
    /// Version of the limit that the tables run with.
    pub(super) version: u32,
    word: Table<A, WordKey>,
    short: Table<A, ShortKey>,
    long: Table<A, LongKey>,
}

/// A size of key.
pub(super) trait KeySize: StoredKey {
    /// The table of a slot for such keys.
    fn table_of<A: Listed>(slot: &mut Slot<A>) -> &mut Table<A, Self>;
}

impl KeySize for WordKey {
    #[inline]
    fn table_of<A: Listed>(slot: &mut Slot<A>) -> &mut Table<A, Self> {
        &mut slot.word
    }
}

impl KeySize for ShortKey {
    #[inline]
    fn table_of<A: Listed>(slot: &mut Slot<A>) -> &mut Table<A, Self> {
        &mut slot.short
    }
}

impl KeySize for LongKey {
    #[inline]
    fn table_of<A: Listed>(slot: &mut Slot<A>) -> &mut Table<A, Self> {
        &mut slot.long
    }
}

/// A key of any size, on its way from one table to another.
pub(super) enum AnyKey {
    Word(WordKey),
    Short(ShortKey),
    Long(LongKey),
}

/// A slot of any algorithm: the calls of its tables, for keys like that of `ask`.
pub(super) trait AnySlot: Send {
    fn version(&self) -> u32;
    /// See [`Table::decide`].
    fn decide(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> Option<Decision>;
    /// See [`Table::look`].
    fn look(&mut self, ask: &TableAsk<'_>) -> Decision;
    /// See [`Table::give_back`].
    fn give_back(&mut self, ask: &TableAsk<'_>);
    /// See [`Table::reserve`].
    fn reserve(
        &mut self,
        ask: &TableAsk<'_>,
        max_wait: Nanos,
        budget: &MemoryBudget,
    ) -> Option<Decision>;
    /// See [`Table::ban`].
    fn ban(&mut self, ask: &TableAsk<'_>, span: Nanos, budget: &MemoryBudget) -> Option<Decision>;
    /// See [`Table::grant`].
    fn grant(
        &mut self,
        ask: &TableAsk<'_>,
        id: GrantId,
        budget: &MemoryBudget,
    ) -> Option<(Option<Granted>, Decision)>;
    /// See [`Table::cancel`].
    fn cancel(&mut self, ask: &TableAsk<'_>, made: &Made) -> bool;
    /// See [`Table::at_least`].
    fn at_least(&mut self, ask: &TableAsk<'_>) -> Nanos;
    /// See [`Table::release`].
    fn release(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Permits;
    /// See [`Table::renew`].
    fn renew(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Option<Nanos>;
    /// See [`Table::reset`].
    fn reset(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> bool;
    /// See [`Table::standing`].
    fn standing(&self, ask: &TableAsk<'_>) -> Option<Decision>;
    /// See [`Table::sweep`].
    fn sweep_for(&mut self, ask: &TableAsk<'_>, count: usize, budget: &MemoryBudget);
    /// See [`Table::evict`].
    fn evict_for(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> bool;
    /// Gives up a third of the largest table, if it takes more than twice as much as that for
    /// keys like that of `ask`; keys of one limit do not displace each other's loans.
    fn squeeze_for(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> bool;

    /// Returns permits on loan, and those that lapsed; `None` if the limit lends nothing.
    fn loans(&self, now: Time) -> Option<(u64, u64)>;
    /// Shows all keys in debt.
    fn show_live(&self, now: Time, show: &mut dyn FnMut(&[u8], Decision));
    /// Looks at up to `count` slots of each table, forgets expired keys, and gives memory back.
    fn sweep(&mut self, now: Time, count: usize, budget: &MemoryBudget);
    /// Gives up a third of the largest table.
    fn squeeze(&mut self, now: Time, budget: &MemoryBudget) -> bool;
    /// Bytes of the tables and of the slot itself.
    fn bytes(&self) -> usize;
    /// Adds its keys and evictions to those of the limit.
    fn add_usage(&self, usage: &mut LimitUsage);

    /// Takes the parameters of a newer version, if the states mean the same under them.
    fn adopt(&mut self, limit: &Limit, now: Time, budget: &MemoryBudget) -> bool;
    /// Moves the usage of all keys to a slot of another algorithm.
    fn move_to(&mut self, new: &mut dyn AnySlot, now: Time, budget: &MemoryBudget);
    /// See [`Table::inherit`].
    fn inherit(&mut self, size: SizeClass, history: History, now: Time, budget: &MemoryBudget);
    /// See [`Table::carry`].
    fn carry(&mut self, key: AnyKey, used: Permits, now: Time, budget: &MemoryBudget);

    /// Number of slots of its tables.
    fn slots(&self) -> usize;
    /// See [`Table::save`].
    fn save(&self, span: &HashSpan, now: Time, to: &mut SectionWriter<'_>);
    /// See [`Table::restore`].
    fn restore(
        &mut self,
        ask: &TableAsk<'_>,
        saved: &SavedState<'_>,
        budget: &MemoryBudget,
    ) -> Option<Decision>;
    /// See [`Table::restore_floor`].
    fn restore_floor(&mut self, size: SizeClass, saved: &SavedState<'_>, now: Time);
}

impl<A: Listed> Slot<A> {
    pub(super) fn new(algorithm: &A, version: u32, hasher: &RandomState) -> Self {
        const { assert!(size_of::<Self>() <= SLOT_BYTES, "a slot counts for as much") };
        Self {
            version,
            word: Table::new(algorithm.clone(), hasher.clone()),
            short: Table::new(algorithm.clone(), hasher.clone()),
            long: Table::new(algorithm.clone(), hasher.clone()),
        }
    }

    fn largest(&self) -> usize {
        let (word, short) = (self.word.bytes(), self.short.bytes());
        word.max(short).max(self.long.bytes())
    }
}

/// Runs `$body` with `$table` bound to the table of a slot for keys like that of `$ask`.
macro_rules! with_table {
    ($slot:expr, $ask:expr, $table:ident => $body:expr) => {
        match SizeClass::of($ask.key) {
            SizeClass::Word => {
                let $table = &mut $slot.word;
                $body
            }
            SizeClass::Short => {
                let $table = &mut $slot.short;
                $body
            }
            SizeClass::Long => {
                let $table = &mut $slot.long;
                $body
            }
        }
    };
}

/// Runs `$body` with `$table` bound to each table of a slot in turn.
macro_rules! for_each_table {
    (&mut $slot:ident, $table:ident => $body:expr) => {{
        let $table = &mut $slot.word;
        $body;
        let $table = &mut $slot.short;
        $body;
        let $table = &mut $slot.long;
        $body;
    }};
    (& $slot:ident, $table:ident => $body:expr) => {{
        let $table = &$slot.word;
        $body;
        let $table = &$slot.short;
        $body;
        let $table = &$slot.long;
        $body;
    }};
}

impl<A: Listed> AnySlot for Slot<A> {
    fn version(&self) -> u32 {
        self.version
    }

    fn decide(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> Option<Decision> {
        with_table!(self, ask, table => table.decide(ask, budget))
    }

    fn look(&mut self, ask: &TableAsk<'_>) -> Decision {
        with_table!(self, ask, table => table.look(ask))
    }

    fn give_back(&mut self, ask: &TableAsk<'_>) {
        with_table!(self, ask, table => table.give_back(ask));
    }

    fn reserve(
        &mut self,
        ask: &TableAsk<'_>,
        max_wait: Nanos,
        budget: &MemoryBudget,
    ) -> Option<Decision> {
        with_table!(self, ask, table => table.reserve(ask, max_wait, budget))
    }

    fn ban(&mut self, ask: &TableAsk<'_>, span: Nanos, budget: &MemoryBudget) -> Option<Decision> {
        with_table!(self, ask, table => table.ban(ask, span, budget))
    }

    fn grant(
        &mut self,
        ask: &TableAsk<'_>,
        id: GrantId,
        budget: &MemoryBudget,
    ) -> Option<(Option<Granted>, Decision)> {
        with_table!(self, ask, table => table.grant(ask, id, budget))
    }

    fn cancel(&mut self, ask: &TableAsk<'_>, made: &Made) -> bool {
        with_table!(self, ask, table => table.cancel(ask, made))
    }

    fn at_least(&mut self, ask: &TableAsk<'_>) -> Nanos {
        with_table!(self, ask, table => table.at_least(ask))
    }

    fn release(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Permits {
        with_table!(self, ask, table => table.release(ask, id))
    }

    fn renew(&mut self, ask: &TableAsk<'_>, id: LeaseId) -> Option<Nanos> {
        with_table!(self, ask, table => table.renew(ask, id))
    }

    fn reset(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> bool {
        with_table!(self, ask, table => table.reset(ask, budget))
    }

    fn standing(&self, ask: &TableAsk<'_>) -> Option<Decision> {
        match SizeClass::of(ask.key) {
            SizeClass::Word => self.word.standing(ask),
            SizeClass::Short => self.short.standing(ask),
            SizeClass::Long => self.long.standing(ask),
        }
    }

    fn sweep_for(&mut self, ask: &TableAsk<'_>, count: usize, budget: &MemoryBudget) {
        with_table!(self, ask, table => table.sweep(ask.now, count, budget));
    }

    fn evict_for(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> bool {
        with_table!(self, ask, table => table.evict(ask.now, budget))
    }

    fn squeeze_for(&mut self, ask: &TableAsk<'_>, budget: &MemoryBudget) -> bool {
        let own = with_table!(self, ask, table => table.bytes());
        !A::KEEPS && self.largest() / 2 > own && self.squeeze(ask.now, budget)
    }

    fn loans(&self, now: Time) -> Option<(u64, u64)> {
        let (mut on_loan, mut lapsed) = (0, 0);
        for_each_table!(&self, table => {
            on_loan += table.on_loan(now);
            lapsed += table.lapsed;
        });
        A::LENDS.then_some((on_loan, lapsed))
    }

    fn show_live(&self, now: Time, show: &mut dyn FnMut(&[u8], Decision)) {
        for_each_table!(&self, table => table.show_live(now, show));
    }

    fn sweep(&mut self, now: Time, count: usize, budget: &MemoryBudget) {
        for_each_table!(&mut self, table => {
            table.sweep(now, count, budget);
            table.shrink(budget);
        });
    }

    fn squeeze(&mut self, now: Time, budget: &MemoryBudget) -> bool {
        let most = self.largest();
        if self.word.bytes() == most {
            self.word.squeeze(now, budget)
        } else if self.short.bytes() == most {
            self.short.squeeze(now, budget)
        } else {
            self.long.squeeze(now, budget)
        }
    }

    fn bytes(&self) -> usize {
        SLOT_BYTES + self.word.bytes() + self.short.bytes() + self.long.bytes()
    }

    fn add_usage(&self, usage: &mut LimitUsage) {
        for_each_table!(&self, table => {
            usage.keys += table.len();
            usage.evicted.idle += table.evicted.idle;
            usage.evicted.budget += table.evicted.budget;
        });
        usage.bytes += self.bytes();
    }

    fn adopt(&mut self, limit: &Limit, now: Time, budget: &MemoryBudget) -> bool {
        let Some(new) = A::of(&limit.algorithm) else {
            return false;
        };
        let adopted = self.word.adopt(new, now, budget)
            && self.short.adopt(new, now, budget)
            && self.long.adopt(new, now, budget);
        if adopted {
            self.version = limit.version;
        }
        adopted
    }

    fn move_to(&mut self, new: &mut dyn AnySlot, now: Time, budget: &MemoryBudget) {
        new.inherit(SizeClass::Word, self.word.history(now), now, budget);
        self.word.drain_used(now, budget, &mut |key, used| {
            new.carry(AnyKey::Word(key), used, now, budget);
        });
        new.inherit(SizeClass::Short, self.short.history(now), now, budget);
        self.short.drain_used(now, budget, &mut |key, used| {
            new.carry(AnyKey::Short(key), used, now, budget);
        });
        new.inherit(SizeClass::Long, self.long.history(now), now, budget);
        self.long.drain_used(now, budget, &mut |key, used| {
            new.carry(AnyKey::Long(key), used, now, budget);
        });
    }

    fn inherit(&mut self, size: SizeClass, history: History, now: Time, budget: &MemoryBudget) {
        match size {
            SizeClass::Word => self.word.inherit(history, now, budget),
            SizeClass::Short => self.short.inherit(history, now, budget),
            SizeClass::Long => self.long.inherit(history, now, budget),
        }
    }

    fn carry(&mut self, key: AnyKey, used: Permits, now: Time, budget: &MemoryBudget) {
        match key {
            AnyKey::Word(key) => self.word.carry(key, used, now, budget),
            AnyKey::Short(key) => self.short.carry(key, used, now, budget),
            AnyKey::Long(key) => self.long.carry(key, used, now, budget),
        }
    }

    fn slots(&self) -> usize {
        self.word.slots() + self.short.slots() + self.long.slots()
    }

    fn save(&self, span: &HashSpan, now: Time, to: &mut SectionWriter<'_>) {
        self.word.save(span, (SizeClass::Word, now), to);
        self.short.save(span, (SizeClass::Short, now), to);
        self.long.save(span, (SizeClass::Long, now), to);
    }

    fn restore(
        &mut self,
        ask: &TableAsk<'_>,
        saved: &SavedState<'_>,
        budget: &MemoryBudget,
    ) -> Option<Decision> {
        with_table!(self, ask, table => table.restore(ask, saved, budget))
    }

    fn restore_floor(&mut self, size: SizeClass, saved: &SavedState<'_>, now: Time) {
        match size {
            SizeClass::Word => self.word.restore_floor(saved, now),
            SizeClass::Short => self.short.restore_floor(saved, now),
            SizeClass::Long => self.long.restore_floor(saved, now),
        }
    }
}
