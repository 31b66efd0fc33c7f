//! Limiter: one limit inside a program.
//!
//! Three methods ask for permits. They differ in what they do when there are none:
//!
//! ```text
//!             | when there are none       | the waiter     | the charge is made
//!   ----------+---------------------------+----------------+---------------------------
//!   check     | refuses, with the wait    | none           | now, or never
//!   acquire   | waits in line             | the limiter    | when its turn comes
//!   reserve   | promises a later moment   | the caller,    | now, for then
//!             |                           | as it likes    |
//! ```
//!
//! * **check** is for work that may be refused: a request with a client that can come back.
//! * **acquire** is for work that must be done, by a thread or a task that can wait. Waiters are
//!   served in the order in which they came; one that gives up leaves the line, and those behind
//!   move up.
//! * **reserve** is for work that is planned: the caller puts it into a queue or a timer of its
//!   own. Promised moments are kept.
//!
//! While a caller waits in line, `check` and `reserve` are refused, so that no request passes the
//! line. A task in line must be polled or dropped; one that is forgotten holds up all others.
//!
//! No thread runs in the background, and there is at most one timer, that of the first in line. A
//! limit by GCRA (token bucket, leaky bucket, spacing) decides by one compare-exchange, the others
//! under a small lock.
//!
//! The algorithm is part of the type, so that unsupported calls do not exist: `Limiter<Log>` has no
//! `reserve`. For a configured algorithm, `Limiter::parse` (feature `policy`) makes a
//! `Limiter<AnyAlgorithm>`, with `try_reserve` and `try_refund`, which return an error at run time if unsupported.

mod change;
pub(crate) mod desk;
mod grant;
pub(crate) mod line;
pub(crate) mod owned;
pub(crate) mod reservation;
mod settlement;
mod state_cell;
pub(crate) mod turn;
pub(crate) mod wait;
mod wait_error;

use std::{fmt, sync::atomic::AtomicU64};

use ratekeeper_core::{Decision, Error, Gcra, Permits, Quota, Time};
use ratekeeper_store::{GivenBack, Lock, Marks};

use crate::latest::Latest;
use crate::{Clock, SystemClock};
use desk::{never, permits};
pub use grant::Grant;
pub(crate) use grant::GrantOrigin;
use line::WaitLine;
pub use owned::OwnedPermits;
pub use ratekeeper_core::Refused;
pub use reservation::Reservation;
use reservation::{Era, unique};
pub use settlement::Settlement;
pub(crate) use settlement::settles;
pub use state_cell::{LimiterAlgorithm, Locked, StateCell};
pub use wait_error::WaitError;

/// Default maximum number of waiters of a limiter: 100 bytes each, and their tasks.
pub const MAX_WAITING: usize = 100_000;

/// One limit, shared by threads and tasks; see the [module](self) for its three methods.
///
/// `A` is the algorithm, a token bucket by default; `C` the clock.
///
/// ```
/// use ratekeeper::Limiter;
///
/// let limiter = Limiter::per("100/1m")?;
/// if limiter.check().is_ok() {
///     // do it
/// }
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub struct Limiter<A: LimiterAlgorithm = Gcra, C = SystemClock> {
    limit: Latest<A>,
    place: A::Place,
    line: WaitLine,
    most_waiting: usize,
    era: Era,
    id: u64, // unique in the process
    given_back: Lock<GivenBack>,
    marks: Marks,
    promised: AtomicU64, // the latest moment, in nanoseconds
    changes: AtomicU64,  // odd while the limit is changed without a lock
    clock: C,
}

impl Limiter {
    /// A token bucket in the policy's words, permits and span: `100/1m`. All permits may be spent
    /// at once; reservations and debts reach as far ahead as a bucket can, about a year.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// let limiter = Limiter::per("2/1h")?;
    /// let allowed = (0..5).filter(|_| limiter.check().is_ok()).count();
    /// assert_eq!(allowed, 2);
    ///
    /// let error = Limiter::per("100 per minute").unwrap_err();
    /// assert!(error.to_string().starts_with("not a quota: write permits and period, as in `100/1m`"));
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    ///
    /// # Errors
    /// A text that is not a quota; [`Error::TooFast`] or [`Error::TooLong`] for unsupported quotas.
    pub fn per(quota: &str) -> Result<Self, Error> {
        Self::token_bucket(quota.parse()?)
    }

