//! Counted: a gate of places that requests hold until the end of their responses.
//!
//! ```text
//!   arrives: a place is free? --no--> in line, if there is a queue --> too late, too many: refused
//!               |                          | its turn                  gone: leaves the line
//!               |                          v
//!               +--> service --> body --> ended, failed, panicked, dropped:
//!                                         the place is free, and the first in line looks again
//! ```
//!
//! Only waiters need a clock: there is no lease, and nothing to renew.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::{Decision, Nanos, Permits, Time, Verdict};

use super::Ruling;
use super::sealed::{Ask, Asked};
use crate::Timer;
use crate::limiter::desk::Waitable;
use crate::limiter::line::WaitLine;
use crate::limiter::turn::Until;
use crate::limiter::wait::wait;
use crate::tower::RateLimitLayer;
use crate::tower::described::Described;
use crate::tower::head::RequestHead;
use crate::tower::hold::{OnReturn, RequestHold};
use crate::tower::pass::Pass;
use crate::tower::shown::Limited;

/// Retry time of a refused client, fixed because the end of a request cannot be predicted.
const RETRY: Nanos = Nanos::SECOND;
/// Default maximum number of waiting requests: each holds a connection.
const MAX_WAITING: usize = 1_000;

/// The places of a gate; clones of the gate share them.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub trait Places: Send + Sync + 'static {
    /// The clock of the waiters.
    type Clock: Timer;

    /// Returns the clock of the waiters.
    fn clock(&self) -> &Self::Clock;
    /// Returns the line of waiters.
    fn line(&self) -> &WaitLine;
    /// Returns the number of places.
    fn most(&self) -> Permits;
    /// Returns the number of places in use.
    fn at_work(&self) -> u64;
    /// Returns the number of places for a request of this cost, which is not zero.
    fn needed(&self, cost: Permits) -> Permits;
    /// Takes that number of places; `None` if fewer are free.
    fn take(self: &Arc<Self>, cost: Permits, on_return: OnReturn) -> Option<RequestHold>;
}

/// A number of places for concurrent requests; see [`RateLimitLayer::in_flight`] and
/// [`RateLimitLayer::adaptive`].
///
/// ```
/// use ratekeeper::tower::{InFlight, RateLimitLayer};
///
/// struct Server {
///     at_most: RateLimitLayer<InFlight>, // `Counted` of a fixed number of places
/// }
/// let server = Server { at_most: RateLimitLayer::in_flight(200) };
/// assert_eq!(server.at_most.at_work(), 0);
/// ```
pub struct Counted<P> {
    pub(crate) places: Arc<P>,
    pub(crate) described: Described,
    most_waiting: usize,
}

impl<P: Places> Counted<P> {
    pub(crate) fn new(name: &str, places: P) -> Self {
        Self {
            described: Described::new(name, Limited::Level(places.most())),
            places: Arc::new(places),
            most_waiting: MAX_WAITING,
        }
    }

    fn decision(&self, verdict: Verdict) -> Decision {
        let free = self.places.most() - Permits::new(self.places.at_work());
        Decision::without_times(verdict, free)
    }

    fn passes(&self, hold: Option<RequestHold>) -> Ruling {
        let limited = || Limited::Level(self.places.most());
        let decision = self.decision(Verdict::Allow);
        self.described.passes(limited, decision, hold)
    }

    fn refused(&self, cost: Permits) -> Ruling {
        let most = self.places.most();
        let verdict = if self.places.needed(cost) > most {
            Verdict::DenyForever
        } else {
            let retry_after = RETRY;
            Verdict::Deny { retry_after }
        };
        let decision = self.decision(verdict);
        self.described.denied(Limited::Level(most), decision, cost)
    }

    fn decide(&self, cost: Permits, patience: Nanos) -> Asked {
        let on_return = match patience {
            Nanos::ZERO => OnReturn::Silent,
            _ => OnReturn::WakeFirst,
        };
        if cost == Permits::ZERO {
            return Asked::Now(self.passes(None));
        }
        if self.places.line().length() == 0
            && let hold @ Some(_) = self.places.take(cost, on_return)
        {
            if self.described.is_silent() {
                return Asked::Now(Ruling::Pass(Pass { hold, terms: None }));
            }
            return Asked::Now(self.passes(hold));
        }
        if patience == Nanos::ZERO || self.places.needed(cost) > self.places.most() {
            return Asked::Now(self.refused(cost));
        }
        Asked::Later(Box::pin(self.clone().wait(cost, patience)))
    }

    async fn wait(self, cost: Permits, patience: Nanos) -> Ruling {
        let turn = PlaceTurn {
            gate: &self,
            hold: Mutex::default(),
        };
        let until = Until::Span(patience);
        let needed = self.places.needed(cost);
        let waited = wait(&turn, self.places.clock(), needed.get(), until).await;
        match (waited, turn.hold.into_inner()) {
            (Ok(Some(_)), hold @ Some(_)) => self.passes(hold),
            _ => self.refused(cost),
        }
    }
}

impl<P: Places> Ask for Counted<P> {
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    fn ask(&self, _: RequestHead<'_>, cost: Option<Permits>, patience: Nanos) -> Asked {
        self.decide(cost.unwrap_or(Permits::ONE), patience)
    }
}

impl<P: Places> RateLimitLayer<Counted<P>> {
    /// Sets the maximum number of waiters, 1,000 by default; further requests are refused at once.
    #[must_use]
    pub fn most_waiting(mut self, most: usize) -> Self {
        self.gate.most_waiting = most;
        self
    }

    /// Returns the permits at work.
    pub fn at_work(&self) -> u64 {
        self.gate.places.at_work()
    }

    /// Returns the number of waiters.
    pub fn waiting(&self) -> usize {
        self.gate.places.line().length()
    }
}

/// One request in line, and the places that it received.
struct PlaceTurn<'a, P> {
    gate: &'a Counted<P>,
    hold: Mutex<Option<RequestHold>>,
}

impl<P: Places> Waitable for &PlaceTurn<'_, P> {
    fn line(&self) -> &WaitLine {
        self.gate.places.line()
    }

    fn most_if_full(&self, waiting: usize) -> Option<usize> {
        Some(self.gate.most_waiting).filter(|most| waiting >= *most)
    }

    fn capacity(&self) -> Permits {
        self.gate.places.most()
    }

    fn comes_back(&self) -> bool {
        true
    }

    fn at_least(&self, _: Time, _: Permits) -> Nanos {
        Nanos::ZERO
    }

    fn take(&self, _: Time, cost: Permits, _: Time) -> Verdict {
        match self.gate.places.take(cost, OnReturn::WakeFirst) {
            hold @ Some(_) => {
                *self.hold.lock() = hold;
                Verdict::Allow
            }
            None => Verdict::Deny {
                retry_after: Nanos::MAX,
            },
        }
    }
}

clone_fields!([P] Counted<P> { places, described, most_waiting });

impl<P: Places> fmt::Debug for Counted<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted")
            .field("most", &self.places.most())
            .field("at_work", &self.places.at_work())
            .finish_non_exhaustive()
    }
}
