//! Limits in words: the limit that is meant, how it decides, its worst case.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Permits, Share};
use ratekeeper_policy::{
    Active, Cost, CostSource, Exemption, Field, KeyPart, Matcher, PathCase, Pattern, Patterns,
    Policy, Rule, Together, WallTime, WorstCase,
};

use crate::{Failure, Output, Result, words};

/// Returns the limit named `name`.
///
/// # Errors
/// Returns an error without such a limit; it shows the near spelling, or all names.
pub(crate) fn named<'a>(policy: &'a Policy, name: &str) -> Result<&'a Rule> {
    policy.rule(name).ok_or_else(|| {
        let names: Vec<&str> = policy.rules.iter().map(|rule| &*rule.limit.name).collect();
        let near = words::near(name, names.iter().copied());
        Failure::new(format!("there is no limit `{name}` in the policy"))
            .meant(near, format!("write one of {}", names.join(", ")))
    })
}

/// Returns the key of a limit: `ip`, `header:x-user + ip`, `all`.
pub(crate) fn key(rule: &Rule) -> String {
    let parts: Vec<String> = rule.key_parts().map(KeyPart::to_string).collect();
    match parts.as_slice() {
        [] => "all".into(),
        parts => parts.join(" + "),
    }
}

/// Returns the times at which a limit applies, and until when it does or does not at `wall`:
/// `01:00-06:00 in Europe/Oslo, not active until 2026-03-29T01:00:00+01:00`. `None` for all times.
pub(crate) fn active(rule: &Rule, wall: WallTime) -> Option<String> {
    let active = rule.active.as_deref()?;
    let state = match (active.is_active(wall), next_change(active, wall)) {
        (true, Some(change)) => format!("active until {}", words::clock_time(&change)),
        (true, None) => "active from now on".into(),
        (false, Some(change)) => format!("not active until {}", words::clock_time(&change)),
        (false, None) => "never active again".into(),
    };
    Some(format!("{active}, {state}"))
}

/// Returns when an alert of a key starts and ends: `starts once more than 240 of 300 are used, or
/// requests are refused, for 2 min; ends when no longer`. `None` without an alert.
pub(crate) fn alert(rule: &Rule) -> Option<String> {
    let alert = rule.alert?;
    let level = alert.level(rule.quota).get();
    Some(format!(
        "starts once more than {} of {} ({}%) are used, or requests are refused, for {}; ends when \
         no longer",
        amount(rule, level),
        amount(rule, rule.quota.get()),
        alert.above_percent,
        words::span(alert.hold)
    ))
}

/// Returns when a limit bans a key, and for how long: `the third refusal within 24 h bans the key
/// for 1 h, then 2 h, 4 h, .. up to 24 h`. `None` if it bans none.
pub(crate) fn ban(rule: &Rule) -> Option<String> {
    let terms = rule.limit.algorithm.bans()?;
    let strikes = terms.strikes.permits().get();
    let within = words::span(terms.strikes.per());
    let begins = match strikes {
        1 => "each refusal".into(),
        _ => format!("the {} refusal within {within}", words::ordinal(strikes)),
    };
    let bans = format!("{begins} bans the key for {}", words::span(terms.first));
    let second = terms.after_ban_of(terms.first);
    if second <= terms.first {
        return Some(bans);
    }
    let longer = std::iter::successors(Some(second), |last| Some(terms.after_ban_of(*last)));
    let shown = longer
        .take(MAX_BANS_SHOWN)
        .take_while(|ban| *ban < terms.longest);
    let shown: String = shown.map(|ban| words::span(ban) + ", ").collect();
    let up_to = if shown.is_empty() { "" } else { ".. up to " };
    Some(format!(
        "{bans}, then {shown}{up_to}{} (longer if it begins within {within} of the last one's end)",
        words::span(terms.longest)
    ))
}

/// Maximum number of growing lengths of bans that are shown after the first.
const MAX_BANS_SHOWN: usize = 2;

