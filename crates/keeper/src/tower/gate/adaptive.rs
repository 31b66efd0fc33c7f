//! Adaptive: as many concurrent requests as the server can bear, found from their times.
//!
//! ```text
//!   arrives: less at work than the limit? --no--> in line, if there is a queue --> 503, Retry-After
//!               |                                                         gRPC: UNAVAILABLE
//!               +--> service --> body --> end --> time, or dropped --> the limit moves
//! ```
//!
//! * A permit is held until the body of the response has ended, and its time is measured until
//!   then. Responses that take as long as the client likes (downloads, streams, long polling) need
//!   a limit of their own, because their times say nothing about the server.
//! * Time spent in line is not measured, because the line is before the limit.
//! * The laws, and the signals that they use, are in the crate `ratekeeper-resilience`.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use ratekeeper_core::{Nanos, Permits, Time};
use ratekeeper_policy::{Body, HeaderStyle};
use ratekeeper_resilience::{AdaptiveConcurrency, AdaptiveSettings, End, Error, SplitMix};

use super::counted::{Counted, Places};
use super::measured::{Measured, MeasuredCourse};
use crate::limiter::line::WaitLine;
use crate::tower::RateLimitLayer;
use crate::tower::hold::{OnReturn, RequestHold};
use crate::{Clock, SystemClock, Timer};

/// Default time after which a client that goes away has given up.
const GIVEN_UP_AFTER: Nanos = Nanos::SECOND;

type Judge = dyn Fn(StatusCode, &HeaderMap) -> End + Send + Sync;

/// As many concurrent requests as the server can bear; see
/// [`RateLimitLayer::adaptive`].
///
/// ```
/// use ratekeeper::tower::{Adaptive, AdaptiveError, AdaptiveSettings, RateLimitLayer};
/// fn layer() -> Result<RateLimitLayer<Adaptive>, AdaptiveError> {
///     RateLimitLayer::adaptive(AdaptiveSettings::default())
/// }
/// assert_eq!(layer()?.limit().limit(), 20);
/// # Ok::<(), AdaptiveError>(())
/// ```
pub type Adaptive<C = SystemClock> = Counted<AdaptivePlaces<C>>;

/// Places whose number follows the times of requests.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct AdaptivePlaces<C> {
    limit: Arc<AdaptiveConcurrency>,
    line: Arc<WaitLine>,
    clock: Arc<C>,
    judge: Arc<Judge>,
    given_up_after: Nanos,
}

impl RateLimitLayer<Adaptive> {
    /// Allows as many concurrent requests as the server can bear: the limit follows the times of
    /// requests, and how many are turned away, by a [`Law`](crate::tower::Law). Further ones are
    /// refused with 503 (in gRPC, UNAVAILABLE) and `Retry-After`, or [wait](Self::queue). The limit
    /// is not shown to clients, because it is internal to the server, unless
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
    /// The errors of [`AdaptiveConcurrency::new`], for settings outside their bounds.
    pub fn adaptive(settings: AdaptiveSettings) -> Result<Self, Error> {
        let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded())?;
        Ok(Self::adaptive_with_clock(limit, SystemClock::new()))
    }
}

impl<C: Timer + 'static> RateLimitLayer<Adaptive<C>> {
    /// Like [`adaptive`](RateLimitLayer::adaptive), by an existing limit, with times measured by
    /// `clock`. Permits taken elsewhere do not wake the waiters when they come back.
    pub fn adaptive_with_clock(limit: impl Into<Arc<AdaptiveConcurrency>>, clock: C) -> Self {
        let mut gate = Counted::new(
            "adaptive",
            AdaptivePlaces {
                limit: limit.into(),
                line: Arc::default(),
                clock: Arc::new(clock),
                judge: Arc::new(judge),
                given_up_after: GIVEN_UP_AFTER,
            },
        );
        gate.described.set_refusal(503, Body::ProblemJson);
        gate.described.set_headers(HeaderStyle::Off);
        Self::made(gate)
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
        Arc::make_mut(&mut self.gate.places).judge = Arc::new(judge);
        self
    }

    /// Sets how long after the start of a request a client that goes away has given up, if there is
    /// no response head yet: the request then counts as dropped. A client that goes away sooner is
    /// ignored. One second by default.
    #[must_use]
    pub fn given_up_after(mut self, span: impl Into<Nanos>) -> Self {
        Arc::make_mut(&mut self.gate.places).given_up_after = span.into();
        self
    }
}

impl<C> RateLimitLayer<Adaptive<C>> {
    /// Returns the limit: its height, the requests at work, and the free permits.
    pub fn limit(&self) -> &Arc<AdaptiveConcurrency> {
        &self.gate.places.limit
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

impl<C: Timer + 'static> Places for AdaptivePlaces<C> {
    type Clock = C;

    fn clock(&self) -> &C {
        &self.clock
    }

    fn line(&self) -> &WaitLine {
        &self.line
    }

    fn most(&self) -> Permits {
        Permits::new(self.limit.limit().into())
    }

    fn at_work(&self) -> u64 {
        self.limit.in_flight().into()
    }

    /// Every request is one, whatever it costs.
    fn needed(&self, _: Permits) -> Permits {
        Permits::ONE
    }

    fn take(self: &Arc<Self>, _: Permits, _: OnReturn) -> Option<RequestHold> {
        let permit = self.limit.try_acquire_owned(self.clock.now())?;
        let measured = Measured::new(permit, Arc::clone(self) as Arc<_>);
        Some(RequestHold::Measured(Box::new(measured)))
    }
}

impl<C: Clock> MeasuredCourse for AdaptivePlaces<C> {
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

clone_fields!([C] AdaptivePlaces<C> { limit, line, clock, judge, given_up_after });
