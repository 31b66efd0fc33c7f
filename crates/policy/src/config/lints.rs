//! Lints: policies that run, and may not be what was meant.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ratekeeper_core::{Nanos, Permits};

use super::codes;
use super::diagnostic::Findings;
use super::limit::Draft;
use super::quantity::{Algorithm, Kind};
use super::refusal::Responses;
use crate::calendar::Word;
use crate::{Cost, KeyPart, RuleMode};

/// Limits with the same key and match that are compared with each other.
const MAX_COMPARED: usize = 50;

/// Limits that can never let a single request pass: errors.
pub(super) fn impossible(drafts: &[Draft], out: &mut Findings<'_>) {
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
            format!("costs more than the {capacity} it holds"),
        )
        .related(draft.places.quantity.clone())
        .help(format!(
            "write cost = {capacity} or less, or raise the limit to at least {cost}"
        ));
    }
}

/// Everything that deserves a warning.
pub(super) fn lints(drafts: &[Draft], responses: &Responses, out: &mut Findings<'_>) {
    if drafts.is_empty() {
        out.warning(
            codes::NO_LIMITS,
            0..0,
            "the policy has no limits",
            "every request is allowed",
        )
        .help("add a limit: [[limit]] with name = \"per-ip\", key = [\"ip\"], limit = \"100/1m\"");
    }
    off(drafts, out);
    for draft in drafts {
        missing_key(draft, out);
    }
    never_refuses(drafts, out);
    responses.unused(out);
}

/// Limits that are off: one finding for each place that says so.
fn off(drafts: &[Draft], out: &mut Findings<'_>) {
    let mut places: BTreeMap<usize, Vec<&Draft>> = BTreeMap::new();
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
            .help(
                "write mode = \"shadow\" to count without refusing, or remove what is not needed",
            );
    }
}

/// A key that a stranger can leave out, and nothing said about it.
fn missing_key(draft: &Draft, out: &mut Findings<'_>) {
    let omitted = |part: &&KeyPart| {
        matches!(
            part,
            KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_) | KeyPart::ApiKey
        )
    };
    let Some(part) = draft.rule.key.iter().find(omitted) else {
        return;
    };
    if draft.places.missing_key_said {
        return;
    }
    let message = format!(
        "limit `{}` does not say what happens without `{part}`",
        draft.rule.limit.name
    );
    out.warning(
        codes::MISSING_KEY_UNSET,
        draft.places.key.clone(),
        message,
        "a request may come without it; it is then counted by address",
    )
    .help("say so with missing_key = \"use:ip\", or choose \"skip\", \"deny\" or \"shared\"");
}

/// Limits that another one, for the same requests and callers, always comes before.
fn never_refuses(drafts: &[Draft], out: &mut Findings<'_>) {
    let mut groups: HashMap<_, Vec<&Draft>> = HashMap::new();
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
}

fn report(loose: &Draft, strict: &Draft, out: &mut Findings<'_>) {
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

/// Whether `strict` refuses whatever `loose` would refuse. Careful: says no in doubt.
fn covers(strict: &Draft, loose: &Draft) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    let alike = a.cost == b.cost
        && a.missing_key == b.missing_key
        && a.mode == RuleMode::Enforce
        && b.mode != RuleMode::Off
        && strict.denials == loose.denials
        && same_exemptions(strict, loose);
    if !alike {
        return false;
    }
    if a.limit.algorithm == b.limit.algorithm {
        return true;
    }
    let in_step = strict.kind == loose.kind && a.window == b.window;
    if in_step && !matches!(loose.kind, Kind::Bucket { .. }) {
        return a.quota <= b.quota;
    }
    admits_less(strict, loose)
}

fn same_exemptions(strict: &Draft, loose: &Draft) -> bool {
    let (a, b) = (&strict.rule.exemptions, &loose.rule.exemptions);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// Whether all that `strict` can admit, at its worst, is less than `loose` would refuse.
///
/// What a limit admits in a span `t` is at most `b + r x t`, where `r` is its rate and `b`
/// what it admits within its own period: every algorithm's `bound` keeps below that line.
fn admits_less(strict: &Draft, loose: &Draft) -> bool {
    let algorithm = &strict.rule.limit.algorithm;
    let most = u64::from(loose.rule.quota.get());
    let (permits, per) = rate(strict);
    match loose.kind {
        Kind::Calendar(word) => algorithm.bound(longest(word)) <= most,
        Kind::Windows(kind) => {
            let Some(window) = loose.rule.window else {
                return false;
            };
            match kind {
                Algorithm::Fixed | Algorithm::QuotaReset => algorithm.bound(window) <= most,
                // The estimate may show the last window once more: 2 b + r x t.
                Algorithm::Sliding => {
                    let paced = u128::from(permits.get()) * u128::from(window.as_nanos());
                    let paced = paced.div_ceil(u128::from(per.as_nanos())); // up: in doubt, no lint
                    2 * u128::from(algorithm.bound(per)) + paced <= u128::from(most)
                }
                // The bucket that slides out of sight makes the window longer by one.
                _ => algorithm.bound(window + window) <= most,
            }
        }
        Kind::Bucket {
            permits: refill,
            per: refill_per,
        } => {
            let slower = |percent: u128| {
                let strict = u128::from(permits.get()) * u128::from(refill_per.as_nanos());
                let loose = u128::from(refill.get()) * u128::from(per.as_nanos());
                strict * 100 <= loose * percent
            };
            if matches!(strict.kind, Kind::Bucket { .. }) {
                return strict.rule.quota <= loose.rule.quota && slower(100);
            }
            // 99 %: intervals are rounded up by less than 1 %.
            algorithm.bound(per) <= most && slower(99)
        }
    }
}

/// The rate at which a limit admits in the long run, at most.
fn rate(draft: &Draft) -> (Permits, Nanos) {
    match draft.kind {
        Kind::Bucket { permits, per } => (permits, per),
        Kind::Calendar(word) => (draft.rule.quota, shortest(word)),
        Kind::Windows(_) => (draft.rule.quota, draft.rule.window.unwrap_or(Nanos::SECOND)),
    }
}

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// The longest window of a calendar word: clocks are put back by an hour at most.
fn longest(word: Word) -> Nanos {
    Nanos::from_secs(match word {
        Word::Hour => 2 * HOUR,
        Word::Day => DAY + HOUR,
        Word::Week => 7 * DAY + HOUR,
        Word::Month => 31 * DAY + HOUR,
        Word::Year => 366 * DAY + HOUR,
    })
}

/// The shortest window of a calendar word: clocks are put forward by an hour at most.
fn shortest(word: Word) -> Nanos {
    Nanos::from_secs(match word {
        Word::Hour => HOUR / 2,
        Word::Day => DAY - HOUR,
        Word::Week => 7 * DAY - HOUR,
        Word::Month => 28 * DAY - HOUR,
        Word::Year => 365 * DAY - HOUR,
    })
}
