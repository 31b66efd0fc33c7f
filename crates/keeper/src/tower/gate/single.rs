//! Single: one limit for all requests, which refuses them, or lets them wait in line.
//!
//! ```text
//!   request --> no waiter, a permit is there --------> service
//!           \-> patience: in line, first come first served --> service
//!                         \-> too long, or too many wait ----> refused
//! ```
//!
//! A request that is dropped while it waits (its client is gone) leaves the line and has taken
//! nothing; those behind it move up.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::{AnyAlgorithm, Concurrency, Decision, Gcra, Nanos, Permits, Time, Verdict};

use super::sealed::{Ask, Asked};
use super::{Boxed, Ruling};
use crate::limiter::LimiterAlgorithm;
use crate::tower::described::Described;
use crate::tower::head::RequestHead;
use crate::tower::hold::RequestHold;
use crate::tower::pass::Pass;
use crate::tower::shown::Limited;
use crate::{Clock, Limiter, SystemClock, Timer};

/// One limit for all requests; see [`RateLimitLayer::new`](crate::tower::RateLimitLayer::new).
///
/// ```
/// use ratekeeper::Limiter;
/// use ratekeeper::tower::{RateLimitLayer, Single};
///
/// struct Server {
///     limit: RateLimitLayer<Single>,
/// }
/// let server = Server { limit: RateLimitLayer::new(Limiter::per("100/1s")?) };
/// assert_eq!(server.limit.counts().passed, 0);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub struct Single<A: LimiterAlgorithm = Gcra, C = SystemClock> {
    pub(crate) limiter: Arc<Limiter<A, C>>,
    pub(crate) described: Described,
}

/// Permits lent by a limit of concurrency. They have no name there, so they cannot be renewed; and
/// after the lease they have come back by themselves, and giving them back would release the
/// permits of another request. Each response gives back those that end first: beside a request that
/// hangs, one permit less is free while others come.
struct AtWork<A: LimiterAlgorithm, C: Clock> {
    limiter: Arc<Limiter<A, C>>,
    cost: Permits,
    ends: Time,
}

impl<A: LimiterAlgorithm, C: Clock> Drop for AtWork<A, C> {
    fn drop(&mut self) {
        if self.limiter.clock().now() < self.ends {
            self.limiter.take_back(self.cost);
        }
    }
}

impl<A, C> Single<A, C>
where
    A: LimiterAlgorithm<State: Send> + Clone + Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    fn decide(&self, cost: Permits, patience: Nanos) -> Asked {
        let waits = patience > Nanos::ZERO;
        if waits && self.limiter.waiting() > 0 {
            return self.in_line(cost, patience);
        }
        // No response shows the numbers of this decision. States of more than a word, which those
        // that lend have, are not copied to look at them first.
        let silent = self.described.is_silent() && size_of::<A::State>() <= size_of::<u64>();
        if silent && self.limiter.take_at_once(cost.get()) {
            return Asked::Now(Ruling::Pass(Pass::default()));
        }
        let decision = self.limiter.decide(cost.get());
        let hopeless = decision.verdict == Verdict::DenyForever;
        if !waits || hopeless || decision.verdict.allows() {
            return Asked::Now(self.ruling(decision, cost));
        }
        self.in_line(cost, patience)
    }

    fn in_line(&self, cost: Permits, patience: Nanos) -> Asked {
        Asked::Later(Box::pin(self.clone().wait(cost, patience)))
    }

    fn ruling(&self, decision: Decision, cost: Permits) -> Ruling {
        let limiter = &self.limiter;
        let shown = || Limited::By(limiter.show(|algorithm| algorithm.clone().into()));
        if !decision.verdict.allows() {
            return self.described.denied(shown(), decision, cost);
        }
        let hold = limiter
            .show(LimiterAlgorithm::comes_back)
            .then(|| self.lent(cost));
        self.described.passes(shown, decision, hold.flatten())
    }

    /// Returns the permits lent by a limit of concurrency.
    fn lent(&self, cost: Permits) -> Option<RequestHold> {
        let algorithm: AnyAlgorithm = self.limiter.show(|algorithm| algorithm.clone().into());
        let lease = algorithm.concurrency().map(Concurrency::lease)?;
        Some(RequestHold::Other(Box::new(AtWork {
            limiter: Arc::clone(&self.limiter),
            cost,
            ends: self.limiter.clock().now() + lease,
        })))
    }

    async fn wait(self, cost: Permits, patience: Nanos) -> Ruling {
        let granted = self.limiter.try_acquire(cost.get(), patience.into()).await;
        let decision = match granted {
            Ok(Some(_waited)) => Decision {
                verdict: Verdict::Allow,
                ..self.limiter.peek()
            },
            Ok(None) | Err(_) => self.limiter.refusal(cost),
        };
        self.ruling(decision, cost)
    }
}

impl<A, C> Ask for Single<A, C>
where
    A: LimiterAlgorithm<State: Send> + Clone + Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    fn ask(&self, _: RequestHead<'_>, cost: Option<Permits>, patience: Nanos) -> Asked {
        self.decide(cost.unwrap_or(Permits::ONE), patience)
    }

    fn sleep(&self, span: Nanos) -> Boxed<()> {
        let limiter = Arc::clone(&self.limiter);
        Box::pin(async move { limiter.clock().sleep_async(span).await })
    }
}

clone_fields!([A: LimiterAlgorithm, C] Single<A, C> { limiter, described });

debug_fields!([A: LimiterAlgorithm + fmt::Debug, C] Single<A, C> { limiter });
