//! Bans: the banned keys of a limit; banning a key by hand, and lifting its ban.

use http::Response;
use ratekeeper::Clock;
use ratekeeper_core::{Charge, Decision, Key, MAX_BAN, Mode, Nanos, Permits};
use ratekeeper_policy::{RevealKeys, Rule};
use ratekeeper_store::{Store, StoreError};
use serde_json::{Value, json};

use super::keys::{
    DEFAULT_TOP, find, key_in_words, numbers, parameters, top, unknown, whole_key_of,
};
use super::reply;
use crate::changes::ChangeKind;
use crate::context::ServiceContext;
use crate::doors;
use crate::doors::problem::{NOT_LISTED, Problem, WRONG_QUERY, shown};
use crate::listener::Reply;

/// The parameters of a call: `limit=NAME&key=VALUE&key=VALUE&for=1h&top=20&reveal=policy`.
struct BanQuery {
    limit: String,
    key: Vec<String>,
    span: Option<Nanos>,
    top: Option<usize>,
    shown: ShownKeys,
}

/// How the keys of a list are shown.
#[derive(Clone, Copy)]
enum ShownKeys {
    /// As a call that lifts a ban takes them.
    Plain,
    /// As `reveal_keys` says.
    ByPolicy,
}

impl BanQuery {
    /// Reads the parameters, of which a call knows those in `known`.
    fn read(query: &str, known: &[&str]) -> Result<Self, Problem> {
        let (mut limit, mut key, mut span, mut listed) = (None, Vec::new(), None, None);
        let mut shown_keys = ShownKeys::Plain;
        for (parameter, value) in parameters(query)? {
            if !known.contains(&parameter) {
                let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
                return Err(unknown(parameter, &known.join(" or ")));
            }
            match parameter {
                "limit" => limit = Some(value),
                "top" => listed = Some(top("top", &value)?),
                "for" => span = Some(ban_length(&value)?),
                "reveal" if value == "policy" => shown_keys = ShownKeys::ByPolicy,
                "reveal" => {
                    let value = shown(&value);
                    let detail = format!("`reveal={value}` is not understood; expected `policy`");
                    return Err(Problem::new(WRONG_QUERY, detail));
                }
                _ => key.push(value),
            }
        }
        let missing = "the limit is missing; add `?limit=NAME`";
        Ok(Self {
            limit: limit.ok_or_else(|| Problem::new(WRONG_QUERY, missing))?,
            key,
            span,
            top: listed,
            shown: shown_keys,
        })
    }
}

/// Reads the length of a ban by hand.
fn ban_length(text: &str) -> Result<Nanos, Problem> {
    let span = text.parse::<Nanos>().ok();
    span.filter(|span| (Nanos::from_nanos(1)..=MAX_BAN).contains(span))
        .ok_or_else(|| {
            let text = shown(text);
            let detail = format!(
                "`for={text}` must be a duration of at most {MAX_BAN}, for example `for=1h`"
            );
            Problem::new(WRONG_QUERY, detail)
        })
}

/// `GET /v1/bans?limit=NAME&top=20`: the banned keys; with `reveal=policy` as `reveal_keys` says.
pub(super) fn list<C: Clock>(
    shared: &ServiceContext<C>,
    query: &str,
) -> Result<Response<Reply>, Problem> {
    let query = BanQuery::read(query, &["limit", "top", "reveal"])?;
    let (policy, now) = (shared.keeper.policy(), shared.keeper.clock().now());
    let rule = banning(find(&policy, &query.limit)?)?;
    if shared.keeper.store().shared().is_some() {
        let detail = "look up one key: /v1/keys/LIMIT?key=VALUE";
        return Err(Problem::new(NOT_LISTED, detail));
    }
    let (local, top) = (
        shared.keeper.store().local(),
        query.top.unwrap_or(DEFAULT_TOP),
    );
    let mut entries = Vec::new();
    for (limit, _) in numbers(rule, rule.variants.numbers()) {
        entries.extend(local.bans(limit, top, now));
        // One after the other, so that no more than twice the keys are held.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.decision.verdict.retry_after()));
        entries.truncate(top);
    }
    let how = match query.shown {
        ShownKeys::Plain => RevealKeys::Raw,
        ShownKeys::ByPolicy => policy.settings.reveal_keys,
    };
    let reveal = shared.key_reveal(how);
    let bans = entries.iter().map(|entry| {
        json!({
            "key": reveal.key(rule, Key::from_bytes(&entry.key)),
            "ends_after_ms": ends_after_ms(&entry.decision),
        })
    });
    Ok(reply(&json!({
        "limit": &*rule.limit.name,
        "reveal_keys": how.word(),
        "bans": bans.collect::<Vec<_>>(),
    })))
}

