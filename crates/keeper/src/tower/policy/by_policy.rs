//! By policy: all limits of a policy that match a request, all together or none.
//!
//! ```text
//!   request --facts--> Keeper --> allowed: rates charged, permits lent, held back if shaped
//!              ^            \---> refused: as the limit that refuses says
//!              |
//!   method, host, path, query, headers, address (client_ip of the policy), attributes
//! ```
//!
//! * A store that cannot answer causes no error of the server: the `on_store_error` of each limit
//!   decides, and the error is passed to
//!   [`on_store_error`](crate::tower::RateLimitLayer::on_store_error).
//! * Limits with `count`, `reset_on` or an estimate are corrected by the status of the response, by
//!   the cost that `settle` names, or by a [`Report`](crate::Report) in its extensions. Without a
//!   response the charges stay.
//! * A charge promised by a policy's `queue` to a client that goes away stays, because others wait
//!   behind it.

use std::net::SocketAddr;
use std::sync::Arc;

use ratekeeper_core::{Lend, Mode, Nanos, Permits};
use ratekeeper_policy::{BodyFields, Charges, Facts, KeyPart, MissingKey, Policy, Priority, Rule};
use ratekeeper_store::{MemoryStore, Store};
use smallvec::SmallVec;

use super::decided::{Decided, RequestGuard};
use super::facts::{Attributes, target};
use super::inspected::{InspectedBytes, MAX_INSPECTED_BODY};
use crate::at_once::poll_once;
use crate::permit::lends;
use crate::tower::denial::{Denial, DeniedBy};
use crate::tower::gate::admit::{Admitted, completed};
use crate::tower::gate::sealed::{Ask, Asked};
use crate::tower::gate::{Boxed, Denied, Ruling};
use crate::tower::head::RequestHead;
use crate::tower::key_source::by_address::{client_address, fields};
use crate::tower::key_source::peer::PeerSource;
use crate::tower::ledger::{Ledger, PermitLender, new_lease};
use crate::tower::pass::{FieldsToSend, Pass, PassTerms};
use crate::tower::reporter::{Corrections, OnStoreError};
use crate::{Answer, Clock, Keeper, Permit, Scope, SystemClock, Timer};

/// The limits of a policy; see [`RateLimitLayer::policy`](crate::tower::RateLimitLayer::policy). A
/// front end that renders responses itself asks them by [`decide`](Self::decide).
///
/// ```
/// use ratekeeper::tower::{ByPolicy, PolicyError, RateLimitLayer};
///
/// struct Server {
///     limits: RateLimitLayer<ByPolicy>,
/// }
/// let limits = RateLimitLayer::policy_text(
///     "version = 1\n[[limit]]\nname = \"api\"\nkey = [\"all\"]\nlimit = \"100/1m\"",
/// )?;
/// assert_eq!(Server { limits }.limits.counts().passed, 0);
/// # Ok::<(), PolicyError>(())
/// ```
pub struct ByPolicy<S = MemoryStore, C = SystemClock> {
    pub(crate) keeper: Arc<Keeper<S, C>>,
    pub(crate) peer: PeerSource,
    pub(crate) attributes: Option<Arc<AttributesOf>>,
    pub(crate) on_store_error: Option<Arc<OnStoreError>>,
    /// Maximum number of bytes of a response that are held to find costs.
    pub(crate) max_inspected_response: usize,
    routes: Arc<[Box<str>]>,
    ledger: Ledger<Keeper<S, C>>,
}

