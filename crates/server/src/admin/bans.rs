//! Bans: the banned keys of a limit; keys that an operator bans or allows by hand.

use ratekeeper_core::{Decision, Key, MAX_BAN, Mode, Nanos, Time};
use ratekeeper_policy::{HandAct, HandEntry, MAX_BY_HAND, RevealKeys, Rule, RuleMode};
use ratekeeper_store::{AnyStore, BanPage, BannedKey, KeyEntry, MemoryStore, Store};
use serde_json::{Value, json};

use super::keys::{free_charge, key_in_words, key_of, numbers, shared_key};
use super::query::Query;
use super::reply;
use crate::context::ServiceContext;
use crate::doors;
use crate::doors::CallResult;
use crate::doors::problem::{NO_ROOM_BY_HAND, Problem, WRONG_QUERY};
use crate::store::by_hand;

/// `GET /v1/bans?limit=NAME&top=20`: the banned keys, and those set by hand; with `reveal=policy` as
/// `reveal_keys` says, with `from=NEXT` those from where the last answer ended.
pub(super) async fn list(shared: &ServiceContext, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "top", "reveal", "from"])?;
    let (policy, now) = (shared.keeper.policy(), shared.now());
    let (rule, top) = (query.rule(&policy)?, query.top("top")?);
    let from = query.parsed("from", "the `next` of a list of bans", |text| {
        text.parse().ok()
    })?;
    let reveal = query.parsed("reveal", "`policy`", |text| {
        (text == "policy").then_some(())
    })?;
    let listed = match shared.keeper.store() {
        _ if rule.limit.algorithm.bans().is_none() => BanPage::default(),
        AnyStore::Memory(memory) => in_memory(memory, rule, top, now),
        AnyStore::Redis(_) if rule.key_parts().next().is_none() => {
            keyless(shared, rule, now).await?
        }
        AnyStore::Redis(redis) => {
            let limits: Vec<_> = rule.limits().collect();
            let page = redis.main().bans(&limits, from.as_ref(), top, now).await;
            page.map_err(doors::store_down(shared))?
        }
    };
    // Without `reveal` as a call that lifts a ban takes them.
    let how = reveal.map_or(RevealKeys::Raw, |()| policy.settings.reveal_keys);
    let mut answer = as_shown(shared, rule, listed, how);
    by_hand::refresh(shared).await.ok(); // the last copy is shown while the store fails
    answer["by_hand"] = by_hand_shown(shared, rule, top, how);
    Ok(reply(&answer))
}

/// Returns the keys of a limit that operators have set, those that end last.
pub(super) fn by_hand_shown(
    shared: &ServiceContext,
    rule: &Rule,
    top: usize,
    how: RevealKeys,
) -> Value {
    let unix_millis = shared.unix_nanos() / 1_000_000;
    let table = shared.keeper.policy().by_hand.table();
    let mut keys: Vec<_> = table.of_limit(&rule.limit.name, unix_millis).collect();
    keys.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.until_unix_millis));
    let reveal = shared.key_reveal(how);
    let keys = keys.into_iter().take(top).map(|(key, entry)| {
        json!({
            "key": reveal.key(rule, key),
            "act": entry.act.as_ref(),
            "ends_after_ms": entry.until_unix_millis - unix_millis,
        })
    });
    keys.collect()
}

/// Returns the longest bans of a limit as `reveal_keys` says; `null` for a limit without bans, and
/// for a shared store, all keys of which would have to be read.
pub(super) fn of_memory(shared: &ServiceContext, rule: &Rule, top: usize) -> Value {
    let store = shared.keeper.store();
    if rule.limit.algorithm.bans().is_none() || store.shared().is_some() {
        return Value::Null;
    }
    let listed = in_memory(store.local(), rule, top, shared.now());
    let how = shared.keeper.policy().settings.reveal_keys;
    as_shown(shared, rule, listed, how)
}

