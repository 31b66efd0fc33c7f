//! The permits of one key that are on loan: a list by end.
//!
//! ```text
//!   ended |                        on loan
//!   a  3  | batch 12   b  1   batch 3   c  2   batch 40        sum = 61, in use = 58
//!   ------+--------------------------------------------> end
//!        now
//! ```
//!
//! The sum is kept, so that the permits in use are found without walking through the list: only
//! leases that have ended and are not dropped yet are subtracted.

use alloc::vec::Vec;

use crate::{Nanos, Time};

/// Anonymous permits end at multiples of this part of the lease.
pub(super) const PARTS: u64 = 16;
/// Maximum number of batches of anonymous permits: those of 16 parts that end at different
/// moments are 17; two more for leases that were given under other numbers.
pub(super) const MAX_BATCHES: usize = 19;

/// The name of permits on loan; unique among the names of a key, chosen by its holder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId([u8; 16]);

impl LeaseId {
    /// The name with these bytes: a random number, a request id, a UUID.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Lease {
    pub(super) ends: Time,
    /// `None` for a batch of anonymous permits.
    pub(super) holder: Option<LeaseId>,
    pub(super) permits: u32,
}

/// The permits of one key that are on loan.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConcurrencyState {
    /// By end; one for each end and holder.
    pub(super) by_end: Vec<Lease>,
    /// The sum of their permits.
    pub(super) sum: u64,
    /// How long named permits were held.
    pub(super) held: HoldTimes,
}

/// How long the named permits of a key were held: the last eight to sixteen leases.
///
/// The mean estimates when a permit comes back. A renewed lease counts once, with all of its
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct HoldTimes {
    /// The sum, in nanoseconds.
    pub(super) nanos: u64,
    /// Number of leases released.
    pub(super) releases: u32,
    /// The moment from which the key may be forgotten.
    pub(super) until: Time,
}

impl HoldTimes {
    /// At this many releases both numbers are halved.
    pub(super) const HALVED_AT: u32 = 16;

    pub(super) fn renewed(&mut self, held: Nanos) {
        self.nanos = self.nanos.saturating_add(held.as_nanos());
    }

    pub(super) fn released(&mut self, held: Nanos, until: Time) {
        self.renewed(held);
        self.releases += 1;
        if self.releases >= Self::HALVED_AT {
            (self.nanos, self.releases) = (self.nanos / 2, self.releases / 2);
        }
        self.until = self.until.max(until);
    }

    /// The mean time until `missing` of `held` permits come back, if all were taken evenly;
    /// at least 1 ns. `None` before the first release.
    pub(super) fn estimate(&self, missing: u64, held: u64) -> Option<Nanos> {
        let mean = u128::from(self.nanos.checked_div(u64::from(self.releases))?);
        let wait = (mean * u128::from(missing)).div_ceil(u128::from(held.max(1)));
        Some(Nanos::from_nanos(
            u64::try_from(wait.max(1)).unwrap_or(u64::MAX),
        ))
    }
}

impl ConcurrencyState {
    /// Number of leases that have ended at `now`.
    pub(super) fn ended(&self, now: Time) -> usize {
        self.by_end.partition_point(|lease| lease.ends <= now)
    }

    /// Permits on loan at `now`.
    pub(super) fn in_use(&self, now: Time) -> u64 {
        self.sum - permits_of(&self.by_end[..self.ended(now)])
    }

    pub(super) fn latest(&self) -> Time {
        self.by_end.last().map_or(Time::ZERO, |lease| lease.ends)
    }

    /// Drops leases that have ended, and returns the number of their permits.
    pub(super) fn drop_ended(&mut self, now: Time) -> u64 {
        let ended = self.by_end.drain(..self.ended(now));
        let permits = ended.fold(0, |sum, lease| sum + u64::from(lease.permits));
        self.sum -= permits;
        permits
    }

    /// Adds a lease; the list grows to at most `most` unless more are alive.
    pub(super) fn insert(&mut self, lease: Lease, most: usize) {
        let permits = u64::from(lease.permits);
        let key = |lease: &Lease| (lease.ends, lease.holder);
        match self.by_end.binary_search_by_key(&key(&lease), key) {
            Ok(at) => {
                let there = &mut self.by_end[at].permits;
                let whole = there.saturating_add(lease.permits);
                self.sum += u64::from(whole - *there);
                *there = whole;
            }
            Err(at) => {
                let length = self.by_end.len();
                if length == self.by_end.capacity() {
                    // Doubles, but not beyond the memory accounted for.
                    let room = (length + 1).next_power_of_two().min(most).max(length + 1);
                    self.by_end.reserve_exact(room - length);
                }
                self.by_end.insert(at, lease);
                self.sum += permits;
            }
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Lease {
        let lease = self.by_end.remove(at);
        self.sum -= u64::from(lease.permits);
        lease
    }

    /// The index of the lease of `id` that has not ended; there is at most one.
    pub(super) fn find(&self, id: LeaseId, now: Time) -> Option<usize> {
        let ended = self.ended(now);
        let found = self.by_end[ended..]
            .iter()
            .position(|lease| lease.holder == Some(id));
        found.map(|at| ended + at)
    }

    /// Merges the batches that end first into later ones until `MAX_BATCHES` are left.
    pub(super) fn merge_batches(&mut self) {
        let anonymous = |lease: &Lease| lease.holder.is_none();
        let batches = self.by_end.iter().filter(|lease| anonymous(lease)).count();
        for _ in MAX_BATCHES..batches {
            let Some(first) = self.by_end.iter().position(anonymous) else {
                return;
            };
            let lease = self.by_end.remove(first);
            if let Some(next) = self.by_end.iter_mut().find(|lease| anonymous(lease)) {
                let whole = next.permits.saturating_add(lease.permits);
                self.sum -= u64::from(next.permits) + u64::from(lease.permits) - u64::from(whole);
                next.permits = whole;
            }
        }
    }
}

/// Iterates over permits from the one that ends last.
pub(super) struct Backwards<'a> {
    rest: &'a [Lease],
    /// Permits of the last of `rest` that are taken already.
    taken: u32,
}

impl<'a> Backwards<'a> {
    pub(super) fn new(leases: &'a ConcurrencyState) -> Self {
        Self {
            rest: &leases.by_end,
            taken: 0,
        }
    }

    /// Number of permits that end together next.
    pub(super) fn permits(&self) -> Option<u32> {
        self.rest.last().map(|lease| lease.permits - self.taken)
    }

    /// Takes at most [`permits`](Self::permits) permits, and returns their end.
    pub(super) fn take(&mut self, permits: u32) -> Time {
        let Some((last, rest)) = self.rest.split_last() else {
            return Time::ZERO;
        };
        self.taken += permits;
        if self.taken == last.permits {
            (self.rest, self.taken) = (rest, 0);
        }
        last.ends
    }
}

fn permits_of(leases: &[Lease]) -> u64 {
    leases.iter().map(|lease| u64::from(lease.permits)).sum()
}
