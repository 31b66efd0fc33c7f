//! In flight: at most so many requests at once, from their arrival to the end of the answer's
//! body. A plain count: no clock, no lease, nothing to renew.
//!
//! ```text
//!   arrives: count + 1 <= most? --no--> refused
//!               |                       answered to the end, failed, panicked,
//!               +--> service --> body   dropped: count - 1
//! ```

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::request::Parts;
use ratekeeper_core::{AnyAlgorithm, Concurrency, Decision, Nanos, Permits, Time, Verdict};

use super::described::Described;
use super::gate::sealed::{Ask, Asked};
use super::gate::{Boxed, Ruling};

/// What a refused client is told to wait, since nobody knows when a request ends.
const RETRY: Nanos = Nanos::SECOND;

/// At most so many requests at once; see
/// [`RateLimitLayer::in_flight`](super::RateLimitLayer::in_flight).
#[derive(Clone, Debug)]
pub struct InFlight {
    most: Permits,
    /// Shown, never run.
    algorithm: AnyAlgorithm,
    pub(super) described: Described,
    at_work: Arc<AtomicU32>,
}

/// A part of the count.
struct Counted {
    cost: u32,
    at_work: Arc<AtomicU32>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.at_work.fetch_sub(self.cost, Ordering::Relaxed);
    }
}

impl InFlight {
    pub(super) fn new(most: Permits) -> Self {
        let shown = Concurrency::new(Permits::ONE, Nanos::MAX).expect("one permit for some time");
        let algorithm = AnyAlgorithm::from(shown);
        Self {
            most,
            described: Described::new("in-flight", algorithm.clone()).with_quota(most),
            algorithm,
            at_work: Arc::default(),
        }
    }

    /// How many are at work.
    pub(super) fn at_work(&self) -> Permits {
        Permits::new(self.at_work.load(Ordering::Relaxed))
    }

    fn take(&self, cost: Permits) -> (Decision, Option<Counted>) {
        let most = self.most.get();
        let add = |count: u32| count.checked_add(cost.get()).filter(|sum| *sum <= most);
        let taken = self
            .at_work
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let (verdict, left) = match taken {
            Ok(before) => (Verdict::Allow, most - before - cost.get()),
            Err(before) if cost <= self.most => {
                let retry_after = RETRY;
                (Verdict::Deny { retry_after }, most.saturating_sub(before))
            }
            Err(before) => (Verdict::DenyForever, most.saturating_sub(before)),
        };
        let decision = Decision {
            verdict,
            remaining: Permits::new(left),
            reset_after: Nanos::ZERO,
        };
        let counted = taken.ok().map(|_| Counted {
            cost: cost.get(),
            at_work: Arc::clone(&self.at_work),
        });
        (decision, counted)
    }
}

impl Ask for InFlight {
    fn ask(&self, parts: Parts, cost: Option<Permits>) -> Asked {
        let cost = cost.unwrap_or(Permits::ONE);
        let (decision, counted) = self.take(cost);
        let algorithm = self.algorithm.clone();
        let answer = self.described.answer(algorithm, decision, cost, Time::ZERO);
        let hold = counted.map(|counted| Box::new(counted) as _);
        Asked::Now(parts, Ruling { answer, hold })
    }

    /// Nobody is delayed by a count.
    fn sleep(&self, _: Nanos) -> Boxed<()> {
        Box::pin(ready(()))
    }
}
