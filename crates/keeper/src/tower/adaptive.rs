//! Adaptive: as many concurrent requests as the server can bear, found from their times.
//!
//! ```text
//!   arrives: less at work than the limit? --no--> in line, if told so --> 503, Retry-After
//!               |                                                         gRPC: UNAVAILABLE
//!               +--> service --> body --> end --> time, or dropped --> the limit moves
//! ```
//!
//! * A permit is held until the body of the response has ended, and its time is measured until
//!   then. Responses that take as long as the client likes (downloads, streams, long polling) need
//!   a limit of their own, because their times say nothing about the server.
//! * Time spent in line is not measured, because the line is before the limit.
//! * The laws, and the signals that they use, are in the crate `ratekeeper-resilience`.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use ratekeeper_core::{AnyAlgorithm, Decision, Nanos, Permits, Time, Verdict};
use ratekeeper_policy::{Body, HeaderStyle};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptivePermit, AdaptiveSettings, End, Error, SplitMix,
};

use super::described::Described;
use super::gate::sealed::{Ask, Asked};
use super::gate::{Boxed, RequestHold, Ruling};
use super::in_flight::{MAX_WAITING, RETRY, decision, shown};
use super::measured::{Measured, MeasuredCourse};
use super::{GateSettings, RateLimitLayer};
use crate::limiter::WaitError;
use crate::limiter::desk::Waitable;
use crate::limiter::line::WaitLine;
use crate::limiter::turn::Until;
use crate::limiter::wait::wait;
use crate::{Clock, SystemClock, Timer};

/// Default time after which a client that goes away has given up.
const GIVEN_UP_AFTER: Nanos = Nanos::SECOND;

type GatePermit = AdaptivePermit<Arc<AdaptiveConcurrency>>;
type Judge = dyn Fn(StatusCode, &HeaderMap) -> End + Send + Sync;

/// As many concurrent requests as the server can bear; see
/// [`RateLimitLayer::adaptive`](super::RateLimitLayer::adaptive).
pub struct Adaptive<C = SystemClock> {
    shared: Arc<AdaptiveInner<C>>,
    /// Shown, never run.
    algorithm: AnyAlgorithm,
    pub(super) described: Described,
    patience: Nanos,
    most_waiting: usize,
}

/// State shared by its requests. Clones are the same limit, with the same line.
struct AdaptiveInner<C> {
    limit: Arc<AdaptiveConcurrency>,
    line: Arc<WaitLine>,
    clock: Arc<C>,
    judge: Arc<Judge>,
    given_up_after: Nanos,
}

impl RateLimitLayer<Adaptive> {
    /// Allows as many concurrent requests as the server can bear: the limit follows the times of
    /// requests, and how many are turned away, by a [`Law`](super::Law). Further ones are refused
    /// with 503 (in gRPC, UNAVAILABLE) and `Retry-After`, or [wait](Self::queue). The limit is not
    /// shown to clients, because it is internal to the server, unless
    /// [`headers`](RateLimitLayer::headers) sets it.
    ///
    /// Each request counts, and is measured, from its turn until the body of its response has
    /// ended: downloads to slow clients, and long-lived responses, belong behind another layer.
    /// [`cost`](RateLimitLayer::cost) exempts requests: one with a cost of zero permits passes, and
    /// is neither counted nor measured (health checks); any other cost is one request.
    ///
    /// ```
    /// use ratekeeper::tower::{AdaptiveSettings, Bounds, RateLimitLayer};
    ///
    /// let bounds = Bounds { least: 4, most: 500, initial: 20 };
    /// let settings = AdaptiveSettings { bounds, ..AdaptiveSettings::default() };
    /// let layer = RateLimitLayer::adaptive(settings)?;
    /// assert_eq!(layer.limit().limit(), 20, "to begin with");
    /// # Ok::<(), ratekeeper::tower::AdaptiveError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`AdaptiveConcurrency::new`], for settings outside their bounds.
    pub fn adaptive(settings: AdaptiveSettings) -> Result<Self, Error> {
        let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded())?;
        Ok(Self::adaptive_with_clock(limit, SystemClock::new()))
    }
}

