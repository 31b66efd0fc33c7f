//! Lints: policies that run but are probably not as intended.

pub(super) mod unmatched;
pub(super) mod unreceived;
pub(super) mod visitors;

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::{Algorithm as _, Outage};

use super::limit::refusal::Responses;
use super::limit::{alert, ban, cost, scope};
use super::quantity::unit::as_written;
use super::quantity::{QuantityKind, Refill, balance};
use super::{Draft, Table, codes, error, warning};
use crate::{Cost, KeyPart, MissingKey, Role, RuleMode, Settings};

/// Maximum number of limits with the same key and match that are compared with each other.
const MAX_COMPARED: usize = 50;

/// Reports a policy that cannot be intended: one without limits (a file cut short reads like
/// that, and would switch off all limiting), or with a limit, a price or an alert without effect.
pub(super) fn impossible(root: Table<'_>, drafts: &[Draft<'_>], settings: &Settings) {
    let elsewhere = settings.envoy_files.config.is_some();
    if drafts.is_empty() && !elsewhere && !root.findings().has_errors() {
        let message = "the policy has no limits";
        let label = "every request would be allowed";
        error(codes::NO_LIMITS, root.at(), message, label).help(
            "add a limit: [[limit]] with name = \"per-ip\", key = [\"ip\"], limit = \"100/1m\"",
        );
    }
    for draft in drafts {
        never_passes(draft);
        cost::unmet(draft);
        alert::impossible(draft);
    }
}

fn never_passes(draft: &Draft<'_>) {
    let capacity = draft.rule.limit.algorithm.capacity();
    let Some(cost) = draft.rule.cost.highest().filter(|cost| *cost > capacity) else {
        return;
    };
    let (which, field) = match draft.rule.cost {
        Cost::Priced(_) => ("requests of this price", "is"),
        _ if draft.table.table("cost").is_some() => ("a request", "reserve"),
        _ => ("a request", "cost"),
    };
    let [capacity, cost] = [capacity, cost].map(|it| as_written(it, draft.rule.unit.as_ref()));
    let message = format!("{draft} can never let {which} pass");
    let label = format!("costs more than the {capacity} that the limit holds");
    error(codes::COST_TOO_HIGH, draft.cost_at, message, label)
        .related(draft.quantity_at)
        .help(format!(
            "write {field} = {capacity} or less, or raise the limit to at least {cost}"
        ));
}

/// Reports all warnings.
pub(super) fn lints(drafts: &[Draft<'_>], responses: &Responses, settings: &Settings) {
    for draft in drafts {
        visitors::unreliable(draft);
        visitors::formless(draft);
        ban::all_clients(draft);
        stands_in_for_itself(draft);
        scope::no_share(draft, settings);
        balance::forgotten(draft, settings);
    }
    never_refuses(drafts);
    responses.unused();
}

/// Warns of a key part that is its own stand-in. Addresses, the default stand-in, are missing
/// from no request that came over the network.
fn stands_in_for_itself(draft: &Draft<'_>) {
    let MissingKey::Use(part) = &draft.rule.missing_key else {
        return;
    };
    let is_address = matches!(part, KeyPart::Ip { .. });
    if is_address || !draft.rule.key.contains(part) {
        return;
    }
    let message = format!("`{part}` replaces itself in {draft}");
    let label = "all requests without it share one counter";
    warning(codes::MISSING_KEY, draft.table.place("key"), message, label)
        .help("write missing_key = \"use:ip\", or \"shared\" if that is meant");
}

/// Warns of limits that another one, for the same requests and callers, always precedes.
fn never_refuses(drafts: &[Draft<'_>]) {
    let mut groups: HashMap<_, Vec<&Draft<'_>>> = HashMap::new();
    for draft in drafts {
        let group = groups.entry((&draft.same, &draft.rule.key)).or_default();
        if group.len() < MAX_COMPARED {
            group.push(draft);
        }
    }
    for group in groups.values() {
        for (index, loose) in group.iter().enumerate() {
            let strict = group.iter().enumerate().find(|(other, strict)| {
                *other != index
                    && (covers(strict, loose) && (*other < index || !covers(loose, strict)))
            });
            if let Some((_, strict)) = strict {
                report(loose, strict);
            }
        }
    }
}

fn report(loose: &Draft<'_>, strict: &Draft<'_>) {
    let (loose_name, strict_name) = (&loose.rule.limit.name, &strict.rule.limit.name);
    let message = format!("{loose} can never be the one that refuses");
    let (label, help) = if loose.rule.limit.algorithm == strict.rule.limit.algorithm {
        (
            format!("the same as `{strict_name}`, for the same requests"),
            format!("remove `{loose_name}`, or give it another `key` or `match`"),
        )
    } else {
        let text = &strict.rule.text;
        (
            format!("higher than `{strict_name}` ({text}) ever allows"),
            format!("write a lower number, or remove `{loose_name}`"),
        )
    };
    warning(codes::NEVER_REFUSES, loose.quantity_at, message, label)
        .related(strict.quantity_at)
        .help(help);
}

/// Returns true if both limits charge the same for a shared request, and `strict` can refuse it.
fn alike(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
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
    // A gateway sends requests to a route in place of refusing them, and charges the others.
    let refuses = a.mode == RuleMode::Enforce && a.on_limit.is_none();
    // While a store fails, one limit may let pass what the other refuses.
    let [own, other] = [a, b].map(|rule| rule.limit.outage);
    let is_kept = own == other || own == Outage::Deny || other == Outage::Allow;
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
        && refuses
        && is_kept
        && b.mode != RuleMode::Off
        && strict.denials == loose.denials
        && same_exemptions(strict, loose)
}

/// Returns true if `strict` refuses every request that `loose` would refuse: because they are the
/// same, or count alike to a lower number.
fn covers(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    let is_same = a.limit.algorithm == b.limit.algorithm;
    alike(strict, loose) && (is_same || counts_less(strict, loose))
}

/// Returns true if both count in the same way, and `strict` admits no more whatever came before.
fn counts_less(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    let is_slower = match (strict.kind, loose.kind) {
        (QuantityKind::Calendar(a), QuantityKind::Calendar(b)) => a == b,
        (QuantityKind::Windows(word, gap), QuantityKind::Windows(other, other_gap)) => {
            word == other && gap == other_gap && a.window == b.window
        }
        (QuantityKind::Bucket(strict), QuantityKind::Bucket(loose)) => {
            let rate = |one: Refill, other: Refill| {
                u128::from(one.permits.get()) * u128::from(other.per.as_nanos())
            };
            !loose.queue && rate(strict, loose) <= rate(loose, strict)
        }
        _ => false,
    };
    is_slower && a.quota <= b.quota
}

fn same_exemptions(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let (a, b) = (&strict.rule.exemptions, &loose.rule.exemptions);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

#[cfg(test)]
mod tests;
