//! Change: giving back, forgetting, and other numbers while the limiter is used.
//!
//! ```text
//!   set_limit --> states mean the same?  yes: they stay
//!                                        no:  what was used is charged to a fresh one
//! ```
//!
//! After each of them the first in line looks again.

use std::sync::Arc;

use ratekeeper_core::{Error, Gcra, Permits, Quota, Refund, Time};

use super::{Limiter, LimiterAlgorithm, StateCell, patient};
use crate::Clock;

impl<A: LimiterAlgorithm, C: Clock> Limiter<A, C> {
    /// Gives back permits that were taken and not used. The next in line has them at once.
    /// Only where the algorithm can take them back.
    ///
    /// For permits of `check` and `acquire`, and of reservations whose moment has come. What is
    /// reserved for later has [`cancel`](super::Reservation::cancel), which knows whether
    /// others were promised moments after it: given back here, the last of those moments is
    /// promised a second time, and two pass at once.
    ///
    /// ```
    /// use ratekeeper::core::{Nanos, Permits};
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// let _ = limiter.check_n(Permits::new(4));
    /// limiter.refund(Permits::new(3));
    /// assert_eq!(limiter.peek().remaining.get(), 9);
    ///
    /// let later = limiter.reserve(Permits::new(10), Nanos::from_secs(3_600));
    /// assert!(later.wait() > Some(Nanos::ZERO));
    /// assert!(later.cancel(), "in place of `refund`: nobody was promised anything after it");
    /// assert_eq!(limiter.peek().remaining.get(), 9);
    /// ```
    pub fn refund(&self, cost: Permits)
    where
        A: Refund,
    {
        let now = self.clock.now();
        self.place
            .update(|state| self.with(|algorithm| algorithm.refund(state, now, cost)));
        self.line.wake_first();
    }

    /// Takes permits back that a limit of concurrency has lent; nothing under any other.
    #[cfg(feature = "tower")]
    pub(crate) fn take_back(&self, cost: Permits) {
        let now = self.clock.now();
        self.place
            .update(|state| self.with(|algorithm| algorithm.take_back(state, now, cost)));
        self.line.wake_first();
    }

    /// Forgets what was taken, and what was promised by [`reserve`](Self::reserve). Who waits
    /// in line goes on waiting, for the limit as new.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// let _ = limiter.check();
    /// limiter.reset();
    /// assert_eq!(limiter.peek().remaining.get(), 10);
    /// ```
    pub fn reset(&self) {
        self.place.update(|state| *state = A::State::default());
        self.line.wake_first();
    }

    /// Changes the limit while it is used. Where states mean the same under both, they stay:
    /// under GCRA, at another rate, what is saved up stays the same share of the burst, and
    /// what is owed beyond it, moments that were promised, stays owed. Otherwise what was used
    /// is charged to the new limit, as far as it can hold that. Who waits goes on waiting, at
    /// the new rate.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use ratekeeper::core::{Permits, Window};
    /// let limiter = Limiter::per("10/1m").unwrap();
    /// let _ = limiter.check_n(Permits::new(10));
    /// limiter.set_quota("10/1h".parse().unwrap()).unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 0, "empty stays empty");
    ///
    /// let hourly = |permits: &str| Window::quota_reset(permits.parse().unwrap()).unwrap();
    /// let limiter = Limiter::new(hourly("10/1h"));
    /// let _ = limiter.check_n(Permits::new(4));
    /// limiter.set_limit(hourly("100/1h"));
    /// assert_eq!(limiter.peek().remaining.get(), 96);
    /// ```
    pub fn set_limit(&self, limit: A) {
        let now = self.clock.now();
        let limit = Arc::new(limit);
        let queue = self.line.lock(); // one change at a time
        self.with(|old| {
            if limit.keeps_state_of(old) {
                return self.rescale(old, &limit, now);
            }
            // Under one lock: states of a word mean the same under any numbers.
            self.place.update(|state| {
                *state = limit.state_with_usage(old.usage(state, now), now);
                self.limit.store(Arc::clone(&limit));
            });
        });
        drop(queue);
        self.line.wake_first();
    }

    /// Brings the state to other numbers, and then everybody.
    ///
    /// Without a lock the two change one after the other. In between, others find a state
    /// that is at least as strict as it was under the old limit, and as it will be under the
    /// new one; and nobody cuts it, who believes any debt.
    fn rescale(&self, old: &A, limit: &Arc<A>, now: Time) {
        let rescaled = |state: &A::State| {
            let mut state = state.clone();
            limit.rescale(&mut state, old, now);
            state
        };
        if let Some(believing) = old.believing() {
            self.limit.store(Arc::new(believing));
        }
        let (new, change) = self.place.update(|state| {
            let (before, new) = (state.clone(), rescaled(state));
            if new != before {
                limit.stricter(state, &new);
            }
            let change = match () {
                () if new == before => Change::None,
                () if new == *state => Change::Stricter,
                () => Change::Milder,
            };
            (new, change)
        });
        self.place.update(|state| {
            self.limit.store(Arc::clone(limit));
            if change != Change::Stricter {
                *state = rescaled(state); // and what was charged meanwhile
            }
            if change != Change::None {
                limit.stricter(state, &new);
            }
        });
    }
}

/// What other numbers make of a state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Stricter,
    Milder,
}

impl<C: Clock> Limiter<Gcra, C> {
    /// As [`set_limit`](Self::set_limit), to a token bucket of these numbers; reservations and
    /// debts reach about a year ahead.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// limiter.set_quota("20/1h".parse().unwrap()).unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 20, "full stays full");
    /// ```
    ///
    /// # Errors
    /// As [`Limiter::per`]; then nothing was changed.
    pub fn set_quota(&self, quota: Quota) -> Result<(), Error> {
        self.set_limit(patient(quota)?);
        Ok(())
    }
}
