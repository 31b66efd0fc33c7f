//! Denial: the answer where a debt leaves no room, and the charge for the request.
//!
//! ```text
//!        |<---------- limit --------->|
//!   -----+----------------------*=====+==*-----> time
//!       now                   debt       debt + price
//!                                      |-|  retry_after
//! ```

use super::grid::{Moment, Units};
use super::{Gcra, Tat, nanos_ceil};
use crate::algorithm::{Algorithm as _, Denials};
use crate::{Decision, Permits, Time, Verdict};

impl Gcra {
    /// Charges the denial, where denials are counted; otherwise the state stays.
    #[inline]
    pub(super) fn deny(
        &self,
        by: impl Units,
        tat: &mut Tat,
        now: Moment,
        debt: u64,
        price: u64,
        limit: u64,
    ) -> Decision {
        if self.denials == Denials::Counted {
            let (after, decision) = self.deny_counted(now, debt, price, limit);
            if after > debt {
                *tat = Tat::after(now, self.grid.ticks(after, now));
            }
            return decision;
        }
        self.denied(by, now, debt, price, limit)
    }

    /// Charges the denial, up to one further limit.
    ///
    /// Out of line, to save registers where denials are free.
    #[cold]
    #[inline(never)]
    fn deny_counted(&self, now: Moment, debt: u64, price: u64, limit: u64) -> (u64, Decision) {
        let after = debt.saturating_add(price).min(2 * limit).max(debt);
        (after, self.denied(&self.grid, now, after, price, limit))
    }

    /// The state after a charge that passes at once; `None` otherwise, so that a denial is not
    /// charged.
    #[cold]
    #[inline(never)]
    pub(super) fn take_counted(&self, mut tat: Tat, now: Time, cost: Permits) -> Option<Tat> {
        let passes = self.decide(&mut tat, now, cost).verdict == Verdict::Allow;
        passes.then_some(tat)
    }

    /// The decision on a debt that leaves no room for `price`.
    #[inline]
    fn denied(&self, by: impl Units, now: Moment, debt: u64, price: u64, limit: u64) -> Decision {
        // Waiting helps if the price fits the limit.
        let verdict = if price <= limit {
            Verdict::Deny {
                retry_after: nanos_ceil(by.ticks(debt + price - limit, now)),
            }
        } else {
            Verdict::DenyForever
        };
        let remaining = self.permits_in(limit.saturating_sub(debt));
        Decision {
            verdict,
            remaining,
            reset_after: nanos_ceil(by.ticks(debt, now)),
            more_after: self.more_after(by, now, debt, limit, remaining),
        }
    }
}