    /// A token bucket; reservations and debts reach about a year ahead.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use ratekeeper::core::Quota;
    /// let limiter = Limiter::token_bucket(Quota::per_minute(600).burst(20))?;
    /// assert!(limiter.check_n(20).is_ok());
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Limiter::per`].
    pub fn token_bucket(quota: Quota) -> Result<Self, Error> {
        Ok(Self::new(Gcra::token_bucket(quota)?))
    }
}

impl<A: LimiterAlgorithm> Limiter<A> {
    /// A limiter by any algorithm, on the machine's clock. Limits that follow the wall clock need
    /// its origin: create the clock first, and use [`Limiter::with_clock`].
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use ratekeeper::core::Log;
    /// let limiter = Limiter::new(Log::sliding("3/1m".parse()?)?);
    /// assert!(limiter.check().is_ok());
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn new(algorithm: A) -> Self {
        Self::with_clock(algorithm, SystemClock::new())
    }
}

impl<A: LimiterAlgorithm, C: Clock> Limiter<A, C> {
    /// A limiter by any algorithm, on any clock.
    ///
    /// ```
    /// use ratekeeper::{Clock, Limiter, SystemClock};
    /// use ratekeeper::core::Window;
    /// let clock = SystemClock::new();
    /// let quota: ratekeeper::core::Quota = "10/1m".parse()?;
    /// let minutes = Window::fixed(quota, clock.origin().phase(quota.per()))?;
    /// let limiter = Limiter::with_clock(minutes, clock);
    /// assert_eq!(limiter.check().unwrap().remaining(), 9);
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn with_clock(algorithm: A, clock: C) -> Self {
        Self {
            limit: Latest::new(algorithm.patient()),
            place: A::Place::default(),
            line: WaitLine::default(),
            most_waiting: MAX_WAITING,
            era: Era::new(),
            id: unique(),
            given_back: Lock::default(),
            marks: Marks::default(),
            promised: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            clock,
        }
    }

    /// The same limiter, with at most `most` waiters; further callers receive
    /// [`WaitError::TooManyWaiting`].
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("1/1s").unwrap().with_most_waiting(10);
    /// ```
    #[must_use]
    pub fn with_most_waiting(self, most: usize) -> Self {
        Self {
            most_waiting: most,
            ..self
        }
    }

    /// Decides about one permit, and takes it if allowed. Never waits.
    ///
    /// ```
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::{Limiter, ManualClock, Refused};
    /// use std::time::Duration;
    /// let pace = Gcra::spacing(Nanos::from_millis(250)).unwrap();
    /// let limiter = Limiter::with_clock(pace, ManualClock::default());
    /// assert!(limiter.check().is_ok());
    /// assert_eq!(limiter.check(), Err(Refused::Until(Duration::from_millis(250))));
    /// ```
    ///
    /// # Errors
    /// [`Refused`], if the limit is used up: nothing is charged.
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    pub fn check(&self) -> Result<Grant, Refused> {
        self.check_n(1)
    }

    /// Like [`check`](Self::check), for `cost` permits: all of them or none.
    ///
    /// ```
    /// use ratekeeper::{Limiter, Refused};
    /// let limiter = Limiter::per("10/1h").unwrap();
    /// assert!(limiter.check_n(8).is_ok());
    /// assert!(matches!(limiter.check_n(8), Err(Refused::Until(_))));
    /// assert_eq!(limiter.check_n(11), Err(Refused::Never));
    /// ```
    ///
    /// # Errors
    /// [`Refused`], if fewer are free: nothing is charged.
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    pub fn check_n(&self, cost: u64) -> Result<Grant, Refused> {
        let (at, before) = (self.clock.now(), self.marks.last());
        match self.decide_at_once(at, cost) {
            Some(decision) => Grant::of(decision, cost, self.made(at, before)),
            None => self.check_slowly(at, before, cost),
        }
    }

    /// Like [`check_n`](Self::check_n), where that cannot [at once](Self::decide_at_once).
    #[cold]
    #[inline(never)]
    fn check_slowly(&self, at: Time, before: u64, cost: u64) -> Result<Grant, Refused> {
        let decision = self.decide_slowly(at, cost);
        Grant::of(decision, cost, self.made(at, before))
    }

    /// Returns where a charge was made since the mark `before`.
    #[inline]
    fn made(&self, at: Time, before: u64) -> GrantOrigin {
        GrantOrigin {
            at,
            limiter: self.id,
            mark: self.marks.mark(before),
        }
    }

    /// Like [`check_n`](Self::check_n), with all numbers of the answer, also of a refusal, in the
    /// types of [`core`](ratekeeper_core): for header fields and reports.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// assert_eq!(limiter.decide(8).remaining.get(), 2);
    /// ```
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    pub fn decide(&self, cost: u64) -> Decision {
        let now = self.clock.now();
        let decision = self.decide_at_once(now, cost);
        decision.unwrap_or_else(|| self.decide_slowly(now, cost))
    }

