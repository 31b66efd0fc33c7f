//! Owned permits: a guard that gives the permits of a limit of concurrency back.
//!
//! ```text
//!   check_owned, acquire_owned ---> guard: in a task, a queue, a struct ---> dropped, also by a
//!                                     |        ^                             panic: given back,
//!                                     v        |                             the first waiter
//!                                   renew: the lease runs anew               looks again
//! ```
//!
//! Each guard has a lease with a name of its own. A lease that has ended is not given back: its
//! permits have come back by themselves, and may be lent to others.

use std::sync::Arc;

use ratekeeper_core::{
    Concurrency, ConcurrencyState, Decision, LeaseId, Nanos, Permits, Time, Verdict,
};

use super::desk::{Lending, Lends, never, permits};
use super::reservation::unique;
use super::turn::Until;
use super::wait::{block, wait};
use super::{Limiter, Refused, StateCell, WaitError};
use crate::{Block, Clock, Timer};

/// Permits of a limit of concurrency; dropping it gives them back and wakes the first waiter. See
/// [`Limiter::check_owned`] and [`KeyedLimiter::check_owned`](crate::KeyedLimiter::check_owned).
///
/// It can move to another task or thread. If it is neither dropped nor
/// [renewed](Self::renew), the permits come back when their lease ends.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ratekeeper::Limiter;
/// use ratekeeper::core::Concurrency;
///
/// let jobs = Concurrency::new(1, Duration::from_secs(60))?;
/// let jobs = Arc::new(Limiter::new(jobs));
/// let permit = jobs.check_owned(1).unwrap();
/// assert!(jobs.check_owned(1).is_err(), "one job at a time");
/// std::thread::spawn(move || drop(permit)).join().unwrap();
/// assert!(jobs.check_owned(1).is_ok());
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[must_use = "dropping it gives the permits back at once"]
pub struct OwnedPermits {
    lender: Arc<dyn Lender>,
    /// Empty for a limiter without keys.
    key: Box<[u8]>,
    lease: LeaseId,
}

/// A limiter that takes permits back.
pub(crate) trait Lender: Send + Sync {
    /// Takes back the permits of a lease, unless it has ended.
    fn release(&self, key: &[u8], lease: LeaseId);
    /// Renews a lease for its full length; returns the time until it ends, `None` if it has ended.
    fn renew(&self, key: &[u8], lease: LeaseId) -> Option<Nanos>;
}

impl OwnedPermits {
    pub(crate) fn new(lender: Arc<dyn Lender>, key: &[u8], lease: LeaseId) -> Self {
        let key = key.into();
        Self { lender, key, lease }
    }

    /// Lets the lease run for its full length from now; returns false if it has ended. For work
    /// that may take longer than a lease.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use ratekeeper::core::Concurrency;
    /// use ratekeeper::{Limiter, ManualClock};
    ///
    /// let limit = Concurrency::new(1, Duration::from_secs(60)).unwrap();
    /// let limiter = Arc::new(Limiter::with_clock(limit, ManualClock::default()));
    /// let permit = limiter.check_owned(1).unwrap();
    /// limiter.clock().advance(Duration::from_secs(59));
    /// assert!(permit.renew());
    /// limiter.clock().advance(Duration::from_secs(60));
    /// assert!(!permit.renew());
    /// ```
    #[must_use = "the permits may be lent to others if the lease has ended"]
    pub fn renew(&self) -> bool {
        self.lender.renew(&self.key, self.lease).is_some()
    }
}

impl Drop for OwnedPermits {
    fn drop(&mut self) {
        self.lender.release(&self.key, self.lease);
    }
}

/// Returns a name for a lease that no other guard of this process has.
pub(crate) fn new_name() -> LeaseId {
    LeaseId::from_bytes(u128::from(unique()).to_le_bytes())
}

impl<C: Clock + 'static> Limiter<Concurrency, C> {
    /// Like [`check_n`](Self::check_n), for permits that are given back when the guard is dropped.
    /// (A grant of `check` and `check_n` gives none back when it is dropped.)
    ///
    /// # Errors
    /// [`Refused`], if fewer are free: nothing is lent.
    pub fn check_owned(self: &Arc<Self>, cost: u64) -> Result<OwnedPermits, Refused> {
        let (now, lease) = (self.clock.now(), new_name());
        let decision = match permits(cost) {
            None => never(self.peek()),
            Some(cost) if self.line.length() > 0 => self.behind_the_line(now, cost),
            Some(cost) => self.lend_to(now, cost, lease),
        };
        if let Some(refused) = decision.verdict.refused() {
            return Err(refused);
        }
        Ok(self.guard(lease))
    }

    fn guard(self: &Arc<Self>, lease: LeaseId) -> OwnedPermits {
        OwnedPermits::new(Arc::<Self>::clone(self), &[], lease)
    }
}

impl<C: Block + 'static> Limiter<Concurrency, C> {
    /// Waits until the permits are free, in line with the other waiters, and takes them. It blocks
    /// the thread.
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn acquire_owned_blocking(self: &Arc<Self>, cost: u64) -> Result<OwnedPermits, WaitError> {
        let (desk, lease) = (&**self, new_name());
        block(Lending { desk, lease }, &self.clock, cost, Until::Served)?;
        Ok(self.guard(lease))
    }
}

impl<C: Clock + 'static> Limiter<Concurrency, C> {
    /// Waits until the permits are free, in line with the other waiters, and takes them; see
    /// [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn acquire_owned(self: &Arc<Self>, cost: u64) -> Result<OwnedPermits, WaitError>
    where
        C: Timer,
    {
        let (desk, lease) = (&**self, new_name());
        wait(Lending { desk, lease }, &self.clock, cost, Until::Served).await?;
        Ok(self.guard(lease))
    }
}

impl<C: Clock> Limiter<Concurrency, C> {
    fn lend_to(&self, now: Time, cost: Permits, lease: LeaseId) -> Decision {
        self.with_state(|limit, state| limit.acquire(state, now, lease, cost))
    }

    fn with_state<T>(&self, act: impl Fn(&Concurrency, &mut ConcurrencyState) -> T) -> T {
        let update = |state: &mut _| self.with(|limit| act(limit, state));
        StateCell::<Concurrency>::update(&self.place, update)
    }
}

impl<C: Clock> Lends for &Limiter<Concurrency, C> {
    fn lend(&self, now: Time, cost: Permits, lease: LeaseId) -> Verdict {
        self.lend_to(now, cost, lease).verdict
    }
}

impl<C: Clock> Lender for Limiter<Concurrency, C> {
    fn release(&self, _key: &[u8], lease: LeaseId) {
        let now = self.clock.now();
        self.with_state(|limit, state| limit.release(state, now, lease));
        self.line.wake_first();
    }

    fn renew(&self, _key: &[u8], lease: LeaseId) -> Option<Nanos> {
        let now = self.clock.now();
        self.with_state(|limit, state| limit.renew(state, now, lease))
    }
}

debug_fields!([] OwnedPermits { lease });
