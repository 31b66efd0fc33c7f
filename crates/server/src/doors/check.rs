//! Check: a request described in JSON, decided, answered in JSON.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use ratekeeper::{Answer, Scope};
use ratekeeper_core::LeaseId;
use ratekeeper_policy::{Descriptor, Facts, Policy};
use ratekeeper_store::StoreError;
use smallvec::SmallVec;

use super::CallResult;
use super::answer::{push_check, push_count, push_limits_after};
use super::body::too_busy;
use super::permits::new_nonce;
use super::problem::{
    FOREIGN_VALUE, NO_REFUND, Problem, STORE_DOWN, UNKNOWN_LIMIT, WRONG_QUERY, near_spelling, shown,
};
use super::request::Check;
use super::{Reply, answer, facts, hold, json, put_fields, request};
use crate::context::ServiceContext;
use crate::observe::metrics::{Protocol, RequestResult};
use crate::serve::listener::Caller;

/// Maximum number of limits of a reset that are named to the dashboard.
const MAX_NOTED: usize = 4;

/// The status of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StatusChoice {
    /// The limit's own, 429 by default.
    OfTheLimit,
    /// `?status=200`
    Always200,
}

impl StatusChoice {
    /// Reads the query of a check.
    pub(super) fn read(query: &str) -> Result<Self, Problem> {
        match query {
            "" => Ok(Self::OfTheLimit),
            "status=200" => Ok(Self::Always200),
            other => {
                let other = shown(other);
                let detail = format!(
                    "`?{other}` is not valid; expected `status=200`, or `wait=true` of a check"
                );
                Err(Problem::new(WRONG_QUERY, detail))
            }
        }
    }

    /// Returns the status of an answer.
    pub(super) fn of(self, answer: &Answer) -> StatusCode {
        let status = match self {
            Self::OfTheLimit if !answer.allowed() => answer.status(),
            _ => 200,
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS)
    }
}

/// Options of a check, from its query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CheckOptions {
    status: StatusChoice,
    /// `wait=true`: the answer is held back until the moment that a queue grants.
    held: bool,
}

impl CheckOptions {
    /// Reads the query of a check.
    pub(super) fn read(query: &str) -> Result<Self, Problem> {
        let mut options = Self {
            status: StatusChoice::OfTheLimit,
            held: false,
        };
        for parameter in query.split('&') {
            match parameter {
                "" => {}
                "wait=true" => options.held = true,
                other => options.status = StatusChoice::read(other)?,
            }
        }
        Ok(options)
    }
}

/// `POST /v1/check`
pub(super) async fn check(
    shared: &Arc<ServiceContext>,
    caller: Caller<'_>,
    body: Bytes,
    options: CheckOptions,
) -> CallResult {
    let check = request::check(&body)?;
    let answer = if options.held {
        let mut answer = ask(shared, &check, CheckCall::Check).await?;
        let id = check.request_id();
        let request = check.logged(id.as_ref());
        hold::hold_back(shared, caller, Protocol::Http, request, &mut answer).await;
        answer
    } else {
        decide(shared, &check).await?
    };
    Ok(respond(&answer, options.status))
}

/// `POST /v1/peek`
pub(super) async fn peek(shared: &ServiceContext, body: Bytes, status: StatusChoice) -> CallResult {
    let check = request::check(&body)?;
    let answer = ask(shared, &check, CheckCall::Peek).await?;
    shared.count_request(Protocol::Http, RequestResult::of(&answer));
    Ok(respond(&answer, status))
}

fn respond(answer: &Answer, status: StatusChoice) -> Response<Reply> {
    let mut response = json(status.of(answer), answer::check(answer));
    put_fields(response.headers_mut(), answer);
    response
}

/// `POST /v1/check/batch`: each check is decided on its own, in order; but if one cannot be
/// read, none is decided.
pub(super) async fn batch(shared: &ServiceContext, body: Bytes) -> CallResult {
    let checks = request::batch(&body)?;
    let policy = shared.keeper.policy();
    for check in &checks {
        known(&policy, check)?;
    }
    let mut text = b"{\"results\":[".to_vec();
    // A small batch may have a large answer, which a client of HTTP/2 may leave here for ever.
    let mut held = shared.responses.hold();
    for (index, check) in checks.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        let answer = decide(shared, check).await?;
        push_check(&mut text, &answer);
        if !held.resize(text.len()) {
            return Err(too_busy());
        }
    }
    text.extend_from_slice(b"]}");
    Ok(json(StatusCode::OK, held.keep(text.into())))
}

/// `POST /v1/reset`: forgets the state of the limits and keys a request would meet.
pub(crate) async fn reset(shared: &ServiceContext, body: Bytes) -> CallResult {
    let check = request::check(&body)?;
    let answer = ask(shared, &check, CheckCall::Reset).await?;
    note_reset(shared, &answer);
    let mut text = b"{\"done\":\"reset\",\"limits\":".to_vec();
    push_limits_after(&mut text, &answer, |_, _| ());
    text.push(b'}');
    Ok(json(StatusCode::OK, text))
}

