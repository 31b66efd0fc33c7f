//! Configured: a limiter with an algorithm chosen at run time, by the policy's words.
//!
//! ```text
//!   Limiter::parse(words)  --->  Limiter<AnyAlgorithm>    check, acquire, peek, reset, set_limit:
//!                                                         as for every algorithm
//!                                                         try_reserve, try_refund: an answer, or
//!                                                         `Unsupported`
//! ```

use std::time::Duration;

use ratekeeper_core::{AnyAlgorithm, Call, Permits, Unsupported};

use super::{Limiter, Reservation};
use crate::{Clock, Grant};

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

    /// Like [`reserve`](Limiter::reserve), if the algorithm can promise a later moment.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use std::time::Duration;
    /// let minute = Duration::from_secs(60);
    /// let pace = Limiter::parse("spacing = \"10s\"").unwrap();
    /// let reserved = pace.try_reserve(1, minute).unwrap();
    /// assert_eq!(reserved.wait(), Some(Duration::ZERO));
    /// let window = Limiter::parse("{ limit = \"10/1m\", algorithm = \"fixed-window\" }").unwrap();
    /// assert!(window.try_reserve(1, minute).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: only limits by GCRA and post-paid ones can promise.
    pub fn try_reserve(
        &self,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Reservation<AnyAlgorithm>, Unsupported> {
        self.with(|algorithm| algorithm.supports(Call::Reserve))?; // also while others wait
        self.reserve_by(cost, |algorithm, state, now, cost| {
            algorithm.try_reserve(state, now, cost, max_wait.into())
        })
    }

    /// Like [`cancel`](Limiter::cancel), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use std::time::Duration;
    /// let limiter = Limiter::parse("spacing = \"1h\"").unwrap();
    /// let reserved = limiter.try_reserve(1, Duration::ZERO).unwrap();
    /// assert_eq!(limiter.try_cancel(reserved), Ok(true));
    /// assert!(limiter.check().is_ok());
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_cancel(&self, reservation: Reservation<AnyAlgorithm>) -> Result<bool, Unsupported> {
        self.with(|algorithm| algorithm.supports(Call::Refund))?; // refused ones too
        self.cancel_by(reservation, AnyAlgorithm::try_refund)
    }
}
