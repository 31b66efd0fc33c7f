//! Settlement: the estimated and the actual cost of work.
//!
//! ```text
//!   taken  |==============|         estimate, charged before the work
//!   used   |=====|--------|         the rest is given back
//!   used   |==============|#####>   the excess is owed: the next one pays it by waiting
//! ```
//!
//! For work with a cost that is known only when it is done: tokens of a language model, bytes of an
//! answer, rows of a query. The estimate is charged before the work, so that concurrent work cannot
//! spend the same permits. If costs were charged afterwards only, all concurrent work would pass.

use std::convert::Infallible;

use ratekeeper_core::{
    AnyAlgorithm, AnyState, Call, Decision, Nanos, Permits, Refund, Reserve, Unsupported,
};

use super::{Limiter, LimiterAlgorithm, StateCell};
use crate::Clock;

/// The estimated and the actual cost of work; see [`Limiter::settle`].
///
/// ```
/// use ratekeeper::{Limiter, Settlement};
/// let tokens = Limiter::per("1000/24h")?;
/// let grant = tokens.check_n(400).unwrap();
/// assert_eq!(grant.used(150), Settlement { taken: 400, used: 150 });
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    /// The estimate: charged before the work, and granted.
    pub taken: u64,
    /// The actual cost.
    pub used: u64,
}

impl Settlement {
    /// Corrects a charge of `taken` to one of `used`. A debt reaches as far ahead as the limit
    /// promises; the debt beyond is forgiven.
    fn settle<S, E>(
        self,
        state: &mut S,
        refund: impl FnOnce(&mut S, Permits) -> Result<(), E>,
        reserve: impl Fn(&mut S, Permits) -> Result<Decision, E>,
    ) -> Result<(), E> {
        let Self { taken, used } = self;
        if used <= taken {
            return refund(state, Permits::new(taken - used));
        }
        let owed = reserve(state, Permits::new(used - taken))?;
        if !owed.verdict.allows() {
            let _most = reserve(state, owed.remaining)?;
        }
        Ok(())
    }
}

impl<A: LimiterAlgorithm + Refund + Reserve, C: Clock> Limiter<A, C> {
    /// Corrects the charge for work to its actual cost: the rest of the estimate is given back, and
    /// the excess is charged, also beyond the limit. Then no request passes until that debt is paid
    /// by time. A limit made by [`Limiter::per`] remembers up to about a year of debt, others as
    /// much as they promise ahead, see
    /// [`Gcra::with_patience`](ratekeeper_core::Gcra::with_patience); the debt beyond is forgiven.
    ///
    /// For permits of `check` and `acquire`. A reservation is not settled before it is due, because
    /// others may have been promised moments that depend on it.
    ///
    /// ```
    /// use ratekeeper::{Limiter, Refused};
    /// use std::time::Duration;
    /// let tokens = Limiter::per("1000/24h")?;
    /// let left = || tokens.peek().remaining.get();
    ///
    /// let grant = tokens.check_n(400).unwrap();
    /// tokens.settle(grant.used(150));
    /// assert_eq!(left(), 850);
    ///
    /// let grant = tokens.check_n(400).unwrap();
    /// tokens.settle(grant.used(900));
    /// assert_eq!(left(), 0);
    /// // 50 are owed; the next one comes when 51 have been filled up, 86.4 s each.
    /// let Err(Refused::Until(wait)) = tokens.check() else { panic!() };
    /// assert!(wait > Duration::from_secs(4_400) && wait <= Duration::from_secs(4_407));
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn settle(&self, settlement: Settlement) {
        let now = self.clock.now();
        let Ok(()) = self.place.update(|state| {
            self.with(|limit| {
                settlement.settle(
                    state,
                    |state, back| {
                        limit.refund(state, now, back);
                        Ok::<_, Infallible>(())
                    },
                    |state, owed| Ok(limit.reserve(state, now, owed, Nanos::MAX)),
                )
            })
        });
        self.line.wake_first();
    }
}

impl<C: Clock> Limiter<AnyAlgorithm, C> {
    /// Like [`settle`](Limiter::settle), if the algorithm can take back a charge and owe one.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// let tokens = Limiter::parse("{ limit = \"1000/24h\", algorithm = \"token-bucket\" }").unwrap();
    /// let grant = tokens.check_n(400).unwrap();
    /// tokens.try_settle(grant.used(150)).unwrap();
    /// assert_eq!(tokens.peek().remaining.get(), 850);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: only limits by GCRA do both.
    pub fn try_settle(&self, settlement: Settlement) -> Result<(), Unsupported> {
        let now = self.clock.now();
        let settle = |state: &mut AnyState| {
            self.with(|limit| {
                settles(limit)?;
                settlement.settle(
                    state,
                    |state, back| limit.try_refund(state, now, back),
                    |state, owed| limit.try_reserve(state, now, owed, Nanos::MAX),
                )
            })
        };
        StateCell::<AnyAlgorithm>::update(&self.place, settle)?;
        self.line.wake_first();
        Ok(())
    }
}

/// Returns an error unless the algorithm can take back a charge and owe one.
pub(crate) fn settles(limit: &AnyAlgorithm) -> Result<(), Unsupported> {
    limit.supports(Call::Refund)?;
    limit.supports(Call::Reserve)
}
