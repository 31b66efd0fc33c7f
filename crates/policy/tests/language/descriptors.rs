//! Limits on descriptors: the descriptors they are for, and the keys they count.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::fmt::Write as _;

use proptest::prelude::*;
use ratekeeper_core::{Algorithm as _, Nanos, Permits};
use ratekeeper_policy::config::{Colour, Context, parse, render};
use ratekeeper_policy::{Charges, Descriptor, Facts, MissingKey, Numbers, Policy, WallTime};

/// Returns a policy of limits `l0`, `l1`, ..., each with these lines.
fn policy(limits: &[&str]) -> Policy {
    let mut text = String::from("version = 1\n");
    for (index, lines) in limits.iter().enumerate() {
        let _ = write!(
            text,
            "[[limit]]\nname = \"l{index}\"\nlimit = \"5/1m\"\n{lines}\n"
        );
    }
    match parse(&text, Context::default()) {
        Ok(loaded) => loaded.policy,
        Err(errors) => panic!("{}", render("test.toml", &text, &errors, Colour::Never)),
    }
}

fn facts<'a>(domain: &'a str, entries: &'a [(&'a str, &'a str)]) -> Facts<'a> {
    Facts {
        descriptor: Some(Descriptor {
            domain,
            entries,
            instead: None,
        }),
        ..Facts::default()
    }
}

/// Returns the charges of a request: `name key ...`, with `~` if a value stands in, `!` if a
/// missing key refuses.
fn charged(policy: &Policy, facts: &Facts<'_>) -> Vec<String> {
    let mut charges = Charges::default();
    policy.charges(facts, WallTime::UNKNOWN, &mut charges);
    let entries = charges.entries.iter().map(|entry| {
        let rule = &policy.rules[entry.rule as usize];
        let key: Vec<_> = rule.describe_key(charges.key(entry)).collect();
        let line = format!("{} {}", rule.limit.name, key.join(" "));
        line.trim_end().to_owned()
    });
    let missing = charges.missing();
    let missing = missing.map(|rule| format!("!{}", policy.rules[rule as usize].limit.name));
    entries.chain(missing).collect()
}

/// Checks one descriptor of domain `edge`: `plan=pro user=ada`.
fn check(limit: &str, descriptor: &str, expected: &[&str]) {
    let entries: Vec<_> = descriptor
        .split_whitespace()
        .map(|entry| entry.split_once('=').unwrap())
        .collect();
    let policy = policy(&[limit]);
    let found = charged(&policy, &facts("edge", &entries));
    assert_eq!(found, expected, "{limit}: {descriptor}");
}

#[test]
fn a_limit_is_for_exactly_the_entries_it_names() {
    let user = "key = [\"descriptor:user\"]";
    let both = "match = { descriptor.plan = \"pro\" }\nkey = [\"descriptor:user\"]";
    for (limit, descriptor, expected) in [
        (user, "user=ada", &["l0 descriptor:user=ada"][..]),
        (user, "user=ada plan=pro", &[]),
        (user, "plan=pro", &[]),
        (user, "", &[]),
        (both, "plan=pro user=ada", &["l0 descriptor:user=ada"]),
        (both, "user=ada plan=pro", &["l0 descriptor:user=ada"]),
        (both, "plan=free user=ada", &[]),
        (both, "plan=pro", &[]),
        (both, "user=ada", &[]),
        (both, "plan=pro user=ada x=y", &[]),
        (both, "plan=pro user=ada user=bob", &[]),
    ] {
        check(limit, descriptor, expected);
    }
}

#[test]
fn values_are_exact_listed_negated_or_patterns() {
    let yes = &["l0"][..];
    let no = &[][..];
    for (values, value, expected) in [
        ("\"pro\"", "pro", yes),
        ("\"pro\"", "Pro", no),
        ("\"pro\"", "", no),
        ("[\"pro\", \"team\"]", "team", yes),
        ("[\"pro\", \"team\"]", "free", no),
        ("\"!free\"", "pro", yes),
        ("\"!free\"", "free", no),
        ("[\"p*\", \"!pilot\"]", "pro", yes),
        ("[\"p*\", \"!pilot\"]", "pilot", no),
        ("\"*\"", "any", yes),
        ("\"*\"", "", yes),
        ("\"/api/*\"", "/api/", yes),
        ("\"/api/*\"", "/api", no),
        ("\"*.example.com\"", "a.example.com", yes),
        ("\"*.example.com\"", "example.com", no),
        ("\"a*z\"", "az", yes),
        ("\"a*z\"", "ab", no),
        ("\"*b*\"", "abc", yes),
        ("\"*b*\"", "acd", no),
        ("\"a*b*a\"", "aba", yes),
        ("\"a*a\"", "a", no),
    ] {
        let limit = format!("match = {{ descriptor.plan = {values} }}\nkey = [\"all\"]");
        check(&limit, &format!("plan={value}"), expected);
    }
}

