//! Answers: which limits of a policy a request must pass, and why not the others.
//!
//! ```text
//!   every limit, in the policy's order
//!      off? --no--> match? --yes--> exempt? --no--> active? --yes--> key? --yes--> applies
//!       |yes          |no             |yes            |no             |no
//!       +-------------+---------------+---------------+---------------+--> why it does not,
//!                                                                          or refuses
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, Zoned};
use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Mode, Permits, Time};
use ratekeeper_policy::{
    Allowance, Asn, Charges, Country, Entry, Exemption, Facts, Field, HeldBy, Matcher, MissingKey,
    Policy, Role, Rule, RuleMode, WallTime,
};

use crate::limits;
use crate::place::located;
use crate::request::CliRequest;

/// Answer of one limit to a request.
pub(crate) enum LimitAnswer {
    Applies(Box<AppliedLimit>),
    /// A key part is missing and the policy refuses such requests, or the key is blocked.
    Refuses(String),
    /// The limit does not apply, for this reason.
    Not(String),
}

/// A limit that counts a request.
pub(crate) struct AppliedLimit {
    pub(crate) key: Vec<String>,
    /// The other keys of the request, if it has several.
    pub(crate) more: Vec<Vec<String>>,
    pub(crate) cost: Permits,
    /// True if something stands in for a missing key part.
    pub(crate) fallback: bool,
    /// End of the window of the request; `None` if windows are not asked for.
    pub(crate) window_ends: Option<Zoned>,
    /// The numbers that hold, if the limit has some for plans or single keys.
    pub(crate) numbers: Option<HeldNumbers>,
    /// The mode in which the key is decided.
    pub(crate) mode: Mode,
}

/// The numbers of a limit that hold for a request.
pub(crate) struct HeldNumbers {
    /// The limit with these numbers; `None` for its own.
    pub(crate) rule: Option<Rule>,
    /// The reason.
    pub(crate) by: String,
}

/// Returns the answer of each limit of the policy at `wall`, in the policy's order.
pub(crate) fn answers(
    policy: &Policy,
    request: &CliRequest,
    wall: WallTime,
    at: Option<&Zoned>,
) -> Vec<LimitAnswer> {
    request.with_facts(|facts| {
        let facts = &located(policy, facts);
        policy.with_claims(facts, wall, |facts| {
            let question = Question {
                policy,
                request,
                facts,
                wall,
                at,
            };
            let rules = (0..).zip(policy.rules.iter());
            let mut charges = Charges::default();
            policy.charges(facts, wall, &mut charges);
            rules
                .map(|(index, rule)| question.answer(index, rule, &charges))
                .collect()
        })
    })
}

/// A request with the claims of its token, asked of a policy at a time.
struct Question<'a> {
    policy: &'a Policy,
    request: &'a CliRequest,
    facts: &'a Facts<'a>,
    wall: WallTime,
    at: Option<&'a Zoned>,
}

