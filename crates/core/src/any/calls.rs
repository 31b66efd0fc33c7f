//! Calls on a limit of any algorithm, beside deciding.
//!
//! ```text
//!   with_quota, on_clock, with_patience      the same limit with other parameters
//!   try_refund, try_reserve, release, renew  calls that only some algorithms have
//!   queue, concurrency, effective_window     properties of the limit
//! ```

use super::{AnyAlgorithm, AnyState, Listed, Reconfigure};
use crate::{
    Algorithm, BanTerms, Banning, Call, Concurrency, Decision, Denials, Error, Gcra, GrantId,
    Granted, LeaseId, Lend, Nanos, Origin, Permits, Quota, Receipt, Time, Unsupported,
};

/// The same limit with other parameters.
impl AnyAlgorithm {
    /// The same algorithm with other numbers: windows stay windows on the same kind of grid,
    /// those of a calendar become windows since 1970; buckets hold the quota's burst and have no
    /// queue; post-paid limits become buckets; loans keep their lease. The cost of denials stays
    /// the same.
    ///
    /// ```
    /// use ratekeeper_core::{Algorithm, AnyAlgorithm, Nanos, Origin, Permits, Window};
    /// let minute = Window::fixed("10/1m".parse().unwrap(), Nanos::ZERO).unwrap();
    /// let hour = AnyAlgorithm::from(minute).with_quota("20/1h".parse().unwrap(), Origin::UNIX);
    /// assert_eq!(hour.unwrap().capacity(), Permits::new(20));
    /// ```
    ///
    /// # Errors
    /// When the algorithm cannot hold such a quota.
    pub fn with_quota(&self, quota: Quota, origin: Origin) -> Result<Self, Error> {
        dispatch!(self, algorithm => algorithm.with_quota(quota, origin))
    }

    /// The same limit on a clock with another zero: windows and refills on a grid fall at the
    /// same wall-clock moments. The limit was constructed for `from`.
    #[must_use]
    pub fn on_clock(&self, from: Origin, to: Origin) -> Self {
        dispatch!(self, algorithm => algorithm.on_clock(from, to).into())
    }

    /// The same limit, able to promise moments up to `longest_wait` ahead: see
    /// [`Gcra::with_patience`]. Unchanged if the algorithm promises no moment, or any.
    #[must_use]
    pub fn with_patience(&self, longest_wait: Nanos) -> Self {
        dispatch!(self, algorithm => Reconfigure::with_patience(algorithm, longest_wait).into())
    }

    /// The same limit; of GCRA [`Gcra::patient`], also with bans.
    #[must_use]
    pub fn patient(self) -> Self {
        match self {
            Self::Gcra(gcra) => gcra.patient().into(),
            Self::Banning(bans) => bans.over(bans.limit().clone().patient()).into(),
            other => other,
        }
    }
}

/// Calls that only some algorithms have.
impl AnyAlgorithm {
    /// As [`Refund::give_back`](crate::Refund::give_back), if the algorithm can take back a charge.
    ///
    /// # Errors
    /// [`Unsupported`] if it cannot: then nothing was changed.
    pub fn try_give_back(
        &self,
        state: &mut AnyState,
        now: Time,
        cost: Permits,
        receipt: Receipt,
    ) -> Result<(), Unsupported> {
        dispatch!(self, algorithm: A => {
            algorithm.try_give_back(A::own_state(state), now, cost, receipt)
        })
        .ok_or_else(|| self.unsupported(Call::Refund))
    }

