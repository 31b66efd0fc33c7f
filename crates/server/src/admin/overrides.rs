//! Overrides: those in the file that the policy names, listed, set and removed.

use std::collections::HashSet;
use std::sync::Arc;

use ratekeeper_core::Key;
use ratekeeper_policy::config::{
    OverrideLine, exact_key_text, is_key_pattern, key_pairs, override_lines,
};
use ratekeeper_policy::{KeyBytes, KeyPart, Policy, Rule};
use serde_json::{Value, json};

use super::keys::{refuse_hash, without_name};
use super::query::{Query, find};
use super::reply;
use crate::OverrideAct;
use crate::context::ServiceContext;
use crate::doors::CallResult;
use crate::doors::problem::{
    NO_OVERRIDES_FILE, NOT_EDITED, OVERRIDE_REFUSED, OVERRIDES_UNWRITTEN, Problem, WRONG_QUERY,
    shown,
};
use crate::source::override_change::{NotChanged, OverrideChange};

/// Maximum length of a value of an override in bytes; keys have at most 512.
const MAX_VALUE_BYTES: usize = 1024;

/// Reads the line that a call states: `limit=NAME&key=TEXT&set=20/1m&until=..&reason=..`, of which
/// those in `needed` must be there. In place of `key`, whose text may be a pattern, `value` once for
/// each part names one key.
fn line(query: &Query<'_>, needed: &[&str], policy: &Policy) -> Result<OverrideLine, Problem> {
    let field = |name| {
        let is_fit = |text: &str| text.len() <= MAX_VALUE_BYTES && !text.contains(char::is_control);
        let expected =
            format!("a text of at most {MAX_VALUE_BYTES} bytes, without control characters");
        let read = |text: &str| is_fit(text).then(|| text.trim().to_owned());
        Ok::<_, Problem>(query.parsed(name, &expected, read)?.unwrap_or_default())
    };
    let mut line = OverrideLine {
        limit: field("limit")?,
        key: field("key")?,
        set: field("set")?,
        until: field("until")?,
        reason: field("reason")?,
    };
    let values = query.texts("value");
    let rule = policy.rule(&line.limit).into_iter();
    if !values.is_empty() {
        line.key = exact_key(policy, &line, &values)?;
    } else if let [part] = *rule.flat_map(Rule::key_parts).collect::<Vec<_>>() {
        line.key = String::from(without_name(part, &line.key));
    }
    let is_stated = |name: &str| match name {
        "key" => !line.key.is_empty(),
        name => query.text(name).is_some_and(|text| !text.trim().is_empty()),
    };
    match needed.iter().find(|name| !is_stated(name)) {
        Some(name) => Err(Problem::new(WRONG_QUERY, format!("`{name}` is missing"))),
        None => Ok(line),
    }
}

/// Returns the text of the key with these values of all parts, which is no pattern.
fn exact_key(policy: &Policy, line: &OverrideLine, values: &[&str]) -> Result<String, Problem> {
    if !line.key.is_empty() {
        let detail = "`key` and `value` both name the key; leave one of them out";
        return Err(Problem::new(WRONG_QUERY, detail));
    }
    let rule = find(policy, &line.limit)?;
    let parts: Vec<_> = rule.key_parts().collect();
    if parts.len() != values.len() {
        let (limit, parts) = (&rule.limit.name, parts.len());
        let detail = format!("the key of `{limit}` has {parts} parts; add `&value=` for each");
        return Err(Problem::new(WRONG_QUERY, detail));
    }
    let values = parts.into_iter().zip(values);
    let values = values.map(|(part, value)| (part, without_name(part, value)));
    Ok(exact_key_text(values))
}

/// `GET /v1/overrides?limit=NAME&key=VALUE&top=20`: the first overrides of the file in force, of
/// one limit or key if the call names it.
pub(super) async fn list(shared: &Arc<ServiceContext>, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "key", "value", "top"])?;
    let (asked, top) = (
        line(&query, &[], &shared.keeper.policy())?,
        query.top("top")?,
    );
    // Waits for a reload that goes on.
    let listed = shared
        .apart(move |shared| listed(shared, &asked, top))
        .await;
    let failed = || Problem::new(OVERRIDES_UNWRITTEN, "the listing failed");
    let listed = listed.ok_or_else(failed)?;
    Ok(reply(&listed.ok_or_else(no_file)?))
}

/// Returns the answer of a list; `None` if the policy names no file.
fn listed(shared: &ServiceContext, asked: &OverrideLine, top: usize) -> Option<Value> {
    let (policy_text, policy) = shared.overrides_in_force()?;
    let (file, text) = policy_text.files.overrides()?;
    let now = shared.unix_nanos();
    let all = policy
        .rules
        .iter()
        .flat_map(|rule| rule.variants.overrides());
    let holding = all.filter(|one| one.from_file && !one.has_ended(now));
    let holding: HashSet<usize> = holding.map(|one| one.line).collect();
    let fits = |asked: &str, found: &str| asked.is_empty() || asked == found;
    let lines = override_lines(file, text.unwrap_or_default());
    let found = lines
        .into_iter()
        .filter(|(_, line)| fits(&asked.limit, &line.limit) && fits(&asked.key, &line.key));
    let (mut count, mut overrides) = (0, Vec::new());
    for (number, line) in found {
        count += 1;
        if overrides.len() < top {
            let key = key_as_shown(&policy, &line);
            let line = OverrideLine { key, ..line };
            let mut about = about(number, &line);
            about["in_force"] = json!(holding.contains(&number));
            overrides.push(about);
        }
    }
    Some(json!({ "file": file, "count": count, "overrides": overrides }))
}

