//! Any: the algorithms that can be chosen at run time, as one algorithm.
//!
//! ```text
//!   closed_set! { Gcra: refund, reserve; Window: refund; .. }      the one list
//!        |
//!        +--> AnyAlgorithm::Gcra  <---- belong together ---->  AnyState::Gcra
//!        +--> AnyAlgorithm::Log   <---- belong together ---->  AnyState::Log
//!        +--> Listed for each         AnyState::Fresh belongs to all of them
//! ```
//!
//! * A key never seen is `Fresh`, which equals every state at its beginning. It becomes the
//!   algorithm's own with the first charge.
//! * A state of another algorithm counts as fresh. Code that changes the algorithm carries the
//!   usage over: see [`Algorithm::keeps_state_of`], which is false for two different algorithms.
//! * Some algorithms cannot take back a charge, or promise a later moment. Where the algorithm is
//!   fixed the compiler knows ([`Refund`], [`Reserve`]); here the calls begin with `try_`, and
//!   return [`Unsupported`].
//! * Costs a branch more than the algorithm itself, and the bytes of the largest state.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    Algorithm, Call, Concurrency, Decision, Denials, Error, Exponential, Gcra, Hybrid, Interval,
    LeaseId, Lend, Log, LuaTwin, Nanos, Origin, Permits, Quota, Refund, Reserve, StoredForm,
    SubBuckets, Time, UnixMicros, Unsupported, WarmUp, Window,
};

/// The same limit with other parameters.
pub trait Reconfigure: Algorithm + Sized {
    /// See [`AnyAlgorithm::with_quota`].
    ///
    /// # Errors
    /// When the algorithm cannot hold such a quota.
    fn with_quota(&self, quota: Quota, origin: Origin) -> Result<AnyAlgorithm, Error>;

    /// See [`AnyAlgorithm::on_clock`]. The limit itself, if it knows spans only.
    #[must_use]
    fn on_clock(&self, _from: Origin, _to: Origin) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }

    /// See [`AnyAlgorithm::with_patience`].
    #[must_use]
    fn with_patience(&self, _longest_wait: Nanos) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }
}

/// An algorithm of the closed set, with the calls that only some have as optional ones.
pub trait Listed:
    Reconfigure + StoredForm<State: Send> + Clone + fmt::Debug + Send + Sync + 'static
{
    /// True if permits are lent and come back: [`Concurrency`].
    const LENDS: bool = false;

    /// This algorithm, if `any` is one.
    fn of(any: &AnyAlgorithm) -> Option<&Self>;

    /// Calls `view` with the state; with that of a key never seen, if `any` is another's.
    fn with_state<T>(any: &AnyState, view: impl FnOnce(&Self::State) -> T) -> T;

    /// The state, after replacing another algorithm's by that of a key never seen.
    fn own_state(any: &mut AnyState) -> &mut Self::State;

    /// Wraps a state.
    fn any_state(state: Self::State) -> AnyState;

    /// As [`Refund::refund`]; `None` if the algorithm cannot take back a charge.
    fn try_refund(&self, _state: &mut Self::State, _now: Time, _cost: Permits) -> Option<()> {
        None
    }

    /// As [`Reserve::reserve`]; `None` if the algorithm cannot promise a later moment.
    fn try_reserve(
        &self,
        _state: &mut Self::State,
        _now: Time,
        _cost: Permits,
        _max_wait: Nanos,
    ) -> Option<Decision> {
        None
    }

    /// As [`Concurrency::release`]; nothing if the algorithm does not lend.
    fn try_release(&self, _state: &mut Self::State, _now: Time, _id: LeaseId) -> Permits {
        Permits::ZERO
    }

    /// As [`Concurrency::renew`]; `None` if the algorithm does not lend.
    fn try_renew(&self, _state: &mut Self::State, _now: Time, _id: LeaseId) -> Option<Nanos> {
        None
    }

    /// Permits on loan at `now`; 0 if the algorithm does not lend.
    fn on_loan(&self, _state: &Self::State, _now: Time) -> u64 {
        0
    }
}

/// Something to do with an algorithm of the closed set, whichever it is.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Called with the algorithm.
    fn visit<A: Listed>(self, algorithm: &A) -> Self::Output;
}

