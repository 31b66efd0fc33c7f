//! Reconfigure: the same limit with other parameters.
//!
//! ```text
//!   now      empty                    TAT
//!    |<-used ->|<-promised->|<-overrun->|
//!     permits,     time         permits
//!     cut to the
//!     new maximum
//! ```

use super::grid::{Moment, TICKS, Units as _};
use super::{FARTHEST_TICKS, Gcra, HORIZON_TICKS, Tat};
use crate::{AnyAlgorithm, Error, Nanos, Origin, Permits, Quota, Reconfigure, Time};

/// Converts a state to another rate. The used part of the bucket stays the same permits, at most
/// the larger of the new quota and burst; moments that were promised, by the queue or up to
/// `promised` ahead, stay; further debts stay the same permits. At the same rate nothing changes.
pub(super) fn rescale(new: &Gcra, tat: &mut Tat, old: &Gcra, now: Time, promised: Nanos) {
    let (before, after) = (old.grid.at(now), new.grid.at(now));
    let debt = old.grid.units(tat.ahead(before), before);
    if debt == 0 || new.has_rate_of(old) {
        return;
    }
    let same_permits = |units: u64| {
        let wide = u128::from(units) * u128::from(new.interval.get());
        let wide = wide.div_ceil(old.interval.get().into()); // up: no caller gains
        u64::try_from(wide).unwrap_or(u64::MAX)
    };
    let used = debt.min(old.burst);
    let promised = old
        .grid
        .units(promised.as_nanos().saturating_mul(TICKS), before);
    let promised = (debt - used).min(promised.max(old.queue));
    let units = same_permits(used)
        .min(new.most)
        .saturating_add(same_permits(debt - used - promised))
        .min(new.deepest_debt()); // more would be cut later, but not by a look
    let ticks = new.grid.ticks(units, after);
    let promised = old.grid.ticks(promised, before);
    *tat = Tat::after(after, ticks.saturating_add(promised).min(FARTHEST_TICKS));
}

impl Gcra {
    /// Returns true if both grant permits at the same rate, in the same units.
    pub(super) fn has_rate_of(&self, other: &Self) -> bool {
        (self.grid, self.interval) == (other.grid, other.interval)
    }

    /// The same limit, able to promise moments up to `longest_wait` ahead when asked to
    /// [reserve](crate::Reserve::reserve); at most 1.1 years less the burst. Without it, a
    /// reservation waits no longer than in the limit's own queue.
    ///
    /// It is part of the limit, because debts up to it are then accepted: see [clocks](super).
    #[must_use]
    pub fn with_patience(self, longest_wait: impl Into<Nanos>) -> Self {
        let largest = self.price_of(Permits::MAX) - 1; // a cost that was cut to it never fits
        let horizon = self.grid.units_in_ticks(HORIZON_TICKS, Moment::ZERO);
        let longest = horizon.min(largest) - self.burst;
        let wait = self.grid.units_in(longest_wait.into(), Moment::ZERO);
        let patience = wait.min(longest);
        Self { patience, ..self }.with_denials(self.denials)
    }

    /// The same limit, with the longest patience if it has neither patience nor a queue: a bucket
    /// for callers that settle what they used, and then owe more than it holds.
    #[must_use]
    pub fn patient(self) -> Self {
        match (self.patience, self.queue) {
            (0, 0) => self.with_patience(Nanos::MAX),
            _ => self,
        }
    }
}

impl Reconfigure for Gcra {
    /// A bucket without a queue.
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        let bucket = Self::token_bucket(quota)?;
        Ok(bucket.with_denials(self.denials).into())
    }

    fn with_patience(&self, longest_wait: Nanos) -> Self {
        Self::with_patience(*self, longest_wait)
    }
}
