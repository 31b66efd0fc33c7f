//! Promises of GCRA: charges for a later moment, and those that are taken back.
//!
//! ```text
//!   reserve   TAT moves on, though it lies beyond the burst: the caller waits for it
//!   give back TAT moves back, to now at most, by no more than is unpaid
//!   rescale   TAT moves to where the same share of another burst is spent
//! ```

use super::grid::{Moment, TICKS, Units as _};
use super::{FARTHEST_TICKS, Gcra, Tat};
use crate::algorithm::{Refund, Reserve};
use crate::{Decision, Nanos, Permits, Receipt, Time};

impl Refund for Gcra {
    /// Moves TAT back by the cost, at most by the part that time has not paid yet: others may have
    /// been charged since, but TAT has not been before `paid`.
    fn give_back_late(&self, tat: &mut Tat, now: Time, cost: Permits, receipt: Receipt) {
        let mut unpaid = receipt.paid.since(now);
        if !self.pays_in_nanos() {
            unpaid = unpaid.saturating_sub(Nanos::from_nanos(1)); // `paid` was rounded up
        }
        let unpaid = self.grid.units_in(unpaid, self.grid.at(now));
        let unpaid = unpaid.saturating_sub(self.price_of(receipt.returned));
        self.move_back(tat, now, self.price_of(cost).min(unpaid));
    }

    fn refund(&self, tat: &mut Tat, now: Time, cost: Permits) {
        self.move_back(tat, now, self.price_of(cost));
    }
}

impl Gcra {
    /// Moves TAT back by `units`, to now at most.
    fn move_back(&self, tat: &mut Tat, now: Time, units: u64) {
        let now = self.grid.at(now);
        // A debt that is too long is not cut here, but by the next decision.
        let debt = self.grid.units(tat.ahead(now), now);
        if debt == 0 || units == 0 {
            return;
        }
        *tat = match debt.saturating_sub(units) {
            0 => Tat::after(self.grid.unit_start(now), 0),
            left => Tat::after(now, self.grid.ticks(left, now)),
        };
    }

    /// Returns true if each permit takes whole nanoseconds, so that no moment is rounded.
    fn pays_in_nanos(&self) -> bool {
        self.grid.is_ticks() && self.interval.get().is_multiple_of(TICKS)
    }
}

impl Reserve for Gcra {
    /// Waits no longer than the limit's patience; see [`Gcra::with_patience`].
    fn reserve(&self, tat: &mut Tat, now: Time, cost: Permits, max_wait: Nanos) -> Decision {
        let longest = self.queue.max(self.patience);
        let queue = self.grid.units_in(max_wait, self.grid.at(now)).min(longest);
        self.charge(tat, now, cost, queue)
    }
}

/// Converts a state to other numbers. At another rate, the missing part of the bucket stays the
/// same share of it; at the same rate, the same permits, as far as it holds them. Debt beyond an
/// empty bucket, for promised moments, keeps its duration.
pub(super) fn rescale(new: &Gcra, tat: &mut Tat, old: &Gcra, now: Time) {
    let now = new.grid.at(now);
    let debt = tat.ahead(now);
    let ticks = |limit: &Gcra, units| limit.grid.ticks(units, Moment::ZERO);
    let (old_burst, new_burst) = (ticks(old, old.burst), ticks(new, new.burst));
    if new_burst == old_burst || debt == 0 {
        return;
    }
    let lacking = debt.min(old_burst);
    let promised = debt - lacking;
    let lacking = if (new.grid, new.interval) == (old.grid, old.interval) {
        lacking.min(ticks(new, new.burst + new.queue))
    } else {
        let share = u128::from(lacking) * u128::from(new_burst);
        let share = share.div_ceil(u128::from(old_burst)); // up: no caller gains
        u64::try_from(share).unwrap_or(u64::MAX) // at most the new burst
    };
    *tat = Tat::after(now, lacking.saturating_add(promised).min(FARTHEST_TICKS));
}