impl<C: Timer + 'static> RateLimitLayer<Adaptive<C>> {
    /// Like [`adaptive`](RateLimitLayer::adaptive), by an existing limit, with times measured by
    /// `clock`. Permits taken elsewhere do not wake the waiters when they come back.
    pub fn adaptive_with_clock(limit: impl Into<Arc<AdaptiveConcurrency>>, clock: C) -> Self {
        let limit = limit.into();
        let algorithm = shown();
        let most = Permits::new(limit.limit());
        let mut described = Described::new("adaptive", (algorithm.clone(), most));
        described.set_refusal(503, Body::ProblemJson);
        described.set_headers(HeaderStyle::Off);
        let shared = AdaptiveInner {
            limit,
            line: Arc::default(),
            clock: Arc::new(clock),
            judge: Arc::new(judge),
            given_up_after: GIVEN_UP_AFTER,
        };
        let gate = Adaptive {
            shared: Arc::new(shared),
            algorithm,
            described,
            patience: Nanos::ZERO,
            most_waiting: MAX_WAITING,
        };
        Self::made(gate, GateSettings::default())
    }

    /// Lets requests that would be refused wait for at most `longest`, in order of arrival, at most
    /// 1,000 of them by default (see [`most_waiting`](Self::most_waiting)). It is not known in
    /// advance when a turn comes, so a waiter is refused only when `longest` has passed. A client
    /// that goes away leaves the line.
    ///
    /// Keep it short: it is meant to fill gaps, and waiting makes nothing faster.
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

    /// Sets how a response is judged, in place of [`End::of_http`] and [`End::of_grpc`]: by its
    /// status and the fields of its head; called again with the fields of its trailers, if it has
    /// some, which then decide.
    ///
    /// ```
    /// use ratekeeper::tower::{AdaptiveSettings, End, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::adaptive(AdaptiveSettings::default())?;
    /// let layer = layer.judged_by(|status, fields| match status.as_u16() {
    ///     500.. => End::Dropped,
    ///     _ if fields.contains_key("x-cache") => End::Ignored,
    ///     _ => End::Done,
    /// });
    /// # Ok::<(), ratekeeper::tower::AdaptiveError>(())
    /// ```
    #[must_use]
    pub fn judged_by(
        mut self,
        judge: impl Fn(StatusCode, &HeaderMap) -> End + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.gate.shared).judge = Arc::new(judge);
        self
    }

    /// Sets how long after the start of a request a client that goes away has given up, if there is
    /// no response head yet: the request then counts as dropped. A client that goes away sooner is
    /// ignored. One second by default.
    #[must_use]
    pub fn given_up_after(mut self, span: Nanos) -> Self {
        Arc::make_mut(&mut self.gate.shared).given_up_after = span;
        self
    }
}

impl<C> RateLimitLayer<Adaptive<C>> {
    /// Returns the limit: its height, the requests at work, and the free permits.
    pub fn limit(&self) -> &Arc<AdaptiveConcurrency> {
        &self.gate.shared.limit
    }

    /// Returns the number of waiters.
    pub fn waiting(&self) -> usize {
        self.gate.shared.line.length()
    }
}

/// Judges by the status of gRPC, if there is one, else of HTTP.
fn judge(status: StatusCode, fields: &HeaderMap) -> End {
    match fields.get("grpc-status") {
        None => End::of_http(status.as_u16()),
        Some(code) => {
            let code = code.to_str().ok().and_then(|code| code.parse().ok());
            code.map_or(End::Ignored, End::of_grpc)
        }
    }
}

