//! Call: one call, from its deadline to its last attempt.
//!
//! ```text
//!   begin: deadline, guard --> sent: deposit --> cut --> report --> next_wait: attempts, budget
//!     ^                                                                |
//!     +----------------------------- sleep ----------------------------+
//! ```

use std::any::Any;
use std::error::Error;
use std::future::Future;
use std::io;

use ratekeeper_core::{Nanos, Time};
use tokio::time::error::Elapsed;

use super::clock;
use super::error::CallError;
use super::settings::{CallSettings, Guard};
use crate::{
    AdaptiveConcurrency, AdaptivePermit, Attempts, CallPermit, Deadline, End, ServerWait, SplitMix,
    Throttle,
};

/// One call under way.
pub(crate) struct OngoingCall<'a> {
    settings: &'a CallSettings,
    pub(crate) deadline: Deadline,
    attempts: Attempts,
    random: SplitMix,
}

impl<'a> OngoingCall<'a> {
    pub(crate) fn new(settings: &'a CallSettings, deadline: Deadline, attempts: Attempts) -> Self {
        Self {
            settings,
            deadline,
            attempts,
            random: SplitMix::seeded(),
        }
    }

    /// Begins an attempt, if there is time and the guard agrees.
    pub(crate) fn begin<E>(&mut self) -> Result<AttemptLeave<'a>, CallError<E>> {
        let now = self.in_time()?;
        match &self.settings.guard {
            Guard::Without => Ok(AttemptLeave::Given),
            Guard::Breaker(breaker) => {
                let permit = breaker.try_pass(now);
                permit.map(AttemptLeave::Breaker).map_err(CallError::Open)
            }
            Guard::Adaptive(limit) => match limit.try_acquire(now) {
                Some(permit) => Ok(AttemptLeave::Adaptive(permit)),
                None => Err(CallError::AtWork {
                    limit: limit.limit(),
                }),
            },
            Guard::Throttle(throttle) if throttle.try_send(now, &mut self.random) => {
                Ok(AttemptLeave::Throttle(ThrottledAttempt {
                    throttle: Some(throttle),
                    sent: now,
                }))
            }
            Guard::Throttle(_) => Err(CallError::Throttled),
        }
    }

    /// Records that the attempt is sent now, if there is still time, and returns the time.
    pub(crate) fn sent<E>(&self) -> Result<Time, CallError<E>> {
        let now = self.in_time()?;
        if self.attempts.made() == 1 {
            self.settings.budget.deposit(now); // a call that is not sent pays nothing
        }
        Ok(now)
    }

    /// Waits for `work` until the deadline.
    pub(crate) async fn cut<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CallError<E>> {
        let left = self.deadline.time().since(clock::now());
        match tokio::time::timeout(left.into(), work).await {
            Ok(result) => result.map_err(CallError::Inner),
            Err(_) => Err(CallError::Deadline),
        }
    }

    /// Returns the wait before the next attempt, which the budget has paid; `None` if there is
    /// none.
    pub(crate) fn next_wait(&mut self, stated: ServerWait) -> Option<Nanos> {
        let (settings, random) = (self.settings, &mut self.random);
        let wait = match stated {
            ServerWait::Wait(wait) => {
                let wait = settings.retry_after.spread(wait, random);
                self.attempts.next_after(wait)
            }
            ServerWait::Beyond(_) => None,
            ServerWait::Nothing => self.attempts.next_wait(random),
        }?;
        let now = clock::now();
        let goes = self.deadline.allows(now, wait, settings.typical);
        (goes && settings.budget.withdraw(now)).then_some(wait)
    }

    fn in_time<E>(&self) -> Result<Time, CallError<E>> {
        let now = clock::now();
        let typical = self.settings.typical;
        let in_time = self.deadline.allows(now, Nanos::ZERO, typical);
        in_time.then_some(now).ok_or(CallError::Deadline)
    }
}

/// The state of the server, as the end of an attempt shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// It works, and accepted the request.
    Accepted,
    /// It works, and refused the request.
    Refused,
    /// It failed, or was too slow.
    Failed,
}

/// Permission of the guard to make an attempt. Dropped without a report, it shows nothing.
pub(crate) enum AttemptLeave<'a> {
    /// No report is needed.
    Given,
    Breaker(CallPermit<'a>),
    Adaptive(AdaptivePermit<&'a AdaptiveConcurrency>),
    Throttle(ThrottledAttempt<'a>),
}

/// An attempt that a throttle permitted.
pub(crate) struct ThrottledAttempt<'a> {
    /// `None` once it is reported.
    throttle: Option<&'a Throttle>,
    sent: Time,
}

impl Drop for ThrottledAttempt<'_> {
    fn drop(&mut self) {
        if let Some(throttle) = self.throttle {
            throttle.given_up(self.sent);
        }
    }
}

impl AttemptLeave<'_> {
    /// Reports to the guard how the attempt ended; `end` is its signal for a limit of calls.
    pub(crate) fn report(self, shown: Shown, end: End) {
        let now = clock::now();
        match self {
            Self::Breaker(permit) if shown == Shown::Failed => permit.failure(now),
            Self::Breaker(permit) => permit.success(now),
            Self::Adaptive(permit) => permit.end(end, now),
            Self::Throttle(mut attempt) => {
                let throttle = attempt.throttle.take();
                if let Some(throttle) = throttle.filter(|_| shown == Shown::Accepted) {
                    throttle.accepted(now);
                }
            }
            Self::Given => {}
        }
    }
}

/// Returns true for an error of a call that was given up because it took too long, as far as its
/// type is known here.
pub(crate) fn is_timeout(error: &dyn Any) -> bool {
    if let Some(boxed) = error.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        return is_caused_by_timeout(&**boxed);
    }
    if let Some(boxed) = error.downcast_ref::<Box<dyn Error>>() {
        return is_caused_by_timeout(&**boxed);
    }
    #[cfg(feature = "reqwest")]
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return error.is_timeout();
    }
    let io = error.downcast_ref::<io::Error>();
    error.is::<Elapsed>() || io.is_some_and(|io| is_caused_by_timeout(io))
}

/// Like [`is_timeout`], for an error and its sources.
fn is_caused_by_timeout(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "reqwest")]
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return error.is_timeout();
    }
    if let Some(io) = error.downcast_ref::<io::Error>() {
        let inner = io.get_ref(); // `source` skips it
        return io.kind() == io::ErrorKind::TimedOut
            || inner.is_some_and(|inner| is_caused_by_timeout(inner));
    }
    error.is::<Elapsed>() || error.source().is_some_and(is_caused_by_timeout)
}
