//! Settlement: what work was taken to cost, and what it did.
//!
//! ```text
//!   taken  |==============|         estimate, charged before the work
//!   used   |=====|--------|         the rest is given back
//!   used   |==============|#####>   what went over is owed: the next one pays it by waiting
//! ```
//!
//! For work whose cost is known only when it is done: tokens of a language model, bytes of
//! an answer, rows of a query. The estimate is charged before, so that what runs at the same
//! time cannot spend it too; a limit that is only charged afterwards lets all of them pass.

use ratekeeper_core::{Nanos, Permits, Refund, Reserve, Time};

use super::{Held, Limiter, Place};
use crate::Clock;

/// What work was taken to cost, and what it did; see [`Limiter::settle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// The estimate: what was charged before the work, and granted.
    pub taken: Permits,
    /// What it did cost.
    pub used: Permits,
}

impl Settlement {
    /// Corrects a charge of `taken` to one of `used`. A debt reaches as far ahead as the
    /// limit promises; what lies beyond is forgiven.
    pub(crate) fn settle<A: Refund + Reserve>(self, limit: &A, state: &mut A::State, now: Time) {
        let Self { taken, used } = self;
        if used <= taken {
            return limit.refund(state, now, taken - used);
        }
        let owed = limit.reserve(state, now, used - taken, Nanos::MAX);
        if !owed.verdict.allows() {
            let _most = limit.reserve(state, now, owed.remaining, Nanos::MAX);
        }
    }
}

impl<A: Held + Refund + Reserve, C: Clock> Limiter<A, C> {
    /// Corrects what was charged for work to what it did cost: the rest of the estimate is
    /// given back, and what went over is charged, beyond the limit too. Then nobody passes
    /// until that debt is paid by time. A limit made by [`Limiter::per`] remembers up to an
    /// hour of debt, others as much as they promise ahead, see
    /// [`Gcra::with_patience`](ratekeeper_core::Gcra::with_patience); what lies beyond is
    /// forgiven.
    ///
    /// For permits of `check` and `acquire`. What was reserved for later is not settled
    /// before it is due: others may have been promised moments that stand on it.
    ///
    /// ```
    /// use ratekeeper::core::Permits;
    /// use ratekeeper::{Limiter, Settlement};
    /// let tokens = Limiter::per("1000/24h")?;
    /// let left = || tokens.peek().remaining.get();
    ///
    /// let taken = Permits::new(400);
    /// assert!(tokens.check_n(taken).verdict.allows());
    /// tokens.settle(Settlement { taken, used: Permits::new(150) });
    /// assert_eq!(left(), 850);
    ///
    /// assert!(tokens.check_n(taken).verdict.allows());
    /// tokens.settle(Settlement { taken, used: Permits::new(900) });
    /// assert_eq!(left(), 0, "50 are owed");
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn settle(&self, settlement: Settlement) {
        let now = self.clock.now();
        self.place
            .update(|state| self.with(|limit| settlement.settle(limit, state, now)));
        self.line.wake_first();
    }
}
