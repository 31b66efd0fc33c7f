//! Promises of GCRA: charges for a later moment, and those that are taken back.
//!
//! ```text
//!   reserve   TAT moves on, though it lies beyond the burst: whoever reserved waits for it
//!   refund    TAT moves back, to now at most
//! ```

use super::{Gcra, Tat, ticks};
use crate::algorithm::{Refund, Reserve};
use crate::{Decision, Nanos, Permits, Time};

impl Refund for Gcra {
    fn refund(&self, tat: &mut Tat, now: Time, cost: Permits) {
        let back = self.interval.get().saturating_mul(u64::from(cost.get()));
        *tat = Tat(tat.0.saturating_sub(back).max(tat.0.min(ticks(now))));
    }
}

impl Reserve for Gcra {
    /// Waits no longer than the limit's patience; see [`Gcra::with_patience`].
    fn reserve(&self, tat: &mut Tat, now: Time, cost: Permits, max_wait: Nanos) -> Decision {
        let longest = self.queue.max(self.patience);
        self.charge(tat, now, cost, ticks(Time::ZERO + max_wait).min(longest))
    }
}