fn as_shown(shared: &ServiceContext, rule: &Rule, mut listed: BanPage, how: RevealKeys) -> Value {
    let ends = |ban: &BannedKey| ban.entry.decision.verdict.retry_after();
    listed.bans.sort_by_key(|ban| std::cmp::Reverse(ends(ban)));
    let reveal = shared.key_reveal(how);
    let bans = listed.bans.iter().map(|ban| {
        let mut shown = json!({
            "key": reveal.key(rule, Key::from_bytes(&ban.entry.key)),
            "ends_after_ms": ends_after_ms(&ban.entry.decision),
        });
        if ban.is_hashed {
            shown["hashed"] = json!(true);
        }
        shown
    });
    let mut answer = json!({
        "limit": &*rule.limit.name,
        "reveal_keys": how.as_ref(),
        "bans": bans.collect::<Vec<_>>(),
    });
    if let Some(next) = listed.next {
        answer["next"] = json!(next.to_string());
    }
    answer
}

/// The longest bans.
fn in_memory(memory: &MemoryStore, rule: &Rule, top: usize, now: Time) -> BanPage {
    let mut entries = Vec::new();
    for limit in rule.limits() {
        entries.extend(memory.bans(limit, top, now));
        // One after the other, so that no more than twice the keys are held.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.decision.verdict.retry_after()));
        entries.truncate(top);
    }
    let plain = |entry| BannedKey {
        entry,
        is_hashed: false,
    };
    BanPage {
        bans: entries.into_iter().map(plain).collect(),
        next: None,
    }
}

/// The bans of a limit for all requests together: one for each of its numbers at most.
async fn keyless(shared: &ServiceContext, rule: &Rule, now: Time) -> Result<BanPage, Problem> {
    let mut bans = Vec::new();
    for limit in rule.limits() {
        let key = Vec::new();
        let decision = shared_key(shared, limit, Key::from_bytes(&key), now).await?;
        if let Some(decision) = decision.filter(|decision| decision.verdict.is_ban()) {
            bans.push(BannedKey {
                entry: KeyEntry { key, decision },
                is_hashed: false,
            });
        }
    }
    Ok(BanPage { bans, next: None })
}

/// `POST /v1/bans?limit=NAME&key=VALUE&for=1h`: bans a key from now on, or allows it with
/// `act=allow`, in place of an earlier ban or allowance.
pub(super) async fn add(shared: &ServiceContext, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "key", "act", "for"])?;
    let act = query.parsed("act", "`ban` or `allow`", |word| word.parse().ok())?;
    let expected = format!("a duration of at most {MAX_BAN}, for example `for=1h`");
    let span = query.parsed("for", &expected, |text| {
        let span = text.parse::<Nanos>().ok();
        span.filter(|span| (Nanos::from_nanos(1)..=MAX_BAN).contains(span))
    })?;
    let missing = "the length of the ban is missing; add `&for=1h`";
    let span = span.ok_or_else(|| Problem::new(WRONG_QUERY, missing))?;
    let act = act.unwrap_or(HandAct::Ban);
    set(shared, &query, Some(ByHand { act, span })).await
}

/// `DELETE /v1/bans?limit=NAME&key=VALUE`: ends the ban or the allowance by hand, lifts a ban by the
/// policy, and forgets the strikes.
pub(super) async fn lift(shared: &ServiceContext, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "key"])?;
    set(shared, &query, None).await
}

/// A ban or an allowance that an operator sets.
#[derive(Clone, Copy)]
struct ByHand {
    act: HandAct,
    span: Nanos,
}

