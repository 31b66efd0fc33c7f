//! Place: where the one state of a limiter lives, and what makes a decision on it atomic.
//!
//! ```text
//!   state of one word (GCRA)     Cell     compare-exchange, no lock
//!   any larger state             Locked   a small lock
//! ```

use parking_lot::Mutex;
use ratekeeper_core::{
    Algorithm, Concurrency, Counters, Exponential, Gcra, Hybrid, Interval, Log, Nanos, Permits,
    Reserve, Time, Verdict, WarmUp, Window, Word,
};
use ratekeeper_store::Cell;

/// An algorithm that a [`Limiter`](super::Limiter) can run.
pub trait Held: Algorithm + Send + Sync {
    /// Where its state lives. [`Cell`] only if states mean the same under any numbers.
    type Place: Place<Self>;

    /// How long at least, from `now` on, until `total` permits have been granted to those who
    /// ask for them one after the other; zero if that is not known.
    fn at_least(&self, _state: &Self::State, _now: Time, _total: Permits) -> Nanos {
        Nanos::ZERO
    }
}

/// A state shared by threads.
pub trait Place<A: Algorithm + ?Sized>: Default + Send + Sync {
    /// Applies `transition` to the state, as nobody else has changed it meanwhile; it may run
    /// more than once.
    fn update<T>(&self, transition: impl Fn(&mut A::State) -> T) -> T;

    /// Shows the state as it stands.
    fn read<T>(&self, view: impl Fn(&A::State) -> T) -> T;
}

impl<A: Algorithm<State: Word>> Place<A> for Cell<A> {
    #[expect(clippy::inline_always, reason = "as `Cell::update`")]
    #[inline(always)]
    fn update<T>(&self, transition: impl Fn(&mut A::State) -> T) -> T {
        Self::update(self, transition)
    }

    #[inline]
    fn read<T>(&self, view: impl Fn(&A::State) -> T) -> T {
        view(&self.state())
    }
}

/// A state behind a lock.
#[derive(Debug, Default)]
pub struct Locked<S>(Mutex<S>);

impl<A: Algorithm<State: Send>> Place<A> for Locked<A::State> {
    fn update<T>(&self, transition: impl Fn(&mut A::State) -> T) -> T {
        transition(&mut self.0.lock())
    }

    fn read<T>(&self, view: impl Fn(&A::State) -> T) -> T {
        view(&self.0.lock())
    }
}

impl Held for Gcra {
    type Place = Cell<Self>;

    /// Exact: what is granted one after the other is granted as if it were one cost.
    fn at_least(&self, state: &Self::State, now: Time, total: Permits) -> Nanos {
        let patient = self.with_patience(Nanos::MAX);
        match patient
            .reserve(&mut state.clone(), now, total, Nanos::MAX)
            .verdict
        {
            Verdict::Allow => Nanos::ZERO,
            Verdict::AllowAfter(wait) => wait,
            Verdict::Deny { .. } | Verdict::DenyForever => Nanos::MAX,
        }
    }
}

impl<C: Counters> Held for Window<C>
where
    Self: Algorithm<State: Send> + Send + Sync,
{
    type Place = Locked<<Self as Algorithm>::State>;
}

/// States of more than a word.
macro_rules! held_under_lock {
    ($($algorithm:ty),*) => {$(
        impl Held for $algorithm {
            type Place = Locked<<Self as Algorithm>::State>;
        }
    )*};
}
held_under_lock!(Concurrency, Exponential, Hybrid, Interval, Log, WarmUp);
