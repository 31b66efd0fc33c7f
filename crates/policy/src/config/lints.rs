//! Lints: policies that run but are probably not as intended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ratekeeper_core::{Algorithm as _, Nanos, Permits, Share};

use super::algorithm::AlgorithmSpec;
use super::codes;
use super::diagnostic::Findings;
use super::limit::Draft;
use super::quantity::QuantityKind;
use super::refusal::Responses;
use super::{shares, within};
use crate::calendar::Word;
use crate::{Cost, Field, KeyPart, MissingKey, RuleMode, Settings};

/// Maximum number of limits with the same key and match that are compared with each other.
pub(super) const MAX_COMPARED: usize = 50;

/// Reports a policy that cannot be intended: one without limits (a file cut short reads like
/// that, and would switch off all limiting), or with a limit that can never let a request pass.
pub(super) fn impossible(drafts: &[Draft], settings: &Settings, out: &mut Findings<'_>) {
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
            format!("costs more than the {capacity} it holds"),
        )
        .related(draft.places.quantity.clone())
        .help(format!(
            "write cost = {capacity} or less, or raise the limit to at least {cost}"
        ));
    }
}

/// Reports all warnings.
pub(super) fn lints(
    drafts: &[Draft],
    responses: &Responses,
    settings: &Settings,
    out: &mut Findings<'_>,
) {
    off(drafts, out);
    for draft in drafts {
        missing_key(draft, out);
        less_than_kept(draft, out);
        stands_in_for_itself(draft, out);
        shares::no_share(draft, settings, out);
    }
    never_refuses(drafts, out);
    responses.unused(out);
}

/// Warns of limits that are off: one finding for each place that sets it.
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

