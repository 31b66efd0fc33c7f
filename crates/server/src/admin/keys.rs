//! Keys: the balances of one key, or of those with the least remaining; the reset of one key.

use ratekeeper_core::{Charge, Decision, Key, Limit, Nanos, Outage, Permits, Time, Verdict};
use ratekeeper_policy::{KeyBytes, KeyPart, Policy, RevealKeys, Rule, Variant};
use ratekeeper_store::Store;
use serde_json::{Value, json};

use super::query::{Query, find};
use super::{bans, reply};
use crate::context::ServiceContext;
use crate::doors;
use crate::doors::CallResult;
use crate::doors::problem::{NO_SUCH_KEY, NOT_LISTED, Problem, WRONG_QUERY, shown};
use crate::observe::top_keys::is_hashed;
use crate::store::by_hand;

/// `GET /v1/keys?limit=NAME&top=20`: the keys with the least remaining.
pub(super) fn keys(shared: &ServiceContext, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "top"])?;
    let count = query.top("top")?;
    let policy = shared.keeper.policy();
    let rule = query.rule(&policy)?;
    let now = shared.now();
    if shared.keeper.store().shared().is_some() {
        let detail = "look up one key: /v1/keys/LIMIT?key=VALUE";
        return Err(Problem::new(NOT_LISTED, detail));
    }
    let local = shared.keeper.store().local();
    let mut entries = Vec::new();
    for (limit, quota) in numbers(rule, rule.variants.numbers()) {
        let keys = local.keys(limit, count, now).into_iter();
        entries.extend(keys.map(|entry| (quota, entry)));
        // One after the other, so that no more than twice the keys are held.
        entries.sort_by_key(|(_, entry)| entry.decision.remaining);
        entries.truncate(count);
    }
    let keys: Vec<Value> = entries
        .iter()
        .map(|(quota, entry)| {
            let key = Key::from_bytes(&entry.key);
            state(shared, rule, *quota, key, entry.decision)
        })
        .collect();
    Ok(reply(&json!({ "limit": &*rule.limit.name, "keys": keys })))
}

/// `GET /v1/keys/LIMIT?key=VALUE`: one key, `key` once for each part, each as a request brings
/// it or as the list of keys shows it.
pub(super) async fn key(shared: &ServiceContext, name: &str, query: &str) -> CallResult {
    let policy = shared.keeper.policy();
    let rule = find(&policy, name)?;
    let bytes = key_of(&policy, rule, &Query::read(query, &["key"])?.texts("key"))?;
    let key = Key::from_bytes(&bytes);
    let now = shared.now();
    let store = shared.keeper.store();
    let in_force = policy.limit_of(&rule.limit.name, key, shared.unix_nanos());
    let in_force = in_force.map(|limit| limit.id);
    let first = numbers(rule, rule.variants.numbers()).find(|(it, _)| Some(it.id) == in_force);
    let first = first.map(|(limit, quota)| (limit, quota, false));
    // The plan of the key is not known here: its counter is under one of them, or where it was
    // before its override was set or removed, if it has not asked since.
    let others = numbers(rule, rule.variants.of_key(key));
    let others = others.map(|(limit, quota)| (limit, quota, store.shared().is_none()));
    let mut found = None;
    for (limit, quota, is_there) in first.into_iter().chain(others) {
        let decision = if is_there {
            store.local().key(limit, key, now)
        } else {
            shared_key(shared, limit, key, now).await?
        };
        if let Some(decision) = decision {
            found = Some((quota, decision));
            break;
        }
    }
    by_hand::refresh(shared).await.ok();
    let by_hand = by_hand::of_key(shared, rule, key);
    // A key that is set by hand may have charged nothing.
    let unused = by_hand.map(|_| {
        let decision = Decision::without_times(Verdict::Allow, rule.quota);
        (rule.quota, decision)
    });
    let (quota, decision) = found.or(unused).ok_or_else(|| {
        Problem::new(
            NO_SUCH_KEY,
            "its balance is full, or a value is not as requests bring it",
        )
    })?;
    let mut state = state(shared, rule, quota, key, decision);
    if let Some((act, left)) = by_hand {
        state["by_hand"] = json!({"act": act.as_ref(), "ends_after_ms": left.as_millis_ceil()});
    }
    Ok(reply(&state))
}

