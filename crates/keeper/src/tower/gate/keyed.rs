//! Keyed: a limit for each key, with keys that a source finds in the request.
//!
//! ```text
//!   request --source--> a key ----> the limit of that key
//!                   |-> shared ---> one limit for all such requests
//!                   \-> missing --> refused: 400 or 500
//! ```
//!
//! A request without a key is never free. Requests that need no limit belong on a route without
//! this layer.

use std::sync::Arc;

use ratekeeper_core::{AnyAlgorithm, Decision, Gcra, Key, LeaseId, Nanos, Permits, Verdict};

use super::sealed::{Ask, Asked};
use super::{Boxed, Ruling};
use crate::limiter::owned::Lender as _;
use crate::tower::described::Described;
use crate::tower::head::RequestHead;
use crate::tower::hold::RequestHold;
use crate::tower::key_source::KeySource;
use crate::tower::key_source::no_key::NoKey;
use crate::tower::ledger::{Ledger, PermitLender, new_lease};
use crate::tower::pass::Pass;
use crate::tower::shown::Limited;
use crate::{KeyedLimiter, LimitKey, Permit, SystemClock, Timer};

/// A limit for each key; see [`RateLimitLayer::keyed`](crate::tower::RateLimitLayer::keyed).
///
/// ```
/// use ratekeeper::KeyedLimiter;
/// use ratekeeper::tower::{ByAddress, Keyed, Peer, RateLimitLayer, by_address};
///
/// fn per_address() -> Result<RateLimitLayer<Keyed<ByAddress>>, ratekeeper::core::Error> {
///     let limiter = KeyedLimiter::per("100/1m")?;
///     Ok(RateLimitLayer::keyed(limiter, by_address::<Peer>()).named("per-address"))
/// }
/// assert_eq!(per_address()?.counts().refused, 0);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub struct Keyed<K, A = Gcra, C = SystemClock> {
    pub(crate) limiter: Arc<KeyedLimiter<A, C>>,
    pub(crate) described: Described,
    pub(crate) source: K,
    pub(crate) ledger: Ledger<KeyedLimiter<A, C>>,
}

impl<A, C> PermitLender for KeyedLimiter<A, C>
where
    A: Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    fn answers_at_once(&self) -> bool {
        true
    }

    async fn take_back(&self, permits: &[Permit]) {
        for permit in permits {
            self.release(permit.key().as_bytes(), permit.lease());
        }
    }

    async fn prolong(&self, permits: &[Permit]) -> Option<Nanos> {
        let renewed = |it: &Permit| self.renew(it.key().as_bytes(), it.lease());
        permits.iter().filter_map(renewed).min()
    }

    async fn sleep(&self, span: Nanos) {
        self.clock().sleep_async(span).await;
    }
}

impl<K, A, C> Keyed<K, A, C>
where
    A: Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    /// Lends for the life of the request; `None` if the request must wait.
    fn lend(&self, key: &[u8], cost: Permits, length: Nanos, patience: Nanos) -> Option<Ruling> {
        let lease = new_lease();
        let decision = self.limiter.lend(key, cost, lease);
        let waits = patience > Nanos::ZERO;
        if waits && matches!(decision.verdict, Verdict::Deny { .. }) {
            return None;
        }
        Some(self.lent(decision, key, cost, lease, Some(length)))
    }

    fn lent(
        &self,
        decision: Decision,
        key: &[u8],
        cost: Permits,
        lease: LeaseId,
        length: Option<Nanos>,
    ) -> Ruling {
        let lent = length.filter(|_| decision.verdict.allows() && cost > Permits::ZERO);
        let permit = |length| (Permit::new("keyed", Key::from_bytes(key), lease), length);
        let hold = self.ledger.hold(lent.map(permit).into_iter());
        self.ruling(decision, cost, hold)
    }

    fn ruling(&self, decision: Decision, cost: Permits, hold: Option<RequestHold>) -> Ruling {
        let limited = || Limited::By(self.limiter.algorithm());
        if decision.verdict.allows() {
            self.described.passes(limited, decision, hold)
        } else {
            self.described.denied(limited(), decision, cost)
        }
    }

    /// Waits in line: with a length for a permit that other requests of the key hold.
    async fn wait(
        self,
        key: Box<[u8]>,
        cost: Permits,
        length: Option<Nanos>,
        patience: Nanos,
    ) -> Ruling {
        let (limiter, lease) = (&self.limiter, new_lease());
        let granted = if length.is_some() {
            limiter.lend_within(&key, cost, lease, patience).await
        } else {
            let limit = limiter.key(&key);
            let waited = limit.try_acquire(cost.get(), patience.into()).await;
            matches!(waited, Ok(Some(_)))
        };
        let decided = if granted {
            Decision {
                verdict: Verdict::Allow,
                ..limiter.peek(&key)
            }
        } else {
            limiter.refusal(&key, cost)
        };
        self.lent(decided, &key, cost, lease, length)
    }
}

impl<K, A, C> Ask for Keyed<K, A, C>
where
    K: KeySource,
    A: Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    #[expect(clippy::inline_always, reason = "a call costs as much as the decision")]
    #[inline(always)]
    fn ask(&self, head: RequestHead<'_>, cost: Option<Permits>, patience: Nanos) -> Asked {
        let cost = cost.unwrap_or(Permits::ONE);
        let found = match self.source.key(head) {
            Ok(key) => Some(key),
            Err(NoKey::Shared) => None,
            Err(reason) => return Asked::Now(self.described.without_key(reason)),
        };
        let bytes = found.as_ref().map(LimitKey::key_bytes);
        let key = bytes.as_ref().map_or(&[][..], AsRef::as_ref);
        let lease = self.limiter.lease();
        if let Some(length) = lease {
            if let Some(ruling) = self.lend(key, cost, length, patience) {
                return Asked::Now(ruling);
            }
        } else {
            let decision = self.limiter.key(key).decide(cost.get());
            if decision.verdict == Verdict::Allow && self.described.is_silent() {
                return Asked::Now(Ruling::Pass(Pass::default()));
            }
            let waits = decision.verdict.retry_after().is_some() && patience > Nanos::ZERO;
            if !waits {
                return Asked::Now(self.ruling(decision, cost, None));
            }
        }
        let waiting = self.clone().wait(key.into(), cost, lease, patience);
        Asked::Later(Box::pin(waiting))
    }

    fn sleep(&self, span: Nanos) -> Boxed<()> {
        let limiter = Arc::clone(&self.limiter);
        Box::pin(async move { limiter.clock().sleep_async(span).await })
    }
}

clone_fields!([K: Clone, A, C] Keyed<K, A, C> { limiter, described, source, ledger });

debug_fields!([K, A, C] Keyed<K, A, C> { limiter });
