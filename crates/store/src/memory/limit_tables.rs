//! Tables of one limit in one shard, one for each size of key.
//!
//! ```text
//!   key of 8 bytes at most  --> word table        longer --> short table, long table
//!
//!   LimitTables<Gcra>, LimitTables<Window>, ..    one type for each algorithm
//!   AnyTables                                     their calls, without the type
//! ```

use ratekeeper_core::{Decision, GrantId, Granted, LeaseId, Limit, Listed, Nanos, Permits, Time};

use super::budget::MemoryBudget;
use super::flat::HashSpan;
use super::key::{KeyHasher, LongKey, ShortKey, SizeClass, StoredKey, WordKey};
use super::saved::{SavedState, SectionWriter};
use super::table::{Ahead, MovedState, Reserved, SizedTable, StateTable, TableAsk, TableHistory};
use super::{LimitUsage, Loans};

/// Bytes that the tables of a limit count for, the same for every algorithm, so that a limit that
/// changes its algorithm needs no other amount.
pub(super) const TABLES_BYTES: usize = 680;

/// The tables of a limit.
pub(super) struct LimitTables<A: Listed> {
    /// Version of the limit that the tables run with.
    pub(super) version: u32,
    /// The version with which they became other numbers.
    changed: u32,
    word: SizedTable<A, WordKey>,
    short: SizedTable<A, ShortKey>,
    long: SizedTable<A, LongKey>,
}

/// A size of key.
pub(super) trait KeySize: StoredKey {
    /// The table for such keys.
    fn table_of<A: Listed>(tables: &mut LimitTables<A>) -> &mut SizedTable<A, Self>;
}

macro_rules! key_size {
    ($key:ident, $table:ident) => {
        impl KeySize for $key {
            #[inline]
            fn table_of<A: Listed>(tables: &mut LimitTables<A>) -> &mut SizedTable<A, Self> {
                &mut tables.$table
            }
        }
    };
}

key_size!(WordKey, word);
key_size!(ShortKey, short);
key_size!(LongKey, long);

