//! State cell: where the state of a limiter lives, and how a decision on it is made atomic.
//!
//! ```text
//!   state of one word (GCRA)     Cell     compare-exchange, no lock
//!   any larger state             Locked   a small lock
//! ```
//!
//! One attempt is inlined into the caller of `check`: the clock, the decision and the exchange, in
//! registers. The rare cases (callers wait, the limit was changed, a race was lost) are one call of
//! `check_slowly`. The inlined code is neither a closure nor a function passed as an argument,
//! because compilers do not inline those where there are many callers. Therefore `decide` and
//! `take` repeat each other; it makes a check 1.3 ns faster.

use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Cell, Concurrency, Decision, Gcra, Nanos, Permits, Refund, Time,
    WordState,
};
use ratekeeper_store::Lock;

/// An algorithm that a [`Limiter`](super::Limiter) can run.
///
/// ```
/// use ratekeeper::core::{Gcra, Log};
/// use ratekeeper::limiter::LimiterAlgorithm;
/// use ratekeeper::Limiter;
///
/// fn admits<A: LimiterAlgorithm>(limiter: &Limiter<A>) -> usize {
///     (0..10).filter(|_| limiter.check().is_ok()).count()
/// }
/// let bucket = Gcra::token_bucket("3/1h".parse()?)?;
/// let log = Log::sliding("4/1h".parse()?)?;
/// assert_eq!((admits(&Limiter::new(bucket)), admits(&Limiter::new(log))), (3, 4));
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub trait LimiterAlgorithm: Algorithm + Send + Sync + 'static {
    /// Where its state lives. [`Cell`] only if states mean the same under any numbers.
    type Place: StateCell<Self>;

    /// Returns the same limit, except that it accepts a debt of any length. (Some limits take a
    /// very long debt for an error of the clock, and cut it.) `None` if this limit accepts any
    /// debt.
    fn believing(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Returns the same limit; a bucket owes as much as its callers have used.
    #[must_use]
    fn patient(self) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// Returns true if permits come back when work is done: a limit of concurrency.
    fn comes_back(&self) -> bool {
        false
    }

    /// Takes back permits that a limit of concurrency has lent; no effect under other limits.
    fn take_back(&self, _state: &mut Self::State, _now: Time, _cost: Permits) {}
}

/// A state shared by threads.
///
/// ```
/// use ratekeeper::core::Gcra;
/// use ratekeeper::limiter::{LimiterAlgorithm, StateCell};
///
/// type Place = <Gcra as LimiterAlgorithm>::Place;
/// let place = Place::default();
/// let state = StateCell::<Gcra>::read(&place, |state| *state);
/// assert_eq!(state, Default::default());
/// ```
pub trait StateCell<A: Algorithm + ?Sized + 'static>: Default + Send + Sync {
    /// Applies `transition` to the state atomically; it may run more than once.
    fn update<T>(&self, transition: impl Fn(&mut A::State) -> T) -> T;

    /// [`Algorithm::decide`], by the limit that `limit` returns once the state is held; `None` if
    /// that is `None`, or if another thread has changed the state meanwhile.
    fn decide<'a>(
        &self,
        limit: impl FnOnce() -> Option<&'a A>,
        now: Time,
        cost: Permits,
    ) -> Option<Decision>;

    /// Like [`decide`](Self::decide), by [`Algorithm::take`].
    fn take<'a>(
        &self,
        limit: impl FnOnce() -> Option<&'a A>,
        now: Time,
        cost: Permits,
    ) -> Option<bool>;

    /// Passes the current state to `view`.
    fn read<T>(&self, view: impl Fn(&A::State) -> T) -> T;
}

impl<A: Algorithm<State: WordState> + 'static> StateCell<A> for Cell<A> {
    #[expect(clippy::inline_always, reason = "as `Cell::update`")]
    #[inline(always)]
    fn update<T>(&self, transition: impl Fn(&mut A::State) -> T) -> T {
        Self::update(self, transition)
    }

    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    fn decide<'a>(
        &self,
        limit: impl FnOnce() -> Option<&'a A>,
        now: Time,
        cost: Permits,
    ) -> Option<Decision> {
        let old = self.state();
        let mut new = old;
        let decision = limit()?.decide(&mut new, now, cost);
        self.replace(&old, &new).then_some(decision)
    }

    #[expect(clippy::inline_always, reason = "as `decide`")]
    #[inline(always)]
    fn take<'a>(
        &self,
        limit: impl FnOnce() -> Option<&'a A>,
        now: Time,
        cost: Permits,
    ) -> Option<bool> {
        let old = self.state();
        let mut new = old;
        let taken = limit()?.take(&mut new, now, cost);
        self.replace(&old, &new).then_some(taken)
    }

    #[inline]
    fn read<T>(&self, view: impl Fn(&A::State) -> T) -> T {
        view(&self.state())
    }
}

/// A state behind a lock.
///
/// ```
/// use ratekeeper::core::Log;
/// use ratekeeper::limiter::{Locked, StateCell};
/// let place = Locked::default();
/// assert!(StateCell::<Log>::read(&place, |state| *state == Default::default()));
/// ```
#[derive(Debug, Default)]
pub struct Locked<S>(Lock<S>);

impl<A: Algorithm<State: Send> + 'static> StateCell<A> for Locked<A::State> {
    fn update<T>(&self, transition: impl Fn(&mut A::State) -> T) -> T {
        transition(&mut self.0.lock())
    }

    fn decide<'a>(
        &self,
        limit: impl FnOnce() -> Option<&'a A>,
        now: Time,
        cost: Permits,
    ) -> Option<Decision> {
        let mut state = self.0.lock();
        Some(limit()?.decide(&mut state, now, cost))
    }

    fn take<'a>(
        &self,
        limit: impl FnOnce() -> Option<&'a A>,
        now: Time,
        cost: Permits,
    ) -> Option<bool> {
        let mut state = self.0.lock();
        Some(limit()?.take(&mut state, now, cost))
    }

    fn read<T>(&self, view: impl Fn(&A::State) -> T) -> T {
        view(&self.0.lock())
    }
}

impl LimiterAlgorithm for AnyAlgorithm {
    type Place = Locked<<Self as Algorithm>::State>;

    fn patient(self) -> Self {
        Self::patient(self)
    }

    fn comes_back(&self) -> bool {
        self.concurrency().is_some()
    }

    fn take_back(&self, state: &mut Self::State, now: Time, cost: Permits) {
        if self.concurrency().is_some() {
            let _ = self.try_refund(state, now, cost); // it can
        }
    }
}

/// The place of each algorithm: behind a lock, unless its state fits a word.
macro_rules! limiter_algorithm {
    (Gcra) => {
        impl LimiterAlgorithm for Gcra {
            type Place = Cell<Self>;

            fn believing(&self) -> Option<Self> {
                Some(self.with_patience(Nanos::MAX))
            }

            fn patient(self) -> Self {
                Self::patient(self)
            }
        }
    };
    (Concurrency) => {
        impl LimiterAlgorithm for Concurrency {
            type Place = Locked<<Self as Algorithm>::State>;

            fn comes_back(&self) -> bool {
                true
            }

            fn take_back(&self, state: &mut Self::State, now: Time, cost: Permits) {
                self.refund(state, now, cost);
            }
        }
    };
    ($algorithm:ident) => {
        impl LimiterAlgorithm for ratekeeper_core::$algorithm {
            type Place = Locked<<Self as Algorithm>::State>;
        }
    };
}
ratekeeper_core::for_each_algorithm!(limiter_algorithm);