/// Bans or allows a key, or lifts both. A ban by hand replaces one by the policy, so that the key is
/// free at its end.
async fn set(shared: &ServiceContext, query: &Query<'_>, wanted: Option<ByHand>) -> CallResult {
    let policy = shared.keeper.policy();
    let rule = query.rule(&policy)?;
    let bytes = key_of(&policy, rule, &query.texts("key"))?;
    let (key, limit) = (Key::from_bytes(&bytes), &*rule.limit.name);
    let entry = wanted.map(|wanted| HandEntry {
        act: wanted.act,
        until_unix_millis: (shared.unix_nanos() + wanted.span.as_nanos()).div_ceil(1_000_000),
    });
    let before = set_by_hand(shared, rule, key, entry).await?;
    let act = wanted.map(|wanted| wanted.act);
    let was_banned = act != Some(HandAct::Allow) && lift_ban(shared, rule, key).await?;
    let was_banned = was_banned || before == Some(HandAct::Ban);
    let reveal = shared.key_reveal(policy.settings.reveal_keys);
    let parts = reveal.key(rule, key).join(", ").escape_debug().to_string();
    let shown = reveal.text(rule, key);
    let for_ms = wanted.map(|wanted| wanted.span.as_millis_ceil());
    let did = match act {
        Some(HandAct::Ban) => {
            tracing::warn!(event = "ban.set", limit, key = shown, for_ms);
            "banned"
        }
        Some(HandAct::Allow) => {
            tracing::warn!(event = "key.allowed", limit, key = shown, for_ms);
            "allowed by hand"
        }
        None => {
            tracing::warn!(event = "ban.lifted", limit, key = shown, was_banned);
            "freed of its ban"
        }
    };
    shared.note_change(&format!("key {parts} of limit {limit} {did}"));
    let mode = match rule.mode_of(Some(key)) {
        Some(Mode::Shadow) => RuleMode::Shadow, // or outside of `percent`
        _ => rule.mode,
    };
    Ok(reply(&json!({
        "limit": limit,
        "key": key_in_words(shared, rule, key),
        "act": act.as_ref().map(HandAct::as_ref),
        "mode": mode.as_ref(),
        "was_banned": was_banned,
        "was_allowed": before == Some(HandAct::Allow),
        "ends_after_ms": for_ms,
    })))
}

/// Sets or lifts the entry of a key; returns the act of the entry before.
pub(super) async fn set_by_hand(
    shared: &ServiceContext,
    rule: &Rule,
    key: Key<'_>,
    entry: Option<HandEntry>,
) -> Result<Option<HandAct>, Problem> {
    let before = by_hand::of_key(shared, rule, key).map(|(act, _)| act);
    let limit = &rule.limit.name;
    let has_room = by_hand::update(shared, |table| match entry {
        Some(entry) => table.set(limit, key, entry),
        None => table.lift(limit, key),
    });
    if has_room.await.map_err(doors::store_down(shared))? {
        return Ok(before);
    }
    let detail = format!("{MAX_BY_HAND} keys are banned or allowed by hand; lift some of them");
    Err(Problem::new(NO_ROOM_BY_HAND, detail))
}

/// Lifts the ban of a key by the policy, and forgets its strikes; returns true if it was banned.
async fn lift_ban(shared: &ServiceContext, rule: &Rule, key: Key<'_>) -> Result<bool, Problem> {
    let (store, now) = (shared.keeper.store(), shared.now());
    let mut was_banned = false;
    if rule.limit.algorithm.bans().is_none() {
        return Ok(was_banned);
    }
    // The plan of the key is not known here: its ban is lifted under each of its numbers.
    for (limit, _) in numbers(rule, rule.variants.of_key(key)) {
        let charge = free_charge(limit, key);
        let before = shared_key(shared, limit, key, now).await?;
        was_banned |= before.is_some_and(|before| before.verdict.is_ban());
        let lifted = store.ban(&[charge], Nanos::ZERO, now).await;
        lifted.map_err(doors::store_down(shared))?;
    }
    shared.observers.bans.lift(rule.limit.id, key);
    Ok(was_banned)
}

/// Returns the milliseconds until a ban ends; `None` if the key is not banned.
fn ends_after_ms(decision: &Decision) -> Option<u64> {
    let wait = decision.verdict.retry_after();
    wait.filter(|_| decision.verdict.is_ban())
        .map(Nanos::as_millis_ceil)
}

/// Adds the end of the ban to the state of a key.
pub(super) fn mention(state: &mut Value, decision: &Decision) {
    if let Some(ends) = ends_after_ms(decision) {
        state["ban_ends_after_ms"] = json!(ends);
    }
}