/// Generates [`KeyCalls`] from the list: each call goes to the table for keys of the size of
/// `ask.key`.
macro_rules! key_calls {
    ($(fn $call:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        /// Calls about one key.
        pub(super) trait KeyCalls {
            $(
                #[doc = concat!("See [`StateTable::", stringify!($call), "`].")]
                fn $call(&mut self, ask: &TableAsk<'_>, $($argument: $type),*) $(-> $answer)?;
            )*
        }

        impl<A: Listed> KeyCalls for LimitTables<A> {
            $(
                fn $call(&mut self, ask: &TableAsk<'_>, $($argument: $type),*) $(-> $answer)? {
                    self.table(SizeClass::of(ask.key)).$call(ask, $($argument),*)
                }
            )*
        }
    };
}

key_calls! {
    fn decide() -> Option<Decision>;
    fn look_at(left: &[MovedState]) -> Decision;
    fn give_back();
    fn reserve(ahead: Ahead) -> Option<Decision>;
    fn ban(span: Nanos) -> Option<Decision>;
    fn grant(id: GrantId) -> Option<(Option<Granted>, Decision)>;
    fn cancel(reserved: &Reserved) -> bool;
    fn at_least() -> Nanos;
    fn release(id: LeaseId) -> Permits;
    fn renew(id: LeaseId) -> Option<Nanos>;
    fn reset() -> bool;
    fn leave() -> Option<MovedState>;
    fn arrive(left: &MovedState);
    fn carry();
    fn standing() -> Option<Decision>;
    fn restore(saved: &SavedState<'_>) -> Option<Decision>;
    fn forget_some() -> bool;
    fn evict() -> bool;
}

/// The tables of a limit of any algorithm.
pub(super) trait AnyTables: KeyCalls + Send {
    fn version(&self) -> u32;
    /// The version with which they became other numbers; a reload makes new versions of the same.
    fn changed(&self) -> u32;
    /// Bytes of the tables, and of this value itself.
    fn bytes(&self) -> usize;
    /// Number of slots of the tables, including empty ones.
    fn slots(&self) -> usize;

    /// Returns true if a key with this hash is here.
    fn has(&self, hash: u64) -> bool;

    /// Gives up a third of the largest table, if it takes more than twice as much as that for
    /// keys like `ask`'s; keys of one limit do not displace each other's loans.
    fn squeeze_for(&mut self, ask: &TableAsk<'_>) -> bool;
    /// Gives up a third of the largest table.
    fn squeeze(&mut self, now: Time, budget: &MemoryBudget) -> bool;
    /// Looks at up to `count` slots of each table, forgets expired keys, and gives memory back.
    fn sweep(&mut self, now: Time, count: usize, budget: &MemoryBudget);

    /// Adds permits on loan, and those that lapsed; nothing if the limit lends no permits.
    fn add_loans(&mut self, now: Time, loans: &mut Loans);
    /// Shows all keys in debt.
    fn show_live(&mut self, now: Time, show: &mut dyn FnMut(&[u8], Decision));
    /// Adds its keys and evictions to the limit's.
    fn add_usage(&mut self, usage: &mut LimitUsage);

    /// Takes the parameters of a newer version, if the states mean the same under them.
    fn adopt(&mut self, limit: &Limit, now: Time, budget: &MemoryBudget) -> bool;
    /// Moves the usage of all keys to the tables of another algorithm.
    fn move_to(&mut self, new: &mut dyn AnyTables, now: Time, budget: &MemoryBudget);
    /// See [`StateTable::inherit`].
    fn inherit(&mut self, history: TableHistory, now: Time, budget: &MemoryBudget);

    /// See [`StateTable::save`].
    fn save(&mut self, span: &HashSpan, now: Time, to: &mut SectionWriter<'_>);
    /// See [`StateTable::restore_floor`].
    fn restore_floor(&mut self, size: SizeClass, saved: &SavedState<'_>, now: Time);
}

impl<A: Listed> LimitTables<A> {
    pub(super) fn new(algorithm: &A, version: u32, hasher: &KeyHasher) -> Self {
        const { assert!(size_of::<Self>() <= TABLES_BYTES, "they count for as much") };
        Self {
            version,
            changed: version,
            word: StateTable::new(algorithm.clone(), hasher.clone()),
            short: StateTable::new(algorithm.clone(), hasher.clone()),
            long: StateTable::new(algorithm.clone(), hasher.clone()),
        }
    }

    /// Returns the table for keys of a size.
    fn table(&mut self, size: SizeClass) -> &mut StateTable<A> {
        match size {
            SizeClass::Word => &mut self.word,
            SizeClass::Short => &mut self.short,
            SizeClass::Long => &mut self.long,
        }
    }

    fn all(&self) -> [&StateTable<A>; 3] {
        [&self.word, &self.short, &self.long]
    }

    fn all_mut(&mut self) -> [&mut StateTable<A>; 3] {
        [&mut self.word, &mut self.short, &mut self.long]
    }
}

impl<A: Listed> AnyTables for LimitTables<A> {
    fn version(&self) -> u32 {
        self.version
    }

    fn changed(&self) -> u32 {
        self.changed
    }

    fn bytes(&self) -> usize {
        self.all()
            .iter()
            .fold(TABLES_BYTES, |sum, it| sum + it.bytes())
    }

    fn slots(&self) -> usize {
        self.all().iter().fold(0, |sum, it| sum + it.slots())
    }

    fn has(&self, hash: u64) -> bool {
        self.all().iter().any(|table| table.has(hash))
    }

    fn squeeze_for(&mut self, ask: &TableAsk<'_>) -> bool {
        let own = self.table(SizeClass::of(ask.key)).bytes();
        let largest = self.all().iter().fold(0, |most, it| it.bytes().max(most));
        !A::KEEPS && largest / 2 > own && self.squeeze(ask.now, ask.budget)
    }

    fn squeeze(&mut self, now: Time, budget: &MemoryBudget) -> bool {
        let largest = self.all_mut().into_iter().rev().max_by_key(|it| it.bytes());
        largest.is_some_and(|table| table.squeeze(now, budget))
    }

    fn sweep(&mut self, now: Time, count: usize, budget: &MemoryBudget) {
        for table in self.all_mut() {
            table.sweep(now, count, budget);
            table.shrink(now, budget);
        }
    }

    fn add_loans(&mut self, now: Time, loans: &mut Loans) {
        for table in self.all() {
            loans.in_use += table.on_loan(now);
            loans.lapsed += table.lapsed;
        }
    }

    fn show_live(&mut self, now: Time, show: &mut dyn FnMut(&[u8], Decision)) {
        for table in self.all() {
            table.show_live(now, show);
        }
    }

    fn add_usage(&mut self, usage: &mut LimitUsage) {
        for table in self.all() {
            usage.keys += table.len();
            usage.evicted.idle += table.evicted.idle;
            usage.evicted.budget += table.evicted.budget;
            usage.lapsed += table.lapsed;
        }
        usage.bytes += self.bytes();
    }

    fn adopt(&mut self, limit: &Limit, now: Time, budget: &MemoryBudget) -> bool {
        let Some(new) = A::of(&limit.algorithm) else {
            return false;
        };
        let is_same = limit.algorithm == self.word.algorithm.clone().into();
        for table in self.all_mut() {
            if !table.adopt(new, now, budget) {
                return false;
            }
        }
        self.version = limit.version;
        if !is_same {
            self.changed = limit.version;
        }
        true
    }

    fn move_to(&mut self, new: &mut dyn AnyTables, now: Time, budget: &MemoryBudget) {
        for table in self.all_mut() {
            new.inherit(table.history(now), now, budget);
            table.drain_used(now, budget, &mut |ask| new.carry(ask));
        }
    }

    fn inherit(&mut self, history: TableHistory, now: Time, budget: &MemoryBudget) {
        self.table(history.size).inherit(history, now, budget);
    }

    fn save(&mut self, span: &HashSpan, now: Time, to: &mut SectionWriter<'_>) {
        for table in self.all() {
            table.save(span, now, to);
        }
    }

    fn restore_floor(&mut self, size: SizeClass, saved: &SavedState<'_>, now: Time) {
        self.table(size).restore_floor(saved, now);
    }
}
