//! Slot: the tables of one limit in one shard, one for each size of key.

use foldhash::quality::RandomState;
use ratekeeper_core::{Limit, Time};

use super::LimitUsage;
use super::any_table::{AnyTable, with_table};
use super::budget::Budget;
use super::key::{LongKey, ShortKey, Size, StoredKey, WordKey};
use super::table::Ask;

/// Runs `$body` with `$tables` bound to the tables of a slot for keys like that of `$ask`.
macro_rules! with_tables_of {
    ($slot:expr, $ask:expr, $tables:ident => $body:expr) => {
        match Size::of($ask.key) {
            Size::Word => {
                let $tables = &mut $slot.word;
                $body
            }
            Size::Short => {
                let $tables = &mut $slot.short;
                $body
            }
            Size::Long => {
                let $tables = &mut $slot.long;
                $body
            }
        }
    };
}

/// As `with_tables_of`, with `$table` bound to the one of the algorithm.
macro_rules! with_table_of {
    ($slot:expr, $ask:expr, $table:ident => $body:expr) => {
        with_tables_of!($slot, $ask, any => with_table!(any, $table => $body))
    };
}

/// As `with_table_of`, with the loans; `None` if the limit lends nothing.
macro_rules! with_loans_of {
    ($slot:expr, $ask:expr, $table:ident => $body:expr) => {
        with_tables_of!($slot, $ask, any => any.loans().map(|$table| $body))
    };
}

/// Runs `$body` with `$tables` bound to the tables of a slot for each size of key in turn.
macro_rules! for_each_size {
    ($slot:ident, $tables:ident => $body:expr) => {{
        let $tables = &mut $slot.word;
        $body;
        let $tables = &mut $slot.short;
        $body;
        let $tables = &mut $slot.long;
        $body;
    }};
}
pub(super) use {for_each_size, with_loans_of, with_table_of, with_tables_of};

/// The tables of a limit.
#[derive(Debug)]
pub(super) struct Slot {
    /// Of the numbers that the tables run with.
    pub(super) version: u32,
    pub(super) word: AnyTable<WordKey>,
    pub(super) short: AnyTable<ShortKey>,
    pub(super) long: AnyTable<LongKey>,
}

/// A size of key.
pub(super) trait KeySize: StoredKey {
    /// The table of a slot for such keys, and the version of its numbers.
    fn table_of(slot: &mut Slot) -> (u32, &mut AnyTable<Self>);
}

impl KeySize for WordKey {
    #[inline]
    fn table_of(slot: &mut Slot) -> (u32, &mut AnyTable<Self>) {
        (slot.version, &mut slot.word)
    }
}

impl KeySize for ShortKey {
    #[inline]
    fn table_of(slot: &mut Slot) -> (u32, &mut AnyTable<Self>) {
        (slot.version, &mut slot.short)
    }
}

impl KeySize for LongKey {
    #[inline]
    fn table_of(slot: &mut Slot) -> (u32, &mut AnyTable<Self>) {
        (slot.version, &mut slot.long)
    }
}

impl Slot {
    pub(super) fn new(limit: &Limit, hasher: &RandomState) -> Self {
        Self {
            version: limit.version,
            word: AnyTable::new(&limit.algorithm, hasher),
            short: AnyTable::new(&limit.algorithm, hasher),
            long: AnyTable::new(&limit.algorithm, hasher),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.word.bytes() + self.short.bytes() + self.long.bytes()
    }

    /// Gives up a third of the largest table, if that takes more than twice what the one for
    /// keys like that of `ask` takes; permits on loan are not given up for those of one limit.
    pub(super) fn squeeze_for(&mut self, ask: &Ask<'_>, budget: &Budget) -> bool {
        let own = with_tables_of!(self, ask, tables => tables.bytes());
        let lends = self.word.loans().is_some();
        !lends && self.largest() / 2 > own && self.squeeze(ask.now, budget)
    }

    fn largest(&self) -> usize {
        let (word, short) = (self.word.bytes(), self.short.bytes());
        word.max(short).max(self.long.bytes())
    }

    /// Gives up a third of the largest table.
    pub(super) fn squeeze(&mut self, now: Time, budget: &Budget) -> bool {
        let most = self.largest();
        if self.word.bytes() == most {
            with_table!(&mut self.word, table => table.squeeze(now, budget))
        } else if self.short.bytes() == most {
            with_table!(&mut self.short, table => table.squeeze(now, budget))
        } else {
            with_table!(&mut self.long, table => table.squeeze(now, budget))
        }
    }

    pub(super) fn add_usage(&self, usage: &mut LimitUsage) {
        self.word.add_usage(usage);
        self.short.add_usage(usage);
        self.long.add_usage(usage);
        usage.bytes += self.bytes();
    }
}
