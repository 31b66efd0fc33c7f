//! Countries: their requests by hour, and the hours of limits that depend on them.

use ratekeeper::Clock;
use ratekeeper_core::{Origin, Time};
use ratekeeper_policy::{Field, KeyPart, Policy, Rule, WallTime};
use serde_json::{Value, json};

use crate::context::ServiceContext;
use crate::observe::alerts::message::rfc3339;
use crate::observe::country_hours::{CountryDay, HOURS};
use crate::observe::history::MAX_LIMITS;

/// Maximum number of countries that are listed.
const MAX_COUNTRIES: usize = 20;
const HOUR_MILLIS: u64 = 3_600_000;

/// Returns the countries with the most requests of 24 hours, each hour of them, and the hours in
/// which a limit with `active` applied to them; `null` if the policy knows no countries.
pub(super) fn busiest<C: Clock>(shared: &ServiceContext<C>) -> Value {
    let policy = shared.keeper.policy();
    let found = shared.observers.countries.busiest(MAX_COUNTRIES);
    let Some((hour, days)) = found.filter(|_| policy.geo.is_some()) else {
        return Value::Null;
    };
    let first = (hour + 1).saturating_sub(HOURS as u64);
    let scheduled = scheduled(&policy, first);
    let country = |day: &CountryDay| {
        let of_country = scheduled.iter().filter(|it| is_for(it.rule, &day.country));
        let mut active = [false; HOURS];
        for limit in of_country {
            let each = active.iter_mut().zip(limit.active);
            each.for_each(|(all, one)| *all |= one);
        }
        json!({ "country": day.country, "hours": day.hours, "scheduled": active })
    };
    let limits = scheduled.iter().map(|limit| {
        let times = limit.rule.active.as_deref().map(ToString::to_string);
        json!({ "limit": &*limit.rule.limit.name, "active": times })
    });
    json!({
        "since": rfc3339(first * HOUR_MILLIS),
        "countries": days.iter().map(country).collect::<Vec<_>>(),
        "scheduled": limits.collect::<Vec<_>>(),
    })
}

/// A limit that depends on a country, and the hours in which it applied.
struct Scheduled<'p> {
    rule: &'p Rule,
    /// By the middle of each hour.
    active: [bool; HOURS],
}

fn scheduled(policy: &Policy, first: u64) -> Vec<Scheduled<'_>> {
    let rules = policy.rules.iter().take(MAX_LIMITS);
    let of_country = |rule: &&Rule| {
        rule.key.contains(&KeyPart::Country) || {
            let mut fields = rule.matcher.fields.iter();
            fields.any(|(field, _)| *field == Field::Country)
        }
    };
    let scheduled = rules.filter(of_country).filter_map(|rule| {
        // A copy: the limit keeps its answer about the present.
        let active = rule.active.as_deref()?.clone();
        let at = |hour: usize| {
            let seconds = (first + hour as u64) * 3_600 + 1_800;
            WallTime::new(Origin::UNIX, Time::from_nanos(seconds * 1_000_000_000))
        };
        Some(Scheduled {
            rule,
            active: std::array::from_fn(|hour| active.is_active(at(hour))),
        })
    });
    scheduled.collect()
}

/// Returns true if the limit is for requests of a country.
fn is_for(rule: &Rule, country: &str) -> bool {
    let fields = rule.matcher.fields.iter();
    let mut fields = fields.filter(|(field, _)| *field == Field::Country);
    fields.all(|(_, patterns)| {
        let is_named = |negated: bool| {
            let mut of_sign = patterns.iter().filter(|it| it.negated == negated);
            of_sign.any(|pattern| pattern.text().eq_ignore_ascii_case(country))
        };
        let has_positive = patterns.iter().any(|pattern| !pattern.negated);
        !is_named(true) && (!has_positive || is_named(false))
    })
}
