//! `AnyState`: the state of whichever algorithm, so that a configured limit is an
//! [`Algorithm`] like any other.
//!
//! ```text
//!   AnyAlgorithm::Gcra  <---- belong together ---->  AnyState::Gcra
//!   AnyAlgorithm::Log   <---- belong together ---->  AnyState::Log
//!     ...                                            AnyState::Fresh   of all of them
//! ```
//!
//! * A key never seen is `Fresh`, and equal to every state that is at its beginning. It
//!   becomes the algorithm's own with the first charge.
//! * A state that another algorithm left says nothing here: it is taken for fresh. Whoever
//!   changes the algorithm carries over what was used, as the limiter and the store do: see
//!   [`Algorithm::keeps_state_of`], which is false for two different algorithms.
//! * Giving back and reserving are for some algorithms only. Where the algorithm is fixed the
//!   compiler knows ([`Refund`], [`Reserve`]); here the calls are asked for with `try_`, and
//!   say [`Unsupported`].
//! * Costs a branch more than the algorithm itself, and the bytes of the largest state.

use crate::{
    Algorithm, Allowance, AnyAlgorithm, Buckets, Call, Decision, Leases, Lend, Level, Logged,
    Missing, Nanos, Permits, Refund, Reserve, Stored, Tat, Time, Unsupported, WindowState,
};

/// The state of one key under an [`AnyAlgorithm`]. A state of another algorithm is taken for
/// that of a key never seen.
///
/// ```
/// use ratekeeper_core::{Algorithm, AnyAlgorithm, AnyState, Gcra, Log, Permits, Time};
/// let quota = "2/1s".parse().unwrap();
/// for limit in [AnyAlgorithm::from(Gcra::token_bucket(quota).unwrap()), Log::sliding(quota).unwrap().into()] {
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
    /// Of [`Gcra`](crate::Gcra).
    Gcra(Tat),
    /// Of [`Window`](crate::Window).
    Window(WindowState<[u32; 2]>),
    /// Of [`SubBuckets`](crate::SubBuckets).
    SubBuckets(WindowState<Buckets>),
    /// Of [`Interval`](crate::Interval).
    Interval(Missing),
    /// Of [`Log`](crate::Log).
    Log(Logged),
    /// Of [`Hybrid`](crate::Hybrid).
    Hybrid(Allowance),
    /// Of [`Exponential`](crate::Exponential).
    Exponential(Level),
    /// Of [`WarmUp`](crate::WarmUp).
    WarmUp(Stored),
    /// Of [`Concurrency`](crate::Concurrency).
    Concurrency(Leases),
}

/// Runs `$body` with `$algorithm` and its `$state`; `$otherwise` if they do not belong
/// together.
macro_rules! with_state {
    ($any:expr, $any_state:expr, ($algorithm:ident, $state:ident) => $body:expr, _ => $otherwise:expr) => {
        match ($any, $any_state) {
            (AnyAlgorithm::Gcra($algorithm), AnyState::Gcra($state)) => $body,
            (AnyAlgorithm::Window($algorithm), AnyState::Window($state)) => $body,
            (AnyAlgorithm::SubBuckets($algorithm), AnyState::SubBuckets($state)) => $body,
            (AnyAlgorithm::Interval($algorithm), AnyState::Interval($state)) => $body,
            (AnyAlgorithm::Log($algorithm), AnyState::Log($state)) => $body,
            (AnyAlgorithm::Hybrid($algorithm), AnyState::Hybrid($state)) => $body,
            (AnyAlgorithm::Exponential($algorithm), AnyState::Exponential($state)) => $body,
            (AnyAlgorithm::WarmUp($algorithm), AnyState::WarmUp($state)) => $body,
            (AnyAlgorithm::Concurrency($algorithm), AnyState::Concurrency($state)) => $body,
            _ => $otherwise,
        }
    };
}