    /// As [`Refund::refund`](crate::Refund::refund), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper_core::{Algorithm, AnyAlgorithm, Log, Permits, Time, WarmUp};
    /// let quota = "10/1m".parse().unwrap();
    /// let now = Time::ZERO;
    /// let log = AnyAlgorithm::from(Log::sliding(quota).unwrap());
    /// let mut state = Default::default();
    /// let _ = log.decide(&mut state, now, Permits::new(4));
    /// log.try_refund(&mut state, now, Permits::new(3)).unwrap();
    /// assert_eq!(log.look(&state, now, Permits::ZERO).remaining, Permits::new(9));
    ///
    /// let paid_later = AnyAlgorithm::from(WarmUp::bursty(1.0, 1.0).unwrap());
    /// let refused = paid_later.try_refund(&mut Default::default(), now, Permits::ONE).unwrap_err();
    /// assert_eq!(refused.to_string(), "a smooth bursty limit does not support \
    ///     refunds; hint: choose another algorithm, such as `token-bucket`, which does");
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`] if it cannot: then nothing was changed.
    pub fn try_refund(
        &self,
        state: &mut AnyState,
        now: Time,
        cost: Permits,
    ) -> Result<(), Unsupported> {
        dispatch!(self, algorithm: A => algorithm.try_refund(A::own_state(state), now, cost))
            .ok_or_else(|| self.unsupported(Call::Refund))
    }

    /// As [`Reserve::reserve`](crate::Reserve::reserve), if the algorithm can promise a later
    /// moment.
    ///
    /// ```
    /// use ratekeeper_core::{AnyAlgorithm, Gcra, Log, Nanos, Permits, Time, Verdict};
    /// let mut state = Default::default();
    /// let (now, wait) = (Time::ZERO, Nanos::from_secs(9));
    /// let pace = Gcra::spacing(Nanos::SECOND).unwrap().with_patience(wait);
    /// let pace = AnyAlgorithm::from(pace);
    /// assert!(pace.try_reserve(&mut state, now, Permits::ONE, wait).is_ok());
    /// let second = pace.try_reserve(&mut state, now, Permits::ONE, wait).unwrap();
    /// assert_eq!(second.verdict, Verdict::AllowAfter(Nanos::SECOND));
    ///
    /// let log = AnyAlgorithm::from(Log::sliding("10/1m".parse().unwrap()).unwrap());
    /// let refused = log.try_reserve(&mut Default::default(), now, Permits::ONE, wait).unwrap_err();
    /// assert_eq!(refused.to_string(), "a sliding window log limit does not support \
    ///     reservations; hint: wait in the queue with `acquire`, or choose `token-bucket`");
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`] if it cannot: then nothing was changed.
    pub fn try_reserve(
        &self,
        state: &mut AnyState,
        now: Time,
        cost: Permits,
        max_wait: Nanos,
    ) -> Result<Decision, Unsupported> {
        dispatch!(self, algorithm: A => {
            algorithm.try_reserve(A::own_state(state), now, cost, max_wait)
        })
        .ok_or_else(|| self.unsupported(Call::Reserve))
    }

    /// As [`WithBans::ban`](crate::WithBans::ban), if the limit has a ban.
    ///
    /// # Errors
    /// [`Unsupported`] if it has none: then nothing was changed.
    pub fn try_ban(&self, state: &mut AnyState, now: Time, span: Nanos) -> Result<(), Unsupported> {
        dispatch!(self, algorithm: A => algorithm.try_ban(A::own_state(state), now, span))
            .ok_or_else(|| self.unsupported(Call::Ban))
    }

    /// As [`Balance::grant`](crate::Balance::grant), if the limit is a balance.
    ///
    /// # Errors
    /// [`Unsupported`] if it is none: then nothing was changed.
    pub fn try_grant(
        &self,
        state: &mut AnyState,
        credits: Permits,
        id: GrantId,
    ) -> Result<Granted, Unsupported> {
        dispatch!(self, algorithm: A => algorithm.try_grant(A::own_state(state), credits, id))
            .ok_or_else(|| self.unsupported(Call::Grant))
    }

    /// The terms of its bans; `None` if it bans no key.
    pub fn bans(&self) -> Option<BanTerms> {
        Banning::of(self).map(Banning::terms)
    }

    /// As [`Concurrency::release`](crate::Concurrency::release); nothing if the algorithm does not
    /// lend.
    pub fn release(&self, state: &mut AnyState, now: Time, id: LeaseId) -> Permits {
        dispatch!(self, algorithm: A => algorithm.try_release(A::own_state(state), now, id))
    }

    /// As [`Concurrency::renew`](crate::Concurrency::renew); `None` if the algorithm does not lend.
    pub fn renew(&self, state: &mut AnyState, now: Time, id: LeaseId) -> Option<Nanos> {
        dispatch!(self, algorithm: A => algorithm.try_renew(A::own_state(state), now, id))
    }

    /// Returns an error if the algorithm does not have the call.
    ///
    /// # Errors
    /// [`Unsupported`] if not.
    ///
    /// ```
    /// use ratekeeper_core::{AnyAlgorithm, Call, Gcra};
    /// let bucket = AnyAlgorithm::from(Gcra::token_bucket("10/1m".parse().unwrap()).unwrap());
    /// assert!(bucket.supports(Call::Refund).is_ok() && bucket.supports(Call::Reserve).is_ok());
    /// ```
    pub fn supports(&self, call: Call) -> Result<(), Unsupported> {
        let (mut state, now, none) = (AnyState::Fresh, Time::ZERO, Permits::ZERO);
        match call {
            Call::Refund => self.try_refund(&mut state, now, none),
            Call::Reserve => self
                .try_reserve(&mut state, now, none, Nanos::ZERO)
                .map(drop),
            Call::Ban => self.try_ban(&mut state, now, Nanos::ZERO),
            Call::Grant => self.try_grant(&mut state, none, GrantId::of("")).map(drop),
        }
    }

