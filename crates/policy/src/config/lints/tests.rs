//! Lints: which limits are found needless, and that those never refuse.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm as _, AnyAlgorithm, AnyState, Nanos, Permits, Time};

use super::*;
use crate::config::{Context, PolicyFiles, parse, parse_file};

/// Returns two limits for the same requests, and the findings that one never refuses.
fn needless(first: &str, second: &str) -> (Vec<AnyAlgorithm>, Vec<String>) {
    let limit = |name: &str, lines: &str| {
        format!("[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\n{lines}\n")
    };
    let head = "version = 1\ntimezone = \"UTC\"\n[listen.proxy]\nupstream = \"http://127.0.0.1:1\"\n\
                [[listen.proxy.route]]\nname = \"spare\"\nupstream = \"http://127.0.0.1:2\"\n";
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
fn a_limit_that_sends_requests_to_a_route_makes_none_needless() {
    let [strict, loose] = ["limit = \"10/1m\"", "limit = \"11/1m\""];
    let diverts = |limit| format!("{limit}\non_limit = \"route:spare\"");
    assert!(needless(&diverts(strict), loose).1.is_empty());
    assert_eq!(needless(strict, &diverts(loose)).1.len(), 1);
}

#[test]
fn a_limit_that_lets_pass_while_the_store_fails_makes_none_needless() {
    let limit =
        |number: u32, outage| format!("limit = \"{number}/1m\"\non_store_error = \"{outage}\"");
    for (strict, loose, count) in [
        ("allow", "local", 0),
        ("allow", "deny", 0),
        ("local", "deny", 0),
        ("local", "allow", 1),
        ("deny", "local", 1),
        ("allow", "allow", 1),
    ] {
        let (_, found) = needless(&limit(10, strict), &limit(11, loose));
        assert_eq!(found.len(), count, "{strict} {loose}: {found:?}");
    }
}

#[test]
fn the_looser_limit_is_found() {
    for (first, second, name) in [
        ("limit = \"10/1m\"", "limit = \"20000/day\"", None),
        (
            "limit = \"20000/day\"",
            "limit = \"10000/day\"",
            Some("`a`"),
        ),
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
            None,
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
            None,
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
        (
            "limit = \"10/1m\"\nactive = { hours = \"01:00-06:00\" }",
            "limit = \"11/1m\"",
            None,
        ),
        (
            "limit = \"10/1m\"",
            "limit = \"11/1m\"\nactive = { hours = \"01:00-06:00\" }",
            Some("`b`"),
        ),
        (
            "limit = \"10/1m\"\nactive = { hours = \"01:00-06:00\" }",
            "limit = \"11/1m\"\nactive = { hours = \"01:00-06:00\" }",
            Some("`b`"),
        ),
        (
            "limit = \"10/1m\"\nactive = { hours = \"01:00-06:00\" }",
            "limit = \"11/1m\"\nactive = { hours = \"06:00-01:00\" }",
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// A limit reported as never refusing does not refuse, at whatever times requests come.
    #[test]
    fn a_limit_found_needless_never_refuses(
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

/// Returns codes, messages and helps of all findings.
fn findings(text: &str) -> String {
    let limit = "[[limit]]\nname = \"a\"\nlimit = \"1/1s\"\n";
    let text = format!("version = 1\n{text}\n{limit}");
    let text = if text.contains("key = [") {
        text.replacen("[[limit]]\n", "", 1)
            .replacen("key = [", "[[limit]]\nkey = [", 1)
    } else {
        format!("{text}key = [\"ip\"]\n")
    };
    let found = parse(&text, Context::default()).map_or_else(|found| found, |it| it.warnings);
    let line = |found: &crate::config::Diagnostic| {
        let help = found.help.clone().unwrap_or_default();
        format!("{}: {}; {help}\n", found.code, found.message)
    };
    found.iter().map(line).collect()
}

#[test]
fn an_address_that_comes_as_a_text_is_named_with_an_edit() {
    for header in [
        "cf-connecting-ip",
        "True-Client-IP",
        "x-real-ip",
        "cf-connecting-ipv6",
        "X-Envoy-External-Address",
        "client-ip",
    ] {
        let found = findings(&format!(
            "key = [\"header:{header}\"]\nmissing_key = \"use:ip\""
        ));
        let lower = header.to_lowercase();
        assert!(
            found.starts_with("RK0313: limit `a` counts by the text of "),
            "{found}"
        );
        assert!(
            found.contains(&format!("[client_ip] with header = \"{lower}\"")),
            "{found}"
        );
    }
    let found = findings("key = [\"header:x-original-forwarded-for\"]\nmissing_key = \"use:ip\"");
    assert!(found.contains("begins as clients write it"), "{found}");
    let found = findings("key = [\"header:x-api-key\"]\nmissing_key = \"use:ip\"");
    assert_eq!(found, "");
}

#[test]
fn a_header_that_no_proxy_sends_is_named() {
    let proxies = "[client_ip]\ntrusted_proxies = [\"10.0.0.0/8\"]\nheader = ";
    let found = findings(&format!("{proxies}\"X_Forwarded_For\""));
    assert!(
        found.contains("write header = \"x-forwarded-for\""),
        "{found}"
    );
    assert_eq!(findings(&format!("{proxies}\"X-Forwarded-For\"")), "");
}

#[test]
fn proxies_that_are_everybody_together_are_refused() {
    for (proxies, is_all) in [
        ("\"0.0.0.0/1\", \"128.0.0.0/1\"", true),
        ("\"::/1\", \"10.0.0.0/8\", \"8000::/1\"", true),
        ("\"0.0.0.0/2\", \"128.0.0.0/1\"", false),
    ] {
        let found = findings(&format!("[client_ip]\ntrusted_proxies = [{proxies}]"));
        assert_eq!(
            found.contains("together trust every address"),
            is_all,
            "{found}"
        );
    }
}

#[test]
fn settings_of_tokens_that_nothing_asks_for_are_found() {
    let jwt = "[jwt]\nkeys = \"file:jwks.json\"\nalgorithms = [\"RS256\"]\n";
    for (key, more, is_unused) in [
        ("ip", "", true),
        ("jwt:sub", "missing_key = \"use:ip\"\n", false),
        ("ip", "missing_key = \"use:jwt:sub\"\n", false),
        ("ip", "match = { jwt.plan = \"pro\" }\n", false),
        (
            "ip",
            "plans = { pro = \"9/1m\" }\n[plan]\nfrom = \"jwt:plan\"\ndefault = \"free\"\n",
            false,
        ),
        (
            "ip",
            "plans = { pro = \"9/1m\" }\n[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n",
            true,
        ),
        (
            "ip",
            "[[exempt]]\nlimits = [\"*\"]\nmatch = { jwt.plan = \"pro\" }\n",
            false,
        ),
    ] {
        let text = format!(
            "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"{key}\"]\nlimit = \"5/1m\"\n{more}{jwt}"
        );
        let keys = include_str!("../../../tests/keys/jwks.json");
        let files = PolicyFiles::read(&text, |_, _| Ok(keys.to_owned()));
        let loaded = parse_file(&text, &files, Context::default(), Time::ZERO).unwrap();
        let found = loaded
            .warnings
            .iter()
            .any(|it| it.message == "[jwt] has no effect");
        assert_eq!(found, is_unused, "{text}{:#?}", loaded.warnings);
    }
}

#[test]
fn values_that_a_request_may_still_have_are_no_contradiction() {
    for values in [
        "method = [\"GET\", \"!GET\"]",     // HEAD is read as GET as well
        "path = [\"/Login\", \"!/Login\"]", // /login matches
        "host = [\"*.example.com\", \"!a.example.com\"]",
        "ip = [\"10.0.0.0/8\", \"!10.1.0.0/16\"]",
        "host = \"!a.example.com\"",
        "header.x-a = [\"a\", \"!a\"]",
    ] {
        let found = findings(&format!("key = [\"ip\"]\nmatch = {{ {values} }}"));
        assert_eq!(found, "", "{values}");
    }
}