    /// Returns `None` if a caller waits, the limit was changed, or a race was lost; or for a cost
    /// that no limit can hold.
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    fn decide_at_once(&self, now: Time, cost: u64) -> Option<Decision> {
        let cost = permits(cost)?;
        if self.line.length() > 0 {
            return None;
        }
        let decision = self.place.decide(|| self.limit.unchanged(), now, cost)?;
        self.limit.unchanged().map(|_| decision)
    }

    /// Decides where that is not possible [at once](Self::decide_at_once).
    #[cold]
    #[inline(never)]
    fn decide_slowly(&self, now: Time, cost: u64) -> Decision {
        let held = permits(cost);
        if held.is_none() && self.with(A::capacity) == Permits::MAX {
            return never(self.peek());
        }
        let cost = held.unwrap_or(Permits::MAX); // some limits count denials
        if self.line.length() > 0 {
            return self.behind_the_line(now, cost);
        }
        self.let_others_pass();
        self.charge(|limit, state| limit.decide(state, now, cost))
    }

    /// Takes `cost` at once, if it is free and no caller waits.
    #[expect(clippy::inline_always, reason = "as `check_n`")]
    #[inline(always)]
    pub(crate) fn take_at_once(&self, cost: u64) -> bool {
        let Some(cost) = permits(cost) else {
            return false;
        };
        let now = self.clock.now();
        if self.line.length() > 0 {
            return false;
        }
        let taken = self.place.take(|| self.limit.unchanged(), now, cost);
        let taken = taken.filter(|_| self.limit.unchanged().is_some());
        taken.unwrap_or_else(|| self.take_slowly(now, cost))
    }

    /// Like [`take_at_once`](Self::take_at_once), if the limit was changed, or a race was lost.
    #[cold]
    #[inline(never)]
    fn take_slowly(&self, now: Time, cost: Permits) -> bool {
        self.let_others_pass();
        self.charge(|limit, state| limit.take(state, now, cost))
    }

    /// Returns the state of the limit, in the types of [`core`](ratekeeper_core); nothing is
    /// charged.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// assert_eq!([limiter.peek().remaining.get(), limiter.peek().remaining.get()], [10, 10]);
    /// ```
    pub fn peek(&self) -> Decision {
        self.peek_n(0)
    }

    /// Returns the decision of [`check_n`](Self::check_n) if no caller waits; nothing is charged.
    ///
    /// ```
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// assert!(limiter.peek_n(10).verdict.allows());
    /// assert!(!limiter.peek_n(11).verdict.allows());
    /// ```
    pub fn peek_n(&self, cost: u64) -> Decision {
        match permits(cost) {
            Some(cost) => self.look(self.clock.now(), cost),
            None => never(self.peek()),
        }
    }

    /// Returns the number of waiters.
    ///
    /// ```
    /// assert_eq!(ratekeeper::Limiter::per("1/1s").unwrap().waiting(), 0);
    /// ```
    pub fn waiting(&self) -> usize {
        self.line.length()
    }

    /// Passes the current limit to `view`.
    ///
    /// ```
    /// use ratekeeper::core::{Algorithm, Nanos};
    /// let limiter = ratekeeper::Limiter::per("10/1h").unwrap();
    /// assert_eq!(limiter.show(|limit| limit.capacity().get()), 10);
    /// ```
    pub fn show<T>(&self, view: impl FnOnce(&A) -> T) -> T {
        self.with(view)
    }

    /// Returns the clock.
    ///
    /// ```
    /// use ratekeeper::{Clock, Limiter};
    /// let limiter = Limiter::per("1/1s").unwrap();
    /// assert!(limiter.clock().now() <= limiter.clock().now() + ratekeeper::core::Nanos::SECOND);
    /// ```
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Passes the current algorithm to `act`.
    #[inline]
    fn with<T>(&self, act: impl FnOnce(&A) -> T) -> T {
        self.limit.with(act)
    }

    /// Returns the decision for a request that waited in vain, or may not wait; nothing is charged.
    #[cfg(feature = "tower")]
    pub(crate) fn refusal(&self, cost: Permits) -> Decision {
        self.behind_the_line(self.clock.now(), cost)
    }
}

impl<A: LimiterAlgorithm + fmt::Debug, C> fmt::Debug for Limiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.with(|limit| {
            f.debug_struct("Limiter")
                .field("limit", limit)
                .field("waiting", &self.line.length())
                .finish_non_exhaustive()
        })
    }
}