impl AnyState {
    /// The beginning, as `algorithm` writes it.
    fn of(algorithm: &AnyAlgorithm) -> Self {
        match algorithm {
            AnyAlgorithm::Gcra(_) => Self::Gcra(Tat::default()),
            AnyAlgorithm::Window(_) => Self::Window(WindowState::default()),
            AnyAlgorithm::SubBuckets(_) => Self::SubBuckets(WindowState::default()),
            AnyAlgorithm::Interval(_) => Self::Interval(Missing::default()),
            AnyAlgorithm::Log(_) => Self::Log(Logged::default()),
            AnyAlgorithm::Hybrid(_) => Self::Hybrid(Allowance::default()),
            AnyAlgorithm::Exponential(_) => Self::Exponential(Level::default()),
            AnyAlgorithm::WarmUp(_) => Self::WarmUp(Stored::default()),
            AnyAlgorithm::Concurrency(_) => Self::Concurrency(Leases::default()),
        }
    }

    /// Sees to it that the state is one of `algorithm`.
    #[inline]
    fn settle(&mut self, algorithm: &AnyAlgorithm) {
        if !with_state!(algorithm, &*self, (_algorithm, _state) => true, _ => false) {
            *self = Self::of(algorithm);
        }
    }

    /// Whether it is that of a key never seen.
    fn is_fresh(&self) -> bool {
        match self {
            Self::Fresh => true,
            Self::Gcra(state) => *state == Tat::default(),
            Self::Window(state) => *state == WindowState::default(),
            Self::SubBuckets(state) => *state == WindowState::default(),
            Self::Interval(state) => *state == Missing::default(),
            Self::Log(state) => *state == Logged::default(),
            Self::Hybrid(state) => *state == Allowance::default(),
            Self::Exponential(state) => *state == Level::default(),
            Self::WarmUp(state) => *state == Stored::default(),
            Self::Concurrency(state) => *state == Leases::default(),
        }
    }
}

impl PartialEq for AnyState {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Gcra(a), Self::Gcra(b)) => a == b,
            (Self::Window(a), Self::Window(b)) => a == b,
            (Self::SubBuckets(a), Self::SubBuckets(b)) => a == b,
            (Self::Interval(a), Self::Interval(b)) => a == b,
            (Self::Log(a), Self::Log(b)) => a == b,
            (Self::Hybrid(a), Self::Hybrid(b)) => a == b,
            (Self::Exponential(a), Self::Exponential(b)) => a == b,
            (Self::WarmUp(a), Self::WarmUp(b)) => a == b,
            (Self::Concurrency(a), Self::Concurrency(b)) => a == b,
            (a, b) => a.is_fresh() && b.is_fresh(),
        }
    }
}

/// The work of a state that has been settled.
const SETTLED: &str = "a state that has been settled is one of the algorithm";

impl Algorithm for AnyAlgorithm {
    type State = AnyState;

    fn capacity(&self) -> Permits {
        Self::capacity(self)
    }

    fn look(&self, state: &AnyState, now: Time, cost: Permits) -> Decision {
        with_state!(self, state, (algorithm, state) => algorithm.look(state, now, cost),
            _ => self.look(&AnyState::of(self), now, cost))
    }

    #[inline]
    fn decide(&self, state: &mut AnyState, now: Time, cost: Permits) -> Decision {
        state.settle(self);
        with_state!(self, state, (algorithm, state) => algorithm.decide(state, now, cost),
            _ => unreachable!("{SETTLED}"))
    }

    fn lend(&self, state: &mut AnyState, now: Time, cost: Permits, lend: Lend) -> Decision {
        state.settle(self);
        with_state!(self, state, (algorithm, state) => algorithm.lend(state, now, cost, lend),
            _ => unreachable!("{SETTLED}"))
    }

    fn lapse(&self, state: &mut AnyState, now: Time) -> u64 {
        with_state!(self, state, (algorithm, state) => algorithm.lapse(state, now), _ => 0)
    }

    fn expires_at(&self, state: &AnyState, now: Time) -> Time {
        with_state!(self, state, (algorithm, state) => algorithm.expires_at(state, now),
            _ => Time::ZERO)
    }

    fn lasts(&self) -> Nanos {
        match self {
            Self::Gcra(gcra) => gcra.lasts(),
            _ => Nanos::MAX,
        }
    }

