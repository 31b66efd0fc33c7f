//! Answers: which limits of a policy a request must pass, and why not the others.
//!
//! ```text
//!   every limit, in the policy's order
//!      off? --no--> match? --yes--> exempt? --no--> key? --yes--> applies: key, cost
//!       |yes          |no             |yes           |no
//!       +-------------+---------------+--------------+--> why it does not, or refuses
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Zoned;
use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Permits, Time};
use ratekeeper_policy::{Charges, Entry, Exemption, Facts, Field, Matcher, Policy, Rule, RuleMode};

use crate::limits;
use crate::request::CliRequest;

/// Answer of one limit to a request.
pub(crate) enum LimitAnswer {
    Applies {
        key: Vec<String>,
        cost: Permits,
        /// True if something stands in for a missing key part.
        fallback: bool,
        /// End of the window of the request; `None` if windows are not asked for.
        window_ends: Option<Zoned>,
    },
    /// A key part is missing, and the policy refuses such requests.
    Refuses(String),
    /// The limit does not apply, for this reason.
    Not(String),
}

/// Returns the answer of each limit of the policy, in the policy's order.
pub(crate) fn answers(
    policy: &Policy,
    request: &CliRequest,
    at: Option<&Zoned>,
) -> Vec<LimitAnswer> {
    let mut charges = Charges::default();
    request.with_facts(|facts| {
        policy.charges(facts, &mut charges);
        let answer = |(index, rule): (u32, &Rule)| {
            if let Some(entry) = charges.entries.iter().find(|entry| entry.rule == index) {
                return applies(rule, &charges, entry, at);
            }
            if charges.missing.contains(&index) {
                return LimitAnswer::Refuses(format!("{} is missing", keys_in_words(rule)));
            }
            LimitAnswer::Not(reason(rule, request, facts))
        };
        (0..).zip(policy.rules.iter()).map(answer).collect()
    })
}

fn applies(rule: &Rule, charges: &Charges, entry: &Entry, at: Option<&Zoned>) -> LimitAnswer {
    let key = charges.key(entry);
    LimitAnswer::Applies {
        key: rule.describe_key(key).collect(),
        cost: entry.cost,
        fallback: entry.fallback,
        window_ends: at.and_then(|at| window_end(&rule.limit.algorithm, at)),
    }
}

/// Returns the end of the window of a first request at `at`; `None` without windows.
///
/// The policy must have been read for a clock with its zero at `at`.
fn window_end(algorithm: &AnyAlgorithm, at: &Zoned) -> Option<Zoned> {
    let left = algorithm.window_end(Time::ZERO)?.since(Time::ZERO);
    at.checked_add(Duration::from(left)).ok()
}

/// Returns why a limit does not apply to a request.
fn reason(rule: &Rule, request: &CliRequest, facts: &Facts<'_>) -> String {
    if rule.mode == RuleMode::Off {
        return "mode = \"off\"".into();
    }
    if rule.is_for_descriptors() != facts.descriptor.is_some() {
        return limits::kind(rule).into();
    }
    if let Some(names) = facts.descriptor.filter(|asked| !rule.names_all(asked)) {
        let keys: Vec<_> = names.entries.iter().map(|(key, _)| *key).collect();
        let found = if keys.is_empty() {
            "no entry".to_owned()
        } else {
            keys.join(", ")
        };
        return format!("it is for {}; this one has {found}", limits::requests(rule));
    }
    if let Some(field) = rule.matcher.mismatch(facts) {
        return mismatch(&rule.matcher, field, request);
    }
    let exempt = |exemption: &&Arc<Exemption>| exemption.exempts(facts);
    match rule.exemptions.iter().find(exempt) {
        Some(exemption) => format!("exempt: {}", limits::exemption(exemption)),
        None => format!("{} is missing (missing_key)", keys_in_words(rule)),
    }
}

/// `path is /login, not /signup`
fn mismatch(matcher: &Matcher, field: &Field, request: &CliRequest) -> String {
    let patterns = matcher.fields.iter().find(|(found, _)| found == field);
    let wanted = patterns.map(|(_, patterns)| limits::values(patterns));
    let wanted = wanted.unwrap_or_default();
    let values = |list: &[(String, String)], name: &str| {
        let named = list
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named
            .map(|(_, value)| value.clone())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = match field {
        Field::Method => request.method.clone(),
        Field::Host => request.host.clone(),
        Field::Path => request.path.clone(),
        Field::Ip => request.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        Field::Header(name) => values(&request.headers, name),
        Field::Attribute(name) => values(&request.attributes, name),
        Field::Domain => match &request.descriptor {
            Some(asked) => asked.domain.clone(),
            None => String::new(),
        },
        Field::Descriptor(name) => request.with_facts(|facts| {
            let value = facts
                .descriptor
                .and_then(|asked| asked.value(&name.to_string()));
            value.unwrap_or_default().to_owned()
        }),
        Field::Query(_) => request.query.clone(),
        Field::Cookie(_) => values(&request.headers, "cookie"),
    };
    let place = match field {
        Field::Query(_) => format!("{field}: the query"),
        Field::Cookie(_) => format!("{field}: the cookie field"),
        field => field.to_string(),
    };
    let found = if found.is_empty() {
        "not given".to_owned()
    } else {
        found
    };
    format!("{place} is {found}, and must be {wanted}")
}

pub(crate) fn keys_in_words(rule: &Rule) -> String {
    match rule.key.as_slice() {
        [one] => format!("key part {one}"),
        _ => format!("a key part of {}", limits::key(rule)),
    }
}