pub(crate) type AttributesOf = dyn Fn(RequestHead<'_>) -> Attributes + Send + Sync;

impl<S: Store + 'static, C: Timer + 'static> ByPolicy<S, C> {
    /// The limits of this keeper, for a front end that asks by [`decide`](Self::decide).
    pub fn new(keeper: Arc<Keeper<S, C>>) -> Self {
        Self {
            ledger: Ledger::new(Arc::clone(&keeper)),
            keeper,
            peer: PeerSource::default(),
            attributes: None,
            on_store_error: None,
            max_inspected_response: MAX_INSPECTED_BODY,
            routes: Arc::default(),
        }
    }

    /// The same limits, for a front end that forwards by the route of [`Answer::diverts_to`].
    #[must_use]
    pub fn with_routes(self, routes: impl IntoIterator<Item = Box<str>>) -> Self {
        let routes = routes.into_iter().collect();
        Self { routes, ..self }
    }

    /// The same limits, which hold at most `bytes` of a response to find the cost that it states; 64
    /// KiB unless set.
    #[must_use]
    pub fn with_max_inspected_response(self, bytes: usize) -> Self {
        Self {
            max_inspected_response: bytes,
            ..self
        }
    }

    /// Decides about a request whose connection comes from `peer`: charges its rates and takes its
    /// permits, all or none. If the store cannot answer, the `on_store_error` of each limit decides.
    pub async fn decide<'h>(&self, head: impl Into<RequestHead<'h>>, peer: SocketAddr) -> Decided {
        let mut answer = Box::new(self.keeper.unasked());
        self.put_charges(head.into(), None, Some(peer), &mut answer);
        if self.keeper.store().answers_at_once()
            && let Some(admitted) = poll_once(self.keeper.admit(&answer))
        {
            let guard = self.decided(&mut answer, admitted);
            return Decided { answer, guard };
        }
        if !answer.list().iter().any(lends) {
            // Apart: the future of a request is small without the question to a store far away.
            let admitted = Box::pin(self.keeper.admit(&answer)).await;
            let guard = self.decided(&mut answer, admitted);
            return Decided { answer, guard };
        }
        let gate = self.clone();
        completed(async move {
            let admitted = gate.keeper.admit(&answer).await;
            let guard = gate.decided(&mut answer, admitted);
            Decided { answer, guard }
        })
        .await
    }

    /// Returns true if a limit that applies to a request counts by a value of its body. Then put the
    /// body into the extensions of the request, as [`InspectedBytes`], before [`decide`](Self::decide)
    /// is called; see [`InspectedBody`](crate::tower::InspectedBody).
    pub fn needs_body<'h>(&self, head: impl Into<RequestHead<'h>>, peer: SocketAddr) -> bool {
        self.needs_body_from(head.into(), Some(peer))
    }

    /// Returns true if a request has this priority, for a front end that sheds those without it.
    pub fn has_priority<'h>(
        &self,
        priority: &Priority,
        head: impl Into<RequestHead<'h>>,
        peer: SocketAddr,
    ) -> bool {
        let policy = self.keeper.look_at_policy();
        let wall = self.keeper.wall(self.keeper.clock().now());
        self.with_facts(head.into(), None, Some(peer), |facts| {
            policy.has_priority(priority, facts, wall)
        })
    }

    /// Like [`needs_body`](Self::needs_body), for a request that names its peer.
    pub(crate) fn needs_body_of(&self, head: RequestHead<'_>) -> bool {
        self.needs_body_from(head, self.peer.find(head.extensions))
    }

    fn needs_body_from(&self, head: RequestHead<'_>, peer: Option<SocketAddr>) -> bool {
        let policy = self.keeper.look_at_policy();
        if policy.rules.body_fields().is_empty() {
            return false;
        }
        let wall = self.keeper.wall(self.keeper.clock().now());
        self.with_facts(head, None, peer, |facts| policy.needs_body(facts, wall))
    }

    /// Returns the charges of a request, not decided yet, or its refusal, if a limit counts by an
    /// address that the server did not provide.
    #[inline]
    fn charges(&self, head: RequestHead<'_>, cost: Option<Permits>) -> Result<Answer, Denial> {
        let peer = self.peer.find(head.extensions);
        let mut answer = self.keeper.unasked();
        self.put_charges(head, cost, peer, &mut answer);
        if peer.is_none()
            && let Some(rule) = counts_without_address(&answer.policy, &answer.charges)
        {
            return Err(self.without_address(rule));
        }
        Ok(answer)
    }

    /// Finds the charges of a request: its limits, keys and cost.
    #[inline]
    fn put_charges(
        &self,
        head: RequestHead<'_>,
        cost: Option<Permits>,
        peer: Option<SocketAddr>,
        answer: &mut Answer,
    ) {
        self.with_facts(head, cost, peer, |facts| {
            self.keeper.put_charges(facts, Scope::All, answer);
        });
    }

    /// Calls `decide` with the facts about a request.
    #[inline]
    fn with_facts<R>(
        &self,
        head: RequestHead<'_>,
        cost: Option<Permits>,
        peer: Option<SocketAddr>,
        decide: impl FnOnce(&Facts<'_>) -> R,
    ) -> R {
        let headers = fields(head);
        let attributes_of = self
            .attributes
            .as_ref()
            .map(|attributes_of| attributes_of(head));
        let attributes_of = attributes_of.unwrap_or_default();
        let attributes: SmallVec<[(&str, &str); 4]> = attributes_of
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let policy = self.keeper.look_at_policy();
        let client = peer.map(|peer| {
            let country = policy.stated_country(peer.ip(), &headers);
            (client_address(head, peer, &policy.client_ip), country)
        });
        let ip = client.map(|(ip, _)| ip);
        let body = match policy.rules.body_fields() {
            [] => None,
            wanted => {
                let body = head.extensions.get::<InspectedBytes>();
                body.map(|body| BodyFields::read(wanted, &headers, &body.0))
            }
        };
        decide(&Facts {
            country: client.and_then(|(_, country)| country),
            body: body.as_ref(),
            routes: &self.routes,
            ip,
            headers: &headers,
            attributes: &attributes,
            cost,
            ..target(head)
        })
    }

    #[cold]
    fn without_address(&self, rule: &Rule) -> Denial {
        let limit = Arc::clone(&rule.limit.name);
        let reason = self.peer.missing();
        Denial(DeniedBy::NoKey { limit, reason })
    }

    #[inline]
    fn decided(&self, answer: &mut Answer, admitted: Admitted) -> RequestGuard {
        if let (Some(error), Some(callback)) = (&admitted.error, &self.on_store_error) {
            callback(error);
        }
        answer.set(admitted.decisions);
        answer.lease = admitted.lease;
        let corrections = Corrections {
            keeper: Arc::clone(&self.keeper),
            on_store_error: self.on_store_error.clone(),
            max_inspected_response: self.max_inspected_response,
        };
        let reporter = corrections.reporter(answer);
        if reporter.is_some() {
            self.keeper.reservations().begin(answer);
        }
        RequestGuard {
            hold: self.ledger.hold(answer.permits()),
            reporter,
            costs: None,
        }
    }

    #[inline]
    fn ruling(&self, mut answer: Answer, admitted: Admitted) -> Ruling {
        let guard = self.decided(&mut answer, admitted);
        let RequestGuard { hold, reporter, .. } = guard;
        let terms = PassTerms {
            delay: answer.delay(),
            fields: FieldsToSend::by(&answer),
            reporter,
        };
        if !answer.allowed() || answer.shadow_denials().next().is_some() {
            let denial = Denial(DeniedBy::Policy(Box::new(answer)));
            return Ruling::Denied(Box::new(Denied {
                denial,
                hold,
                terms,
            }));
        }
        let terms = Some(Box::new(terms));
        Ruling::Pass(Pass { hold, terms })
    }
}