/// A call that an algorithm of the list has beside deciding, as a function of [`Listed`].
macro_rules! call {
    (refund) => {
        fn try_refund(&self, state: &mut Self::State, now: Time, cost: Permits) -> Option<()> {
            self.refund(state, now, cost);
            Some(())
        }
    };
    (reserve) => {
        fn try_reserve(
            &self,
            state: &mut Self::State,
            now: Time,
            cost: Permits,
            max_wait: Nanos,
        ) -> Option<Decision> {
            Some(self.reserve(state, now, cost, max_wait))
        }
    };
    (lend) => {
        const LENDS: bool = true;

        fn try_release(&self, state: &mut Self::State, now: Time, id: LeaseId) -> Permits {
            self.release(state, now, id)
        }

        fn try_renew(&self, state: &mut Self::State, now: Time, id: LeaseId) -> Option<Nanos> {
            self.renew(state, now, id)
        }

        fn on_loan(&self, state: &Self::State, now: Time) -> u64 {
            self.in_use(state, now)
        }
    };
}

/// Generates [`AnyAlgorithm`], [`AnyState`] and [`Listed`] from the list.
macro_rules! closed_set {
    ($($(#[$doc:meta])* $name:ident: $($call:ident),+;)*) => {
        /// The algorithms that can be chosen at run time: a closed set.
        #[derive(Clone, PartialEq, Debug)]
        pub enum AnyAlgorithm {
            $($(#[$doc])* $name($name),)*
        }

        /// The state of one key under an [`AnyAlgorithm`]. A state of another algorithm counts
        /// as that of a key never seen.
        ///
        /// ```
        /// use ratekeeper_core::{Algorithm, AnyAlgorithm, AnyState, Gcra, Log, Permits, Time};
        /// let quota = "2/1s".parse().unwrap();
        /// let gcra = Gcra::token_bucket(quota).unwrap();
        /// for limit in [AnyAlgorithm::from(gcra), Log::sliding(quota).unwrap().into()] {
        ///     let mut state = AnyState::default();
        ///     let mut ask = || limit.decide(&mut state, Time::ZERO, Permits::ONE).verdict.allows();
        ///     assert_eq!([ask(), ask(), ask()], [true, true, false]);
        /// }
        /// ```
        #[derive(Clone, Debug, Default)]
        pub enum AnyState {
            /// Of a key never seen.
            #[default]
            Fresh,
            $(
                #[doc = concat!("Of [`", stringify!($name), "`](crate::", stringify!($name), ").")]
                $name(<$name as Algorithm>::State),
            )*
        }

        impl AnyState {
            /// Returns true for the state of a key never seen.
            fn is_fresh(&self) -> bool {
                match self {
                    Self::Fresh => true,
                    $(Self::$name(state) => *state == Default::default(),)*
                }
            }
        }

        impl PartialEq for AnyState {
            fn eq(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$name(a), Self::$name(b)) => a == b,)*
                    (a, b) => a.is_fresh() && b.is_fresh(),
                }
            }
        }

        impl AnyAlgorithm {
            /// Calls the visitor with the algorithm.
            #[inline]
            pub fn visit<V: Visitor>(&self, visitor: V) -> V::Output {
                match self {
                    $(Self::$name(algorithm) => visitor.visit(algorithm),)*
                }
            }
        }

        /// Runs `$body` with `$algorithm` bound to whichever algorithm it is.
        macro_rules! dispatch {
            ($any:expr, $algorithm:ident => $body:expr) => {
                match $any {
                    $(AnyAlgorithm::$name($algorithm) => $body,)*
                }
            };
        }

        $(
            impl From<$name> for AnyAlgorithm {
                fn from(algorithm: $name) -> Self {
                    Self::$name(algorithm)
                }
            }

            impl Listed for $name {
                #[inline]
                fn of(any: &AnyAlgorithm) -> Option<&Self> {
                    match any {
                        AnyAlgorithm::$name(algorithm) => Some(algorithm),
                        _ => None,
                    }
                }

                #[inline]
                fn with_state<T>(any: &AnyState, view: impl FnOnce(&Self::State) -> T) -> T {
                    match any {
                        AnyState::$name(state) => view(state),
                        _ => view(&Self::State::default()),
                    }
                }

                #[inline]
                fn own_state(any: &mut AnyState) -> &mut Self::State {
                    if !matches!(any, AnyState::$name(_)) {
                        *any = AnyState::$name(Self::State::default());
                    }
                    match any {
                        AnyState::$name(state) => state,
                        _ => unreachable!("set above"),
                    }
                }

                fn any_state(state: Self::State) -> AnyState {
                    AnyState::$name(state)
                }

                $(call!($call);)+
            }
        )*
    };
}

closed_set! {
    /// Token bucket, leaky bucket (meter and queue), spacing.
    Gcra: refund, reserve;
    /// Fixed window, sliding window counter, quota reset, calendar window.
    Window: refund;
    /// Sliding window of sub-buckets.
    SubBuckets: refund;
    /// Bucket refilled in whole steps.
    Interval: refund;
    /// Sliding window log, strict or not, with or without a gap.
    Log: refund;
    /// Hybrid: a quota at once, then a pace.
    Hybrid: refund;
    /// Exponentially fading counter.
    Exponential: refund;
    /// Post-paid limiters: warming up, smooth bursty.
    WarmUp: reserve;
    /// Permits on loan: a maximum number at work at once.
    Concurrency: refund, lend;
}

/// The state of `algorithm`; see [`Listed::own_state`].
#[inline]
fn own<'a, A: Listed>(_algorithm: &A, any: &'a mut AnyState) -> &'a mut A::State {
    A::own_state(any)
}