impl Question<'_> {
    fn answer(&self, index: u32, rule: &Rule, charges: &Charges) -> LimitAnswer {
        let mut entries = charges.entries.iter();
        let first = entries.find(|entry| entry.is_shown() && entry.rule == index);
        if charges.missing().any(|rule| rule == index) {
            return LimitAnswer::Refuses(no_key(rule, first));
        }
        let is_blocked = charges.uncharged.iter().any(|it| it.rule == index);
        match first {
            Some(_) if is_blocked => return LimitAnswer::Refuses("a key is blocked".into()),
            Some(entry) => return self.applies(rule, charges, entry),
            None => {}
        }
        if charges.is_replaced(index) {
            return LimitAnswer::Not(self.replaced(index));
        }
        let held = self.is_for(rule) && rule.mode != RuleMode::Off;
        let held = held.then(|| self.policy.allowance(rule, self.facts, self.wall));
        match held.flatten().map(|it| (it.allowance, self.held_by(it.by))) {
            Some((Allowance::Blocked, by)) => {
                LimitAnswer::Refuses(format!("the key is blocked by {by}"))
            }
            Some((Allowance::Unlimited, by)) => LimitAnswer::Not(format!("unlimited by {by}")),
            _ => LimitAnswer::Not(
                self.unasked(index, rule)
                    .unwrap_or_else(|| self.reason(rule)),
            ),
        }
    }

    fn is_for(&self, rule: &Rule) -> bool {
        rule.applies_to(self.facts) && rule.is_active(self.wall)
    }

    /// Returns the limits that replace one for the request: `replaced by ..`.
    fn replaced(&self, index: u32) -> String {
        let replacing = self.policy.rules.iter().filter(|by| {
            self.is_for(by) && by.mode == RuleMode::Enforce && by.replaces.contains(&index)
        });
        format!("replaced by {}", listed(replacing))
    }

    /// Returns the reason if a limit would apply, but is asked by none that does: it is named in
    /// `otherwise` alone.
    fn unasked(&self, index: u32, rule: &Rule) -> Option<String> {
        if !matches!(rule.role, Role::Allowance) || !self.is_for(rule) {
            return None;
        }
        let rules = self.policy.rules.iter();
        let asking = rules.filter(|other| other.otherwise.contains(&index));
        Some(format!("asked only by {}", listed(asking)))
    }

    fn applies(&self, rule: &Rule, charges: &Charges, entry: &Entry) -> LimitAnswer {
        let of_rule = |it: &&Entry| it.rule == entry.rule && it.is_shown();
        let words = |entry| rule.describe_key(charges.key(entry)).collect::<Vec<_>>();
        let key = words(entry);
        // A limit that counts values has an entry for each, under one key.
        let entries = charges.entries.iter().filter(of_rule);
        let more = entries.map(words).filter(|other| *other != key).collect();
        let numbers = || {
            let held = self.policy.allowance(rule, self.facts, self.wall)?;
            let variant = entry.variant_of(rule);
            Some(HeldNumbers {
                rule: variant.map(|variant| rule.with_numbers(variant)),
                by: self.held_by(held.by),
            })
        };
        let algorithm = &charges.limit(entry, rule).algorithm;
        LimitAnswer::Applies(Box::new(AppliedLimit {
            numbers: (!rule.variants.is_empty()).then(numbers).flatten(),
            more,
            key,
            cost: entry.cost,
            fallback: entry.fallback,
            mode: entry.mode,
            window_ends: self.at.and_then(|at| window_end(algorithm, at)),
        }))
    }

    /// ``plan `pro` ``, `the override in line 12 until 2026-12-31T00:00:00Z: contract 4711`
    fn held_by(&self, by: HeldBy<'_>) -> String {
        let found = match by {
            HeldBy::Rule => return "the limit itself".to_owned(),
            HeldBy::Hand(_) => return "an operator".to_owned(),
            HeldBy::Plan(name) => return format!("plan `{name}`"),
            HeldBy::Override(found) => found,
        };
        let file = self.policy.settings.overrides.as_ref();
        let file = file.filter(|_| found.from_file);
        let of = file.map(|file| format!(" of {file}"));
        let until = found.until_unix_nanos.and_then(|until| {
            let until = Timestamp::from_nanosecond(until.into()).ok()?;
            Some(format!(" until {until}"))
        });
        let reason = (!found.reason.is_empty()).then(|| format!(": {}", found.reason));
        let notes: String = [of, until, reason].into_iter().flatten().collect();
        format!("the override in line {}{notes}", found.line)
    }

    /// Returns why a limit does not apply to a request.
    fn reason(&self, rule: &Rule) -> String {
        if rule.mode == RuleMode::Off {
            return "mode = \"off\"".into();
        }
        if rule.is_for_descriptors() != self.facts.descriptor.is_some() {
            let kind = if rule.is_for_descriptors() {
                "it is for descriptors"
            } else {
                "it is for requests, not for descriptors"
            };
            return kind.into();
        }
        if let Some(names) = self.facts.descriptor.filter(|asked| !rule.names_all(asked)) {
            let keys: Vec<_> = names.entries.iter().map(|(key, _)| *key).collect();
            let found = match keys.as_slice() {
                [] => "no entry".to_owned(),
                keys => keys.join(", "),
            };
            return format!("it is for {}; this one has {found}", limits::requests(rule));
        }
        if let Some(field) = rule.matcher.mismatch(self.facts) {
            return mismatch(&rule.matcher, field, self.request, self.facts);
        }
        let exempt = |exemption: &&Arc<Exemption>| exemption.exempts(self.facts);
        if let Some(exemption) = rule.exemptions.iter().find(exempt) {
            return format!("exempt: {}", limits::exemption(exemption));
        }
        match limits::active(rule, self.wall) {
            Some(times) if !rule.is_active(self.wall) => times,
            _ => format!("{} is missing (missing_key)", keys_in_words(rule)),
        }
    }
}

