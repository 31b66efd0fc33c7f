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

/// A debt that was read under other parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) tat: Tat,
    /// Ticks until the last moment that was promised, if other numbers than these promised it.
    pub(super) promised: Option<u64>,
    /// Further debt of the used part, in units: cut here, and kept for limits that hold more.
    pub(super) beyond: u64,
}

/// Converts a state to another rate. The used part of the bucket stays the same permits, at most
/// the larger of the new quota and burst. Behind it, moments that a queue promised, or that are up
/// to `promised` ahead, stay; further debts stay the same permits. At the same rate nothing changes.
pub(super) fn rescale(new: &Gcra, tat: &mut Tat, old: &Gcra, now: Time, promised: Nanos) {
    if !new.has_rate_of(old) {
        let owed = Owed {
            tat: *tat,
            promised: None,
            beyond: 0,
        };
        *tat = converted(new, owed, old, now, promised).tat;
    }
}

/// Returns the debt in the units of `new`, cut to the deepest that it believes.
pub(super) fn converted(new: &Gcra, owed: Owed, old: &Gcra, now: Time, asked: Nanos) -> Owed {
    let (before, after) = (old.grid.at(now), new.grid.at(now));
    let debt = old.grid.units(owed.tat.ahead(before), before);
    let beyond = owed.beyond.min(u64::MAX - debt);
    let whole = debt + beyond;
    if whole == 0 {
        return owed;
    }
    let has_same_rate = new.has_rate_of(old);
    let same_permits = |units: u64| {
        if has_same_rate {
            return units;
        }
        let wide = u128::from(units) * u128::from(new.interval.get());
        let wide = wide.div_ceil(old.interval.get().into()); // up: no caller gains
        u64::try_from(wide).unwrap_or(u64::MAX)
    };
    let promised = match owed.promised {
        _ if has_same_rate => 0, // a debt like any other
        Some(ticks) => old.grid.units(ticks, before).min(whole),
        None => old.promised(debt, asked.as_nanos().saturating_mul(TICKS), before),
    };
    let used = match owed.promised {
        Some(_) => whole - promised,
        None => debt.min(old.burst) + beyond,
    };
    let used_now = same_permits(used);
    let overrun = same_permits(whole - used - promised);
    let most = if has_same_rate {
        u64::MAX
    } else {
        new.most.max(new.earlier)
    };
    let units = used_now
        .min(most)
        .saturating_add(overrun)
        .min(new.deepest_debt()); // more would be cut later, but not by a look
    let promised = old.grid.ticks(promised, before);
    let ticks = new.grid.ticks(units, after).saturating_add(promised);
    Owed {
        tat: Tat::after(after, ticks.min(FARTHEST_TICKS)),
        promised: owed.promised.or((!has_same_rate).then_some(promised)),
        beyond: used_now.saturating_add(overrun) - units,
    }
}

/// Makes `new` believe, at the same rate, debts as deep as those under `old`; at another one, waits
/// as long as in its queue.
pub(super) fn succeed(new: &mut Gcra, old: &Gcra) {
    let waits = old.queue.max(old.promised);
    if new.has_rate_of(old) {
        let deepest = old.own_deepest().max(old.most).max(old.earlier);
        new.earlier = new.earlier.max(deepest);
        new.promised = new.promised.max(old.promised);
    } else if waits > 0 {
        let longest = old.nanos(waits, Moment::ZERO);
        let promised = new.grid.units_in(longest, Moment::ZERO) + 1; // of a part of a unit
        new.promised = new.promised.max(promised);
    }
    *new = new.with_denials(new.denials);
}

impl Gcra {
    /// Returns the units of a debt that were promised: by the queue, or without one to callers that
    /// `asked` for so many ticks. What else lies behind a queue is of a higher burst at this rate.
    pub(super) fn promised(&self, debt: u64, asked: u64, now: Moment) -> u64 {
        let asked = self.grid.units(asked, now);
        let ahead = debt - debt.min(self.burst);
        match self.queue {
            0 => ahead.min(asked),
            queue => {
                let full = self.burst.saturating_add(queue.max(asked));
                ahead - debt.min(self.earlier).saturating_sub(full)
            }
        }
    }

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
