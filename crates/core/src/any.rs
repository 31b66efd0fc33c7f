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
//!   fixed the compiler checks it ([`Refund`], [`Reserve`]); here the calls begin with `try_`,
//!   and return [`Unsupported`].
//! * Costs one more branch than the algorithm itself, and the bytes of the largest state.

mod listed;

use crate::{
    Algorithm, Balance, Banning, Concurrency, Decision, Denials, Exponential, Gcra, GrantId,
    Granted, Hybrid, Interval, LeaseId, Lend, Log, Nanos, Permits, Quota, QuotaReset, Receipt,
    Refund, Reserve, Share, SubBuckets, Time, WarmUp, Window,
};
pub use listed::{AlgorithmSet, Listed, Reconfigure, Visitor};

/// The functions of [`Listed`] for a call that only some algorithms have.
macro_rules! optional_call {
    (refund) => {
        fn try_give_back(
            &self,
            state: &mut Self::State,
            now: Time,
            cost: Permits,
            receipt: Receipt,
        ) -> Option<()> {
            self.give_back(state, now, cost, receipt);
            Some(())
        }

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
    (bans) => {
        fn try_give_back(
            &self,
            state: &mut Self::State,
            now: Time,
            cost: Permits,
            receipt: Receipt,
        ) -> Option<()> {
            self.give_back_any(state, now, cost, receipt)
        }

        fn try_refund(&self, state: &mut Self::State, now: Time, cost: Permits) -> Option<()> {
            self.refund_any(state, now, cost)
        }

        fn try_reserve(
            &self,
            state: &mut Self::State,
            now: Time,
            cost: Permits,
            max_wait: Nanos,
        ) -> Option<Decision> {
            self.reserve_any(state, now, cost, max_wait)
        }

        fn try_ban(&self, state: &mut Self::State, now: Time, span: Nanos) -> Option<()> {
            self.ban(state, now, span);
            Some(())
        }
    };
    (grant) => {
        const KEEPS: bool = true;

        fn try_grant(
            &self,
            state: &mut Self::State,
            credits: Permits,
            id: GrantId,
        ) -> Option<Granted> {
            Some(self.grant(state, credits, id))
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
    ($($(#[$doc:meta])* $name:ident: $($call:ident),*;)*) => {
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
            /// The state of a key never seen.
            #[default]
            Fresh,
            $(
                #[doc = concat!(
                    "State of [`", stringify!($name), "`](crate::", stringify!($name), ")."
                )]
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

        /// Runs `$body` with `$algorithm` bound to the chosen algorithm, and `$type`, if it is
        /// given, to the type of the algorithm.
        macro_rules! dispatch {
            ($any:expr, $algorithm:ident => $body:expr) => {
                match $any {
                    $(AnyAlgorithm::$name($algorithm) => $body,)*
                }
            };
            ($any:expr, $algorithm:ident: $type:ident => $body:expr) => {
                match $any {
                    $(AnyAlgorithm::$name($algorithm) => {
                        type $type = crate::$name;
                        $body
                    })*
                }
            };
        }

        /// Calls a macro with the name of each algorithm that can be chosen at run time.
        #[macro_export]
        #[doc(hidden)]
        macro_rules! for_each_algorithm {
            ($callback:ident) => {
                $($callback!($name);)*
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

                $(optional_call!($call);)*
            }
        )*
    };
}

closed_set! {
    /// Token bucket, leaky bucket (meter and queue), spacing.
    Gcra: refund, reserve;
    /// Fixed window, sliding window counter, calendar window.
    Window: refund;
    /// Sliding window of sub-buckets.
    SubBuckets: refund;
    /// Windows that open with a request of their key.
    QuotaReset: refund;
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
    /// Prepaid credits, which do not refill and are topped up by grants.
    Balance: refund, grant;
    /// Any of the others, with bans of keys that it refuses too often.
    Banning: bans;
}

// After the list, because they dispatch over it.
mod calls;
mod stored_form;

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

    fn counts_strikes(&self) -> bool {
        dispatch!(self, algorithm => algorithm.counts_strikes())
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

    fn is_paid_in_order(&self) -> bool {
        dispatch!(self, algorithm => algorithm.is_paid_in_order())
    }

    fn look(&self, state: &AnyState, now: Time, cost: Permits) -> Decision {
        dispatch!(self, algorithm: A => A::with_state(state, |state| {
            algorithm.look(state, now, cost)
        }))
    }

    #[inline]
    fn decide(&self, state: &mut AnyState, now: Time, cost: Permits) -> Decision {
        dispatch!(self, algorithm: A => algorithm.decide(A::own_state(state), now, cost))
    }

    fn lend(&self, state: &mut AnyState, now: Time, cost: Permits, lend: Lend) -> Decision {
        dispatch!(self, algorithm: A => algorithm.lend(A::own_state(state), now, cost, lend))
    }

    fn lapse(&self, state: &mut AnyState, now: Time) -> u64 {
        dispatch!(self, algorithm: A => algorithm.lapse(A::own_state(state), now))
    }

    fn expires_at(&self, state: &AnyState, now: Time) -> Time {
        dispatch!(self, algorithm: A => A::with_state(state, |state| {
            algorithm.expires_at(state, now)
        }))
    }

    fn lasts(&self) -> Nanos {
        dispatch!(self, algorithm => algorithm.lasts())
    }

    fn stricter(&self, state: &mut AnyState, other: &AnyState) {
        dispatch!(self, algorithm: A => A::with_state(other, |other| {
            algorithm.stricter(A::own_state(state), other);
        }));
    }

    fn keeps_state_of(&self, old: &Self) -> bool {
        dispatch!(self, algorithm: A => {
            A::of(old).is_some_and(|old| algorithm.keeps_state_of(old))
        })
    }

    fn rescale(&self, state: &mut AnyState, old: &Self, now: Time, promised: Nanos) {
        dispatch!(self, algorithm: A => if let Some(old) = A::of(old) {
            algorithm.rescale(A::own_state(state), old, now, promised);
        });
    }

    fn succeed(&mut self, old: &Self) {
        dispatch!(self, algorithm: A => if let Some(old) = A::of(old) {
            algorithm.succeed(old);
        });
    }

    fn usage(&self, state: &AnyState, now: Time) -> Permits {
        dispatch!(self, algorithm: A => A::with_state(state, |state| {
            algorithm.usage(state, now)
        }))
    }

    fn bound(&self, window: Nanos) -> u64 {
        dispatch!(self, algorithm => algorithm.bound(window))
    }

    fn least_served(&self, kept: Quota) -> Share {
        dispatch!(self, algorithm => algorithm.least_served(kept))
    }

    fn heap_bytes(&self) -> usize {
        dispatch!(self, algorithm => algorithm.heap_bytes())
    }

    fn at_least(&self, state: &AnyState, now: Time, total: Permits) -> Nanos {
        dispatch!(self, algorithm: A => A::with_state(state, |state| {
            algorithm.at_least(state, now, total)
        }))
    }
}

#[cfg(test)]
mod tests;
