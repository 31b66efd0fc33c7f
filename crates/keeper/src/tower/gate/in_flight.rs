//! In flight: a fixed number of concurrent requests, from their arrival to the end of the response
//! body.

use std::sync::Arc;

use ratekeeper_core::Permits;

use super::counted::{Counted, Places};
use crate::limiter::line::WaitLine;
use crate::tower::RateLimitLayer;
use crate::tower::hold::{OnReturn, RequestHold, WorkCount};
use crate::{SystemClock, Timer};

/// A maximum number of concurrent requests; see [`RateLimitLayer::in_flight`].
///
/// ```
/// use ratekeeper::tower::{InFlight, RateLimitLayer};
/// let layer: RateLimitLayer<InFlight> = RateLimitLayer::in_flight(200);
/// ```
pub type InFlight<C = SystemClock> = Counted<CountedPlaces<C>>;

/// A fixed number of places, and their count.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct CountedPlaces<C> {
    most: Permits,
    count: Arc<WorkCount>,
    clock: C,
}

impl RateLimitLayer<InFlight> {
    /// Allows at most `most` concurrent requests; further ones are refused, or [wait](Self::queue).
    /// Each counts until the body of its response has ended, was dropped because the client has
    /// gone, or failed, and until its handler has failed or panicked. (An upgraded connection ends
    /// its request.)
    ///
    /// ```
    /// use ratekeeper::tower::RateLimitLayer;
    /// use std::time::Duration;
    ///
    /// let layer = RateLimitLayer::in_flight(200);
    /// let layer = layer.queue(Duration::from_millis(500)).most_waiting(50);
    /// assert_eq!((layer.at_work(), layer.waiting()), (0, 0));
    /// ```
    pub fn in_flight(most: impl Into<Permits>) -> Self {
        Self::in_flight_with_clock(most, SystemClock::new())
    }
}

impl<C: Timer + 'static> RateLimitLayer<InFlight<C>> {
    /// Like [`in_flight`](RateLimitLayer::in_flight), with `clock` for the waiters.
    pub fn in_flight_with_clock(most: impl Into<Permits>, clock: C) -> Self {
        let (most, count) = (most.into(), Arc::default());
        let gate = Counted::new("in-flight", CountedPlaces { most, count, clock });
        Self::made(gate)
    }
}

impl<C: Timer + 'static> Places for CountedPlaces<C> {
    type Clock = C;

    fn clock(&self) -> &C {
        &self.clock
    }

    fn line(&self) -> &WaitLine {
        self.count.line()
    }

    fn most(&self) -> Permits {
        self.most
    }

    fn at_work(&self) -> u64 {
        self.count.at_work()
    }

    fn needed(&self, cost: Permits) -> Permits {
        cost
    }

    fn take(self: &Arc<Self>, cost: Permits, on_return: OnReturn) -> Option<RequestHold> {
        let guard = self.count.add(cost, self.most, on_return)?;
        Some(RequestHold::Counted(guard))
    }
}
