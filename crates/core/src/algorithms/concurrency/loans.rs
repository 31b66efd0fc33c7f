//! Loans that come back: released or renewed by their name, anonymous ones refunded.

use super::leases::{Lease, MAX_BATCHES};
use super::{Concurrency, ConcurrencyState, LeaseId};
use crate::algorithm::{Algorithm as _, Denials, Refund};
use crate::{Nanos, Permits, Receipt, Time};

impl Concurrency {
    /// Takes back the permits of `id`, and returns their number. Nothing changes if `id` holds
    /// none, or holds none any more.
    pub fn release(&self, leases: &mut ConcurrencyState, now: Time, id: LeaseId) -> Permits {
        let Some(at) = leases.find(id, now) else {
            return Permits::ZERO;
        };
        let lease = leases.remove(at);
        let held = self.held_for(&lease, now);
        leases.held.released(held, now + self.lease);
        Permits::new(lease.permits.into())
    }

    /// Extends the lease of `id` to its full length from now, and returns the time until it ends.
    /// `None` if it has ended or was released: then the holder must acquire again.
    pub fn renew(&self, leases: &mut ConcurrencyState, now: Time, id: LeaseId) -> Option<Nanos> {
        let at = leases.find(id, now)?;
        let lease = leases.remove(at);
        leases.held.renewed(self.held_for(&lease, now));
        let ends = lease.ends.max(self.end(leases, now, lease.holder));
        leases.insert(Lease { ends, ..lease }, self.places());
        Some(ends.since(now))
    }

    /// The time since a lease was given or last renewed.
    pub(super) fn held_for(&self, lease: &Lease, now: Time) -> Nanos {
        self.lease.saturating_sub(lease.ends.since(now))
    }
}

impl Refund for Concurrency {
    fn give_back(&self, leases: &mut ConcurrencyState, now: Time, cost: Permits, receipt: Receipt) {
        self.give_back_late(leases, now, cost, receipt);
    }

    /// Gives back anonymous permits that end no sooner than those of the receipt; none once these
    /// have ended.
    fn give_back_late(
        &self,
        leases: &mut ConcurrencyState,
        now: Time,
        cost: Permits,
        receipt: Receipt,
    ) {
        let ends = self.rounded(receipt.made + self.lease);
        if ends > now {
            let first = leases.by_end.partition_point(|lease| lease.ends < ends);
            self.take_back(leases, first.max(leases.ended(now)), cost);
        }
    }

    /// Gives back the anonymous permits that end first.
    fn refund(&self, leases: &mut ConcurrencyState, now: Time, cost: Permits) {
        self.take_back(leases, leases.ended(now), cost);
    }
}

impl Concurrency {
    /// Maximum number of leases and batches of one key.
    pub(super) fn places(&self) -> usize {
        let beyond = match self.denials {
            Denials::Free => 0, // each has a permit
            Denials::Counted => MAX_BATCHES,
        };
        self.permits as usize + beyond
    }

    /// Takes back anonymous permits, from the lease at `at` on.
    fn take_back(&self, leases: &mut ConcurrencyState, mut at: usize, cost: Permits) {
        // Under a higher limit it was; counted denials, too, are more than the limit.
        let is_taken = self.denials == Denials::Free && cost.get() <= leases.sum;
        if cost > self.capacity() && !is_taken {
            return; // was never taken
        }
        let mut left = cost.get();
        while left > 0 && at < leases.by_end.len() {
            let lease = &mut leases.by_end[at];
            if lease.holder.is_some() {
                at += 1;
                continue;
            }
            let back = u32::try_from(left).map_or(lease.permits, |left| left.min(lease.permits));
            left -= u64::from(back);
            lease.permits -= back;
            leases.sum -= u64::from(back);
            if lease.permits == 0 {
                leases.by_end.remove(at);
            }
        }
    }
}
