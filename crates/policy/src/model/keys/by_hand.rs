//! By hand: keys that an operator has banned or allowed for a time, under any limit.
//!
//! ```text
//!   exempt? --> by hand? --> override? --> plan? --> the limit, with the bans of the policy
//! ```
//!
//! A decision reads the table without a lock, and not before an operator has set the first key.
//! Ends are times of the wall clock, which processes that share a store have in common.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use ratekeeper_core::{Key, KeyBuilder, Nanos};
use strum::{AsRefStr, EnumString, VariantNames};

/// Maximum number of keys of all limits.
pub const MAX_BY_HAND: usize = 10_000;

/// What happens to the requests of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, AsRefStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum HandAct {
    /// They are refused.
    Ban,
    /// The limit does not apply to them.
    Allow,
}

/// The act of an operator on a key, and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandEntry {
    /// The act.
    pub act: HandAct,
    /// The end, in milliseconds since 1970.
    pub until_unix_millis: u64,
}

type HandKeys = HashMap<Box<[u8]>, HandEntry, RandomState>;

/// Keys by the name of their limit.
#[derive(Clone, Debug, Default)]
pub struct HandTable {
    /// A number that each change increases; zero before the first. The highest, which only another
    /// program writes, is followed by the time.
    pub version: u64,
    limits: HashMap<Box<str>, HandKeys, RandomState>,
}

/// The table in force; policies that replace each other share it.
#[derive(Debug, Default)]
pub struct ByHand {
    /// True once a key was set.
    is_used: AtomicBool,
    table: ArcSwap<HandTable>,
}

impl HandEntry {
    /// Returns the time until the end; `None` if it has come.
    pub fn left(&self, unix_millis: u64) -> Option<Nanos> {
        let left = self.until_unix_millis.checked_sub(unix_millis)?;
        (left > 0).then(|| Nanos::from_millis(left))
    }
}

impl HandTable {
    /// Sets a key; returns false if the table is full.
    pub fn set(&mut self, limit: &str, key: Key<'_>, entry: HandEntry) -> bool {
        let has_room = self.limits.values().map(HashMap::len).sum::<usize>() < MAX_BY_HAND;
        let keys = self.limits.entry(limit.into()).or_default();
        let is_set = has_room || keys.contains_key(key.as_bytes());
        if is_set {
            keys.insert(key.as_bytes().into(), entry);
        }
        is_set
    }

    /// Removes a key; returns true, as there is always room for that.
    pub fn lift(&mut self, limit: &str, key: Key<'_>) -> bool {
        if let Some(keys) = self.limits.get_mut(limit) {
            keys.remove(key.as_bytes());
        }
        true
    }

    /// Sets a further version: the time, or one more than the version before.
    pub fn renew(&mut self, unix_nanos: u64) {
        self.version = unix_nanos.max(self.version.wrapping_add(1));
    }

    /// Removes the keys whose time has ended.
    pub fn prune(&mut self, unix_millis: u64) {
        self.limits.retain(|_, keys| {
            keys.retain(|_, entry| entry.until_unix_millis > unix_millis);
            !keys.is_empty()
        });
    }

    /// Returns the keys of a limit whose time has not ended.
    pub fn of_limit(
        &self,
        limit: &str,
        unix_millis: u64,
    ) -> impl Iterator<Item = (Key<'_>, HandEntry)> {
        let keys = self.limits.get(limit).into_iter().flatten();
        let keys = keys.map(|(key, entry)| (Key::from_bytes(key), *entry));
        keys.filter(move |(_, entry)| entry.left(unix_millis).is_some())
    }

    /// Returns the table as other processes read it: its version in eight bytes, then for each key
    /// the parts limit, key, act and end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.version.to_le_bytes().to_vec();
        let mut rows = KeyBuilder::new(&mut bytes);
        for (limit, keys) in &self.limits {
            for (key, entry) in keys {
                let (act, end) = (entry.act.as_ref(), entry.until_unix_millis.to_le_bytes());
                rows.part(limit.as_bytes()).part(key);
                rows.part(act.as_bytes()).part(&end);
            }
        }
        bytes
    }

    /// Reads a table; rows that cannot be read are left out.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut table = Self::default();
        let Some((version, rows)) = bytes.split_first_chunk() else {
            return table;
        };
        table.version = u64::from_le_bytes(*version);
        let mut parts = Key::from_bytes(rows).parts();
        while let (Some(limit), Some(key), Some(act), Some(end)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        {
            let text = |part| std::str::from_utf8(part).ok();
            let act = text(act).unwrap_or_default().parse();
            if let (Some(limit), Ok(act), Ok(end)) = (text(limit), act, end.try_into()) {
                let entry = HandEntry {
                    act,
                    until_unix_millis: u64::from_le_bytes(end),
                };
                table.set(limit, Key::from_bytes(key), entry);
            }
        }
        table
    }
}

impl ByHand {
    /// Returns the table.
    pub fn table(&self) -> Arc<HandTable> {
        self.table.load_full()
    }

    /// Returns true once a key was set, even if it is lifted since.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Replaces the table `before`; returns false if another one is in force.
    pub fn replace(&self, before: &Arc<HandTable>, next: HandTable) -> bool {
        if !next.limits.is_empty() {
            self.is_used.store(true, Ordering::Relaxed);
        }
        let found = self.table.compare_and_swap(before, Arc::new(next));
        Arc::ptr_eq(&found, before)
    }

    /// Returns the entry of a key whose time has not ended, and the time that is left.
    #[inline]
    pub fn of(&self, limit: &str, key: Key<'_>, unix_millis: u64) -> Option<(HandAct, Nanos)> {
        if !self.is_used() {
            return None;
        }
        let table = self.table.load();
        let entry = table.limits.get(limit)?.get(key.as_bytes())?;
        Some((entry.act, entry.left(unix_millis)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_table_that_is_written_as_it_was_read(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let table = HandTable::from_bytes(&bytes);
            let again = HandTable::from_bytes(&table.to_bytes());
            prop_assert_eq!(again.version, table.version);
            prop_assert_eq!(again.limits, table.limits);
        }
    }

    #[test]
    fn each_change_has_another_version() {
        for (before, at, after) in [(0, 5, 5), (5, 5, 6), (9, 5, 10), (u64::MAX, 5, 5)] {
            let mut table = HandTable {
                version: before,
                ..HandTable::default()
            };
            table.renew(at);
            assert_eq!(table.version, after);
        }
    }

    #[test]
    fn an_end_and_an_act_that_cannot_be_read_leave_their_row_out() {
        let mut bytes = 7_u64.to_le_bytes().to_vec();
        let end = u64::MAX.to_le_bytes();
        let mut rows = KeyBuilder::new(&mut bytes);
        for (act, end) in [("ban", &end[..]), ("bar", &end[..]), ("allow", &end[1..])] {
            rows.part(b"api").part(act.as_bytes());
            rows.part(act.as_bytes()).part(end);
        }
        let table = HandTable::from_bytes(&bytes);
        let keys: Vec<_> = table.of_limit("api", 0).collect();
        assert_eq!((table.version, keys.len()), (7, 1));
        assert_eq!(keys[0].1.act, HandAct::Ban);
    }
}
