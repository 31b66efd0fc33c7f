//! In flight: a maximum number of concurrent requests, from their arrival to the end of the
//! response body. A plain count: no lease, nothing to renew; only waiters need a clock.
//!
//! ```text
//!   arrives: count + 1 <= most? --no--> in line, if told so --> too late, too many: refused
//!               |                          | its turn           gone: leaves the line
//!               |                          v
//!               +--> service --> body --> answered to the end, failed, panicked, dropped:
//!                                         count - 1, and the first in line looks again
//! ```

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::request::Parts;
use ratekeeper_core::{AnyAlgorithm, Concurrency, Decision, Nanos, Permits, Time, Verdict};

use super::described::Described;
use super::gate::sealed::{Ask, Asked};
use super::gate::{Boxed, RequestHold, Ruling};
use super::{GateSettings, RateLimitLayer};
use crate::limiter::WaitError;
use crate::limiter::desk::Waitable;
use crate::limiter::line::WaitLine;
use crate::limiter::turn::Until;
use crate::limiter::wait::wait;
use crate::{Clock, SystemClock, Timer};

/// Retry time of a refused client, fixed because the end of a request cannot be predicted.
pub(super) const RETRY: Nanos = Nanos::SECOND;
/// Default maximum number of waiting requests: each holds a connection.
pub(super) const MAX_WAITING: usize = 1_000;

/// A maximum number of concurrent requests; see
/// [`RateLimitLayer::in_flight`](super::RateLimitLayer::in_flight).
#[derive(Debug)]
pub struct InFlight<C = SystemClock> {
    most: Permits,
    /// Shown, never run.
    algorithm: AnyAlgorithm,
    pub(super) described: Described,
    count: Arc<InFlightCount>,
    patience: Nanos,
    most_waiting: usize,
    clock: Arc<C>,
}

/// The count of requests at work, and the line of waiters.
#[derive(Debug, Default)]
struct InFlightCount {
    at_work: AtomicU32,
    line: WaitLine,
}

/// A part of the count, returned when dropped.
pub(super) struct CountGuard {
    cost: u32,
    count: Arc<InFlightCount>,
    /// True if requests can wait for it.
    lined: bool,
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.count.at_work.fetch_sub(self.cost, Ordering::Relaxed);
        if self.lined {
            // Takes the lock under which the first waiter looks, so that it sees this, or is woken.
            self.count.line.wake_first();
        }
    }
}

/// A limit of concurrency in place of a count: it is shown, never run.
pub(super) fn shown() -> AnyAlgorithm {
    let shown = Concurrency::new(Permits::ONE, Nanos::MAX).expect("the parameters are valid");
    AnyAlgorithm::from(shown)
}

/// Returns the decision about a request under a count.
pub(super) fn decision(verdict: Verdict, left: u32) -> Decision {
    Decision {
        verdict,
        remaining: Permits::new(left),
        reset_after: Nanos::ZERO,
        more_after: Nanos::ZERO,
    }
}

impl RateLimitLayer<InFlight> {
    /// Allows at most `most` concurrent requests; further ones are refused, or [wait](Self::queue).
    /// Each counts until the body of its response has ended, was dropped because the client has
    /// gone, or failed, and until its handler has failed or panicked. (An upgraded connection ends
    /// its request.)
    ///
    /// ```
    /// use ratekeeper::core::Permits;
    /// use ratekeeper::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::in_flight(Permits::new(200));
    /// assert_eq!(layer.at_work(), Permits::ZERO);
    /// ```
    pub fn in_flight(most: Permits) -> Self {
        Self::in_flight_with_clock(most, SystemClock::new())
    }
}

impl<C: Timer + 'static> RateLimitLayer<InFlight<C>> {
    /// Like [`in_flight`](RateLimitLayer::in_flight), with `clock` for the waiters.
    pub fn in_flight_with_clock(most: Permits, clock: C) -> Self {
        let algorithm = shown();
        let gate = InFlight {
            most,
            described: Described::new("in-flight", (algorithm.clone(), most)),
            algorithm,
            count: Arc::default(),
            patience: Nanos::ZERO,
            most_waiting: MAX_WAITING,
            clock: Arc::new(clock),
        };
        Self::made(gate, GateSettings::default())
    }

    /// Lets requests that would be refused wait for at most `longest`, in order of arrival, at most
    /// 1,000 of them by default (see [`most_waiting`](Self::most_waiting)). It is not known in
    /// advance when a turn comes, so a waiter is refused only when `longest` has passed. A client
    /// that goes away leaves the line.
    ///
    /// ```
    /// use ratekeeper::core::{Nanos, Permits};
    /// use ratekeeper::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::in_flight(Permits::new(200));
    /// let layer = layer.queue(Nanos::from_millis(500)).most_waiting(50);
    /// assert_eq!(layer.waiting(), 0);
    /// ```
    #[must_use]
    pub fn queue(mut self, longest: Nanos) -> Self {
        self.gate.patience = longest;
        self
    }

    /// Sets the maximum number of waiters; further requests are refused at once.
    #[must_use]
    pub fn most_waiting(mut self, most: usize) -> Self {
        self.gate.most_waiting = most;
        self
    }
}