/// `DELETE /v1/keys/LIMIT?key=VALUE`: resets one key under each of its numbers and under the
/// helper limits that have the same key; `key` as for a look-up, all parts of it.
pub(super) async fn reset(shared: &ServiceContext, name: &str, query: &str) -> CallResult {
    let policy = shared.keeper.policy();
    let rule = find(&policy, name)?;
    let bytes = key_of(&policy, rule, &Query::read(query, &["key"])?.texts("key"))?;
    let key = Key::from_bytes(&bytes);
    let now = shared.now();
    // Soft and elastic parts, and the candidate. Values of `distinct` have longer keys.
    let beside = rule.otherwise.iter().chain(&rule.candidate);
    let beside = beside.filter_map(|index| policy.rules.get(*index as usize));
    let rules = std::iter::once(rule).chain(beside.filter(|other| other.is_extra()));
    let rules: Vec<&Rule> = rules.collect();
    let limits = rules.iter();
    let limits = limits.flat_map(|rule| numbers(rule, rule.variants.of_key(key)));
    let charges: Vec<Charge<'_>> = limits.map(|(limit, _)| free_charge(limit, key)).collect();
    let had = shared.keeper.store().reset(&charges, now).await;
    let had = had.map_err(doors::store_down(shared))?;
    if by_hand::of_key(shared, rule, key).is_some() {
        bans::set_by_hand(shared, rule, key, None).await?;
    }
    for rule in rules {
        shared.observers.bans.lift(rule.limit.id, key);
    }
    let reveal = shared.key_reveal(policy.settings.reveal_keys);
    let shown = reveal.key(rule, key).join(", ");
    let limit = &*rule.limit.name;
    tracing::warn!(event = "key.reset", limit, key = reveal.text(rule, key));
    shared.note_change(&format!("reset: {limit} ({})", shown.escape_debug()));
    Ok(reply(&json!({
        "limit": &*rule.limit.name,
        "key": key_in_words(shared, rule, key),
        "was_counted": had.contains(&true),
    })))
}

/// Returns the state of a key in a shared store; `None` if it owes nothing.
pub(super) async fn shared_key(
    shared: &ServiceContext,
    limit: &Limit,
    key: Key<'_>,
    now: Time,
) -> Result<Option<Decision>, Problem> {
    // The state that is counted here while the store fails is not that of the key.
    let limit = Limit {
        outage: Outage::Error,
        ..limit.clone()
    };
    let charge = free_charge(&limit, key);
    let looked = shared.keeper.store().look(&[charge], now).await;
    let decisions = looked.map_err(doors::store_down(shared))?;
    let owes = |decision: &Decision| decision.reset_after > Nanos::ZERO;
    Ok(decisions.each.first().copied().filter(owes))
}

/// Returns a charge of no permits, for calls that take none.
pub(super) fn free_charge<'a>(limit: &'a Limit, key: Key<'a>) -> Charge<'a> {
    Charge::enforced(limit, key, Permits::ZERO)
}

/// Returns the limits of a rule, its own and those of variants, with their quotas.
pub(super) fn numbers<'a>(
    rule: &'a Rule,
    variants: impl IntoIterator<Item = &'a Variant>,
) -> impl Iterator<Item = (&'a Limit, Permits)> {
    let others = variants.into_iter();
    let others = others.map(|variant| (&variant.limit, variant.quota));
    std::iter::once((&rule.limit, rule.quota)).chain(others)
}

