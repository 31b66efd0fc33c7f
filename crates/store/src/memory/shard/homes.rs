//! Homes: the limit in whose tables a key is that has, or had, numbers of its own.
//!
//! ```text
//!   numbers for the key     own limit, or a plan's  -->  single         home: single
//!   other numbers           single                  -->  single'        home: single'
//!   no numbers any more     single'                 -->  own limit      no home
//! ```
//!
//! The usage moves with the first decision by the other numbers, so a policy that is replaced, and
//! an override that ends, need no work. A key without numbers of its own has no home, and a shard
//! without homes spends nothing on them. Homes of forgotten keys make room when the list is full.

use std::collections::{BTreeMap, HashMap};

use ratekeeper_core::{Limit, LimitId, LimitKeys};

use super::super::budget::Purpose;
use super::super::flat::{Flat, slots_for};
use super::super::limit_tables::AnyTables;
use super::super::table::{MovedState, TableAsk};
use super::super::tables_box::TablesBox;
use super::Shard;

/// Slots that are looked at for the home of a forgotten key, before the list grows.
const LOOKED_AT: usize = 8;

/// The home of a key.
#[derive(Debug)]
pub(super) struct Home {
    /// The limit with numbers for single keys, and the key.
    family: LimitId,
    hash: u64,
    /// The limit in whose tables it is.
    at: LimitId,
}

/// A state that a key left in the tables of a limit.
type LeftState = (LimitId, MovedState);

impl Shard {
    fn home_of(&self, limit: &Limit, ask: &TableAsk<'_>) -> Option<usize> {
        let (family, _) = limit.family();
        let is_it = |home: &Home| home.hash == ask.hash && home.family == family;
        self.homes.find(ask.hash, is_it)
    }

    /// Returns the states of a key by other numbers: it was counted by them last.
    pub(super) fn left_elsewhere(&mut self, limit: &Limit, ask: &TableAsk<'_>) -> Vec<LeftState> {
        let home = self.home_of(limit, ask).and_then(|at| self.homes.get(at));
        let at = |id: LimitId| Some((id, self.limits.get_mut(id.index())?.as_mut()?.leave(ask)?));
        match (home.map(|home| home.at), &limit.keys) {
            (Some(home), _) => Some(home)
                .filter(|id| *id != limit.id)
                .and_then(at)
                .into_iter()
                .collect(),
            (None, LimitKeys::Single(base)) => {
                base.iter().map(|base| base.id).filter_map(at).collect()
            }
            (None, _) => Vec::new(),
        }
    }

    /// Moves the usage of a key to these numbers, if it was counted by others.
    #[inline]
    pub(super) fn follow(&mut self, limit: &Limit, ask: &TableAsk<'_>) {
        if self.homes.fill().len > 0 || matches!(limit.keys, LimitKeys::Single(_)) {
            self.move_here(limit, ask);
        }
    }

    #[inline(never)]
    fn move_here(&mut self, limit: &Limit, ask: &TableAsk<'_>) {
        for (other, left) in self.left_elsewhere(limit, ask) {
            let Some(tables) = self.tables_of(limit, ask.now) else {
                return; // no room for any key of the limit: the usage stays where it is
            };
            tables.arrive(ask, &left);
            self.forget(other, ask);
        }
        self.note_home(limit, ask);
    }

    /// Returns the tables in which a key is, for a charge that was made by these numbers. Moves
    /// its usage here first, unless a newer policy has moved it away.
    pub(in crate::memory) fn at_home(
        &mut self,
        limit: &Limit,
        ask: &TableAsk<'_>,
    ) -> Option<&mut dyn AnyTables> {
        let home = |shard: &mut Self| Some(shard.left_elsewhere(limit, ask).first()?.0.index());
        let mut left = home(self);
        let tables = left.and_then(|at| self.tables(at));
        if tables.is_some_and(|tables| tables.version() <= limit.version) {
            self.move_here(limit, ask);
            left = home(self); // if there was no room
        }
        match left {
            Some(at) => self.tables(at),
            None => self.known(limit, ask.now),
        }
    }

    /// Records that a key is in the tables of a limit.
    pub(in crate::memory) fn note_home(&mut self, limit: &Limit, ask: &TableAsk<'_>) {
        let (at, known) = (limit.id, self.home_of(limit, ask));
        match (known, &limit.keys) {
            (Some(known), LimitKeys::Single(_)) => {
                if let Some(home) = self.homes.get_mut(known) {
                    home.at = at;
                }
            }
            (Some(known), _) => drop(self.homes.remove(known, |home| home.hash)),
            (None, LimitKeys::Single(_)) if self.has_room_for_home(ask.hash) => {
                let ((family, _), hash) = (limit.family(), ask.hash);
                self.homes.insert(hash, Home { family, hash, at });
            }
            (None, _) => {} // without room, the key begins anew when its numbers change
        }
    }

    /// Returns the limits without a name here, in whose tables keys are that have had other numbers
    /// since, each with the name of the limit that has them all.
    pub(in crate::memory) fn left_behind<'n>(
        &self,
        names: &HashMap<LimitId, &'n str>,
    ) -> BTreeMap<LimitId, &'n str> {
        let homes = self.homes.as_slots().iter().flatten();
        let gone = homes.filter(|home| !names.contains_key(&home.at));
        gone.filter_map(|home| Some((home.at, *names.get(&home.family)?)))
            .collect()
    }

    fn has_room_for_home(&mut self, hash: u64) -> bool {
        !self.homes.fill().is_full() || self.forget_a_home(hash) || self.grow_homes()
    }

    /// Removes the home of a forgotten key, if one is among some that `hash` chooses.
    fn forget_a_home(&mut self, hash: u64) -> bool {
        let slots = self.homes.fill().slots;
        let Some(start) = hash.checked_rem(slots as u64) else {
            return false;
        };
        let sample = (start..).take(LOOKED_AT);
        let mut sample = sample.map(|at| usize::try_from(at).unwrap_or_default() % slots);
        let is_gone = |at: &usize| {
            let home = self.homes.get(*at);
            home.is_some_and(|home| !is_there(&self.limits, home))
        };
        let gone = sample.find(is_gone);
        gone.is_some_and(|at| self.homes.remove(at, |home| home.hash).is_some())
    }

    /// Makes the list a quarter longer than the homes of keys that are there.
    fn grow_homes(&mut self) -> bool {
        let bytes = Flat::<Home>::bytes_of;
        let (slots, longest) = (self.homes.fill().slots, self.homes.fill().grown());
        if !self.budget.take(bytes(longest), Purpose::Grow) {
            return false;
        }
        let limits = &self.limits;
        let homes = self.homes.as_slots().iter().flatten();
        let there = homes.filter(|home| is_there(limits, home)).count();
        let wanted = slots_for(there + there / 4 + 2).min(longest);
        self.homes.resize(
            wanted,
            |home| home.hash,
            |home, _, _| is_there(limits, home),
        );
        self.budget
            .give(bytes(slots) + bytes(longest) - bytes(wanted));
        true
    }
}

/// Returns true if the key is in the tables of its home.
fn is_there(limits: &[Option<TablesBox>], home: &Home) -> bool {
    let tables = limits.get(home.at.index()).and_then(Option::as_ref);
    tables.is_some_and(|tables| tables.has(home.hash))
}
