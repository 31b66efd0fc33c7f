//! Gate: decides about a request before the service sees it.
//!
//! ```text
//!   ask --> now:   a ruling, and nobody waits
//!       \-> later: a future that waits for a store, or in line
//! ```

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::request::Parts;
use ratekeeper_core::{Nanos, Permits};

use super::in_flight::CountGuard;
use super::measured::Measured;
use super::pass::{FieldsToSend, Pass};
use crate::Answer;

/// Decides about requests: made by the constructors of [`RateLimitLayer`](super::RateLimitLayer).
/// Clones share their counts.
pub trait Gate: sealed::Ask {}

impl<G: sealed::Ask> Gate for G {}

/// A future on the heap.
pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The permits that a request holds: given back when it is dropped.
pub(super) enum RequestHold {
    Counted(#[expect(dead_code, reason = "held for its drop")] CountGuard),
    /// Notified of the progress of the request.
    Measured(Measured),
    Other(#[expect(dead_code, reason = "held for its drop")] Box<dyn Any + Send>),
}

impl RequestHold {
    /// Returns the measured request that must be notified of progress.
    pub(super) fn measured(&mut self) -> Option<&mut Measured> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::Counted(_) | Self::Other(_) => None,
        }
    }
}

impl fmt::Debug for RequestHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHold").finish_non_exhaustive()
    }
}

/// The decision of a gate.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub enum Ruling {
    /// It passes.
    Pass(Pass),
    /// A limit refuses it, or would if it were enforced.
    Denied(Denied),
}

/// The refusal of a limit, or one that would be if it were enforced.
#[derive(Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Denied {
    pub(super) answer: Box<Answer>,
    pub(super) told: FieldsToSend,
    /// Set if it passes all the same, because no enforced limit refuses it.
    pub(super) hold: Option<RequestHold>,
}

pub(super) mod sealed {
    use super::{Boxed, Nanos, Parts, Permits, Ruling};

    /// The interface between gates and the service.
    #[expect(unnameable_types, reason = "gates are made in this module only")]
    pub trait Ask: Clone + Send + Sync + 'static {
        /// Decides about the request with these parts.
        fn ask(&self, parts: &Parts, cost: Option<Permits>) -> Asked;

        /// Makes requests that would wait be refused from now on.
        fn forbid_waiting(&mut self);

        /// Completes when `span` has passed.
        fn sleep(&self, span: Nanos) -> Boxed<()>;
    }

    /// A ruling, now or later.
    #[expect(unnameable_types, reason = "gates are made in this module only")]
    pub enum Asked {
        /// At once.
        Now(Ruling),
        /// When the future is ready; if it is dropped before, nothing was taken.
        Later(Boxed<Ruling>),
    }
}
