//! Together: several limits of a program as one layer, all charged or none.
//!
//! ```text
//!   request --> key under "per-address" \
//!           \-> key under "per-token"    > one act of the store --> all are charged, or none
//!           \-> key under "in-flight"   /
//! ```
//!
//! Stacked layers ask one after the other: a request that the inner one refuses has been charged
//! by the outer one. Here it has not. The store is the [`Limits`]' own: the memory of this
//! process, or a server that many processes share.
//!
//! * Requests that a limit of concurrency lets pass hold its permit to the end of the response
//!   body; leases are renewed meanwhile.
//! * A store that cannot answer causes no error of the server: the
//!   [`on_outage`](NamedLimit::on_outage) of each limit decides.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use ratekeeper_core::{Charge, Limit, Nanos, Permits};
use ratekeeper_store::{Hold, MemoryStore, Store, StoreError};
use smallvec::SmallVec;

use super::admit::{Admitted, admit, completed};
use super::sealed::{Ask, Asked};
use super::{Boxed, Ruling};
use crate::at_once::poll_once;
use crate::limits::charge::{KeyText, OwnedCharge};
use crate::tower::denial::{Denial, DeniedBy, ShownDecision};
use crate::tower::described::Described;
use crate::tower::head::RequestHead;
use crate::tower::key_source::KeySource;
use crate::tower::key_source::no_key::NoKey;
use crate::tower::layer::RateLimitLayer;
use crate::tower::ledger::{Ledger, PermitLender};
use crate::tower::pass::{FieldsToSend, Pass, PassTerms};
use crate::tower::settle::CostOf;
use crate::tower::shown::Limited;
use crate::{Clock, Limits, NamedLimit, Permit, SystemClock, Timer};

/// One limit of a layer of several, with the source of its keys; made by [`NamedLimit::by`].
///
/// ```
/// use http::HeaderName;
/// use ratekeeper::Limits;
/// use ratekeeper::core::Quota;
/// use ratekeeper::tower::{LimitBy, by_header};
///
/// let limits = Limits::in_memory();
/// let users = limits.token_bucket("users", Quota::per_minute(60))?;
/// let by_user: LimitBy = users.by(by_header(HeaderName::from_static("x-user")));
/// # Ok::<(), ratekeeper::NewLimitError>(())
/// ```
pub struct LimitBy<S = MemoryStore, C = SystemClock> {
    limit: NamedLimit<S, C>,
    key: Arc<KeyOf>,
    cost: Option<Arc<CostOf>>,
}