impl<C> RateLimitLayer<InFlight<C>> {
    /// Returns the permits at work.
    pub fn at_work(&self) -> Permits {
        Permits::new(self.gate.count.at_work.load(Ordering::Relaxed))
    }

    /// Returns the number of waiters.
    pub fn waiting(&self) -> usize {
        self.gate.count.line.length()
    }
}

impl InFlightCount {
    /// Adds `cost`, or nothing if it exceeds `most`; returns the count before.
    fn add(&self, cost: Permits, most: Permits) -> Result<u32, u32> {
        let add = |count: u32| {
            count
                .checked_add(cost.get())
                .filter(|sum| *sum <= most.get())
        };
        self.at_work
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
    }
}

impl<C> InFlight<C> {
    fn refused(&self, cost: Permits) -> Ruling {
        let verdict = if cost > self.most {
            Verdict::DenyForever
        } else {
            let retry_after = RETRY;
            Verdict::Deny { retry_after }
        };
        self.ruling(verdict, cost, None)
    }

    /// Returns the ruling that gives the request its part of the count.
    fn counted(&self, cost: Permits) -> Ruling {
        let counted = CountGuard {
            cost: cost.get(),
            count: Arc::clone(&self.count),
            lined: self.patience > Nanos::ZERO,
        };
        self.ruling(Verdict::Allow, cost, Some(RequestHold::Counted(counted)))
    }

    fn ruling(&self, verdict: Verdict, cost: Permits, hold: Option<RequestHold>) -> Ruling {
        let at_work = self.count.at_work.load(Ordering::Relaxed);
        let left = self.most.get().saturating_sub(at_work);
        let decision = decision(verdict, left);
        let limited = || (self.algorithm.clone(), self.most);
        if verdict.allows() {
            self.described.passes(limited, decision, hold)
        } else {
            self.described
                .denied(&limited(), decision, cost, Time::ZERO)
        }
    }
}

impl<C: Timer> InFlight<C> {
    async fn wait(self, cost: Permits) -> Ruling {
        let until = Until::Span(self.patience);
        match wait(&self, &*self.clock, cost, until).await {
            Ok(Some(_waited)) => self.counted(cost),
            Ok(None) | Err(_) => self.refused(cost),
        }
    }
}

impl<C: Timer + 'static> Ask for InFlight<C> {
    fn ask(&self, _: &Parts, cost: Option<Permits>) -> Asked {
        let cost = cost.unwrap_or(Permits::ONE);
        if self.count.line.length() == 0 && self.count.add(cost, self.most).is_ok() {
            return Asked::Now(self.counted(cost));
        }
        if self.patience == Nanos::ZERO || cost > self.most {
            return Asked::Now(self.refused(cost));
        }
        Asked::Later(Box::pin(self.clone().wait(cost)))
    }

    fn forbid_waiting(&mut self) {
        self.patience = Nanos::ZERO;
    }

    /// Ready at once: a count delays no request.
    fn sleep(&self, _: Nanos) -> Boxed<()> {
        Box::pin(ready(()))
    }
}

impl<C: Clock> Waitable for &InFlight<C> {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn line(&self) -> &WaitLine {
        &self.count.line
    }

    fn room(&self, waiting: usize) -> Result<(), WaitError> {
        let most = self.most_waiting;
        if waiting < most {
            return Ok(());
        }
        Err(WaitError::TooManyWaiting { most })
    }

    fn capacity(&self) -> Permits {
        self.most
    }

    fn look(&self, _: Time, _: Permits) -> Decision {
        let at_work = self.count.at_work.load(Ordering::Relaxed);
        decision(Verdict::Allow, self.most.get().saturating_sub(at_work))
    }

    fn comes_back(&self) -> bool {
        true
    }

    fn at_least(&self, _: Time, _: Permits) -> Nanos {
        Nanos::ZERO
    }

    fn take(&self, _: Time, cost: Permits, _: Time) -> Verdict {
        match self.count.add(cost, self.most) {
            Ok(_) => Verdict::Allow,
            Err(_) => Verdict::Deny {
                retry_after: Nanos::MAX,
            },
        }
    }
}

impl<C> Clone for InFlight<C> {
    fn clone(&self) -> Self {
        Self {
            most: self.most,
            algorithm: self.algorithm.clone(),
            described: self.described.clone(),
            count: Arc::clone(&self.count),
            patience: self.patience,
            most_waiting: self.most_waiting,
            clock: Arc::clone(&self.clock),
        }
    }
}
