//! Promises of GCRA: charges for a later moment, and those that are taken back.
//!
//! ```text
//!   reserve   TAT moves on, though it lies beyond the burst: the caller waits for it
//!   give back TAT moves back, to now at most, by no more than is unpaid
//! ```

use super::grid::{TICKS, Units as _};
use super::{Gcra, Tat};
use crate::algorithm::{Refund, Reserve};
use crate::{Decision, Nanos, Permits, Receipt, Time};

impl Refund for Gcra {
    /// Moves TAT back by the cost, at most by the part that time has not paid yet: others may have
    /// been charged since, but TAT has not been before `paid`, except by permits that came back
    /// since. Their time and their price are two upper bounds of how far they moved it: the lower
    /// one counts.
    fn give_back_late(&self, tat: &mut Tat, now: Time, cost: Permits, receipt: Receipt) {
        let (paid, returned) = (receipt.paid, receipt.returned);
        let units_until = |paid: Time, rounded: u64| {
            let rounded = if self.pays_in_nanos() { 0 } else { rounded };
            let unpaid = paid.since(now).saturating_sub(Nanos::from_nanos(rounded));
            self.grid.units_in(unpaid, self.grid.at(now))
        };
        // A nanosecond for each moment that was rounded: `paid`, and one for each permit at most.
        let by_time = units_until(paid - receipt.sooner, returned.get().saturating_add(1));
        let by_price = units_until(paid, 1).saturating_sub(self.price_of(returned));
        self.move_back(tat, now, self.price_of(cost).min(by_time.max(by_price)));
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
