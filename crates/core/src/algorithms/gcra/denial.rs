//! Denial: what is told of a debt that leaves no room, and what is charged for asking.
//!
//! ```text
//!        |<---------- limit --------->|
//!   -----+----------------------*=====+==*-----> time
//!       now                   from       to = from + price
//!                                      |-|  retry_after
//! ```

use super::{Gcra, Tat, nanos_ceil};
use crate::algorithm::{Algorithm as _, Denials};
use crate::{Decision, Permits, Time, Verdict};

impl Gcra {
    /// Charges for asking, where denials are counted; all else stays.
    #[inline]
    pub(super) fn deny(
        &self,
        tat: &mut Tat,
        now: u64,
        from: u64,
        price: u64,
        limit: u64,
    ) -> Decision {
        if self.denials == Denials::Counted {
            let (to, decision) = self.deny_counted(now, from, price, limit);
            if to > from {
                *tat = Tat(to);
            }
            return decision;
        }
        self.denied(now, from, price, limit)
    }

    /// A denial is charged too, up to one further limit: to where it reaches. Not where that
    /// would make the wait reach past the end of time.
    ///
    /// Out of line, for the registers of those whose denials are free.
    #[cold]
    #[inline(never)]
    fn deny_counted(&self, now: u64, from: u64, price: u64, limit: u64) -> (u64, Decision) {
        let most = now.saturating_add(2 * limit);
        let mut to = from.saturating_add(price).min(most);
        if to < from || price <= limit && to.checked_add(price).is_none() {
            to = from;
        }
        (to, self.denied(now, to, price, limit))
    }

    /// The state after a charge that passes at once; what is charged for a denial is not.
    #[cold]
    #[inline(never)]
    pub(super) fn take_counted(&self, mut tat: Tat, now: Time, cost: Permits) -> Option<Tat> {
        let passes = self.decide(&mut tat, now, cost).verdict == Verdict::Allow;
        passes.then_some(tat)
    }

    /// What is told of a debt that reaches to `from`.
    #[inline]
    fn denied(&self, now: u64, from: u64, price: u64, limit: u64) -> Decision {
        // Waiting helps if the price fits the limit, and is paid before time ends.
        let verdict = match from.checked_add(price) {
            Some(to) if price <= limit => Verdict::Deny {
                retry_after: nanos_ceil(to - now - limit),
            },
            _ => Verdict::DenyForever,
        };
        let remaining = self.left(now, from, limit);
        Decision {
            verdict,
            remaining,
            reset_after: nanos_ceil(from - now),
            more_after: self.more_after(now, from, limit, remaining),
        }
    }
}