fn state(
    shared: &ServiceContext,
    rule: &Rule,
    quota: Permits,
    key: Key<'_>,
    decision: Decision,
) -> Value {
    let mut state = json!({
        "key": key_in_words(shared, rule, key),
        "quota": quota.get(),
        "remaining": decision.remaining.get(),
        // A balance is never reset by time.
        "reset_after_ms": (decision.reset_after < Nanos::MAX)
            .then(|| decision.reset_after.as_millis_ceil()),
    });
    bans::mention(&mut state, &decision);
    state
}

/// Returns the parts of a key with their names: `ip=192.0.2.1`.
pub(super) fn key_in_words(shared: &ServiceContext, rule: &Rule, key: Key<'_>) -> Vec<String> {
    shared.key_reveal(RevealKeys::Raw).key(rule, key)
}

/// Returns the key of a rule with these values, one for each of its parts, each as a request brings
/// it or as the list of keys shows it.
pub(super) fn key_of(
    policy: &Policy,
    rule: &Rule,
    values: &[impl AsRef<str>],
) -> Result<KeyBytes, Problem> {
    let parts = rule.key_parts().count();
    if values.len() != parts {
        let limit = &rule.limit.name;
        let detail = format!("the key of `{limit}` has {parts} parts; add `&key=VALUE` for each");
        return Err(Problem::new(WRONG_QUERY, detail));
    }
    let mut bytes = KeyBytes::default();
    for (part, value) in rule.key_parts().zip(values) {
        let value = without_name(part, value.as_ref());
        refuse_hash(policy, value)?;
        if value.is_empty() {
            let detail = format!("no key has an empty `{part}`; lists show a missing one as `~`");
            return Err(Problem::new(WRONG_QUERY, detail));
        }
        let (prefix, case) = (policy.client_ip.ipv6_prefix, rule.matcher.path_case);
        let written = part.write_exact(value, prefix, case, &mut bytes);
        written.map_err(|key| {
            let value = shown(value);
            let detail = match key {
                None => format!("`key={value}` is neither an address nor a network"),
                Some(key) => format!(
                    "`key={value}` is a network, and each key of `{part}` is one such as `{key}`; \
                     write a [[limit]] with match = {{ ip = \"{value}\" }} for all of it"
                ),
            };
            Problem::new(WRONG_QUERY, detail)
        })?;
    }
    Ok(bytes)
}

/// Returns a value without the name of its part, with which lists show it.
pub(super) fn without_name<'v>(part: &KeyPart, value: &'v str) -> &'v str {
    value.strip_prefix(&format!("{part}=")).unwrap_or(value)
}

/// Refuses a value of which a list shows only the hash.
pub(super) fn refuse_hash(policy: &Policy, value: &str) -> Result<(), Problem> {
    if is_hashed(policy.settings.reveal_keys, value) {
        let detail = "lists show this hash of a value; give the value itself, or let them show it by \
                      `reveal_keys = \"raw\"`";
        return Err(Problem::new(WRONG_QUERY, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ratekeeper_policy::config;

    use super::*;

    #[test]
    fn a_key_is_named_as_lists_show_it_or_refused() {
        let key = |how: &str, value: &str| {
            let text = format!(
                "version = 1\nreveal_keys = \"{how}\"\n[[limit]]\nname = \"l\"\n\
                 key = [\"header:x-u\"]\nlimit = \"1/1h\"\n"
            );
            let policy = config::parse(&text, config::Context::default());
            let policy = policy.unwrap().policy;
            key_of(&policy, &policy.rules[0], &[value]).ok()
        };
        for how in ["hash", "prefix", "raw"] {
            assert!(key(how, "evil").is_some());
            assert!(key(how, "header:x-u=evil") == key(how, "evil"), "{how}");
            for (hash, is_refused) in [
                ("~e2cd2bb3d9f9f777", how != "raw"),
                ("header:x-u=ev~e2cd2bb3d9f9f777", how == "prefix"),
                ("a-token-of-ann~e2cd2bb3d9f9f777", false),
                ("~E2CD2BB3D9F9F777", false),
                ("~e2cd2bb3", false),
            ] {
                assert_eq!(key(how, hash).is_none(), is_refused, "{how} {hash}");
            }
        }
    }
}