/// `PUT /v1/overrides?limit=NAME&key=VALUE&set=NUMBERS`, with `until` and `reason` if wanted.
pub(super) async fn set(shared: &Arc<ServiceContext>, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "key", "set", "value", "until", "reason"])?;
    let policy = shared.keeper.policy();
    let line = line(&query, &["limit", "key", "set"], &policy)?;
    let mut texts = line.key.split([';', '=']);
    texts.try_for_each(|text| refuse_hash(&policy, text))?;
    let act = OverrideAct::Set;
    change(shared, OverrideChange { act, line }).await
}

/// `DELETE /v1/overrides?limit=NAME&key=VALUE`
pub(super) async fn remove(shared: &Arc<ServiceContext>, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "key", "value"])?;
    let line = line(&query, &["limit", "key"], &shared.keeper.policy())?;
    let act = OverrideAct::Removed;
    change(shared, OverrideChange { act, line }).await
}

/// Makes a change, and answers once it is in force.
async fn change(shared: &Arc<ServiceContext>, change: OverrideChange) -> CallResult {
    let changed = shared.apart(|shared| (shared.change_overrides(&change), change));
    let failed = || Problem::new(OVERRIDES_UNWRITTEN, "the change failed");
    let (changed, change) = changed.await.ok_or_else(failed)?;
    let changed = changed.map_err(problem)?;
    let mut answer = match changed.line {
        Some(number) => about(number, &change.line),
        None => json!({
            "limit": change.line.limit,
            "key": change.line.key,
            "removed": changed.removed,
        }),
    };
    answer["file"] = json!(changed.file);
    answer["version"] = json!(changed.version);
    Ok(reply(&answer))
}

/// Returns a line of the file as the answers show it, if it is in force.
fn about(number: usize, line: &OverrideLine) -> Value {
    let stated = |text: &str| (!text.is_empty()).then(|| shown_whole(text));
    json!({
        "limit": shown_whole(&line.limit),
        "key": shown_whole(&line.key),
        "set": shown_whole(&line.set),
        "until": stated(&line.until),
        "reason": stated(&line.reason),
        "line": number,
        "in_force": true,
    })
}

/// Returns the key of a line, with the values of secret parts as `/v1/keys` shows them.
pub(crate) fn key_as_shown(policy: &Policy, line: &OverrideLine) -> String {
    let rule = policy.rule(&line.limit);
    let parts: Vec<_> = rule.into_iter().flat_map(Rule::key_parts).collect();
    let as_shown = |part: &KeyPart, value: &str| {
        let mut bytes = KeyBytes::default();
        part.write_plain(value, policy.client_ip.ipv6_prefix, &mut bytes);
        let shown = Key::from_bytes(&bytes).display_parts().next();
        let shown = shown.map(|shown| shown.to_string()).unwrap_or_default();
        let is_hash = shown.starts_with("sha256:") && !is_key_pattern(value);
        if is_hash { shown } else { value.to_owned() }
    };
    if let [part] = *parts {
        let shown = as_shown(part, &line.key);
        let begins_so = without_name(part, &shown).len() < shown.len();
        let name = begins_so.then(|| format!("{part}="));
        return name.unwrap_or_default() + &shown;
    }
    let each = key_pairs(&line.key).map(|(name, value)| {
        let named = KeyPart::parse(name).ok();
        let part = parts.iter().find(|part| Some(**part) == named.as_ref());
        let value = part.map_or_else(|| value.to_owned(), |part| as_shown(part, value));
        format!("{name}={value}")
    });
    each.collect::<Vec<_>>().join(";")
}

/// Returns a value of the file, cut where no call could have written it.
fn shown_whole(text: &str) -> String {
    text.chars().take(MAX_VALUE_BYTES).collect()
}

fn no_file() -> Problem {
    let detail = "the policy names no file of overrides; hint: add the line overrides = \
                  \"overrides.csv\" at the top of the policy, beside a file that begins with the \
                  line limit,key,set,until,reason";
    Problem::new(NO_OVERRIDES_FILE, detail)
}

fn problem(why: NotChanged) -> Problem {
    match why {
        NotChanged::NoFile => no_file(),
        NotChanged::NotCsv(file) => {
            let detail = format!(
                "`{}` is a TOML file, which calls do not edit; hint: change the file itself, or move \
                 its overrides into a CSV file: overrides = \"overrides.csv\"",
                shown(&file)
            );
            Problem::new(NOT_EDITED, detail)
        }
        NotChanged::Failed(why) => Problem::new(OVERRIDES_UNWRITTEN, why),
        NotChanged::Useless(why) => Problem::new(OVERRIDE_REFUSED, why),
        NotChanged::Rejected(rejected) => {
            let first = rejected.findings.first();
            let hint = first.and_then(|first| first.help.as_deref());
            let hint = hint.map_or_else(String::new, |hint| format!("; hint: {hint}"));
            let why = first.map_or(&rejected.report, |first| &first.message);
            super::refused(OVERRIDE_REFUSED, format!("{why}{hint}"), &rejected)
        }
    }
}