/// Returns how reports correct the charges of a limit, in words; empty if none does.
pub(crate) fn corrections(rule: &Rule) -> Vec<String> {
    let Some(correction) = rule.correction.as_deref() else {
        return Vec::new();
    };
    let count = correction.count.as_ref();
    let count = count.map(|count| format!("only {count} counts: any other gives the charge back"));
    let cost = correction.is_estimate.then(|| {
        let first = "the estimate is charged first, and becomes the actual cost";
        let place = match &correction.settle {
            Some(CostSource::Header(name)) => format!("the field `{name}` of the response"),
            Some(CostSource::Trailer(name)) => format!("the trailer `{name}` of the response"),
            Some(CostSource::Body(field)) => format!("`{field}` of the response's body"),
            None => return first.to_owned(),
        };
        let by = "at the proxy listener and the tower layer";
        format!("{first}: {place} ({by}), or that of the report")
    });
    let owes = matches!(rule.limit.algorithm, AnyAlgorithm::Gcra(_));
    let forgives = correction.is_estimate && !owes;
    let excess =
        forgives.then(|| "what is used beyond the permits that are left is forgiven".into());
    let reset = correction.reset_on.as_ref();
    let reset = reset.map(|reset| format!("{reset} forgives the charges of the key"));
    let report = format!(
        "reported with POST /v1/report within {}; without a report the charge stays",
        words::span(correction.within)
    );
    [count, cost, excess, reset, Some(report)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns when a limit begins or ceases to apply next, in its time zone.
pub(crate) fn next_change(active: &Active, wall: WallTime) -> Option<Zoned> {
    let second = i64::try_from(active.next_change(wall)?.unix_seconds()?).ok()?;
    let zone = words::zone(active.timezone()).unwrap_or(TimeZone::UTC);
    Some(Timestamp::from_second(second).ok()?.to_zoned(zone))
}

/// Mentions that a limit with active hours is played as if it applied at all times, one that
/// reports correct as if none came, one with a priority as if every request had it, and one without
/// those that it asks. Mentions the unit as well, because a cost is stated in permits.
pub(crate) fn played_always(rule: &Rule, output: &mut Output) {
    let active = rule.active.as_deref();
    let played = [
        active.map(|active| format!("({active}) is played as if it were always active")),
        rule.correction
            .as_ref()
            .map(|_| "is played without reports of results: every request keeps its charge".into()),
        rule.priority.as_ref().map(|_| {
            "is played whole: every request may use the part that `priority` keeps".into()
        }),
        (!rule.otherwise.is_empty()).then(|| {
            "is played alone: what `soft`, `elastic` or `otherwise` lets pass is left out".into()
        }),
        rule.unit
            .as_ref()
            .map(|unit| format!("counts permits of {}", unit.show(1))),
        rule.distinct
            .map(|_| "is played as if each request had a new value of `distinct`".into()),
        rule.on_limit.as_ref().map(|route| {
            format!("is played as if it refused what the gateway sends to the route `{route}`")
        }),
    ];
    for played in played.into_iter().flatten() {
        output.talk(format!("`{}` {played}", rule.limit.name));
    }
}

/// Returns the minimum served to a client that keeps to the limit, in words: `every request of a
/// client that sends at most 10 in any 1 min`.
pub(crate) fn at_least(rule: &Rule) -> String {
    if rule.is_balance() {
        return "every request, until the balance is spent".into();
    }
    let ones = matches!(rule.cost, Cost::Request | Cost::Fixed(Permits::ONE));
    let served = match rule.least_served() {
        Share::ALL => "every request".to_owned(),
        Share::NONE => {
            return "no share is certain, because refused requests count as well: a client that \
                    goes on sending may never be admitted"
                .into();
        }
        share => {
            let [served, of] = [share.served(), share.of()].map(words::count);
            let cost = if ones { "" } else { " of cost 1" };
            format!("{served} of {of} requests{cost}")
        }
    };
    let ordinary = rule.ordinary().get();
    let client = match (rule.ordinary_rate(), rule.limit.algorithm.concurrency()) {
        (_, Some(_)) => format!("never has more than {} in flight", words::count(ordinary)),
        (Some(quota), None) => {
            let (sends, permits) = match (ones, &rule.unit) {
                (true, _) => ("sends", ""),
                (false, Some(_)) => ("spends", ""),
                (false, None) => ("spends", " permits"),
            };
            format!(
                "{sends} at most {}{permits} in any {}",
                amount(rule, quota.permits().get()),
                words::span(quota.per())
            )
        }
        (None, None) => {
            let (number, word) = rule.text.split_once('/').unwrap_or((&rule.text, "window"));
            let kept = rule.priority.as_ref().map(|_| amount(rule, ordinary));
            let number = kept.unwrap_or_else(|| number.to_owned());
            format!("sends at most {number} in each calendar {word}")
        }
    };
    format!("{served} of a client that {client}")
}

/// Returns the maximum that one key is ever admitted, in words: `at most 39 in any 1 s; 20 at
/// once`, or for a queue `at most 9 in any 500 ms; 2 at once, 3 more wait up to 300 ms`.
pub(crate) fn worst_case(rule: &Rule) -> String {
    match &rule.active {
        Some(_) => format!("{}, while it is active", admitted(rule)),
        None => admitted(rule),
    }
}

/// Returns permits of a limit in words: `1,700`, or `17.00 USD` if it has a unit.
pub(crate) fn amount(rule: &Rule, permits: u64) -> String {
    match &rule.unit {
        Some(unit) => unit.show(permits).to_string(),
        None => words::count(permits),
    }
}

fn admitted(rule: &Rule) -> String {
    if rule.is_balance() {
        let most = amount(rule, rule.limit.algorithm.capacity().get());
        return format!("at most {most} at once, and what is granted to it");
    }
    if let Some(limit) = rule.limit.algorithm.concurrency() {
        let at_once = limit.capacity().get();
        return format!(
            "at most {} in flight at once; the permits of a crashed holder return after {}",
            words::count(at_once),
            words::span(limit.lease())
        );
    }
    let worst = WorstCase::of(rule);
    let (within, at_once) = (worst.permits.unwrap_or(u64::MAX), worst.at_once);
    let span = words::bounded_span(worst.span_ms.0);
    let within_span = format!("at most {} in any {span}", amount(rule, within));
    match worst.waiting {
        0 if at_once == within => within_span,
        0 => format!("{within_span}; {} at once", amount(rule, at_once)),
        places => format!(
            "{within_span}; {} at once, {} more wait up to {}",
            amount(rule, at_once),
            amount(rule, places),
            words::span(worst.longest_wait_ms.0)
        ),
    }
}

/// Returns the cost of a request, if the policy states it: `10 for path /export; 1 for others`.
pub(crate) fn cost(rule: &Rule) -> Option<String> {
    let shown = |permits: Permits| amount(rule, permits.get());
    Some(match &rule.cost {
        Cost::Request => return None,
        Cost::Fixed(permits) => shown(*permits),
        Cost::Attribute(name, _) => format!("attr:{name}"),
        Cost::Body(field, _) => field.to_string(),
        Cost::Priced(prices) => {
            let each = prices.higher.iter().map(|price| {
                let requests = fields(&price.matcher);
                format!("{} for {requests}; ", shown(price.is))
            });
            each.collect::<String>() + &format!("{} for others", shown(prices.usual))
        }
    })
}

/// Returns the part of a limit that is kept: `the last 20 of 100 are for path /health`.
pub(crate) fn priority(rule: &Rule) -> Option<String> {
    let priority = rule.priority.as_deref()?;
    let capacity = rule.limit.algorithm.capacity();
    Some(format!(
        "the last {} of {} are for {}",
        amount(rule, priority.headroom(capacity).get()),
        amount(rule, capacity.get()),
        fields(&priority.matcher)
    ))
}

/// Returns the worst case of a limit and its alternatives: `at most 1,700 in any 30 d: 1,000 by api;
/// 700 by team, which requests with the same attr:team share`.
pub(crate) fn together(policy: &Policy, rule: &Rule, together: &Together) -> String {
    let part = |(name, most): &(String, u64)| {
        let other = policy.rule(name)?;
        let shared = match &*key(other) {
            key if key == self::key(rule) => String::new(),
            "all" => ", which all requests share".into(),
            key => format!(
                ", which requests with the same {} share",
                key.replace(" + ", " and ")
            ),
        };
        let granted = other.is_balance().then_some(" and what is granted to it");
        let (most, granted) = (amount(other, *most), granted.unwrap_or_default());
        Some(format!("{most} by {name}{granted}{shared}"))
    };
    let parts: Vec<_> = together.parts.iter().filter_map(part).collect();
    format!(
        "at most {} in any {}: {}",
        amount(rule, together.within),
        words::bounded_span(together.span_ms.0),
        parts.join("; ")
    )
}

/// Maximum number of values of one field that are shown.
const MAX_SHOWN: usize = 20;

/// Returns the values that a field must have: `/login or /signup`, `neither 1 nor 2`, `/api/** but
/// not /api/health`.
pub(crate) fn values(patterns: &[Pattern]) -> String {
    let (negated, asked): (Vec<&Pattern>, Vec<&Pattern>) =
        patterns.iter().partition(|pattern| pattern.negated);
    let listed = |patterns: &[&Pattern], word: &str| {
        let shown = patterns
            .iter()
            .take(MAX_SHOWN)
            .map(|pattern| pattern.text());
        let more = patterns.len().saturating_sub(MAX_SHOWN);
        let more = (more > 0).then(|| format!("{more} more"));
        let texts: Vec<_> = shown.map(str::to_owned).chain(more).collect();
        texts.join(word)
    };
    let without = match negated.as_slice() {
        [one] => format!("not {}", one.text()),
        more => format!("neither {}", listed(more, " nor ")),
    };
    match (asked.is_empty(), negated.is_empty()) {
        (false, true) => listed(&asked, " or "),
        (false, false) => format!("{} but {without}", listed(&asked, " or ")),
        (true, false) => without,
        (true, true) => "a value of a list that is empty".into(),
    }
}

/// Returns the fields of a `match` and their values: `method GET, path /login or /signup`.
pub(crate) fn fields(matcher: &Matcher) -> String {
    let text = |(field, patterns): &(Field, Patterns)| {
        let is_exact = *field == Field::Path && matcher.path_case == PathCase::Sensitive;
        let case = if is_exact { " (case-sensitive)" } else { "" };
        format!("{field} {}{case}", values(patterns))
    };
    let fields: Vec<String> = matcher.fields.iter().map(text).collect();
    fields.join(", ")
}

/// Returns why a request is exempt: the reason that the policy gives, else the fields that the
/// exemption matches.
pub(crate) fn exemption(exemption: &Exemption) -> String {
    match exemption.reason.as_str() {
        "" => fields(&exemption.matcher),
        reason => reason.to_owned(),
    }
}

/// Returns the descriptors that a limit is for, by the names of their entries: `descriptors of plan
/// and user`.
pub(crate) fn requests(rule: &Rule) -> String {
    let mut names: Vec<String> = rule.entry_names().map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    match names.as_slice() {
        [] if rule.is_for_descriptors() => "descriptors of any entries".into(),
        [] => "every request".into(),
        names => format!("descriptors of {}", names.join(" and ")),
    }
}