type KeyOf = dyn Fn(RequestHead<'_>) -> Result<KeyText, NoKey> + Send + Sync;

impl<S, C> NamedLimit<S, C> {
    /// The limit with the keys that `source` finds, for [`RateLimitLayer::together`]. A key has the
    /// same count as in [`of`](Self::of); requests that share one count have that of `of(())`.
    pub fn by(&self, source: impl KeySource) -> LimitBy<S, C> {
        LimitBy {
            limit: self.clone(),
            key: Arc::new(move |head| match source.key(head) {
                Ok(key) => Ok(KeyText::of(&key)),
                Err(NoKey::Shared) => Ok(KeyText::of(&())),
                Err(reason) => Err(reason),
            }),
            cost: None,
        }
    }
}

impl<S, C> LimitBy<S, C> {
    /// Sets the cost of a request under this limit; without this call, the
    /// [`cost`](RateLimitLayer::cost) of the layer.
    #[must_use]
    pub fn cost<N: Into<Permits>>(
        mut self,
        cost: impl Fn(RequestHead<'_>) -> N + Send + Sync + 'static,
    ) -> Self {
        self.cost = Some(Arc::new(move |head: RequestHead<'_>| cost(head).into()));
        self
    }
}

impl<S: Store + 'static, C: Timer + 'static> RateLimitLayer<Together<S, C>> {
    /// Several limits, which charge a request all together or not at all. Clients see them by
    /// their names.
    ///
    /// ```
    /// use http::HeaderName;
    /// use ratekeeper::Limits;
    /// use ratekeeper::core::Quota;
    /// use ratekeeper::tower::{Peer, RateLimitLayer, by_address, by_header};
    ///
    /// let limits = Limits::in_memory(); // or Limits::redis(url)
    /// let per_address = limits.token_bucket("per-address", Quota::per_minute(100))?;
    /// let per_token = limits.token_bucket("per-token", Quota::per_hour(1_000))?;
    /// let layer = RateLimitLayer::together([
    ///     per_address.by(by_address::<Peer>()),
    ///     per_token.by(by_header(HeaderName::from_static("x-api-key"))),
    /// ])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if there is no limit, or one belongs to other [`Limits`].
    pub fn together(limits: impl IntoIterator<Item = LimitBy<S, C>>) -> Result<Self, StoreError> {
        let members: Vec<_> = limits.into_iter().collect();
        let Some(first) = members.first() else {
            let why = "a layer needs at least one limit".to_owned();
            return Err(StoreError::Misconfigured(why));
        };
        let limits = first.limit.limits().clone();
        members
            .iter()
            .try_for_each(|member| limits.owns(&member.limit))?;
        let described = members.iter().map(|member| {
            let limit = member.limit.current();
            Described::new(&limit.name, Limited::By(limit.algorithm.clone()))
        });
        let described = described.collect();
        let members = Arc::new(Members {
            limits,
            all: members,
        });
        let gate = Together {
            ledger: Ledger::new(Arc::clone(&members)),
            members,
            described,
        };
        Ok(Self::made(gate))
    }
}

/// Several limits, charged together; see
/// [`RateLimitLayer::together`].
///
/// ```
/// use http::HeaderName;
/// use ratekeeper::Limits;
/// use ratekeeper::core::Quota;
/// use ratekeeper::tower::{RateLimitLayer, Together, by_header, by_path};
///
/// struct Server {
///     limits: RateLimitLayer<Together>,
/// }
/// let limits = Limits::in_memory();
/// let users = limits.token_bucket("users", Quota::per_minute(60))?;
/// let routes = limits.token_bucket("routes", Quota::per_minute(600))?;
/// let by_user = by_header(HeaderName::from_static("x-user"));
/// let limits = RateLimitLayer::together([users.by(by_user), routes.by(by_path())])?;
/// assert_eq!(Server { limits }.limits.counts().passed, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Together<S = MemoryStore, C = SystemClock> {
    members: Arc<Members<S, C>>,
    /// How clients are shown each of the members.
    pub(crate) described: Vec<Described>,
    ledger: Ledger<Members<S, C>>,
}

struct Members<S, C> {
    limits: Limits<S, C>,
    all: Vec<LimitBy<S, C>>,
}

/// The charges of the members, in their order.
type MemberCharges = SmallVec<[OwnedCharge; 4]>;

impl<S: Store + 'static, C: Timer + 'static> Together<S, C> {
    /// Returns the charges of the members, in their order; or the refusal of a request that has no
    /// key under one of them.
    fn charges(
        &self,
        head: RequestHead<'_>,
        cost: Option<Permits>,
    ) -> Result<MemberCharges, Denial> {
        let charges = self.members.all.iter().map(|member| {
            let limit = member.limit.current();
            let own = member.cost.as_ref().map(|cost| cost(head));
            match (member.key)(head) {
                Ok(key) => Ok(OwnedCharge {
                    limit,
                    key,
                    cost: own.or(cost).unwrap_or(Permits::ONE),
                }),
                Err(reason) => {
                    let limit = Arc::clone(&limit.name);
                    Err(Denial(DeniedBy::NoKey { limit, reason }))
                }
            }
        });
        charges.collect()
    }

    async fn admit(&self, charges: &MemberCharges) -> Admitted {
        let list: SmallVec<[Charge<'_>; 4]> = charges.iter().map(OwnedCharge::charge).collect();
        let limits = &self.members.limits;
        admit(limits.store(), &list, limits.clock().now()).await
    }

    fn ruling(&self, charges: &MemberCharges, admitted: Admitted) -> Ruling {
        let (decisions, lease) = (admitted.decisions, admitted.lease);
        let each = charges.iter().zip(&decisions.each).zip(&self.described);
        let shown = each.map(|((charge, decision), described)| {
            let limited = Limited::By(charge.limit.algorithm.clone());
            ShownDecision {
                outage: decisions.without_store.then_some(charge.limit.outage),
                ..described.decided(limited, *decision, charge.cost)
            }
        });
        let mut shown: SmallVec<[ShownDecision; 1]> = shown.collect();
        shown.sort_by_cached_key(|shown| Reverse(shown.report().tightness()));
        if !decisions.admitted {
            let denies = |shown: &&ShownDecision| !shown.decision.verdict.allows();
            let denying = shown.iter().filter(denies).cloned().collect();
            let denial = Denial(DeniedBy::Limits(denying));
            let fields = FieldsToSend::Limits(shown);
            return Ruling::denied(denial, fields);
        }
        let lent = charges.iter().filter_map(|charge| {
            let (limit, lease) = (&charge.limit, lease?);
            let length = limit.algorithm.concurrency()?.lease();
            let permit = || Permit::new(&limit.name, charge.key.as_key(), lease);
            (charge.cost > Permits::ZERO).then(|| (permit(), length))
        });
        let hold = self.ledger.hold(lent);
        let waits = decisions.each.iter();
        let delay = waits.filter_map(|decision| decision.verdict.wait()).max();
        let silent = self.described.iter().all(Described::is_silent);
        let fields = if silent {
            FieldsToSend::Nothing
        } else {
            FieldsToSend::Limits(shown)
        };
        let terms = PassTerms::new(delay.unwrap_or(Nanos::ZERO), fields);
        let terms = Some(Box::new(terms));
        Ruling::Pass(Pass { hold, terms })
    }
}

impl<S: Store + 'static, C: Timer + 'static> Ask for Together<S, C> {
    /// There is no line: a leaky queue delays a request, and the other limits refuse.
    fn ask(&self, head: RequestHead<'_>, cost: Option<Permits>, _: Nanos) -> Asked {
        let charges = match self.charges(head, cost) {
            Ok(charges) => charges,
            Err(denial) => return Asked::Now(Ruling::denied(denial, FieldsToSend::Nothing)),
        };
        if self.members.limits.store().answers_at_once()
            && let Some(admitted) = poll_once(self.admit(&charges))
        {
            return Asked::Now(self.ruling(&charges, admitted));
        }
        let lends = |charge: &OwnedCharge| charge.limit.algorithm.concurrency().is_some();
        let lends = charges.iter().any(lends);
        let gate = self.clone();
        let asking = async move {
            let admitted = gate.admit(&charges).await;
            gate.ruling(&charges, admitted)
        };
        Asked::Later(if lends {
            completed(asking)
        } else {
            Box::pin(asking)
        })
    }

    fn sleep(&self, span: Nanos) -> Boxed<()> {
        let members = Arc::clone(&self.members);
        Box::pin(async move { members.limits.clock().sleep_async(span).await })
    }
}

impl<S: Store, C: Clock> Members<S, C> {
    /// Returns the limits that lent these permits, as they are now.
    fn lenders(&self, permits: &[Permit]) -> Vec<Option<Arc<Limit>>> {
        let limit = |permit: &Permit| {
            let named = |member: &&LimitBy<S, C>| **member.limit.name() == *permit.limit();
            Some(self.all.iter().find(named)?.limit.current())
        };
        permits.iter().map(limit).collect()
    }
}

/// Returns the stored holds of `permits`.
fn holds<'a>(limits: &'a [Option<Arc<Limit>>], permits: &'a [Permit]) -> SmallVec<[Hold<'a>; 4]> {
    let each = permits.iter().zip(limits);
    each.filter_map(|(permit, limit)| {
        Some(Hold {
            limit: limit.as_ref()?,
            key: permit.key(),
            lease: permit.lease(),
        })
    })
    .collect()
}

impl<S: Store + 'static, C: Timer + 'static> PermitLender for Members<S, C> {
    fn answers_at_once(&self) -> bool {
        self.limits.store().answers_at_once()
    }

    async fn take_back(&self, permits: &[Permit]) {
        let (limits, now) = (self.lenders(permits), self.limits.clock().now());
        let store = self.limits.store();
        let _ = store.release(&holds(&limits, permits), now).await; // an error: the lease ends by itself
    }

    async fn prolong(&self, permits: &[Permit]) -> Option<Nanos> {
        let (limits, now) = (self.lenders(permits), self.limits.clock().now());
        let store = self.limits.store();
        let renewed = store.renew(&holds(&limits, permits), now).await;
        renewed.ok()?.into_iter().flatten().min()
    }

    async fn sleep(&self, span: Nanos) {
        self.limits.clock().sleep_async(span).await;
    }
}

clone_fields!([S, C] Together<S, C> { members, described, ledger });

impl<S, C> fmt::Debug for LimitBy<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitBy")
            .field("limit", self.limit.name())
            .finish_non_exhaustive()
    }
}

impl<S, C> fmt::Debug for Together<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.members.all).finish()
    }
}
