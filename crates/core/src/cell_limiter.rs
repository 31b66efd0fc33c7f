//! Cell limiter: one limit with its state and a clock, for programs without a standard library.
//!
//! ```text
//!   check --> clock.now() --> cell.decide(limit, now, cost) --> passes, or the wait
//! ```
//!
//! It neither allocates nor waits. `Limiter` of the crate `ratekeeper` is the same with a queue of
//! waiters, reservations, and limits that change.

use core::fmt;

use crate::{
    Algorithm, Cell, Clock, Decision, Nanos, Permits, Receipt, Refund, Refused, Returns, Time,
    WordState,
};

/// One limit, shared by threads and interrupts: an algorithm with a state of one word, that
/// state, and a clock of the program's own.
///
/// It needs no standard library, only 64-bit atomics, and allocates nothing. (The crate links
/// `alloc`, because other algorithms use it: a program without a heap needs an allocator that
/// returns null.)
///
/// ```
/// use core::sync::atomic::{AtomicU64, Ordering};
/// use core::time::Duration;
/// use ratekeeper_core::{CellLimiter, Clock, Gcra, Nanos, Origin, Quota, Refused, Time};
///
/// /// Milliseconds, counted by an interrupt of a timer.
/// static MILLIS: AtomicU64 = AtomicU64::new(0);
///
/// struct Ticks;
///
/// impl Clock for Ticks {
///     fn now(&self) -> Time {
///         Time::ZERO + Nanos::from_millis(MILLIS.load(Ordering::Relaxed))
///     }
///
///     fn origin(&self) -> Origin {
///         Origin::UNIX // not known
///     }
/// }
///
/// let limiter = CellLimiter::new(Gcra::token_bucket(Quota::per_second(2))?, Ticks);
/// assert!(limiter.check().is_ok() && limiter.check().is_ok());
/// assert_eq!(limiter.check(), Err(Refused::Until(Duration::from_millis(500))));
/// MILLIS.store(500, Ordering::Relaxed);
/// assert!(limiter.check().is_ok());
/// # Ok::<(), ratekeeper_core::Error>(())
/// ```
pub struct CellLimiter<A, C> {
    algorithm: A,
    cell: Cell<A>,
    returns: Returns,
    clock: C,
}

/// Permits that a [`CellLimiter`] took, which it can be given back: see [`CellLimiter::refund`].
#[derive(PartialEq, Eq, Debug)]
pub struct CellGrant {
    /// The decision.
    pub decision: Decision,
    cost: Permits,
    made: Time,
    mark: u64,
}

impl<A: Algorithm<State: WordState>, C: Clock> CellLimiter<A, C> {
    /// A limiter that has never been asked.
    pub const fn new(algorithm: A, clock: C) -> Self {
        Self {
            algorithm,
            cell: Cell::new(),
            returns: Returns::new(),
            clock,
        }
    }

    /// Decides about one permit, and takes it if allowed.
    ///
    /// # Errors
    /// [`Refused`], if the limit is used up: nothing is charged.
    pub fn check(&self) -> Result<CellGrant, Refused> {
        self.check_n(Permits::ONE)
    }

    /// Like [`check`](Self::check), for `cost` permits: all of them or none.
    ///
    /// # Errors
    /// [`Refused`], if fewer are free: nothing is charged.
    pub fn check_n(&self, cost: Permits) -> Result<CellGrant, Refused> {
        let mark = self.returns.mark();
        let made = self.clock.now();
        let decision = self.cell.decide(&self.algorithm, made, cost);
        match decision.verdict.refused() {
            None => Ok(CellGrant {
                decision,
                cost,
                made,
                mark,
            }),
            Some(refused) => Err(refused),
        }
    }

    /// Returns the decision that [`check_n`](Self::check_n) would make; charges nothing.
    pub fn peek_n(&self, cost: Permits) -> Decision {
        self.cell.look(&self.algorithm, self.clock.now(), cost)
    }

    /// Gives back permits that were taken here and not used, as far as time has not paid for them.
    /// After a [reset](Self::reset) none of those taken before come back.
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn refund(&self, grant: CellGrant)
    where
        A: Refund,
    {
        let (now, cost) = (self.clock.now(), grant.cost);
        let receipt = Receipt::of(&grant.decision, grant.made);
        let returned = self.returns.since(grant.mark);
        let Some(returned) = returned.filter(|_| receipt.paid > now) else {
            return;
        };
        self.returns.add(cost);
        let receipt = Receipt {
            returned,
            sooner: Nanos::MAX, // not known
            ..receipt
        };
        self.cell.give_back(&self.algorithm, now, cost, receipt);
    }

    /// Forgets all charges; returns true if there were any.
    pub fn reset(&self) -> bool {
        self.returns.reset();
        self.cell.reset()
    }
}

impl<A: fmt::Debug, C> fmt::Debug for CellLimiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellLimiter")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};
    use core::time::Duration;
    use std::sync::Arc;

    use super::*;
    use crate::{Gcra, Nanos, Origin, Quota, Time};

    struct Ticks(AtomicU64);

    impl Clock for Ticks {
        fn now(&self) -> Time {
            Time::ZERO + Nanos::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn origin(&self) -> Origin {
            Origin::UNIX
        }
    }

    #[test]
    fn burst_then_pace_then_refund_then_reset() {
        let ticks = Arc::new(Ticks(AtomicU64::new(0)));
        let bucket = Gcra::token_bucket(Quota::per_second(4).burst(3)).unwrap();
        let limiter = CellLimiter::new(bucket, Arc::clone(&ticks));
        let passes = || (0..9).filter(|_| limiter.check().is_ok()).count();
        assert_eq!(passes(), 3);
        let wait = Err(Refused::Until(Duration::from_millis(250)));
        assert_eq!(limiter.check(), wait);
        assert_eq!(limiter.check_n(Permits::new(4)), Err(Refused::Never));
        ticks.0.store(249, Ordering::Relaxed);
        assert_eq!(passes(), 0);
        ticks.0.store(250, Ordering::Relaxed);
        assert_eq!(passes(), 1);
        ticks.0.store(750, Ordering::Relaxed);
        let [kept, late] = [1, 1].map(|cost| limiter.check_n(Permits::new(cost)).unwrap());
        limiter.refund(kept);
        assert_eq!(limiter.peek_n(Permits::ZERO).remaining, Permits::ONE);
        ticks.0.store(1_500, Ordering::Relaxed);
        assert_eq!(passes(), 3);
        limiter.refund(late);
        assert_eq!(passes(), 0, "time has paid for it");
        ticks.0.store(1_750, Ordering::Relaxed);
        let before = limiter.check().unwrap();
        assert!(limiter.reset() && !limiter.reset());
        assert_eq!(passes(), 3);
        limiter.refund(before);
        assert_eq!(passes(), 0, "it was taken before the reset");
    }
}
