//! Gate: what decides about a request before the service sees it.
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

/// What decides about requests: made by the constructors of
/// [`RateLimitLayer`](super::RateLimitLayer). Clones share their counts.
pub trait Gate: sealed::Ask {}

impl<G: sealed::Ask> Gate for G {}

/// A future on the heap.
pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a request holds: given back when it is dropped.
pub(super) enum RequestHold {
    Counted(#[expect(dead_code, reason = "kept to be dropped")] CountGuard),
    /// Told how the request goes.
    Measured(Measured),
    Other(#[expect(dead_code, reason = "kept to be dropped")] Box<dyn Any + Send>),
}

impl RequestHold {
    /// What wants to be told how the request goes.
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

/// What a gate says.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub enum Ruling {
    /// It passes.
    Pass(Pass),
    /// A limit refuses it, or would if it were enforced.
    Denied(Denied),
}

/// What a limit refuses, or would if it were enforced.
#[derive(Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Denied {
    pub(super) answer: Box<Answer>,
    pub(super) told: FieldsToSend,
    /// If it passes all the same, since no limit that is enforced refuses it.
    pub(super) hold: Option<RequestHold>,
}

pub(super) mod sealed {
    use super::{Boxed, Nanos, Parts, Permits, Ruling};

    /// The interface between gates and the service.
    #[expect(unnameable_types, reason = "gates are made in this module only")]
    pub trait Ask: Clone + Send + Sync + 'static {
        /// Decides about the request with these parts.
        fn ask(&self, parts: &Parts, cost: Option<Permits>) -> Asked;

        /// From now on nobody waits for a turn: who would is refused.
        fn forbid_waiting(&mut self);

        /// Is ready when `span` has passed.
        fn sleep(&self, span: Nanos) -> Boxed<()>;
    }

    /// When the ruling is known.
    #[expect(unnameable_types, reason = "gates are made in this module only")]
    pub enum Asked {
        /// At once.
        Now(Ruling),
        /// When the future is ready; dropped before, nothing was taken.
        Later(Boxed<Ruling>),
    }
}