#[test]
fn entries_of_one_key_have_numbers() {
    let limit = "match = { descriptor.generic_key = \"a\", descriptor.\"generic_key#2\" = \"*\" }\n\
                 key = [\"descriptor:generic_key#2\"]";
    for (descriptor, expected) in [
        (
            "generic_key=a generic_key=b",
            &["l0 descriptor:generic_key#2=b"][..],
        ),
        ("generic_key=b generic_key=a", &[]),
        ("generic_key=a", &[]),
        ("generic_key=a generic_key=b generic_key=c", &[]),
    ] {
        check(limit, descriptor, expected);
    }
}

#[test]
fn a_domain_alone_is_for_all_its_descriptors() {
    let limits = [
        "match = { domain = \"edge\" }\nkey = [\"all\"]",
        "match = { domain = \"!edge\" }\nkey = [\"all\"]",
        "match = { domain = [\"edge\", \"inner\"], descriptor.user = \"*\" }\nkey = [\"all\"]",
        "match = { domain = \"e*\", descriptor.user = \"*\" }\nkey = [\"all\"]",
        "key = [\"descriptor:user\"]",
    ];
    let policy = policy(&limits);
    let user: &[(&str, &str)] = &[("user", "ada")];
    let many = vec![("user", "ada"); 100];
    for (domain, entries, expected) in [
        (
            "edge",
            user,
            &["l0", "l2", "l3", "l4 descriptor:user=ada"][..],
        ),
        ("inner", user, &["l1", "l2", "l4 descriptor:user=ada"]),
        ("east", user, &["l1", "l3", "l4 descriptor:user=ada"]),
        ("edge", &[], &["l0"]),
        ("edge", &many, &["l0"]),
        ("", &[], &[]),
        ("", user, &["l4 descriptor:user=ada"]),
    ] {
        // An empty domain is no domain but `edge`.
        let expected: Vec<_> = match domain {
            "" => ["l1"].iter().chain(expected).copied().collect(),
            _ => expected.to_vec(),
        };
        assert_eq!(
            charged(&policy, &facts(domain, entries)),
            expected,
            "{domain}"
        );
    }
}

#[test]
fn limits_on_descriptors_and_on_requests_do_not_meet() {
    let policy = policy(&[
        "match = { domain = \"!x\" }\nkey = [\"all\"]",
        "match = { path = \"!/x\" }\nkey = [\"all\"]",
        "key = [\"descriptor:user\"]\nmissing_key = \"deny\"",
        "key = [\"all\"]",
    ]);
    assert_eq!(charged(&policy, &Facts::default()), ["l1", "l3"]);
    let entries = [("user", "")];
    assert_eq!(charged(&policy, &facts("edge", &entries)), ["l0", "!l2"]);
    for rule in &policy.rules {
        let on_descriptors = ["l0", "l2"].contains(&&*rule.limit.name);
        assert_eq!(rule.is_for_descriptors(), on_descriptors);
        assert_eq!(rule.applies_to(&facts("edge", &entries)), on_descriptors);
        assert_eq!(rule.applies_to(&Facts::default()), !on_descriptors);
    }
}

#[test]
fn exemptions_are_for_one_kind_as_well() {
    let text = "version = 1\n\
                [[limit]]\nname = \"user\"\nkey = [\"descriptor:user\"]\nlimit = \"5/1m\"\n\
                [[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"5/1m\"\n\
                [[exempt]]\nlimits = [\"*\"]\nmatch = { path = \"!/api/**\" }\n\
                [[exempt]]\nlimits = [\"*\"]\nmatch = { descriptor.user = \"probe\" }\n";
    let policy = parse(text, Context::default()).unwrap().policy;
    let request = |path| Facts {
        path,
        ..Facts::default()
    };
    assert_eq!(charged(&policy, &request("/")), [""; 0]);
    assert_eq!(charged(&policy, &request("/api/a")), ["all"]);
    for (user, expected) in [("probe", &[][..]), ("ada", &["user descriptor:user=ada"])] {
        assert_eq!(
            charged(&policy, &facts("edge", &[("user", user)])),
            expected
        );
    }
}

#[test]
fn an_empty_value_matches_and_is_missing_as_a_key() {
    for (missing, expected) in [
        ("", &["l0 descriptor:user=~"][..]),
        ("missing_key = \"shared\"", &["l0 descriptor:user=~"]),
        ("missing_key = \"skip\"", &[]),
        ("missing_key = \"deny\"", &["!l0"]),
        (
            "missing_key = \"use:descriptor:plan\"",
            &["l0 descriptor:user=~descriptor:plan=pro"],
        ),
    ] {
        let limit = format!(
            "match = {{ descriptor.plan = \"*\" }}\nkey = [\"descriptor:user\"]\n{missing}"
        );
        check(&limit, "user= plan=pro", expected);
    }
    let defaults = "[defaults]\nmissing_key = \"use:ip\"\n[[limit]]\nname = \"a\"\nlimit = \"5/1m\"\n\
                    key = [\"descriptor:user\"]";
    let loaded = parse(&format!("version = 1\n{defaults}"), Context::default()).unwrap();
    assert_eq!(loaded.policy.rules[0].missing_key, MissingKey::Shared);
}