/// Calls `view` with the state of `algorithm`; see [`Listed::with_state`].
#[inline]
fn with<A: Listed, T>(_algorithm: &A, any: &AnyState, view: impl FnOnce(&A::State) -> T) -> T {
    A::with_state(any, view)
}

/// `any` as an algorithm of the same type.
fn like<'a, A: Listed>(_algorithm: &A, any: &'a AnyAlgorithm) -> Option<&'a A> {
    A::of(any)
}

impl Algorithm for AnyAlgorithm {
    type State = AnyState;

    fn name(&self) -> &'static str {
        dispatch!(self, algorithm => algorithm.name())
    }

    fn capacity(&self) -> Permits {
        dispatch!(self, algorithm => algorithm.capacity())
    }

    fn denials(&self) -> Denials {
        dispatch!(self, algorithm => algorithm.denials())
    }

    fn window(&self) -> Option<Nanos> {
        dispatch!(self, algorithm => algorithm.window())
    }

    fn window_end(&self, now: Time) -> Option<Time> {
        dispatch!(self, algorithm => algorithm.window_end(now))
    }

    fn refills_one_by_one(&self) -> bool {
        dispatch!(self, algorithm => algorithm.refills_one_by_one())
    }

    fn look(&self, state: &AnyState, now: Time, cost: Permits) -> Decision {
        dispatch!(self, algorithm => with(algorithm, state, |state| {
            algorithm.look(state, now, cost)
        }))
    }

    #[inline]
    fn decide(&self, state: &mut AnyState, now: Time, cost: Permits) -> Decision {
        dispatch!(self, algorithm => algorithm.decide(own(algorithm, state), now, cost))
    }

    fn lend(&self, state: &mut AnyState, now: Time, cost: Permits, lend: Lend) -> Decision {
        dispatch!(self, algorithm => algorithm.lend(own(algorithm, state), now, cost, lend))
    }

    fn lapse(&self, state: &mut AnyState, now: Time) -> u64 {
        dispatch!(self, algorithm => algorithm.lapse(own(algorithm, state), now))
    }

    fn expires_at(&self, state: &AnyState, now: Time) -> Time {
        dispatch!(self, algorithm => with(algorithm, state, |state| {
            algorithm.expires_at(state, now)
        }))
    }

    fn lasts(&self) -> Nanos {
        dispatch!(self, algorithm => algorithm.lasts())
    }

    fn stricter(&self, state: &mut AnyState, other: &AnyState) {
        dispatch!(self, algorithm => with(algorithm, other, |other| {
            algorithm.stricter(own(algorithm, state), other);
        }));
    }

    fn begin(&self, floor: &AnyState, now: Time) -> AnyState {
        dispatch!(self, algorithm => with(algorithm, floor, |floor| {
            any_state(algorithm, algorithm.begin(floor, now))
        }))
    }

    fn keeps_state_of(&self, old: &Self) -> bool {
        dispatch!(self, algorithm => {
            like(algorithm, old).is_some_and(|old| algorithm.keeps_state_of(old))
        })
    }

    fn rescale(&self, state: &mut AnyState, old: &Self, now: Time) {
        dispatch!(self, algorithm => if let Some(old) = like(algorithm, old) {
            algorithm.rescale(own(algorithm, state), old, now);
        });
    }

    fn bound(&self, window: Nanos) -> u64 {
        dispatch!(self, algorithm => algorithm.bound(window))
    }

    fn heap_bytes(&self) -> usize {
        dispatch!(self, algorithm => algorithm.heap_bytes())
    }

    fn at_least(&self, state: &AnyState, now: Time, total: Permits) -> Nanos {
        dispatch!(self, algorithm => with(algorithm, state, |state| {
            algorithm.at_least(state, now, total)
        }))
    }
}

