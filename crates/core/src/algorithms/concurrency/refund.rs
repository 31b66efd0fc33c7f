//! Refund: anonymous permits come back.

use super::{Concurrency, ConcurrencyState};
use crate::algorithm::{Algorithm as _, Refund};
use crate::{Permits, Time};

impl Refund for Concurrency {
    /// Gives back anonymous permits, those that end first.
    fn refund(&self, leases: &mut ConcurrencyState, now: Time, cost: Permits) {
        if cost > self.capacity() {
            return; // was never taken
        }
        let (mut left, mut at) = (cost.get(), leases.ended(now));
        while left > 0 && at < leases.by_end.len() {
            let lease = &mut leases.by_end[at];
            if lease.holder.is_some() {
                at += 1;
                continue;
            }
            let back = left.min(lease.permits);
            left -= back;
            lease.permits -= back;
            leases.sum -= u64::from(back);
            if lease.permits == 0 {
                leases.by_end.remove(at);
            }
        }
    }
}
