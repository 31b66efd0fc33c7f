//! Reservation: permits of one key, charged for a later moment.
//!
//! ```text
//!   now ------ mine ------ theirs ------> time     cancel mine: gives back nothing, since
//!                                                  theirs stands on it
//! ```

use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Call, Decision, Nanos, Permits, Refund, Reserve, Time, Unsupported,
};
use ratekeeper_store::Reserved;

use super::{KeyLimit, KeyedLimiter, LimitKey};
use crate::Clock;
use crate::limiter::desk::{never, permits};

/// Permits of a key, charged for a later moment, or a refusal; see [`KeyLimit::reserve`]. Dropping
/// it leaves the permits charged; [`KeyedLimiter::cancel`] gives them back.
///
/// ```
/// use ratekeeper::KeyedLimiter;
/// use std::time::Duration;
/// let limiter = KeyedLimiter::per("1/1m")?;
/// let reservation = limiter.key("ann").reserve(1, Duration::ZERO);
/// assert_eq!(reservation.wait(), Some(Duration::ZERO));
/// assert!(limiter.cancel(reservation), "its permit is given back");
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[must_use = "a reservation is charged at once: wait for its moment, or cancel it"]
pub struct KeyedReservation {
    key: Box<[u8]>,
    cost: Permits,
    reserved: Reserved,
    /// The limiter that made it, and the version of its limit.
    limiter: u64,
    version: u32,
}

impl<K: LimitKey, A: Into<AnyAlgorithm>, C: Clock> KeyLimit<'_, K, A, C> {
    /// Reserves `cost` permits for a moment at most `max_wait` from now: they are charged, and the
    /// caller waits as it likes. A limit made by [`KeyedLimiter::per`] promises up to about a year
    /// ahead; others up to their patience, see
    /// [`Gcra::with_patience`](ratekeeper_core::Gcra::with_patience). A cost above the burst, which
    /// `check_n` and `acquire_n` refuse, is promised for the moment at which it is saved up. Refused
    /// while a caller waits for the key.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use std::time::Duration;
    /// let limiter = KeyedLimiter::per("1/1m").unwrap();
    /// let (ann, hour) = (limiter.key("ann"), Duration::from_secs(3_600));
    /// assert_eq!(ann.reserve(1, hour).wait(), Some(Duration::ZERO));
    /// let later = ann.reserve(1, hour);
    /// assert!(later.wait().unwrap() > Duration::from_secs(59));
    /// assert_eq!(ann.reserve(1, Duration::from_secs(1)).wait(), None);
    /// assert!(limiter.cancel(later));
    /// ```
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> KeyedReservation
    where
        A: Reserve,
    {
        let key = self.key.key_bytes();
        let promised = self.limiter.promise(key.as_ref(), cost, max_wait.into());
        promised.unwrap_or_else(|_| unreachable!("an algorithm that is `Reserve` supports it"))
    }
}

impl<K: LimitKey, C: Clock> KeyLimit<'_, K, AnyAlgorithm, C> {
    /// Like [`reserve`](KeyLimit::reserve), if the algorithm can promise a later moment.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use std::time::Duration;
    /// let minute = Duration::from_secs(60);
    /// let limiter = KeyedLimiter::parse("spacing = \"10s\"").unwrap();
    /// let reserved = limiter.key("ann").try_reserve(1, minute).unwrap();
    /// assert_eq!(reserved.wait(), Some(Duration::ZERO));
    /// assert_eq!(limiter.try_cancel(reserved), Ok(true));
    /// let window = KeyedLimiter::parse("{ limit = \"10/1m\", algorithm = \"fixed-window\" }").unwrap();
    /// assert!(window.key("ann").try_reserve(1, minute).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: only limits by GCRA and post-paid ones can promise.
    pub fn try_reserve(
        &self,
        cost: u64,
        max_wait: Duration,
    ) -> Result<KeyedReservation, Unsupported> {
        let limit = &self.limiter.limit;
        limit.with(|limit| limit.algorithm.supports(Call::Reserve))?; // also while others wait
        self.limiter
            .promise(self.key.key_bytes().as_ref(), cost, max_wait.into())
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Gives the permits of a reservation back, if its key was neither charged after it, nor given
    /// other permits, nor reset, the limit is the same, and it was made by this limiter; returns true
    /// if it did. Moments promised to later
    /// requests of the key are kept: of several reservations, cancel the last first. A grant of
    /// [`check_n`](KeyLimit::check_n) is given back after other charges too.
    pub fn cancel(&self, reservation: KeyedReservation) -> bool
    where
        A: Refund,
    {
        self.take_reservation_back(reservation).unwrap_or(false) // the algorithm takes back
    }

    /// Like [`cancel`](Self::cancel), for any algorithm.
    pub(super) fn take_reservation_back(
        &self,
        reservation: KeyedReservation,
    ) -> Result<bool, Unsupported> {
        let mine = reservation;
        let cancelled = self.with(&mine.key, mine.cost, |charge, now| {
            charge.limit.algorithm.supports(Call::Refund)?;
            if (mine.limiter, mine.version) != (self.id, charge.limit.version) {
                return Ok(false);
            }
            self.store.cancel(charge, mine.reserved, now)
        })?;
        if cancelled {
            self.lines.wake(&mine.key);
        }
        Ok(cancelled)
    }

    /// Reserves, under any algorithm.
    pub(super) fn promise(
        &self,
        key: &[u8],
        cost: u64,
        max_wait: Nanos,
    ) -> Result<KeyedReservation, Unsupported> {
        let version = self.limit.with(|limit| limit.version); // before the charge: may be older
        let reserved = match permits(cost) {
            None => self.denied(never(self.peek(key))),
            Some(cost) if self.lines.find(key).is_some() => {
                self.denied(self.behind_the_line(key, cost))
            }
            Some(cost) => self.with(key, cost, |charge, now| {
                self.store.reserve(charge, now, max_wait)
            })?,
        };
        Ok(KeyedReservation {
            key: key.into(),
            cost: Permits::new(cost),
            reserved,
            limiter: self.id,
            version,
        })
    }

    fn denied(&self, decision: Decision) -> Reserved {
        let made = self.clock.now();
        Reserved {
            decision,
            made,
            mark: None, // nothing was charged
        }
    }
}

impl<C: Clock> KeyedLimiter<AnyAlgorithm, C> {
    /// Like [`cancel`](KeyedLimiter::cancel), if the algorithm can take back a charge.
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_cancel(&self, reservation: KeyedReservation) -> Result<bool, Unsupported> {
        self.take_reservation_back(reservation)
    }
}

impl KeyedReservation {
    /// Returns the limit's decision.
    pub const fn decision(&self) -> Decision {
        self.reserved.decision
    }

    /// Returns how long to wait, from when it was made; `None` if it was refused.
    pub fn wait(&self) -> Option<Duration> {
        self.reserved.decision.verdict.wait().map(Duration::from)
    }

    /// Returns the moment from which the permits may be used, by the limiter's clock; `None` if it
    /// was refused.
    pub fn due(&self) -> Option<Time> {
        let wait = self.reserved.decision.verdict.wait()?;
        Some(self.reserved.made + wait)
    }
}

// Not the key, which may be personal data.
debug_fields!([] KeyedReservation { reserved, cost });
