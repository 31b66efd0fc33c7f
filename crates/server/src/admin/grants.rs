//! Grants: credits added to the balance of a key.

use std::fmt;

use bytes::Bytes;
use ratekeeper_core::{Call, Charge, GrantId, Granted, Key, Permits, Quota};
use ratekeeper_policy::{KeyPart, Rule};
use ratekeeper_store::{Store, StoreError};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use super::keys::{key_in_words, key_of};
use super::query::find;
use super::reply;
use crate::context::ServiceContext;
use crate::doors;
use crate::doors::CallResult;
use crate::doors::problem::{Problem, WRONG_VALUE, shown};
use crate::doors::request::read;
use crate::observe::metrics::GrantResult;

/// Maximum number of bytes of an id.
const MAX_ID_BYTES: usize = 200;

/// A grant: `{"limit":"credits","key":{"user":"ann"},"permits":500,"id":"payment-4711"}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantBody {
    limit: String,
    /// The parts of the key, by their names in the policy; `user` is short for `attr:user`.
    #[serde(deserialize_with = "named_once")]
    key: Map<String, Value>,
    /// A whole number; of a limit with a unit, a decimal number in quotes.
    permits: Value,
    /// A grant with the same id and key adds nothing.
    id: String,
}

/// `POST /v1/grant`
pub(super) async fn grant(shared: &ServiceContext, body: &Bytes) -> CallResult {
    let body: GrantBody = read(body)?;
    let (policy, now) = (shared.keeper.policy(), shared.now());
    let rule = find(&policy, &body.limit)?;
    let supported = rule.limit.algorithm.supports(Call::Grant);
    supported.map_err(|why| wrong(&format!("the limit `{}`: {why}", rule.limit.name)))?;
    let permits = permits(rule, &body.permits)?;
    if body.id.is_empty() || body.id.len() > MAX_ID_BYTES {
        let detail = format!(
            "`id` must have 1 to {MAX_ID_BYTES} bytes, such as the number of a payment: a call that \
             is repeated with the same id adds nothing"
        );
        return Err(wrong(&detail));
    }
    let bytes = key_of(&policy, rule, &values(rule, &body.key)?)?;
    let key = Key::from_bytes(&bytes);
    let charge = Charge::enforced(&rule.limit, key, permits);
    let store = shared.keeper.store();
    let answers = store.grant(&[charge], GrantId::of(&body.id), now).await;
    let answers = answers.inspect_err(|_| shared.observers.metrics.grant(GrantResult::Error));
    let answers = answers.map_err(doors::store_down(shared))?;
    let answer = answers.first();
    let Some((granted, answer)) = answer.and_then(|one| Some((one.granted?, one))) else {
        shared.observers.metrics.grant(GrantResult::Error);
        let why = "the store has no room for the balance".to_owned();
        return Err(doors::store_down(shared)(StoreError::Unavailable(why)));
    };
    let (added, result) = match granted {
        Granted::Added(credits) => (credits, GrantResult::Added),
        Granted::Repeated => (Permits::ZERO, GrantResult::Repeated),
    };
    shared.observers.metrics.grant(result);
    let (limit, balance) = (&*rule.limit.name, answer.decision.remaining.get());
    let reveal = shared.key_reveal(policy.settings.reveal_keys);
    let revealed = reveal.text(rule, key).unwrap_or_default();
    let key = key_in_words(shared, rule, key);
    tracing::info!(
        event = "credits.granted",
        limit,
        key = %revealed.escape_debug(),
        permits = permits.get(),
        added = added.get(),
        balance,
        id = %body.id.escape_debug(),
        "credits granted"
    );
    let mut document = json!({
        "done": if granted == Granted::Repeated { "repeated" } else { "granted" },
        "limit": limit,
        "key": key,
        "added": added.get(),
        "balance": balance,
    });
    if let Some(unit) = &rule.unit {
        document["unit"] = json!({ "name": unit.name(), "decimals": unit.decimals() });
    }
    Ok(reply(&document))
}

/// Returns the number of permits of a grant, at least 1.
fn permits(rule: &Rule, value: &Value) -> Result<Permits, Problem> {
    let read = match (&rule.unit, value) {
        (Some(unit), Value::String(text)) => unit.exact_permits(text),
        (None, Value::String(text)) => text.parse().ok().map(Permits::new),
        (None, value) => value.as_u64().map(Permits::new),
        (Some(_), _) => None,
    };
    read.filter(|permits| (1..=Quota::MAX_PERMITS).contains(&permits.get()))
        .ok_or_else(|| {
            let value = shown(&value.to_string());
            let expected = match &rule.unit {
                Some(unit) => format!(
                    "an amount of {} in quotes with at most {} decimals, such as \"12\"",
                    unit.name(),
                    unit.decimals()
                ),
                None => format!("a whole number from 1 to {}", Quota::MAX_PERMITS),
            };
            wrong(&format!("`permits` is {value}, and must be {expected}"))
        })
}

fn wrong(detail: &str) -> Problem {
    Problem::new(WRONG_VALUE, detail)
}

/// Returns the values of the parts of the key, in the order of the policy.
fn values(rule: &Rule, key: &Map<String, Value>) -> Result<Vec<String>, Problem> {
    let names: Vec<String> = rule.key_parts().map(KeyPart::to_string).collect();
    let mut values = Vec::with_capacity(names.len());
    for name in &names {
        let short = name.split_once(':').map_or(&**name, |(_, short)| short);
        match key.get(name).or_else(|| key.get(short)) {
            Some(Value::String(value)) => values.push(value.clone()),
            Some(_) => {
                return Err(wrong(&format!(
                    "`key`: the value of `{name}` is not a string"
                )));
            }
            None => {
                let detail = format!("`key` needs a value for `{name}`");
                return Err(wrong(&detail));
            }
        }
    }
    if key.len() > names.len() {
        let stray = key.keys().find(|written| {
            let is_part = |name: &String| {
                name == *written || name.split_once(':').is_some_and(|(_, it)| it == **written)
            };
            !names.iter().any(is_part)
        });
        let stray = stray.map_or("a part twice", String::as_str);
        let detail = format!(
            "`key` names `{}`; the key of `{}` is {}",
            shown(stray),
            rule.limit.name,
            names.join(", ")
        );
        return Err(wrong(&detail));
    }
    Ok(values)
}

/// Reads an object; a name that comes twice is refused, because its writer may mean either value.
fn named_once<'a, D: Deserializer<'a>>(json: D) -> Result<Map<String, Value>, D::Error> {
    json.deserialize_map(NamedOnce)
}

struct NamedOnce;

impl<'a> Visitor<'a> for NamedOnce {
    type Value = Map<String, Value>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut object = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if object.contains_key(&name) {
                let name = shown(&name);
                return Err(Error::custom(format_args!("duplicate field `{name}`")));
            }
            object.insert(name, map.next_value()?);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_key_is_named_once() {
        let body = |key: &str| {
            let body = format!(r#"{{"limit": "a", "key": {{{key}}}, "permits": 1, "id": "x"}}"#);
            read::<GrantBody>(body.as_bytes()).map(|body| body.key.len())
        };
        assert_eq!(body(r#""user": "ann", "team": "a""#).ok(), Some(2));
        let twice = body(r#""user": "ann", "user": "bob""#).unwrap_err();
        assert!(
            twice.to_string().contains("`key`: duplicate field `user`"),
            "{twice}"
        );
    }
}
