//! Charge: the decision itself, in the units of the limit.
//!
//! ```text
//!   state --ahead--> ticks --units--> debt, + price <= limit?  --ticks--> state'
//! ```
//!
//! It is compiled twice: in line where units are ticks, which they are for most limits, and
//! out of line for all other grids.

use super::grid::{Moment, Ticks, Units};
use super::{Gcra, Tat, nanos_ceil};
use crate::{Decision, Nanos, Permits, Time, Verdict};

impl Gcra {
    /// Implements `decide`, with a queue of `queue` units.
    #[expect(
        clippy::inline_always,
        reason = "copying the answer costs more than deciding"
    )]
    #[inline(always)]
    pub(super) fn charge(&self, tat: &mut Tat, now: Time, cost: Permits, queue: u64) -> Decision {
        if self.grid.is_ticks() {
            self.charge_by(Ticks, tat, now, cost, queue)
        } else {
            self.charge_by_grid(tat, now, cost, queue)
        }
    }

    #[inline(never)]
    fn charge_by_grid(&self, tat: &mut Tat, now: Time, cost: Permits, queue: u64) -> Decision {
        self.charge_by(&self.grid, tat, now, cost, queue)
    }

    #[expect(clippy::inline_always, reason = "as `charge`")]
    #[inline(always)]
    fn charge_by(
        &self,
        by: impl Units,
        tat: &mut Tat,
        now: Time,
        cost: Permits,
        queue: u64,
    ) -> Decision {
        let now = by.at(now);
        let debt = self.debt(by, tat, now);
        let price = self.price_of(cost);
        let limit = self.burst + queue;
        let after = debt.saturating_add(price);
        if after > limit {
            return self.deny(by, tat, now, debt, price, limit);
        }
        let ticks = by.ticks(after, now);
        if price > 0 {
            *tat = Tat::after(now, ticks);
        }
        let verdict = match after.saturating_sub(self.burst) {
            0 => Verdict::Allow,
            wait => Verdict::AllowAfter(nanos_ceil(by.ticks(wait, now))),
        };
        let remaining = self.permits_in(limit - after);
        Decision {
            verdict,
            remaining,
            reset_after: nanos_ceil(ticks),
            more_after: self.more_after(by, now, after, limit, remaining),
        }
    }

    /// The debt at `now`; one that is too long is cut.
    #[inline]
    pub(super) fn debt(&self, by: impl Units, tat: &mut Tat, now: Moment) -> u64 {
        let ahead = tat.ahead(now);
        if ahead <= self.deepest {
            by.units(ahead, now)
        } else {
            self.cut(tat, now)
        }
    }

    /// The time until one more than the `remaining` permits fit into the limit; zero if they
    /// never do.
    #[inline]
    pub(super) fn more_after(
        &self,
        by: impl Units,
        now: Moment,
        debt: u64,
        limit: u64,
        remaining: Permits,
    ) -> Nanos {
        let larger = remaining.get() + 1;
        let price = self.interval.get().saturating_mul(larger);
        match limit.checked_sub(price) {
            Some(spare) => nanos_ceil(by.ticks(debt.saturating_sub(spare), now)),
            None => Nanos::ZERO,
        }
    }

    /// Cuts a debt that is too long, because the clock was set back or the limit shrank, to the
    /// deepest possible one, and keeps the cut.
    #[cold]
    fn cut(&self, tat: &mut Tat, now: Moment) -> u64 {
        let debt = self.deepest_debt();
        *tat = Tat::after(now, self.grid.ticks(debt, now));
        debt
    }
}
