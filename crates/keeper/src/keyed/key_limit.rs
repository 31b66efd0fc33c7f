//! Key limit: the limit of one key, with the methods of a limiter.
//!
//! ```text
//!   limiter.key("ann")  --->  check, decide, peek, refund, reset    this file
//!                             acquire ..                            wait.rs
//!                             reserve                               reservation.rs
//!                             settle                                settlement.rs
//! ```

use std::fmt;
use std::num::NonZeroU64;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Charge, Decision, Gcra, Permits, Refund, Time,
};
use ratekeeper_store::Reset;

use super::{KeyedLimiter, LimitKey, charge_of};
use crate::limiter::GrantOrigin;
use crate::limiter::desk::{never, permits};
use crate::{Clock, Grant, Refused, SystemClock};

/// The limit of one key of a [`KeyedLimiter`]; its methods are those of a
/// [`Limiter`](crate::Limiter). It holds the key and no state, so it costs nothing to
/// make, and is `Copy` if the key is.
///
/// ```
/// use ratekeeper::KeyedLimiter;
///
/// let limiter = KeyedLimiter::per("2/1h")?;
/// let ann = limiter.key("ann");
/// assert!(ann.check().is_ok() && ann.check().is_ok() && ann.check().is_err());
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub struct KeyLimit<'a, K, A = Gcra, C = SystemClock> {
    pub(super) limiter: &'a KeyedLimiter<A, C>,
    pub(super) key: K,
}

impl<'a, K: LimitKey, A: Into<AnyAlgorithm>, C: Clock> KeyLimit<'a, K, A, C> {
    #[inline]
    pub(super) const fn new(limiter: &'a KeyedLimiter<A, C>, key: K) -> Self {
        Self { limiter, key }
    }

    /// Decides about one permit, and takes it if allowed. Never waits.
    ///
    /// # Errors
    /// [`Refused`], if the limit of the key is used up: nothing is charged.
    #[inline]
    pub fn check(&self) -> Result<Grant, Refused> {
        self.check_n(1)
    }

    /// Like [`check`](Self::check), for `cost` permits: all of them or none.
    ///
    /// # Errors
    /// [`Refused`], if fewer are free for the key: nothing is charged.
    #[inline]
    pub fn check_n(&self, cost: u64) -> Result<Grant, Refused> {
        let at = self.limiter.clock.now();
        let (decision, mark) = self.decide_at(at, cost);
        let made = GrantOrigin {
            at,
            limiter: self.limiter.id,
            mark,
        };
        Grant::of(decision, cost, made)
    }

    /// Like [`check_n`](Self::check_n), with all numbers of the answer, also of a refusal, in the
    /// types of [`core`](ratekeeper_core): for header fields and reports.
    #[inline]
    pub fn decide(&self, cost: u64) -> Decision {
        self.decide_at(self.limiter.clock.now(), cost).0
    }

    /// Decides, and returns the mark of the charge.
    #[inline]
    fn decide_at(&self, now: Time, cost: u64) -> (Decision, Option<NonZeroU64>) {
        let (key, limiter) = (self.key.key_bytes(), self.limiter);
        let key = key.as_ref();
        let Some(cost) = permits(cost) else {
            return (limiter.deny_forever(key), None);
        };
        match limiter.limit.unchanged() {
            // Inlined: a call costs as much as its work besides waiting for memory.
            Some(limit) if limiter.lines.present() == 0 => {
                let charge = charge_of(limit, key, cost);
                let (decision, mark) = limiter.store.decide_marked(&charge, now);
                (decision, NonZeroU64::new(mark))
            }
            _ => {
                let before = limiter.store.marks().last();
                let decision = limiter.check_slowly(key, cost);
                (decision, limiter.store.marks().mark(before))
            }
        }
    }

    /// Returns the state of the limit, in the types of [`core`](ratekeeper_core); nothing is
    /// charged.
    pub fn peek(&self) -> Decision {
        self.limiter.peek(self.key.key_bytes().as_ref())
    }

    /// Returns the decision of [`check_n`](Self::check_n) if no caller waits; nothing is charged.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// assert!(limiter.key("ann").peek_n(10).verdict.allows());
    /// assert!(!limiter.key("ann").peek_n(11).verdict.allows());
    /// ```
    pub fn peek_n(&self, cost: u64) -> Decision {
        let Some(cost) = permits(cost) else {
            return never(self.peek());
        };
        let look = |charge: &Charge<'_>, now| self.limiter.store.look_one(charge, now);
        self.limiter.with(self.key.key_bytes().as_ref(), cost, look)
    }

    /// Gives back permits that the key took here and did not use, as far as time has not paid for
    /// them; the first waiter can take them at once. Only for algorithms that can take them back.
    /// The grant must be one of this key, which is not checked. See
    /// [`Limiter::refund`](crate::Limiter::refund).
    pub fn refund(&self, grant: Grant)
    where
        A: Refund,
    {
        self.limiter
            .settle(self.key.key_bytes().as_ref(), &grant.used(0));
    }

    /// Forgets the permits taken by the key; returns true if there were any.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// let _ = limiter.check("ann");
    /// assert!(limiter.key("ann").reset());
    /// assert!(!limiter.key("bob").reset());
    /// assert_eq!(limiter.key("ann").peek().remaining.get(), 10);
    /// ```
    pub fn reset(&self) -> bool {
        let key = self.key.key_bytes();
        let (key, limiter) = (key.as_ref(), self.limiter);
        let was_there = limiter.with(key, Permits::ZERO, |charge, now| {
            let reset = limiter.store.settle_now(Reset, &[*charge], now);
            reset.contains(&true)
        });
        limiter.lines.wake(key);
        was_there
    }

    /// Returns the number of waiters for the key.
    ///
    /// ```
    /// assert_eq!(ratekeeper::KeyedLimiter::per("1/1s").unwrap().key("ann").waiting(), 0);
    /// ```
    pub fn waiting(&self) -> usize {
        let line = self.limiter.lines.find(self.key.key_bytes().as_ref());
        line.map_or(0, |line| line.length())
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    pub(crate) fn peek(&self, key: &[u8]) -> Decision {
        // A cost of zero changes nothing.
        let look = |charge: &Charge<'_>, now| self.store.decide_one(charge, now);
        self.with(key, Permits::ZERO, look)
    }

    /// Denies a cost that no limit can hold.
    #[cold]
    fn deny_forever(&self, key: &[u8]) -> Decision {
        if self.limit.with(|limit| limit.algorithm.capacity()) < Permits::MAX {
            return self.check_slowly(key, Permits::MAX); // some limits count denials
        }
        never(self.peek(key))
    }
}

clone_fields!([K: Clone, A, C] KeyLimit<'_, K, A, C> { limiter, key });

impl<K: Copy, A, C> Copy for KeyLimit<'_, K, A, C> {}

debug_fields!([K: fmt::Debug, A, C] KeyLimit<'_, K, A, C> { key });
