//! Reservation: permits charged for a later moment.
//!
//! ```text
//!   now ------ mine ------ theirs ------> time     cancel mine: gives back nothing, since
//!                                                  theirs stands on it
//!   now ------ mine ---------------------> time    cancel mine: all is given back
//! ```

use std::convert::Infallible;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Call, Decision, Permits, Receipt, Refund, Reserve, Time, Unsupported,
};

use super::desk::{never, permits};
use super::{Limiter, LimiterAlgorithm, StateCell};
use crate::Clock;

/// Permits charged for a later moment, or a refusal; see [`Limiter::reserve`]. Dropping it
/// leaves the permits charged; [`Limiter::cancel`] gives them back.
///
/// ```
/// use ratekeeper::Limiter;
/// use std::time::Duration;
/// let limiter = Limiter::per("1/1m")?;
/// let reservation = limiter.reserve(1, Duration::ZERO);
/// assert_eq!(reservation.wait(), Some(Duration::ZERO));
/// assert!(limiter.cancel(reservation), "its permit is given back");
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[must_use = "a reservation is charged at once: wait for its moment, or cancel it"]
pub struct Reservation<A: LimiterAlgorithm> {
    pub(super) decision: Decision,
    pub(super) made: Time,
    pub(super) cost: Permits,
    /// The state that it left; `None` if it was refused without asking the limit.
    pub(super) state: Option<A::State>,
    /// The era in which it was made.
    pub(super) era: u64,
    /// See [`Receipt::mark`].
    pub(super) mark: Option<NonZeroU64>,
}

/// The time of a limiter between two changes of its limit, as a number that no other limiter has.
#[derive(Debug)]
pub(super) struct Era(AtomicU64);

impl Era {
    /// The first era of a limiter.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(unique()))
    }

    /// Begins the next era; with [`current`](Self::current), publishes the changes before it.
    pub(super) fn begin(&self) {
        self.0.store(unique(), Ordering::Release);
    }

    pub(super) fn current(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Returns a number that is used once in this process.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<A: LimiterAlgorithm> Reservation<A> {
    /// Returns the limit's decision.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns how long to wait, from when it was made; `None` if it was refused.
    pub fn wait(&self) -> Option<Duration> {
        self.decision.verdict.wait().map(Duration::from)
    }

    /// Returns the moment from which the permits may be used, by the limiter's clock; `None` if it
    /// was refused.
    pub fn due(&self) -> Option<Time> {
        self.decision.verdict.wait().map(|wait| self.made + wait)
    }
}

impl<A: LimiterAlgorithm, C: Clock> Limiter<A, C> {
    /// Reserves `cost` permits for a moment at most `max_wait` from now: they are charged, and the
    /// caller waits as it likes. A limit made by [`Limiter::per`] promises up to about a year
    /// ahead; others up to their patience, see
    /// [`Gcra::with_patience`](ratekeeper_core::Gcra::with_patience). A cost above the burst, which
    /// `check_n` and `acquire_n` refuse, is promised for the moment at which it is saved up.
    ///
    /// ```
    /// use std::time::Duration;
    /// let limiter = ratekeeper::Limiter::per("1/1m").unwrap();
    /// let hour = Duration::from_secs(3_600);
    /// assert_eq!(limiter.reserve(1, hour).wait(), Some(Duration::ZERO));
    /// assert!(limiter.reserve(1, hour).wait() > Some(Duration::from_secs(59)));
    /// assert_eq!(limiter.reserve(1, Duration::from_secs(90)).wait(), None);
    /// ```
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> Reservation<A>
    where
        A: Reserve,
    {
        let reserve = |algorithm: &A, state: &mut _, now, cost| {
            Ok::<_, Infallible>(algorithm.reserve(state, now, cost, max_wait.into()))
        };
        let Ok(reservation) = self.reserve_by(cost, reserve);
        reservation
    }

    /// Reserves by `reserve`, unless others wait.
    pub(super) fn reserve_by<E>(
        &self,
        cost: u64,
        reserve: impl Fn(&A, &mut A::State, Time, Permits) -> Result<Decision, E>,
    ) -> Result<Reservation<A>, E> {
        let made = self.clock.now();
        // Before the charge: both may be older than it.
        let (era, before) = (self.era.current(), self.marks.last());
        let (decision, state) = match permits(cost) {
            None => (never(self.look(made, Permits::ZERO)), None),
            Some(cost) if self.line.length() > 0 => (self.behind_the_line(made, cost), None),
            Some(cost) => {
                let (decision, state) = self.charge(|limit, state| {
                    let decision = reserve(limit, state, made, cost);
                    (decision, state.clone())
                });
                let decision = decision?;
                if let Some(wait) = decision.verdict.wait() {
                    let due = (made + wait).as_nanos();
                    self.promised.fetch_max(due, Ordering::Relaxed);
                }
                (decision, Some(state))
            }
        };
        Ok(Reservation {
            decision,
            made,
            cost: Permits::new(cost),
            state,
            era,
            mark: self.marks.mark(before),
        })
    }

    /// Gives the permits of a reservation back, if the limit was neither charged nor changed after
    /// it, no other permits were given back, and this limiter made it; returns true if it did.
    /// Moments promised to later requests are kept, and this one cannot be given twice: of several
    /// reservations, cancel the last first.
    /// Permits that are used at once are better taken by [`check_n`](Self::check_n), because
    /// [`refund`](Self::refund) gives a grant back after other charges too.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use std::time::Duration;
    /// let limiter = Limiter::per("1/1h").unwrap();
    /// let first = limiter.reserve(1, Duration::ZERO);
    /// // It belongs to the caller, and can move to another thread.
    /// std::thread::scope(|scope| scope.spawn(|| assert!(limiter.cancel(first))).join()).unwrap();
    /// assert!(limiter.check().is_ok());
    /// ```
    pub fn cancel(&self, reservation: Reservation<A>) -> bool
    where
        A: Refund,
    {
        let refund = |algorithm: &A, state: &mut _, now, cost| {
            algorithm.refund(state, now, cost);
            Ok::<_, Infallible>(())
        };
        let Ok(cancelled) = self.cancel_by(reservation, refund);
        cancelled
    }

    /// Gives back by `refund`, if the limit was neither charged, given permits, nor changed since.
    pub(super) fn cancel_by<E>(
        &self,
        reservation: Reservation<A>,
        refund: impl Fn(&A, &mut A::State, Time, Permits) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (decision, cost) = (reservation.decision, reservation.cost);
        let (true, Some(mine)) = (decision.verdict.allows(), reservation.state) else {
            return Ok(false);
        };
        let now = self.clock.now();
        let queue = self.line.lock(); // no change of the limit meanwhile
        // After permits came back, the state may be as it was though others were charged.
        let receipt = Receipt {
            mark: reservation.mark,
            ..Receipt::of(&decision, reservation.made)
        };
        let is_changed = self.given_back.lock().any_since(&receipt);
        if reservation.era != self.era.current() || is_changed {
            return Ok(false);
        }
        let cancelled = self.place.update(|state| {
            if *state != mine {
                return Ok(false);
            }
            self.with(|algorithm| refund(algorithm, state, now, cost))?;
            Ok(true)
        })?;
        drop(queue);
        if cancelled {
            self.line.wake_first();
        }
        Ok(cancelled)
    }
}

impl<C: Clock> Limiter<AnyAlgorithm, C> {
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

debug_fields!([A: LimiterAlgorithm] Reservation<A> { decision, made, cost });