/// The same limit with other parameters.
impl AnyAlgorithm {
    /// The same way of counting with other numbers: windows stay windows on the same kind of
    /// grid, those of a calendar become windows since 1970; buckets hold the quota's burst
    /// and have no queue; post-paid limits become buckets; loans keep their lease. Denials cost
    /// what they did.
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

    /// The same limit on a clock with another zero: windows and refills that lie on a grid
    /// fall at the same moments of the world. The limit was constructed for `from`.
    #[must_use]
    pub fn on_clock(&self, from: Origin, to: Origin) -> Self {
        dispatch!(self, algorithm => algorithm.on_clock(from, to).into())
    }

    /// The same limit, able to promise moments up to `longest_wait` ahead: see
    /// [`Gcra::with_patience`]. The limit itself, if it promises none, or any.
    #[must_use]
    pub fn with_patience(&self, longest_wait: Nanos) -> Self {
        dispatch!(self, algorithm => Reconfigure::with_patience(algorithm, longest_wait).into())
    }
}

/// Calls that only some algorithms have.
impl AnyAlgorithm {
    /// As [`Refund::refund`], if the algorithm can take back a charge.
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
    /// assert_eq!(refused.to_string(), "a smooth bursty limit takes nothing back; \
    ///     hint: choose another algorithm, such as `token-bucket`, where charges are given back");
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
        dispatch!(self, algorithm => algorithm.try_refund(own(algorithm, state), now, cost))
            .ok_or_else(|| self.unsupported(Call::Refund))
    }

    /// As [`Reserve::reserve`], if the algorithm can promise a later moment.
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
    /// assert_eq!(refused.to_string(), "a sliding window log limit promises no later moment; \
    ///     hint: wait in line with `acquire`, or choose `token-bucket`");
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
        dispatch!(self, algorithm => {
            algorithm.try_reserve(own(algorithm, state), now, cost, max_wait)
        })
        .ok_or_else(|| self.unsupported(Call::Reserve))
    }

    /// As [`Concurrency::release`]; nothing if the algorithm does not lend.
    pub fn release(&self, state: &mut AnyState, now: Time, id: LeaseId) -> Permits {
        dispatch!(self, algorithm => algorithm.try_release(own(algorithm, state), now, id))
    }

    /// As [`Concurrency::renew`]; `None` if the algorithm does not lend.
    pub fn renew(&self, state: &mut AnyState, now: Time, id: LeaseId) -> Option<Nanos> {
        dispatch!(self, algorithm => algorithm.try_renew(own(algorithm, state), now, id))
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

    /// The limit on work in progress, if it is one: then permits are lent, and come back.
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

    /// A time after which more than `decision.remaining` may be used, if nobody else spends
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

/// The form of a state in a store that many processes share; see [`StoredForm`].
impl AnyAlgorithm {
    /// See [`StoredForm::TAG`].
    pub fn tag(&self) -> u8 {
        fn tag<A: StoredForm>(_: &A) -> u8 {
            A::TAG
        }
        dispatch!(self, algorithm => tag(algorithm))
    }

    /// See [`StoredForm::shape`].
    pub fn shape(&self) -> u64 {
        dispatch!(self, algorithm => algorithm.shape())
    }

    /// See [`StoredForm::twin`].
    pub fn twin(&self) -> Option<LuaTwin> {
        dispatch!(self, algorithm => algorithm.twin())
    }

    /// See [`StoredForm::price`].
    pub fn price(&self, cost: Permits) -> [f64; 4] {
        dispatch!(self, algorithm => algorithm.price(cost))
    }

    /// See [`StoredForm::read`].
    pub fn read(&self, bytes: &[u8], now: UnixMicros) -> Option<AnyState> {
        dispatch!(self, algorithm => {
            algorithm.read(bytes, now).map(|state| any_state(algorithm, state))
        })
    }

    /// See [`StoredForm::write`].
    pub fn write(&self, state: &AnyState, now: UnixMicros, out: &mut Vec<u8>) {
        dispatch!(self, algorithm => with(algorithm, state, |state| {
            algorithm.write(state, now, out);
        }));
    }
}

/// A state of `algorithm`.
fn any_state<A: Listed>(_algorithm: &A, state: A::State) -> AnyState {
    A::any_state(state)
}

#[cfg(test)]
mod tests;
