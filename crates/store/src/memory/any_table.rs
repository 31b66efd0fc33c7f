//! `AnyTable`: a table of whichever algorithm, for keys of one size.

use foldhash::quality::RandomState;
use ratekeeper_core::{
    AnyAlgorithm, Concurrency, Decision, Exponential, Gcra, Hybrid, Interval, Log, Nanos,
    SubBuckets, Time, WarmUp, Window,
};

use super::LimitUsage;
use super::budget::Budget;
use super::key::StoredKey;
use super::table::{Ask, Made, Table};

#[derive(Debug)]
pub(super) enum AnyTable<K> {
    Gcra(Table<Gcra, K>),
    Window(Table<Window, K>),
    SubBuckets(Table<SubBuckets, K>),
    Interval(Table<Interval, K>),
    Log(Table<Log, K>),
    Hybrid(Table<Hybrid, K>),
    Exponential(Table<Exponential, K>),
    WarmUp(Table<WarmUp, K>),
    Concurrency(Table<Concurrency, K>),
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
            AnyTable::Concurrency($table) => $body,
        }
    };
}
pub(super) use with_table;

impl<K: StoredKey> AnyTable<K> {
    pub(super) fn new(algorithm: &AnyAlgorithm, hasher: &RandomState) -> Self {
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
            AnyAlgorithm::Concurrency(algorithm) => {
                Self::Concurrency(Table::of_loans(*algorithm, hasher))
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        with_table!(self, table => table.bytes())
    }

    /// Adds its keys, and those that were pushed out; not its bytes.
    pub(super) fn add_usage(&self, usage: &mut LimitUsage) {
        let (keys, evicted) = with_table!(self, table => (table.len(), table.evicted));
        usage.keys += keys;
        usage.evicted.idle += evicted.idle;
        usage.evicted.budget += evicted.budget;
    }

    /// Gives back, if the algorithm can take back a charge.
    pub(super) fn refund(&mut self, ask: &Ask<'_>) {
        match self {
            Self::Gcra(table) => table.refund(ask),
            Self::Window(table) => table.refund(ask),
            Self::SubBuckets(table) => table.refund(ask),
            Self::Interval(table) => table.refund(ask),
            Self::Log(table) => table.refund(ask),
            Self::Exponential(table) => table.refund(ask),
            Self::Concurrency(table) => table.take_back(ask),
            Self::Hybrid(table) => table.refund(ask),
            Self::WarmUp(_) => {}
        }
    }

    /// Charges for a later moment, if the algorithm promises any; `None` if there is no room.
    pub(super) fn reserve(
        &mut self,
        ask: &Ask<'_>,
        max_wait: Nanos,
        budget: &Budget,
    ) -> Option<Decision> {
        match self {
            Self::Gcra(table) => table.reserve(ask, max_wait, budget),
            Self::WarmUp(table) => table.reserve(ask, max_wait, budget),
            // It promised until a moment ago.
            _ => with_table!(self, table => table.decide(ask, budget)),
        }
    }

    /// Gives back what was reserved, if nothing was charged since.
    pub(super) fn cancel(&mut self, ask: &Ask<'_>, made: &Made) -> bool {
        match self {
            Self::Gcra(table) => table.cancel(ask, made),
            _ => false, // what promises and takes back is GCRA alone
        }
    }

    /// The permits on loan, if the limit lends any.
    pub(super) fn loans(&mut self) -> Option<&mut Table<Concurrency, K>> {
        match self {
            Self::Concurrency(table) => Some(table),
            _ => None,
        }
    }

    /// Brings the table to other numbers: keeps the states if they mean the same, else
    /// charges what was used to fresh ones.
    pub(super) fn convert(
        &mut self,
        new: &AnyAlgorithm,
        hasher: &RandomState,
        now: Time,
        budget: &Budget,
    ) {
        if self.adopt(new, now, budget) {
            return;
        }
        let mut old = std::mem::replace(self, Self::new(new, hasher));
        let history = with_table!(&old, table => table.history(now));
        let len = with_table!(&old, table => table.len());
        with_table!(self, new => new.inherit(history, len, now, budget));
        // Dispatched for each key: once for each pair of algorithms would be 64 copies.
        let mut carry = |key, used| with_table!(self, new => new.carry(key, used, now, budget));
        with_table!(&mut old, old => old.drain_used(now, budget, &mut carry));
    }

    /// Takes the new numbers, if the states mean the same under them.
    fn adopt(&mut self, algorithm: &AnyAlgorithm, now: Time, budget: &Budget) -> bool {
        match (self, algorithm) {
            (Self::Gcra(table), AnyAlgorithm::Gcra(new)) => table.adopt(new, now, budget),
            (Self::Window(table), AnyAlgorithm::Window(new)) => table.adopt(new, now, budget),
            (Self::SubBuckets(table), AnyAlgorithm::SubBuckets(new)) => {
                table.adopt(new, now, budget)
            }
            (Self::Interval(table), AnyAlgorithm::Interval(new)) => table.adopt(new, now, budget),
            (Self::Log(table), AnyAlgorithm::Log(new)) => table.adopt(new, now, budget),
            (Self::Hybrid(table), AnyAlgorithm::Hybrid(new)) => table.adopt(new, now, budget),
            (Self::Exponential(table), AnyAlgorithm::Exponential(new)) => {
                table.adopt(new, now, budget)
            }
            (Self::WarmUp(table), AnyAlgorithm::WarmUp(new)) => table.adopt(new, now, budget),
            (Self::Concurrency(table), AnyAlgorithm::Concurrency(new)) => {
                table.adopt(new, now, budget)
            }
            _ => false,
        }
    }
}