/// Returns why a limit refuses a request whose keys, or the keys besides `first`, are not usable.
fn no_key(rule: &Rule, first: Option<&Entry>) -> String {
    let part = keys_in_words(rule);
    if rule.missing_key == MissingKey::Deny && first.is_none() {
        return format!("{part} is missing (missing_key = \"deny\")");
    }
    format!("{part} is missing in one spelling, or the request has over four keys, or no sure cost")
}

/// Returns the names of limits, in backticks.
fn listed<'r>(rules: impl Iterator<Item = &'r Rule>) -> String {
    let names: Vec<_> = rules.map(|rule| format!("`{}`", rule.limit.name)).collect();
    names.join(", ")
}

/// Returns the end of the window of a first request at `at`; `None` without windows.
///
/// The policy must have been read for a clock with its zero at `at`.
fn window_end(algorithm: &AnyAlgorithm, at: &Zoned) -> Option<Zoned> {
    let left = algorithm.window_end(Time::ZERO)?.since(Time::ZERO);
    at.checked_add(Duration::from(left)).ok()
}

/// `path is /login, not /signup`
fn mismatch(matcher: &Matcher, field: &Field, request: &CliRequest, facts: &Facts<'_>) -> String {
    let patterns = matcher.fields.iter().find(|(found, _)| found == field);
    let wanted = patterns.map(|(_, patterns)| limits::values(patterns));
    let wanted = wanted.unwrap_or_default();
    let values = |list: &[(String, String)], name: &str| {
        let named = list.iter().filter(|it| it.0.eq_ignore_ascii_case(name));
        let values: Vec<&str> = named.map(|(_, value)| &**value).collect();
        values.join(", ")
    };
    let country = facts.country.unwrap_or(Country::UNKNOWN);
    let found = match field {
        Field::Method => request.method.clone(),
        Field::Host => request.host.clone(),
        Field::Path => request.path.clone(),
        Field::Ip => request.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        Field::Country => country.to_string(),
        Field::Continent => country.continent().to_owned(),
        Field::Asn => facts.network.unwrap_or(Asn::UNKNOWN).to_string(),
        Field::Header(name) => values(&request.headers, name),
        Field::Attribute(name) => values(&request.attributes, name),
        Field::Claim(name) => {
            let claim = facts.claims.and_then(|claims| claims.claim(name));
            claim.unwrap_or_default().to_owned()
        }
        Field::Domain => facts.descriptor.map_or("", |asked| asked.domain).to_owned(),
        Field::Descriptor(name) => {
            let asked = facts.descriptor;
            let value = asked.and_then(|asked| asked.value(&name.to_string()));
            value.unwrap_or_default().to_owned()
        }
        Field::Query(_) => request.query.clone(),
        Field::Cookie(_) => values(&request.headers, "cookie"),
    };
    let place = match field {
        Field::Query(_) => format!("{field}: the query"),
        Field::Cookie(_) => format!("{field}: the cookie field"),
        Field::Claim(_) => format!("{field} of a verified token"),
        field => field.to_string(),
    };
    let found = Some(&*found).filter(|found| !found.is_empty());
    let found = found.unwrap_or("not given");
    format!("{place} is {found}, and must be {wanted}")
}

pub(crate) fn keys_in_words(rule: &Rule) -> String {
    match rule.key.as_slice() {
        [one] => format!("key part {one}"),
        _ => format!("a key part of {}", limits::key(rule)),
    }
}
