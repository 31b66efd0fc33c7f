//! Gate: decides about a request before the service sees it.
//!
//! ```text
//!   ask --> now:   a ruling, without waiting
//!       \-> later: a future that waits for a store, or in line
//! ```

pub(super) mod adaptive;
pub(super) mod admit;
pub(super) mod counted;
pub(super) mod in_flight;
pub(super) mod keyed;
pub(super) mod measured;
pub(super) mod single;
pub(super) mod together;

use std::future::Future;
use std::pin::Pin;

use ratekeeper_core::{Nanos, Permits};

use super::denial::Denial;
use super::head::RequestHead;
use super::hold::RequestHold;
use super::pass::{FieldsToSend, Pass, PassTerms};

/// Decides about requests: made by the constructors of [`RateLimitLayer`](super::RateLimitLayer).
/// Clones share their counts.
///
/// ```
/// use ratekeeper::Limiter;
/// use ratekeeper::tower::{Gate, RateLimitLayer};
///
/// fn refused<G: Gate>(layer: &RateLimitLayer<G>) -> u64 {
///     layer.counts().refused
/// }
/// assert_eq!(refused(&RateLimitLayer::new(Limiter::per("100/1s")?)), 0);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub trait Gate: sealed::Ask {}

impl<G: sealed::Ask> Gate for G {}

/// A future on the heap.
pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The decision of a gate.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub enum Ruling {
    /// It passes.
    Pass(Pass),
    /// A limit refuses it, or would if it were enforced. On the heap, so that a request that
    /// passes is moved in a few words.
    Denied(Box<Denied>),
}

/// The refusal of a limit, or one that would be if it were enforced.
#[derive(Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Denied {
    pub(super) denial: Denial,
    /// Set if it passes all the same, because no enforced limit refuses it.
    pub(super) hold: Option<RequestHold>,
    pub(super) terms: PassTerms,
}

impl Ruling {
    /// A refusal that holds nothing, and has nothing to report.
    pub(super) fn denied(denial: Denial, fields: FieldsToSend) -> Self {
        Self::Denied(Box::new(Denied {
            denial,
            hold: None,
            terms: PassTerms::new(Nanos::ZERO, fields),
        }))
    }
}

pub(super) mod sealed {
    use super::{Boxed, Nanos, Permits, RequestHead, Ruling};

    /// The interface between gates and the service.
    #[expect(unnameable_types, reason = "gates are made in this module only")]
    pub trait Ask: Clone + Send + Sync + 'static {
        /// Decides about a request, which may wait in line for `patience`.
        fn ask(&self, head: RequestHead<'_>, cost: Option<Permits>, patience: Nanos) -> Asked;

        /// Completes when `span` has passed; at once for a gate that delays no request.
        fn sleep(&self, _span: Nanos) -> Boxed<()> {
            Box::pin(std::future::ready(()))
        }
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