/// Keeps a reset for the dashboard, with the limits and their keys.
fn note_reset(shared: &ServiceContext, answer: &Answer) {
    let reveal = shared.key_reveal(answer.policy().settings.reveal_keys);
    for outcome in answer.outcomes() {
        let limit = &outcome.rule.limit;
        let key = reveal.text(outcome.rule, outcome.key);
        tracing::warn!(event = "key.reset", limit = &*limit.name, key);
        shared.observers.bans.lift(limit.id, outcome.key);
    }
    let each = answer.outcomes().take(MAX_NOTED).map(|outcome| {
        let key = reveal.key(outcome.rule, outcome.key).join(", ");
        format!("{} ({})", outcome.rule.limit.name, key.escape_debug())
    });
    let each: Vec<String> = each.collect();
    if !each.is_empty() {
        shared.note_change(&format!("reset: {}", each.join(", ")));
    }
}

/// `POST /v1/refund`: gives back the charges of such a request.
pub(crate) async fn refund(shared: &ServiceContext, body: Bytes) -> CallResult {
    let check = request::check(&body)?;
    let answer = ask(shared, &check, CheckCall::Refund).await?;
    let mut text = b"{\"done\":\"refund\",\"limits\":".to_vec();
    push_limits_after(&mut text, &answer, |text, outcome| {
        // No permits: a check takes none, and other callers keep theirs.
        let lends = outcome.limit.algorithm.concurrency().is_some();
        // An alternative receives nothing, unless it is the only one that is named. Values that
        // were counted stay counted.
        let takes = outcome.is_asked && !lends && outcome.rule.distinct.is_none();
        let back = if takes { outcome.cost.get() } else { 0 };
        push_count(text, ",\"refunded\":", back);
    });
    text.push(b'}');
    Ok(json(StatusCode::OK, text))
}

/// What to do with the limits and keys of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckCall {
    Check,
    /// Takes permits, lent to that name.
    Acquire(LeaseId),
    Peek,
    Refund,
    Reset,
}

/// Decides and counts a check.
async fn decide(shared: &ServiceContext, check: &Check<'_>) -> Result<Box<Answer>, Problem> {
    let answer = ask(shared, check, CheckCall::Check).await?;
    let id = check.request_id();
    shared.record(Protocol::Http, check.logged(id.as_ref()), &answer);
    Ok(answer)
}

pub(super) async fn ask(
    shared: &ServiceContext,
    check: &Check<'_>,
    what: CheckCall,
) -> Result<Box<Answer>, Problem> {
    let policy = shared.keeper.look_at_policy();
    known(&policy, check)?;
    let request = &*check.request;
    // None is collected, which would move its room.
    let mut headers = SmallVec::<[(&str, &[u8]); 8]>::new();
    let fields = request.headers.iter();
    headers.extend(fields.map(|(name, value)| (&**name, value.as_bytes())));
    let mut attributes = SmallVec::<[(&str, &str); 8]>::new();
    let fields = check.attributes.iter();
    attributes.extend(fields.map(|(name, value)| (&**name, &**value)));
    let asked = check.descriptor.as_deref();
    let mut entries = SmallVec::<[(&str, &str); 8]>::new();
    let fields = asked.iter().flat_map(|asked| &asked.entries.0);
    entries.extend(fields.map(|entry| (&*entry.key, &*entry.value)));
    let names: SmallVec<[&str; 4]> = check.names().map(|name| &**name).collect();
    let (path, query) = facts::target(&request.path, &request.query);
    let facts = Facts {
        method: &request.method,
        host: &request.host,
        path,
        query,
        ip: request
            .ip
            .map(|peer| policy.client_ip.identify(peer, &headers)),
        country: request
            .ip
            .and_then(|peer| policy.stated_country(peer, &headers)),
        headers: &headers,
        cost: check.cost,
        attributes: &attributes,
        descriptor: asked.map(|asked| Descriptor {
            domain: &asked.domain,
            entries: &entries,
            instead: None,
        }),
        ..Facts::default()
    };
    let scope = match check.limits {
        None => Scope::All,
        Some(_) => Scope::Only(&names),
    };
    let keeper = &shared.keeper;
    let answer = match what {
        CheckCall::Check => keeper.check_for_report(&facts, scope, new_nonce).await,
        CheckCall::Acquire(lease) => keeper.acquire(&facts, scope, lease).await.map(Box::new),
        CheckCall::Peek => keeper.peek(&facts, scope).await.map(Box::new),
        CheckCall::Refund => keeper.refund(&facts, scope).await.map(Box::new),
        CheckCall::Reset => keeper.reset(&facts, scope).await.map(Box::new),
    };
    answer.map_err(store_down(shared))
}

/// Turns an error into a problem without internal details, which are in the log.
pub(crate) fn store_down(shared: &ServiceContext) -> impl FnOnce(StoreError) -> Problem {
    |error| match error {
        StoreError::Unsupported(why) => Problem::new(NO_REFUND, why),
        StoreError::Foreign(why) => Problem::new(FOREIGN_VALUE, why),
        error => {
            shared.store_failed(&error);
            Problem::new(STORE_DOWN, "the store does not answer, try again later")
        }
    }
}

/// Refuses names that the policy does not have.
fn known(policy: &Policy, check: &Check<'_>) -> Result<(), Problem> {
    for name in check.names() {
        if policy.rule(name).is_none() {
            let names = policy.rules.iter().map(|rule| &*rule.limit.name);
            let near = near_spelling(name, names);
            let detail = format!("`limits` names `{}`{near}", shown(name));
            return Err(Problem::new(UNKNOWN_LIMIT, detail));
        }
    }
    Ok(())
}