#[test]
fn no_two_descriptors_share_a_key() {
    let limit = "key = [\"descriptor:a\", \"descriptor:b\"]";
    let policy = policy(&[limit]);
    let key = |a, b| {
        let mut charges = Charges::default();
        policy.charges(
            &facts("edge", &[("a", a), ("b", b)]),
            WallTime::UNKNOWN,
            &mut charges,
        );
        charges.key(&charges.entries[0]).as_bytes().to_vec()
    };
    let values = ["x", "x_y", "y", "y_z", "x\u{1}y", "\u{1}", "z"];
    let mut keys = Vec::new();
    for a in values {
        for b in values {
            keys.push(key(a, b));
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), values.len() * values.len());
}

#[test]
fn the_caller_sets_costs_and_quotas() {
    let policy = policy(&[
        "key = [\"descriptor:user\"]\ncost = 3",
        "match = { domain = \"e\" }\nkey = [\"all\"]",
    ]);
    let numbers = |permits| Numbers::new(Permits::new(permits), Nanos::from_secs(60)).unwrap();
    let ask = |cost: Option<u64>, instead| {
        let mut facts = facts("e", &[("user", "ada")]);
        facts.cost = cost.map(Permits::new);
        if let Some(descriptor) = &mut facts.descriptor {
            descriptor.instead = instead;
        }
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        let each = charges.entries.iter().map(|entry| {
            let limit = charges.limit(entry, &policy.rules[entry.rule as usize]);
            // Counters of their own, also in a shared store.
            let is_named = limit.name.ends_with("=7/1m");
            assert_eq!(is_named, limit.algorithm.capacity() == Permits::new(7));
            format!("{}/{}", entry.cost, limit.algorithm.capacity())
        });
        (each.collect::<Vec<_>>().join(" "), charges.uncharged.len())
    };
    for (cost, instead, expected, barred) in [
        (None, None, "3/5 1/5", 0),
        (Some(2), None, "3/5 2/5", 0),
        (Some(0), None, "0/5 0/5", 0),
        (None, Some(numbers(7)), "3/7 1/7", 0),
        (None, Some(numbers(5)), "3/5 1/5", 0),
        (None, Some(numbers(0)), "", 2),
    ] {
        assert_eq!(ask(cost, instead), (expected.to_owned(), barred));
    }
    assert!(Numbers::new(Permits::ONE, Nanos::ZERO).is_err());
    assert!(Numbers::new(Permits::ONE, Nanos::MAX).is_err());
}

/// Generates names and values that often coincide.
fn entry() -> impl Strategy<Value = (String, String)> {
    let value = prop::sample::select(vec!["", "a", "ab", "abc", "b", "bc", "aXb", "c"]);
    let key = prop::sample::select(vec!["u", "v", "w", "u"]);
    (key, value).prop_map(|(key, value)| (key.to_owned(), value.to_owned()))
}

fn limit() -> impl Strategy<Value = String> {
    const VALUES: [&str; 12] = [
        "a", "ab", "a*", "ab*", "*b", "*c", "a*b", "*", "*b*", "!a", "!*b", "b",
    ];
    let names = prop::sample::subsequence(&["u", "v", "w", "u#2"][..], 0..4);
    let values = prop::collection::vec(prop::sample::subsequence(&VALUES[..], 1..4), 4);
    let domain = prop::sample::subsequence(&["d", "e", "e*", "!d"][..], 0..3);
    let counted = prop::sample::select(vec!["all", "descriptor:u", "descriptor:v"]);
    (names, values, domain, counted).prop_map(|(names, values, domain, counted)| {
        let entries = names.iter().zip(values);
        let mut fields: Vec<_> = entries
            .map(|(name, values)| format!("descriptor.\"{name}\" = {values:?}"))
            .collect();
        if !domain.is_empty() || fields.is_empty() {
            let domain = if domain.is_empty() { vec!["d"] } else { domain };
            fields.push(format!("domain = {domain:?}"));
        }
        format!("match = {{ {} }}\nkey = [\"{counted}\"]", fields.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The index changes nothing: every limit that applies is charged, once, in order.
    #[test]
    fn the_index_and_a_search_find_the_same_limits(
        limits in prop::collection::vec(limit(), 1..12),
        domain in prop::sample::select(vec!["d", "e", "ee", ""]),
        entries in prop::collection::vec(entry(), 0..4),
    ) {
        let limits: Vec<_> = limits.iter().map(String::as_str).collect();
        let policy = policy(&limits);
        let entries: Vec<_> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
        let facts = facts(domain, &entries);
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        let found: Vec<_> = charges.entries.iter().map(|entry| entry.rule).collect();
        let expected: Vec<u32> = (0..)
            .zip(&policy.rules)
            .filter(|(_, rule)| rule.applies_to(&facts))
            .map(|(index, _)| index)
            .collect();
        prop_assert_eq!(found, expected, "{:?} {}", entries, limits.join("\n"));
    }
}