    fn unsupported(&self, call: Call) -> Unsupported {
        Unsupported {
            algorithm: self.name(),
            call,
        }
    }

    /// The maximum number of permits that wait at once for a moment they were promised, and the
    /// longest such wait. `None` for algorithms that admit or deny at once.
    pub fn queue(&self) -> Option<(Permits, Nanos)> {
        Gcra::of(self)
            .map(Gcra::queue)
            .filter(|(places, _)| *places > Permits::ZERO)
    }

    /// The concurrency limit, if the algorithm is one: its permits are lent, and come back.
    #[inline]
    pub fn concurrency(&self) -> Option<&Concurrency> {
        Concurrency::of(self)
    }

    /// Returns true if a charge is made even for a request that another limit refuses, because
    /// this limit counts denials. Named loans are excepted: they are given back to the refused
    /// request's holder.
    pub fn charges_even_if_refused(&self, lend: Lend) -> bool {
        let is_named = self.concurrency().is_some() && lend != Lend::Unnamed;
        self.denials() == Denials::Counted && !is_named
    }

    /// A time after which more than `decision.remaining` may be used, if no other request spends
    /// meanwhile: `t` of the `RateLimit` field. `None` while nothing is used.
    ///
    /// It is `decision.more_after`; where [permits come back one by
    /// one](Algorithm::refills_one_by_one) at least the time in which the rate grants `remaining`
    /// anew, so that a client that spreads `remaining` over it keeps to the rate.
    ///
    /// ```
    /// use ratekeeper_core::{Algorithm, AnyAlgorithm, Gcra, Nanos, Permits, Time};
    /// let gcra = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
    /// let decision = gcra.decide(&mut Default::default(), Time::ZERO, Permits::new(6));
    /// let window = AnyAlgorithm::from(gcra).effective_window(&decision);
    /// assert_eq!(window, Some(Nanos::from_millis(400)), "four more take that long");
    /// ```
    pub fn effective_window(&self, decision: &Decision) -> Option<Nanos> {
        let more = decision.more_after;
        if more == Nanos::ZERO {
            return None;
        }
        let window = self.window().filter(|_| self.refills_one_by_one());
        let anew = window.map_or(Nanos::ZERO, |window| {
            let share = u128::from(window.as_nanos()) * u128::from(decision.remaining.get());
            let anew = share.div_ceil(u128::from(self.capacity().get().max(1)));
            Nanos::from_nanos(u64::try_from(anew).unwrap_or(u64::MAX))
        });
        Some(anew.max(more))
    }
}
