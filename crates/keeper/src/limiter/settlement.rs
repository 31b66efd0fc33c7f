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
    AnyAlgorithm, Call, Decision, Nanos, Permits, Receipt, Refund, Reserve, Time, Unsupported,
};

use super::{Grant, Limiter, LimiterAlgorithm};
use crate::Clock;

/// The estimated and the actual cost of work: see [`Grant::used`](super::Grant::used) and
/// [`Limiter::settle`].
///
/// ```
/// let tokens = ratekeeper::Limiter::per("1000/24h")?;
/// let grant = tokens.check_n(400).unwrap();
/// tokens.settle(grant.used(150));
/// assert_eq!(tokens.peek().remaining.get(), 850);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a settlement changes nothing until it is given to the limiter"]
pub struct Settlement {
    /// The estimate: charged before the work, and granted.
    pub(crate) grant: Grant,
    /// The actual cost.
    pub(crate) used: u64,
}

impl<A: LimiterAlgorithm, C: Clock> Limiter<A, C> {
    /// Corrects a charge. A debt reaches as far ahead as the limit promises; the debt beyond is
    /// forgiven. A settlement of another limiter changes nothing.
    fn settle_by<E>(
        &self,
        Settlement { grant, used }: &Settlement,
        give_back: impl Fn(&A, &mut A::State, Time, Permits, Receipt) -> Result<(), E>,
        reserve: impl Fn(&A, &mut A::State, Time, Permits) -> Result<Decision, E>,
    ) -> Result<(), E> {
        if let Some(rest) = grant.cost().checked_sub(*used) {
            let rest = Permits::new(rest);
            return self.give_back(grant, rest, |limit, state, now, receipt| {
                give_back(limit, state, now, rest, receipt)
            });
        }
        if grant.made.limiter != self.id {
            return Ok(());
        }
        let (now, owed) = (self.clock.now(), Permits::new(used - grant.cost()));
        self.charge(|limit, state| {
            let first = reserve(limit, state, now, owed)?;
            if !first.verdict.allows() {
                let _most = reserve(limit, state, now, first.remaining)?;
            }
            Ok(())
        })?;
        self.line.wake_first(); // it has longer to wait
        Ok(())
    }
}

impl<A: LimiterAlgorithm + Refund + Reserve, C: Clock> Limiter<A, C> {
    /// Corrects the charge for work to its actual cost: the rest of the estimate is given back, and
    /// the excess is charged, also beyond the limit. Then no request passes until that debt is paid
    /// by time. A token bucket remembers up to about a year of debt, unless
    /// [`Gcra::with_patience`](ratekeeper_core::Gcra::with_patience) states less; the debt beyond is
    /// forgiven.
    ///
    /// The rest comes back as far as time has not paid for it, see [`refund`](Self::refund).
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
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn settle(&self, settlement: Settlement) {
        let Ok(()) = self.settle_by(
            &settlement,
            |limit, state, now, rest, receipt| {
                limit.give_back(state, now, rest, receipt);
                Ok::<_, Infallible>(())
            },
            |limit, state, now, owed| Ok(limit.reserve(state, now, owed, Nanos::MAX)),
        );
    }
}

impl<C: Clock> Limiter<AnyAlgorithm, C> {
    /// Like [`refund`](Limiter::refund), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// let limiter = Limiter::parse("10/1h").unwrap();
    /// let grant = limiter.check_n(4).unwrap();
    /// limiter.try_refund(grant).unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 10);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn try_refund(&self, grant: Grant) -> Result<(), Unsupported> {
        self.with(|algorithm| algorithm.supports(Call::Refund))?;
        let back = Permits::new(grant.cost()); // as in `refund`
        self.give_back(&grant, back, |limit, state, now, receipt| {
            limit.try_give_back(state, now, back, receipt)
        })
    }

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
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn try_settle(&self, settlement: Settlement) -> Result<(), Unsupported> {
        self.with(settles)?;
        self.settle_by(
            &settlement,
            AnyAlgorithm::try_give_back,
            |limit, state, now, owed| limit.try_reserve(state, now, owed, Nanos::MAX),
        )
    }
}

/// Returns an error unless the algorithm can take back a charge and owe one.
pub(crate) fn settles(limit: &AnyAlgorithm) -> Result<(), Unsupported> {
    limit.supports(Call::Refund)?;
    limit.supports(Call::Reserve)
}