    fn stricter(&self, state: &mut AnyState, other: &AnyState) {
        let mut other = other.clone();
        other.settle(self);
        state.settle(self);
        /// One algorithm's states, of which both are.
        macro_rules! stricter {
            ($($variant:ident),*) => {
                match (self, state, &other) {
                    $((
                        Self::$variant(algorithm),
                        AnyState::$variant(state),
                        AnyState::$variant(other),
                    ) => algorithm.stricter(state, other),)*
                    _ => unreachable!("{SETTLED}"),
                }
            };
        }
        stricter!(
            Gcra,
            Window,
            SubBuckets,
            Interval,
            Log,
            Hybrid,
            Exponential,
            WarmUp,
            Concurrency
        );
    }

    fn begin(&self, floor: &AnyState, now: Time) -> AnyState {
        let mut floor = floor.clone();
        floor.settle(self);
        with_state!(self, &mut floor, (algorithm, state) => *state = algorithm.begin(state, now),
            _ => unreachable!("{SETTLED}"));
        floor
    }

    fn keeps_state_of(&self, old: &Self) -> bool {
        match (self, old) {
            (Self::Gcra(new), Self::Gcra(old)) => new.keeps_state_of(old),
            (Self::Window(new), Self::Window(old)) => new.keeps_state_of(old),
            (Self::SubBuckets(new), Self::SubBuckets(old)) => new.keeps_state_of(old),
            (Self::Interval(new), Self::Interval(old)) => new.keeps_state_of(old),
            (Self::Log(new), Self::Log(old)) => new.keeps_state_of(old),
            (Self::Hybrid(new), Self::Hybrid(old)) => new.keeps_state_of(old),
            (Self::Exponential(new), Self::Exponential(old)) => new.keeps_state_of(old),
            (Self::WarmUp(new), Self::WarmUp(old)) => new.keeps_state_of(old),
            (Self::Concurrency(new), Self::Concurrency(old)) => new.keeps_state_of(old),
            _ => false,
        }
    }

    fn rescale(&self, state: &mut AnyState, old: &Self, now: Time) {
        match (self, old, state) {
            (Self::Gcra(new), Self::Gcra(old), AnyState::Gcra(state)) => {
                new.rescale(state, old, now);
            }
            (Self::WarmUp(new), Self::WarmUp(old), AnyState::WarmUp(state)) => {
                new.rescale(state, old, now);
            }
            _ => {} // the others' states say the same in any numbers that keep them
        }
    }

    fn bound(&self, window: Nanos) -> u64 {
        Self::bound(self, window)
    }

    fn heap_bytes(&self) -> usize {
        with_state!(self, &AnyState::of(self), (algorithm, _state) => algorithm.heap_bytes(),
            _ => unreachable!("{SETTLED}"))
    }

    fn at_least(&self, state: &AnyState, now: Time, total: Permits) -> Nanos {
        with_state!(self, state, (algorithm, state) => algorithm.at_least(state, now, total),
            _ => self.at_least(&AnyState::of(self), now, total))
    }
}

/// Calls that some algorithms have.
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
        macro_rules! refund {
            ($($variant:ident),*) => {
                match (self, state) {
                    $((Self::$variant(algorithm), AnyState::$variant(state)) => {
                        algorithm.refund(state, now, cost);
                        Ok(())
                    })*
                    // Nothing was charged.
                    ($(Self::$variant(_))|*, _) => Ok(()),
                    (Self::WarmUp(_), _) => Err(self.unsupported(Call::Refund)),
                }
            };
        }
        refund!(
            Gcra,
            Window,
            SubBuckets,
            Interval,
            Log,
            Hybrid,
            Exponential,
            Concurrency
        )
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
        state.settle(self);
        match (self, state) {
            (Self::Gcra(algorithm), AnyState::Gcra(state)) => {
                Ok(algorithm.reserve(state, now, cost, max_wait))
            }
            (Self::WarmUp(algorithm), AnyState::WarmUp(state)) => {
                Ok(algorithm.reserve(state, now, cost, max_wait))
            }
            _ => Err(self.unsupported(Call::Reserve)),
        }
    }

    /// Says whether the algorithm has the call.
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
        let has = match call {
            Call::Refund => !matches!(self, Self::WarmUp(_)),
            Call::Reserve => matches!(self, Self::Gcra(_) | Self::WarmUp(_)),
        };
        if has {
            Ok(())
        } else {
            Err(self.unsupported(call))
        }
    }

    fn unsupported(&self, call: Call) -> Unsupported {
        Unsupported {
            algorithm: self.name(),
            call,
        }
    }
}
