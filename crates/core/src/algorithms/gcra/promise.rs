//! Promises of GCRA: charges for a later moment, and those that are taken back.
//!
//! ```text
//!   reserve   TAT moves on, though it lies beyond the burst: whoever reserved waits for it
//!   refund    TAT moves back, to now at most
//!   rescale   TAT moves to where the same share of another burst is spent
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

/// Brings a state to other numbers. At another rate, what the bucket lacks stays the same share
/// of it; at the same rate, the same permits, as far as it holds them. What is owed beyond an
/// empty bucket, moments that were promised, stays the same time.
pub(super) fn rescale(new: &Gcra, tat: &mut Tat, old: &Gcra, now: Time) {
    let now = ticks(now);
    let debt = tat.0.saturating_sub(now);
    if new.burst == old.burst || debt == 0 {
        return;
    }
    let lacking = debt.min(old.burst);
    let promised = debt - lacking;
    let lacking = if new.interval == old.interval {
        lacking.min(new.burst + new.queue)
    } else {
        let share = u128::from(lacking) * u128::from(new.burst);
        let share = share.div_ceil(u128::from(old.burst)); // up: nobody gains
        u64::try_from(share).unwrap_or(u64::MAX) // at most the new burst
    };
    *tat = Tat(now.saturating_add(lacking).saturating_add(promised));
}
