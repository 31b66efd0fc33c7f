//! Keyed: a limit for each key, with keys that a function finds in the request.
//!
//! ```text
//!   request --key--> Some(user) --> the limit of that user
//!                \-> None -------> one limit for all that have no key
//! ```
//!
//! A request without a key is not free: all such requests share one count, as if they were one
//! user. Requests that need no limit belong on a route without this layer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Extensions;
use http::request::Parts;
use ratekeeper_core::{AnyAlgorithm, Decision, Key, LeaseId, Nanos, Permits, Verdict};
use ratekeeper_policy::ClientIp;

use super::described::Described;
use super::facts::client_address;
use super::gate::sealed::{Ask, Asked};
use super::gate::{Boxed, Ruling};
use super::hold::RequestHold;
use super::ledger::{Ledger, Lender, new_lease};
use super::shown::Limited;
use crate::{KeyedLimiter, LimitKey, Permit, Timer};

/// A limit for each key; see [`RateLimitLayer::keyed`](super::RateLimitLayer::keyed).
pub struct Keyed<F, A, C> {
    pub(super) limiter: Arc<KeyedLimiter<A, C>>,
    pub(super) described: Described,
    pub(super) key: F,
    pub(super) ledger: Ledger<KeyedLimiter<A, C>>,
}

/// Finds the client's address, for a limit per address: the peer's, or behind trusted proxies the
/// one that they report. `peer` returns the connected address: from axum's `ConnectInfo`, tonic's
/// `TcpConnectInfo`, or [`Peer`](super::Peer). IPv6 addresses are cut to the prefix that makes one
/// client.
///
/// ```
/// use ratekeeper::KeyedLimiter;
/// use ratekeeper::policy::{ClientIp, network};
/// use ratekeeper::tower::{Peer, RateLimitLayer, by_address};
///
/// let behind_one_proxy = ClientIp {
///     trusted_proxies: vec![network("10.0.0.1").unwrap()],
///     ..ClientIp::default()
/// };
/// let address = by_address(behind_one_proxy, |extensions| Some(extensions.get::<Peer>()?.0));
/// let layer = RateLimitLayer::keyed(KeyedLimiter::per("100/1m").unwrap(), address);
/// ```
pub fn by_address(
    client_ip: ClientIp,
    peer: impl Fn(&Extensions) -> Option<SocketAddr> + Clone + Send + Sync + 'static,
) -> impl Fn(&Parts) -> Option<[u8; 16]> + Clone + Send + Sync + 'static {
    move |parts| {
        let address = client_address(parts, peer(&parts.extensions)?, &client_ip);
        Some(address_key(address, client_ip.ipv6_prefix))
    }
}

/// Returns the key of an address; IPv4 addresses are mapped into IPv6.
fn address_key(address: IpAddr, ipv6_prefix: u8) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => {
            let rest = u32::from(128_u8.saturating_sub(ipv6_prefix));
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            (address.to_bits() & mask).to_be_bytes()
        }
    }
}

impl<A, C> Lender for KeyedLimiter<A, C>
where
    A: Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    fn answers_at_once(&self) -> bool {
        true
    }

    async fn take_back(&self, permits: &[Permit]) {
        for permit in permits {
            self.release(permit);
        }
    }

    async fn prolong(&self, permits: &[Permit]) {
        for permit in permits {
            self.renew(permit);
        }
    }

    async fn sleep(&self, span: Nanos) {
        self.clock().sleep_async(span).await;
    }
}

impl<F, A, C> Keyed<F, A, C>
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
        Some(self.lent(decision, key, cost, (lease, length)))
    }

    fn lent(
        &self,
        decision: Decision,
        key: &[u8],
        cost: Permits,
        (lease, length): (LeaseId, Nanos),
    ) -> Ruling {
        let lent = decision.verdict.allows() && cost > Permits::ZERO;
        let permit = || (Permit::new("keyed", Key::from_bytes(key), lease), length);
        let hold = self.ledger.hold(lent.then(permit).into_iter());
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

    /// Waits in line for a permit that other requests of the key hold.
    async fn wait_for_a_loan(
        self,
        key: Box<[u8]>,
        cost: Permits,
        length: Nanos,
        patience: Nanos,
    ) -> Ruling {
        let (limiter, lease) = (&self.limiter, new_lease());
        let waiting = limiter.lend_within(&key, cost, lease, patience);
        let decided = if waiting.await {
            Decision {
                verdict: Verdict::Allow,
                ..limiter.peek(&key)
            }
        } else {
            limiter.refusal(&key, cost)
        };
        self.lent(decided, &key, cost, (lease, length))
    }

    async fn wait(self, key: Box<[u8]>, cost: Permits, patience: Nanos) -> Ruling {
        let granted = self.limiter.try_acquire(&key, cost, patience).await;
        let decided = match granted {
            Ok(Some(_waited)) => Decision {
                verdict: Verdict::Allow,
                ..self.limiter.peek(&key)
            },
            Ok(None) | Err(_) => self.limiter.refusal(&key, cost),
        };
        self.ruling(decided, cost, None)
    }
}

impl<F, K, A, C> Ask for Keyed<F, A, C>
where
    F: Fn(&Parts) -> Option<K> + Clone + Send + Sync + 'static,
    K: LimitKey,
    A: Into<AnyAlgorithm> + 'static,
    C: Timer + 'static,
{
    fn ask(&self, parts: &Parts, cost: Option<Permits>, patience: Nanos) -> Asked {
        let cost = cost.unwrap_or(Permits::ONE);
        let found = (self.key)(parts);
        let bytes = found.as_ref().map(LimitKey::key_bytes);
        let key = bytes.as_ref().map_or(&[][..], AsRef::as_ref);
        if let Some(length) = self.limiter.lease() {
            if let Some(ruling) = self.lend(key, cost, length, patience) {
                return Asked::Now(ruling);
            }
            return Asked::Later(Box::pin(self.clone().wait_for_a_loan(
                key.into(),
                cost,
                length,
                patience,
            )));
        }
        let decision = self.limiter.check_slowly(key, cost);
        let waits = matches!(decision.verdict, Verdict::Deny { .. }) && patience > Nanos::ZERO;
        if !waits {
            return Asked::Now(self.ruling(decision, cost, None));
        }
        Asked::Later(Box::pin(self.clone().wait(key.into(), cost, patience)))
    }

    fn sleep(&self, span: Nanos) -> Boxed<()> {
        let limiter = Arc::clone(&self.limiter);
        Box::pin(async move { limiter.clock().sleep_async(span).await })
    }
}

impl<F: Clone, A, C> Clone for Keyed<F, A, C> {
    fn clone(&self) -> Self {
        Self {
            limiter: Arc::clone(&self.limiter),
            described: self.described.clone(),
            key: self.key.clone(),
            ledger: self.ledger.clone(),
        }
    }
}

impl<F, A, C> fmt::Debug for Keyed<F, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
