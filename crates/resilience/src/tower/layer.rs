//! Layer: the settings of a client's calls, and what all of them share.

use std::sync::Arc;

use http::HeaderName;
use ratekeeper_core::Nanos;
use tower_layer::Layer;

use super::retry_if::RetryIf;
use super::service::Resilient;
use crate::{AdaptiveConcurrency, Backoff, Breaker, Budget, RetryAfter, Throttle, Typical};

/// Decides if a call is worth trying.
#[derive(Clone, Debug, Default)]
pub enum Guard {
    /// Nothing: every call is tried.
    #[default]
    Without,
    /// The smoother of the two; for servers that are called often.
    Throttle(Arc<Throttle>),
    /// For servers that are up or down.
    Breaker(Arc<Breaker>),
    /// For servers that say little: no more attempts at once than they can bear, by how long
    /// they take to answer. An attempt is at work until the head of its answer is there.
    Adaptive(Arc<AdaptiveConcurrency>),
}

/// How the deadline is passed on to the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Propagate {
    /// Not at all.
    #[default]
    Nothing,
    /// As `grpc-timeout`.
    GrpcTimeout,
    /// As whole milliseconds in this header.
    Millis(HeaderName),
}

/// How calls are made.
#[derive(Clone, Debug)]
pub struct CallSettings {
    /// How long a call may take with all its attempts, until the head of its answer is there,
    /// unless [`CallWithin`](super::CallWithin) says otherwise. Default 10 s.
    pub within: Nanos,
    /// Typical times of one attempt. Default not known.
    pub typical: Typical,
    /// How the deadline is passed on. Default not at all.
    pub propagate: Propagate,
    /// Guard that decides if a call is tried. Default none.
    pub guard: Guard,
    /// Waits and attempts.
    pub backoff: Backoff,
    /// How far `Retry-After` and related fields are obeyed; a call that would have to wait for
    /// longer ends with the refusal.
    pub retry_after: RetryAfter,
    /// Classification of failed answers. Default by their status.
    pub retry_if: RetryIf,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            within: Nanos::from_secs(10),
            typical: Typical::default(),
            propagate: Propagate::default(),
            guard: Guard::default(),
            backoff: Backoff::default(),
            retry_after: RetryAfter::default(),
            retry_if: RetryIf::default(),
        }
    }
}

/// Makes clients that retry within a budget, and stop in time; see the
/// [module](crate::tower). All clients of one layer share its budget and its guard.
#[derive(Clone, Debug)]
pub struct ResilienceLayer {
    shared: Arc<CallContext>,
}

/// State that the calls of a layer share.
#[derive(Debug)]
pub(super) struct CallContext {
    pub(super) settings: CallSettings,
    pub(super) budget: Arc<Budget>,
}

impl ResilienceLayer {
    /// Creates a layer with `budget` for its calls; others may share it, and the guard, too.
    ///
    /// Time is that of the tokio runtime, counted from a zero that all layers of the process
    /// have in common: do not use a shared budget or guard with another clock.
    pub fn new(settings: CallSettings, budget: Arc<Budget>) -> Self {
        Self {
            shared: Arc::new(CallContext { settings, budget }),
        }
    }
}

impl<S> Layer<S> for ResilienceLayer {
    type Service = Resilient<S>;

    fn layer(&self, inner: S) -> Resilient<S> {
        Resilient::new(inner, Arc::clone(&self.shared))
    }
}
