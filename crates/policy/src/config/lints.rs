//! Lints: policies that run but are probably not as intended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ratekeeper_core::{Algorithm as _, Nanos, Permits, Share};

use super::algorithm::AlgorithmSpec;
use super::codes;
use super::diagnostic::Findings;
use super::exempt::health_checks;
use super::limit::Draft;
use super::quantity::QuantityKind;
use super::refusal::Responses;
use super::{ban, headers, shares, within};
use crate::calendar::Word;
use crate::{Cost, Field, KeyPart, MissingKey, Role, RuleMode, Settings};

/// Maximum number of limits with the same key and match that are compared with each other.
pub(super) const MAX_COMPARED: usize = 50;

/// Reports a policy that cannot be intended: one without limits (a file cut short reads like
/// that, and would switch off all limiting), or with a limit that can never let a request pass.
pub(super) fn impossible(drafts: &[Draft<'_>], settings: &Settings, out: &mut Findings<'_>) {
    let elsewhere = settings.envoy_files.config.is_some();
    if drafts.is_empty() && !elsewhere && !out.has_errors() {
        out.error(
            codes::NO_LIMITS,
            0..0,
            "the policy has no limits",
            "every request would be allowed",
        )
        .help("add a limit: [[limit]] with name = \"per-ip\", key = [\"ip\"], limit = \"100/1m\"");
    }
    for draft in drafts {
        let Cost::Fixed(cost) = draft.rule.cost else {
            continue;
        };
        let capacity = draft.rule.limit.algorithm.capacity();
        if cost <= capacity {
            continue;
        }
        let name = &draft.rule.limit.name;
        let at = draft.places.cost.clone().unwrap_or_default();
        let message = format!("limit `{name}` can never let a request pass");
        out.error(
            codes::COST_TOO_HIGH,
            at,
            message,
            format!("costs more than the {capacity} that the limit holds"),
        )
        .related(draft.places.quantity.clone())
        .help(format!(
            "write cost = {capacity} or less, or raise the limit to at least {cost}"
        ));
    }
}

/// Reports all warnings.
pub(super) fn lints(
    drafts: &[Draft<'_>],
    responses: &Responses,
    settings: &Settings,
    out: &mut Findings<'_>,
) {
    off(drafts, out);
    for draft in drafts {
        missing_key(draft, out);
        headers::unreliable(draft, settings, out);
        ban::all_clients(draft, out);
        less_than_kept(draft, out);
        stands_in_for_itself(draft, out);
        shares::no_share(draft, settings, out);
        health_checks(draft, settings, out);
    }
    never_refuses(drafts, out);
    responses.unused(out);
}

/// Warns of limits that are off: one finding for each place that sets it.
fn off(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    let mut places: BTreeMap<usize, Vec<&Draft<'_>>> = BTreeMap::new();
    for draft in drafts
        .iter()
        .filter(|draft| draft.rule.mode == RuleMode::Off)
    {
        let at = draft.places.mode.as_ref().map_or(0, |at| at.start);
        places.entry(at).or_default().push(draft);
    }
    for there in places.values() {
        let at = there[0].places.mode.clone().unwrap_or_default();
        let message = match &there[..] {
            [one] => format!("limit `{}` is off", one.rule.limit.name),
            many => format!("{} limits are off", many.len()),
        };
        out.warning(codes::OFF, at, message, "neither decides nor counts")
            .help("write mode = \"shadow\" to count without refusing, or remove unneeded limits");
    }
}

/// Warns of a key part that clients can leave out, if the policy does not handle that case.
fn missing_key(draft: &Draft<'_>, out: &mut Findings<'_>) {
    let asked = |wanted: &Field| {
        let mut fields = draft.rule.matcher.fields.iter();
        fields.any(|(field, patterns)| field == wanted && patterns.iter().any(|p| !p.negated))
    };
    let header = |name: &str| asked(&Field::Header(name.to_owned()));
    // A request that matches has every value that `match` asks for.
    let omitted = |part: &&KeyPart| match part {
        KeyPart::Header(name) => !header(name),
        KeyPart::Cookie(name) => !asked(&Field::Cookie(name.clone())),
        KeyPart::Query(name) => !asked(&Field::Query(name.clone())),
        KeyPart::ApiKey => !header("x-api-key"),
        KeyPart::Claim(name) => !asked(&Field::Claim(name.clone())),
        KeyPart::Bearer | KeyPart::Body(_) => true,
        _ => false,
    };
    let Some(part) = draft.rule.key.iter().find(omitted) else {
        return;
    };
    if draft.places.missing_key_set {
        return;
    }
    let message = format!(
        "limit `{}` has no `missing_key` for requests without `{part}`",
        draft.rule.limit.name
    );
    out.warning(
        codes::MISSING_KEY_UNSET,
        draft.places.key.clone(),
        message,
        match part {
            KeyPart::Body(_) => {
                "a request without it, or with an unreadable body, is counted by address"
            }
            _ => "a request without it is counted by address",
        },
    )
    .help("confirm this with missing_key = \"use:ip\", or choose \"skip\", \"deny\" or \"shared\"");
}

/// Warns of a limit that refuses clients that keep to it, unless the name of its algorithm
/// implies that: a leaky bucket, a gap and a warm-up are chosen because they space requests.
fn less_than_kept(draft: &Draft<'_>, out: &mut Findings<'_>) {
    let share = draft.rule.least_served();
    let is_implied = match draft.kind {
        QuantityKind::Windows(algorithm) => matches!(algorithm, AlgorithmSpec::SlidingLog { .. }),
        _ => true,
    };
    let Some(quota) = draft
        .rule
        .keeps_to
        .filter(|_| !is_implied && share != Share::ALL)
    else {
        return;
    };
    let name = &draft.rule.limit.name;
    let (permits, per) = (quota.permits(), quota.per());
    let label = if share == Share::NONE {
        format!("no share is certain for a client that sends {permits} at once each {per}")
    } else {
        let (served, of) = (share.served(), share.of());
        format!("serves {served} of {of} for a client that sends {permits} at once each {per}")
    };
    let message = format!("limit `{name}` may refuse a client that keeps to it");
    out.warning(
        codes::LESS_THAN_KEPT,
        draft.places.quantity.clone(),
        message,
        label,
    )
    .help("leave `algorithm` out: a token bucket serves all requests of such a client");
}

/// Warns of a key part that is its own stand-in. Addresses, the default stand-in, are missing
/// from no request that came over the network.
fn stands_in_for_itself(draft: &Draft<'_>, out: &mut Findings<'_>) {
    let MissingKey::Use(part) = &draft.rule.missing_key else {
        return;
    };
    let is_address = matches!(part, KeyPart::Ip { .. });
    if is_address || !draft.rule.key.contains(part) {
        return;
    }
    let message = format!(
        "`{part}` stands in for itself in limit `{}`",
        draft.rule.limit.name
    );
    let label = "all requests without it share one counter";
    out.warning(codes::MISSING_KEY, draft.places.key.clone(), message, label)
        .help("write missing_key = \"use:ip\", or \"shared\" if that is meant");
}

/// Warns of limits that another one, for the same requests and callers, always precedes.
fn never_refuses(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    let mut groups: HashMap<_, Vec<&Draft<'_>>> = HashMap::new();
    for draft in drafts {
        groups
            .entry((&draft.same, &draft.rule.key))
            .or_default()
            .push(draft);
    }
    for group in groups
        .values()
        .map(|group| &group[..group.len().min(MAX_COMPARED)])
    {
        for (index, loose) in group.iter().enumerate() {
            let strict = group.iter().enumerate().find(|(other, strict)| {
                *other != index
                    && (covers(strict, loose) && (*other < index || !covers(loose, strict)))
            });
            if let Some((_, strict)) = strict {
                report(loose, strict, out);
            }
        }
    }
    within::never_refuse(drafts, out);
}

pub(super) fn report(loose: &Draft<'_>, strict: &Draft<'_>, out: &mut Findings<'_>) {
    let (loose_name, strict_name) = (&loose.rule.limit.name, &strict.rule.limit.name);
    let message = format!("limit `{loose_name}` can never be the one that refuses");
    let (label, help) = if loose.rule.limit.algorithm == strict.rule.limit.algorithm {
        let label = format!("the same as `{strict_name}`, for the same requests");
        (
            label,
            format!("remove `{loose_name}`, or give it another `key` or `match`"),
        )
    } else {
        let label = format!(
            "higher than `{strict_name}` ({}) ever allows",
            strict.rule.text
        );
        (
            label,
            format!("write a lower number, or remove `{loose_name}`"),
        )
    };
    out.warning(
        codes::NEVER_REFUSES,
        loose.places.quantity.clone(),
        message,
        label,
    )
    .related(strict.places.quantity.clone())
    .help(help);
}

/// Returns true if both limits charge the same for a shared request, and `strict` can refuse it.
pub(super) fn alike(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    // Plans and overrides may raise one limit, and lower the other.
    let is_plain = a.variants.is_empty() && b.variants.is_empty();
    // A limit that gives charges back, or begins anew, admits more than its numbers say.
    let is_final = a.correction.is_none() && b.correction.is_none();
    // A limit with an alternative lets more pass, and one that is an alternative is seldom asked.
    let is_alone = |draft: &Draft<'_>| draft.extra.is_none() && draft.rule.otherwise.is_empty();
    let is_met = matches!((&a.role, &b.role), (Role::Limit, Role::Limit));
    // A limit that another replaces, or that is enforced for some keys, lets others pass.
    let is_constant = !strict.is_replaced && !loose.is_replaced && a.percent.is_none();
    is_plain
        && is_final
        && is_constant
        && a.limit.scope == b.limit.scope
        && is_alone(strict)
        && is_met
        && a.cost == b.cost
        && a.priority == b.priority
        && a.missing_key == b.missing_key
        && (a.active.is_none() || a.active == b.active)
        && a.mode == RuleMode::Enforce
        && b.mode != RuleMode::Off
        && strict.denials == loose.denials
        && same_exemptions(strict, loose)
}

/// Returns true if `strict` refuses every request that `loose` would refuse: because they are the
/// same, or count alike to a lower number, or `strict` admits less at its worst.
fn covers(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    let is_same = a.limit.algorithm == b.limit.algorithm;
    alike(strict, loose) && (is_same || counts_less(strict, loose) || admits_less(strict, loose))
}

/// Returns true if both count in the same way over the same windows, and `strict` has the lower
/// number.
pub(super) fn counts_less(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    // Compares only where a lower number refuses more, whatever was admitted before.
    let is_monotone = match loose.kind {
        QuantityKind::Calendar(_) => true,
        QuantityKind::Windows(kind) => matches!(
            kind,
            AlgorithmSpec::TokenBucket
                | AlgorithmSpec::Fixed
                | AlgorithmSpec::SlidingCounter
                | AlgorithmSpec::SlidingLog { .. }
        ),
        _ => false,
    };
    strict.kind == loose.kind && a.window == b.window && a.quota <= b.quota && is_monotone
}

fn same_exemptions(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let (a, b) = (&strict.rule.exemptions, &loose.rule.exemptions);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// Returns true if everything that `strict` can admit, at its worst, is less than `loose` would
/// refuse. Returns false in doubt: only windows that all begin afresh and buckets are compared.
///
/// A limit admits at most `b + r x t` in a span `t`, where `r` is its rate and `b` its bound for
/// its own period.
pub(super) fn admits_less(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    // The rate of a post-paid limit, cut to microseconds, is a little above the written one, and
    // permits of a limit of concurrency come back, and credits are granted.
    if matches!(
        strict.kind,
        QuantityKind::PostPaid { .. } | QuantityKind::AtOnce { .. } | QuantityKind::Balance
    ) {
        return false;
    }
    let algorithm = &strict.rule.limit.algorithm;
    let quota = loose.rule.quota.get();
    let (permits, per) = rate(strict);
    match (loose.kind, loose.rule.window) {
        (QuantityKind::Calendar(word), _) => algorithm.bound(longest(word)) <= quota,
        (QuantityKind::Windows(AlgorithmSpec::Fixed), Some(window)) => {
            algorithm.bound(window) <= quota
        }
        (
            QuantityKind::Bucket {
                permits: refill,
                per: refill_per,
                queue: false,
            },
            _,
        ) => {
            let slower = |percent: u128| {
                let strict = u128::from(permits.get()) * u128::from(refill_per.as_nanos());
                let loose = u128::from(refill.get()) * u128::from(per.as_nanos());
                strict * 100 <= loose * percent
            };
            if matches!(strict.kind, QuantityKind::Bucket { .. }) {
                return strict.rule.quota <= loose.rule.quota && slower(100);
            }
            // 99 %: intervals are rounded up by less than 1 %.
            algorithm.bound(per) <= quota && slower(99)
        }
        _ => false,
    }
}

/// Returns the maximum rate at which a limit admits in the long run.
fn rate(draft: &Draft<'_>) -> (Permits, Nanos) {
    match draft.kind {
        QuantityKind::Bucket { permits, per, .. }
        | QuantityKind::Steps { permits, per }
        | QuantityKind::PostPaid { permits, per }
        | QuantityKind::AtOnce { permits, per } => (permits, per),
        QuantityKind::Balance => (draft.rule.quota, Nanos::SECOND), // asked by no comparison
        QuantityKind::Calendar(word) => (draft.rule.quota, shortest(word)),
        QuantityKind::Windows(_) => (draft.rule.quota, draft.rule.window.unwrap_or(Nanos::SECOND)),
    }
}

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Returns the longest window of a calendar word: clocks are put back by an hour at most.
fn longest(word: Word) -> Nanos {
    Nanos::from_secs(match word {
        Word::Hour => 2 * HOUR,
        Word::Day => DAY + HOUR,
        Word::Week(_) => 7 * DAY + HOUR,
        Word::Month(_) => 31 * DAY + HOUR,
        Word::Year(_) => 366 * DAY + HOUR,
    })
}

/// Returns the shortest window of a calendar word: clocks are put forward by an hour at most.
fn shortest(word: Word) -> Nanos {
    Nanos::from_secs(match word {
        Word::Hour => HOUR / 2,
        Word::Day => DAY - HOUR,
        Word::Week(_) => 7 * DAY - HOUR,
        Word::Month(_) => 28 * DAY - HOUR,
        Word::Year(_) => 365 * DAY - HOUR,
    })
}

#[cfg(test)]
mod tests;