impl<C: Timer + 'static> Adaptive<C> {
    fn try_acquire(&self) -> Option<GatePermit> {
        let AdaptiveInner { limit, clock, .. } = &*self.shared;
        limit.try_acquire_owned(clock.now())
    }

    fn at_work(&self, permit: GatePermit) -> RequestHold {
        let course = Arc::clone(&self.shared);
        RequestHold::Measured(Measured::new(permit, course))
    }

    fn ruling(&self, verdict: Verdict, cost: Permits, hold: Option<RequestHold>) -> Ruling {
        let limit = self.shared.limit.limit();
        let left = limit.saturating_sub(self.shared.limit.in_flight());
        let decision = decision(verdict, left);
        let limited = || (self.algorithm.clone(), Permits::new(limit));
        if verdict.allows() {
            self.described.passes(limited, decision, hold)
        } else {
            self.described
                .denied(&limited(), decision, cost, Time::ZERO)
        }
    }

    fn refused(&self, cost: Permits) -> Ruling {
        let retry_after = RETRY;
        self.ruling(Verdict::Deny { retry_after }, cost, None)
    }

    fn passes(&self, cost: Permits, permit: Option<GatePermit>) -> Ruling {
        let hold = permit.map(|permit| self.at_work(permit));
        self.ruling(Verdict::Allow, cost, hold)
    }

    async fn wait(self, cost: Permits) -> Ruling {
        let turn = AdaptiveTurn {
            gate: &self,
            permit: Mutex::default(),
        };
        let until = Until::Span(self.patience);
        let waited = wait(&turn, &*self.shared.clock, Permits::ONE, until).await;
        match (waited, turn.permit.into_inner()) {
            (Ok(Some(_)), permit @ Some(_)) => self.passes(cost, permit),
            _ => self.refused(cost),
        }
    }
}

impl<C: Timer + 'static> Ask for Adaptive<C> {
    fn ask(&self, _: &Parts, cost: Option<Permits>) -> Asked {
        let cost = cost.unwrap_or(Permits::ONE);
        if cost == Permits::ZERO {
            return Asked::Now(self.passes(cost, None));
        }
        if self.shared.line.length() == 0
            && let permit @ Some(_) = self.try_acquire()
        {
            return Asked::Now(self.passes(cost, permit));
        }
        if self.patience == Nanos::ZERO {
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

impl<C: Clock> MeasuredCourse for AdaptiveInner<C> {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn judge(&self, status: StatusCode, fields: &HeaderMap) -> End {
        (self.judge)(status, fields)
    }

    fn given_up_after(&self) -> Nanos {
        self.given_up_after
    }

    fn came_back(&self) {
        // Takes the lock under which the first waiter looks, so that it sees this, or is woken.
        self.line.wake_first();
    }
}

/// One request in line, and the permit that it received.
struct AdaptiveTurn<'a, C> {
    gate: &'a Adaptive<C>,
    permit: Mutex<Option<GatePermit>>,
}

impl<C: Timer + 'static> Waitable for &AdaptiveTurn<'_, C> {
    fn now(&self) -> Time {
        self.gate.shared.clock.now()
    }

    fn line(&self) -> &WaitLine {
        &self.gate.shared.line
    }

    fn room(&self, waiting: usize) -> Result<(), WaitError> {
        let most = self.gate.most_waiting;
        if waiting < most {
            return Ok(());
        }
        Err(WaitError::TooManyWaiting { most })
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.gate.shared.limit.limit())
    }

    fn look(&self, _: Time, _: Permits) -> Decision {
        let limit = &self.gate.shared.limit;
        decision(
            Verdict::Allow,
            limit.limit().saturating_sub(limit.in_flight()),
        )
    }

    fn comes_back(&self) -> bool {
        true
    }

    fn at_least(&self, _: Time, _: Permits) -> Nanos {
        Nanos::ZERO
    }

    fn take(&self, _: Time, _: Permits, _: Time) -> Verdict {
        match self.gate.try_acquire() {
            permit @ Some(_) => {
                *self.permit.lock() = permit;
                Verdict::Allow
            }
            None => Verdict::Deny {
                retry_after: Nanos::MAX,
            },
        }
    }
}

impl<C> Clone for Adaptive<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            algorithm: self.algorithm.clone(),
            described: self.described.clone(),
            patience: self.patience,
            most_waiting: self.most_waiting,
        }
    }
}

impl<C> Clone for AdaptiveInner<C> {
    fn clone(&self) -> Self {
        Self {
            limit: Arc::clone(&self.limit),
            line: Arc::clone(&self.line),
            clock: Arc::clone(&self.clock),
            judge: Arc::clone(&self.judge),
            given_up_after: self.given_up_after,
        }
    }
}

impl<C> fmt::Debug for Adaptive<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("limit", &self.shared.limit)
            .finish_non_exhaustive()
    }
}