impl<S: Store + 'static, C: Timer + 'static> Ask for ByPolicy<S, C> {
    /// There is no line: the answer contains how long a request is held back.
    fn ask(&self, head: RequestHead<'_>, cost: Option<Permits>, _: Nanos) -> Asked {
        let answer = match self.charges(head, cost) {
            Ok(unasked) => unasked,
            Err(denial) => return Asked::Now(Ruling::denied(denial, FieldsToSend::Nothing)),
        };
        if self.keeper.store().answers_at_once()
            && let Some(admitted) = poll_once(self.keeper.admit(&answer))
        {
            return Asked::Now(self.ruling(answer, admitted));
        }
        let lends = answer.list().iter().any(lends);
        let gate = self.clone();
        let asking = async move {
            let admitted = gate.keeper.admit(&answer).await;
            gate.ruling(answer, admitted)
        };
        Asked::Later(if lends {
            completed(asking)
        } else {
            Box::pin(asking)
        })
    }

    fn sleep(&self, span: Nanos) -> Boxed<()> {
        let keeper = Arc::clone(&self.keeper);
        Box::pin(async move { keeper.clock().sleep_async(span).await })
    }
}

/// Returns the first enforced limit that would count a request without an address together with
/// all others, although its `missing_key` does not say so: the stand-in of the key is the address.
fn counts_without_address<'a>(policy: &'a Policy, charges: &Charges) -> Option<&'a Rule> {
    let mut stood_in = charges.entries.iter().filter(|entry| entry.fallback);
    stood_in.find_map(|entry| {
        let rule = policy.rules.get(entry.rule as usize)?;
        let by_address = matches!(&rule.missing_key, MissingKey::Use(KeyPart::Ip { .. }));
        (by_address && rule.mode.charge_mode() == Some(Mode::Enforce)).then_some(rule)
    })
}

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Charges the rates that match and takes permits, all or none; if the store cannot answer,
    /// follows the limits' settings for that case.
    async fn admit(&self, unasked: &Answer) -> Admitted {
        let list = unasked.list();
        let lease = list.iter().any(lends).then(new_lease);
        let lend = lease.map_or(Lend::Unnamed, Lend::To);
        let decided = self.decide(&list, unasked, lend).await;
        let mut admitted = Admitted::of(decided, lease, &list);
        admitted.decisions.admitted &= !unasked.is_refused_unasked();
        admitted
    }
}

impl<S: Store + 'static, C: Timer + 'static> PermitLender for Keeper<S, C> {
    fn answers_at_once(&self) -> bool {
        self.store().answers_at_once()
    }

    async fn take_back(&self, permits: &[Permit]) {
        let _ = self.release(permits).await; // an error: the lease ends by itself
    }

    async fn prolong(&self, permits: &[Permit]) -> Option<Nanos> {
        self.renew(permits).await.ok()?.into_iter().flatten().min()
    }

    async fn sleep(&self, span: Nanos) {
        self.clock().sleep_async(span).await;
    }
}

clone_fields! {
    [S, C] ByPolicy<S, C> {
        keeper, peer, attributes, on_store_error, max_inspected_response, routes, ledger
    }
}

debug_fields!([S, C] ByPolicy<S, C> {});
