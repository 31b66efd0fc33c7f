//! Settings: those of a client's calls, and the state that the calls share.

use std::sync::Arc;

use http::HeaderName;
use ratekeeper_core::Nanos;

use super::retry_if::RetryIf;
use crate::{AdaptiveConcurrency, Backoff, Breaker, Budget, RetryAfter, Throttle, Typical};

/// An extension of a request: time that its call may take, in place of the layer's setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallWithin(pub Nanos);

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

/// State that the calls of a layer share.
#[derive(Debug)]
pub(super) struct CallContext {
    pub(super) settings: CallSettings,
    pub(super) budget: Arc<Budget>,
}