/// Warns of a key part that clients can leave out, if the policy does not handle that case.
fn missing_key(draft: &Draft, out: &mut Findings<'_>) {
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
        KeyPart::Bearer => true,
        _ => false,
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

/// Warns of a limit that refuses clients that keep to it, unless the name of its algorithm
/// implies that: a leaky bucket, a gap and a warm-up are chosen because they space requests.
fn less_than_kept(draft: &Draft, out: &mut Findings<'_>) {
    let share = draft.rule.least_served();
    let says_so = match draft.kind {
        QuantityKind::Windows(algorithm) => matches!(algorithm, AlgorithmSpec::SlidingLog { .. }),
        _ => true,
    };
    let Some(quota) = draft
        .rule
        .keeps_to
        .filter(|_| !says_so && share != Share::ALL)
    else {
        return;
    };
    let name = &draft.rule.limit.name;
    let (permits, per) = (quota.permits(), quota.per());
    let label = if share == Share::NONE {
        format!("no share is certain for one that sends {permits} at once each {per}")
    } else {
        let (served, of) = (share.served(), share.of());
        format!("serves {served} of {of} for one that sends {permits} at once each {per}")
    };
    let message = format!("limit `{name}` may refuse a client that keeps to it");
    out.warning(
        codes::LESS_THAN_KEPT,
        draft.places.quantity.clone(),
        message,
        label,
    )
    .help("leave `algorithm` out: a token bucket serves such a client whole");
}

/// Warns of a key part that is its own stand-in. Addresses, the default stand-in, are missing
/// from no request that came over the network.
fn stands_in_for_itself(draft: &Draft, out: &mut Findings<'_>) {
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
    within::never_refuse(drafts, out);
}

pub(super) fn report(loose: &Draft, strict: &Draft, out: &mut Findings<'_>) {
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
pub(super) fn alike(strict: &Draft, loose: &Draft) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    a.cost == b.cost
        && a.missing_key == b.missing_key
        && a.mode == RuleMode::Enforce
        && b.mode != RuleMode::Off
        && strict.denials == loose.denials
        && same_exemptions(strict, loose)
}

/// Returns true if `strict` refuses every request that `loose` would refuse: because they are the
/// same, or count alike to a lower number, or `strict` admits less at its worst.
fn covers(strict: &Draft, loose: &Draft) -> bool {
    let (a, b) = (&strict.rule, &loose.rule);
    let is_same = a.limit.algorithm == b.limit.algorithm;
    alike(strict, loose) && (is_same || counts_less(strict, loose) || admits_less(strict, loose))
}

/// Returns true if both count in the same way over the same windows, and `strict` has the lower
/// number.
pub(super) fn counts_less(strict: &Draft, loose: &Draft) -> bool {
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

fn same_exemptions(strict: &Draft, loose: &Draft) -> bool {
    let (a, b) = (&strict.rule.exemptions, &loose.rule.exemptions);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// Returns true if everything that `strict` can admit, at its worst, is less than `loose` would
/// refuse. Returns false in doubt: only windows that all begin afresh and buckets are compared.
///
/// A limit admits at most `b + r x t` in a span `t`, where `r` is its rate and `b` its bound for
/// its own period.
pub(super) fn admits_less(strict: &Draft, loose: &Draft) -> bool {
    // The rate of a post-paid limit, cut to microseconds, is a little above the written one, and
    // permits of a limit of concurrency come back.
    if matches!(
        strict.kind,
        QuantityKind::PostPaid { .. } | QuantityKind::AtOnce { .. }
    ) {
        return false;
    }
    let algorithm = &strict.rule.limit.algorithm;
    let quota = u64::from(loose.rule.quota.get());
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
fn rate(draft: &Draft) -> (Permits, Nanos) {
    match draft.kind {
        QuantityKind::Bucket { permits, per, .. }
        | QuantityKind::Steps { permits, per }
        | QuantityKind::PostPaid { permits, per }
        | QuantityKind::AtOnce { permits, per } => (permits, per),
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
        Word::Week => 7 * DAY + HOUR,
        Word::Month => 31 * DAY + HOUR,
        Word::Year => 366 * DAY + HOUR,
    })
}

/// Returns the shortest window of a calendar word: clocks are put forward by an hour at most.
fn shortest(word: Word) -> Nanos {
    Nanos::from_secs(match word {
        Word::Hour => HOUR / 2,
        Word::Day => DAY - HOUR,
        Word::Week => 7 * DAY - HOUR,
        Word::Month => 28 * DAY - HOUR,
        Word::Year => 365 * DAY - HOUR,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratekeeper_core::{Algorithm as _, AnyAlgorithm, AnyState, Permits, Time};

    use super::*;
    use crate::config::{Context, parse};

    /// Returns two limits for the same requests, and the findings that one never refuses.
    fn needless(first: &str, second: &str) -> (Vec<AnyAlgorithm>, Vec<String>) {
        let limit = |name: &str, lines: &str| {
            format!("[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\n{lines}\n")
        };
        let head = "version = 1\ntimezone = \"UTC\"\n";
        let text = format!("{head}{}{}", limit("a", first), limit("b", second));
        let loaded = parse(&text, Context::default()).unwrap();
        let found = loaded
            .warnings
            .iter()
            .filter(|found| found.code == codes::NEVER_REFUSES);
        let message = |found: &crate::config::Diagnostic| found.message.clone();
        let algorithms = loaded
            .policy
            .rules
            .iter()
            .map(|rule| rule.limit.algorithm.clone());
        (algorithms.collect(), found.map(message).collect())
    }

    #[test]
    fn the_looser_one_is_found() {
        let day = "limit = \"20000/day\"";
        for (first, second, name) in [
            ("limit = \"10/1m\"", day, Some("`b`")),
            (day, "limit = \"10/1m\"", Some("`a`")),
            ("limit = \"15/1m\"", day, None),
            ("limit = \"10/1m\"", "limit = \"11/1m\"", Some("`b`")),
            ("limit = \"10/1m\"", "limit = \"10/1m\"", Some("`b`")),
            ("limit = \"10/1m\"", "limit = \"11/2m\"", None),
            (
                "limit = \"10/1m\"",
                "limit = \"11/1m\"\nalgorithm = \"fixed-window\"",
                None,
            ),
            (
                "limit = \"10/1m\"",
                "limit = \"50/1m\"\nalgorithm = \"fixed-window\"",
                Some("`b`"),
            ),
            (
                "limit = \"10/1m\"\nmode = \"shadow\"",
                "limit = \"11/1m\"",
                None,
            ),
            ("limit = \"10/1m\"", "limit = \"11/1m\"\ncost = 2", None),
            (
                "limit = \"10/1m\"",
                "limit = \"11/1m\"\nmatch = { path = \"/a\" }",
                Some("`b`"),
            ),
            (
                "limit = \"10/1m\"\ncount_denied = true",
                "limit = \"11/1m\"",
                None,
            ),
            ("spacing = \"1s\"", "limit = \"120/1m\"", Some("`b`")),
            ("spacing = \"1s\"", "limit = \"50/1m\"", None),
            (
                "bucket = { size = 5, refill = \"1/1s\" }",
                "bucket = { size = 6, refill = \"2/1s\" }",
                Some("`b`"),
            ),
            (
                "bucket = { size = 5, refill = \"2/1s\" }",
                "bucket = { size = 6, refill = \"1/1s\" }",
                None,
            ),
            (
                "limit = \"10/1m\"",
                "limit = \"20/1m\"\nalgorithm = \"sliding-window-log\"",
                None, // only the same way of counting is compared with a log
            ),
            (
                "limit = \"10/1m\"",
                "limit = \"20/1m\"\nalgorithm = { name = \"sliding-window-log\", min_gap = \"1s\" }",
                None,
            ),
            (
                "spacing = \"1s\"",
                "bucket = { size = 6, refill = \"2/1s\" }\nqueue = { max = 9 }",
                None,
            ),
            (
                "limit = \"1/1m\"",
                "limit = \"99/1m\"\nalgorithm = \"hybrid\"",
                None,
            ),
        ] {
            let (_, found) = needless(first, second);
            assert_eq!(
                found.len(),
                usize::from(name.is_some()),
                "{first} {second} {found:?}"
            );
            assert!(
                found.iter().all(|found| found.contains(name.unwrap())),
                "{found:?}"
            );
        }
    }

    /// One key of a limit: looks (`false`) or charges (`true`), and returns true if it allows.
    type Key = Box<dyn FnMut(Time, bool) -> bool>;

    fn key(algorithm: &AnyAlgorithm) -> Key {
        let (algorithm, mut state) = (algorithm.clone(), AnyState::default());
        Box::new(move |now, charge| {
            let decision = if charge {
                algorithm.decide(&mut state, now, Permits::ONE)
            } else {
                algorithm.look(&state, now, Permits::ONE)
            };
            decision.verdict.allows()
        })
    }

    fn quantity() -> impl Strategy<Value = String> {
        let algorithm = prop::sample::select(vec![
            "\"sliding-window-counter\"",
            "\"fixed-window\"",
            "\"quota-reset\"",
            "\"token-bucket\"",
            "{ name = \"sub-buckets\", count = 3, edge = \"full\" }",
            "{ name = \"sub-buckets\", count = 4, edge = \"weighted\" }",
            "{ name = \"sub-buckets\", count = 5, edge = \"drop\" }",
            "\"sliding-window-log\"",
            "\"hybrid\"",
            "\"exponential\"",
            "\"leaky-bucket\"\nqueue = { max = 3 }",
        ]);
        let number = prop_oneof![1..8_u32, 1..200_u32];
        let period = prop_oneof![1..8_u32, 1..200_u32];
        prop_oneof![
            4 => (number.clone(), period.clone(), algorithm)
                .prop_map(|(n, p, with)| format!("limit = \"{n}/{p}s\"\nalgorithm = {with}")),
            1 => (1..400_u32).prop_map(|n| format!("limit = \"{n}/hour\"")),
            3 => (number.clone(), number, period, any::<bool>()).prop_map(|(s, n, p, step)| {
                format!("bucket = {{ size = {s}, refill = \"{n}/{p}s\", step = {step} }}")
            }),
            1 => (100..20_000_u32).prop_map(|p| format!("spacing = \"{p}ms\"")),
        ]
    }

    /// Returns the same, where the second limit is for some of the requests only.
    fn needless_within(first: &str, second: &str) -> (Vec<AnyAlgorithm>, Vec<String>) {
        needless(first, &format!("{second}\nmatch = {{ path = \"/login\" }}"))
    }

    #[test]
    fn a_limit_within_a_tighter_one_on_everything_is_found() {
        for (wide, narrow, found) in [
            ("limit = \"10/1m\"", "limit = \"100/1m\"", true),
            ("limit = \"100/1m\"", "limit = \"10/1m\"", false),
            (
                "limit = \"10/1m\"\nalgorithm = \"quota-reset\"",
                "limit = \"11/1m\"\nalgorithm = \"quota-reset\"",
                false,
            ),
            (
                "limit = \"10/1m\"\nmode = \"shadow\"",
                "limit = \"100/1m\"",
                false,
            ),
            ("limit = \"10/1m\"\ncost = 2", "limit = \"100/1m\"", false),
            (
                "limit = \"10/1m\"\nmissing_key = \"skip\"",
                "limit = \"100/1m\"",
                false,
            ),
        ] {
            let (_, messages) = needless_within(wide, narrow);
            assert_eq!(
                messages.len(),
                usize::from(found),
                "{wide} {narrow} {messages:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            max_global_rejects: 1_000_000, // most pairs of limits are not nested
            ..ProptestConfig::with_cases(3_000)
        })]

        /// A limit reported as never refusing within another never does, whatever else comes.
        #[test]
        fn what_is_found_within_never_refuses(
            first in quantity(),
            second in quantity(),
            steps in prop::collection::vec((prop_oneof![
                Just(0_u64), Just(1), 1..2_000_000_000_u64, 1..200_000_000_000_u64,
            ], any::<bool>()), 200),
            tries in 1..30_usize,
        ) {
            let (algorithms, found) = needless_within(&first, &second);
            prop_assume!(!found.is_empty());
            let mut keys: Vec<Key> = algorithms.iter().map(key).collect();
            let mut now = Time::ZERO;
            for (gap, of_both) in steps {
                now = now + Nanos::from_nanos(gap);
                for _ in 0..tries {
                    if !keys[0](now, false) {
                        break;
                    }
                    if of_both {
                        prop_assert!(keys[1](now, false), "{found:?}\n{first}\n{second}");
                        keys[1](now, true);
                    }
                    keys[0](now, true);
                }
            }
        }

        /// A limit reported as never refusing does not refuse, at whatever times requests come.
        #[test]
        fn what_is_found_never_refuses(
            first in quantity(),
            second in quantity(),
            gaps in prop::collection::vec(prop_oneof![
                Just(0_u64), Just(1), 1..2_000_000_000_u64, 1..200_000_000_000_u64,
            ], 100),
            tries in 1..60_usize,
        ) {
            let (algorithms, found) = needless(&first, &second);
            for message in found {
                let loose = usize::from(message.contains("`b`"));
                let mut keys: Vec<Key> = algorithms.iter().map(key).collect();
                let mut now = Time::ZERO;
                for gap in &gaps {
                    now = now + Nanos::from_nanos(*gap);
                    for _ in 0..tries {
                        let strict = keys[1 - loose](now, false);
                        prop_assert!(!strict || keys[loose](now, false), "{message}\n{first}\n{second}");
                        if !strict {
                            break;
                        }
                        for key in &mut keys {
                            key(now, true);
                        }
                    }
                }
            }
        }
    }
}
