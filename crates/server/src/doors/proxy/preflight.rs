//! Preflight: the question of a browser whether a page of a listed origin may send a request.
//!
//! ```text
//!   preflight --> bans of the request that follows --> `preflight_limit` of its address --> upstream
//! ```
//!
//! The limits of the policy do not count it, because it carries no key, and without its answer the
//! page cannot read a refusal. Any client can send its fields, so a limit of this process counts it
//! by address.

use http::request::Parts;
use http::{HeaderValue, Method, Response, header};
use ratekeeper::{KeyedLimiter, Outcome, Scope, SystemClock, tower};
use ratekeeper_core::{Gcra, Quota, Verdict};
use ratekeeper_policy::{Facts, Rule};
use ratekeeper_store::MemoryConfig;
use smallvec::SmallVec;

use super::body::ProxyBody;
use super::{Admitted, ProxyDoor, refusal};
use crate::doors::problem::{Problem, TOO_MANY_PREFLIGHTS};
use crate::observe::metrics::{Protocol, RequestResult};
use crate::serve::listener::Caller;

/// Preflights of an address, unless the policy states another number.
const PER_ADDRESS: Quota = Quota::per_minute(600);
/// Memory for the addresses; when it is full, the least used ones begin anew.
const MEMORY: MemoryConfig = MemoryConfig {
    budget_bytes: 4 << 20,
};

/// Returns the limit of preflights by address.
pub(super) fn limiter(stated: Option<Gcra>) -> KeyedLimiter {
    let usual = || Gcra::token_bucket(PER_ADDRESS).expect("600 in a minute can be counted");
    KeyedLimiter::with_clock(stated.unwrap_or_else(usual), MEMORY, SystemClock::new())
}

impl ProxyDoor {
    /// Returns true for a preflight of a listed origin. Limits count those of other origins.
    pub(super) fn is_preflight(&self, parts: &Parts) -> bool {
        let asks = header::ACCESS_CONTROL_REQUEST_METHOD;
        parts.method == Method::OPTIONS
            && parts.headers.contains_key(asks)
            && refusal::is_listed(&self.settings.cors, parts.headers.get(header::ORIGIN))
    }

    /// Asks the limit of preflights. One is refused too if a ban of the request that follows it
    /// stands. A refusal is an error.
    pub(super) async fn admit_preflight(
        &self,
        caller: Caller<'_>,
        parts: &Parts,
        id: &HeaderValue,
    ) -> Result<Admitted, Box<Response<ProxyBody>>> {
        let keeper = &self.shared.keeper;
        let (peer, policy) = (caller.address.ip().to_canonical(), keeper.policy());
        let fields = parts.headers.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: SmallVec<[_; 24]> = fields.collect();
        let address = policy.client_ip.identify(peer, &headers);
        let method = parts.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD);
        let facts = Facts {
            method: method.map_or("", |method| method.to_str().unwrap_or_default()),
            ip: Some(address),
            country: policy.stated_country(peer, &headers),
            headers: &headers,
            ..tower::target(parts)
        };
        let bans_by_itself = |rule: &Rule| rule.limit.algorithm.bans().is_some();
        let may_ban = policy.by_hand.is_used() || policy.rules.iter().any(bans_by_itself);
        let bans = |outcome: Outcome<'_>| {
            outcome.refuses() && matches!(outcome.decision.verdict, Verdict::Banned { .. })
        };
        let refusal = if may_ban
            && let Ok(answer) = keeper.peek(&facts, Scope::All).await
            && answer.outcomes().any(bans)
        {
            self.refusal(&answer, parts, id)
        } else {
            let key = tower::address_key(address, policy.client_ip.ipv6_prefix);
            if self.preflights.check(key).is_ok() {
                self.shared
                    .count_request(Protocol::Proxy, RequestResult::Allowed);
                return Ok((None, None));
            }
            let detail = "the address sends more preflights than `preflight_limit` allows";
            let problem = Problem::new(TOO_MANY_PREFLIGHTS, detail);
            self.problem(problem, &parts.headers, id.clone())
        };
        self.shared
            .count_request(Protocol::Proxy, RequestResult::Denied);
        Err(Box::new(refusal))
    }
}