/// `POST /v1/bans?limit=NAME&key=VALUE&for=1h`: bans a key from now on, in place of a ban that
/// stands.
pub(super) async fn add<C: Clock>(
    shared: &ServiceContext<C>,
    query: &str,
) -> Result<Response<Reply>, Problem> {
    let query = BanQuery::read(query, &["limit", "key", "for"])?;
    let span = query.span.ok_or_else(|| {
        let detail = "the length of the ban is missing; add `&for=1h`";
        Problem::new(WRONG_QUERY, detail)
    })?;
    set(shared, &query, span).await
}

/// `DELETE /v1/bans?limit=NAME&key=VALUE`: lifts a ban, and forgets the strikes.
pub(super) async fn lift<C: Clock>(
    shared: &ServiceContext<C>,
    query: &str,
) -> Result<Response<Reply>, Problem> {
    let query = BanQuery::read(query, &["limit", "key"])?;
    set(shared, &query, Nanos::ZERO).await
}

async fn set<C: Clock>(
    shared: &ServiceContext<C>,
    query: &BanQuery,
    span: Nanos,
) -> Result<Response<Reply>, Problem> {
    let (policy, now) = (shared.keeper.policy(), shared.keeper.clock().now());
    let rule = banning(find(&policy, &query.limit)?)?;
    let bytes = whole_key_of(&policy, rule, &query.key)?;
    let key = Key::from_bytes(&bytes);
    let store = shared.keeper.store();
    let (mut was_banned, mut standing) = (false, None);
    // The plan of the key is not known here: it is banned under each of its numbers.
    for (limit, _) in numbers(rule, rule.variants.of_key(key)) {
        let charge = Charge {
            limit,
            key,
            cost: Permits::ZERO,
            mode: Mode::Enforce,
        };
        let down = |error| doors::store_down(&error);
        let before = store.look(&[charge], now).await.map_err(down)?;
        was_banned |= before.each.iter().any(|each| each.verdict.is_ban());
        let after = store.ban(&[charge], span, now).await.map_err(down)?;
        standing = after.first().copied().or(standing);
    }
    if span > Nanos::ZERO && !standing.is_some_and(|decision| decision.verdict.is_ban()) {
        let why = "the store has no room for the ban".to_owned();
        return Err(doors::store_down(&StoreError::Unavailable(why)));
    }
    let ends = standing.as_ref().and_then(ends_after_ms);
    let reveal = shared.key_reveal(policy.settings.reveal_keys);
    let did = if span > Nanos::ZERO {
        "banned"
    } else {
        "freed of its ban"
    };
    let parts = reveal.key(rule, key).join(", ").escape_debug().to_string();
    let (limit, shown) = (&*rule.limit.name, reveal.text(rule, key));
    if span > Nanos::ZERO {
        let for_ms = span.as_millis_ceil();
        tracing::warn!(event = "ban.set", limit, key = shown, for_ms);
    } else {
        tracing::warn!(event = "ban.lifted", limit, key = shown, was_banned);
    }
    let text = format!("key {parts} of limit {limit} {did}");
    let at = (now, shared.unix_millis(now));
    shared.changes.note(at, ChangeKind::Change, &text);
    Ok(reply(&json!({
        "limit": &*rule.limit.name,
        "key": key_in_words(rule, key),
        "was_banned": was_banned,
        "ends_after_ms": ends,
    })))
}

/// Returns the milliseconds until a ban ends; `None` if the key is not banned.
fn ends_after_ms(decision: &Decision) -> Option<u64> {
    let wait = decision.verdict.retry_after();
    wait.filter(|_| decision.verdict.is_ban())
        .map(Nanos::as_millis_ceil)
}

/// Returns the rule, if it bans keys.
fn banning(rule: &Rule) -> Result<&Rule, Problem> {
    if rule.limit.algorithm.bans().is_some() {
        return Ok(rule);
    }
    let name = &rule.limit.name;
    let detail = format!("the limit `{name}` has no `ban` in the policy");
    Err(Problem::new(WRONG_QUERY, detail))
}

/// Adds the end of the ban to the state of a key.
pub(super) fn mention(state: &mut Value, decision: &Decision) {
    if let Some(ends) = ends_after_ms(decision) {
        state["ban_ends_after_ms"] = json!(ends);
    }
}
