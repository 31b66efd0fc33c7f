//! The charges of a request: costs, exemptions and bounds.

mod body;
mod index;
mod keys;
mod several;

use std::fmt::Write;

use proptest::prelude::*;
use ratekeeper_core::Permits;

use super::*;
use crate::Descriptor;
use crate::config::{Context, parse};

/// Returns a policy of limits, each `name: lines of TOML`.
fn policy(limits: &[(&str, &str)]) -> Policy {
    let mut text = String::from("version = 1\ntimezone = \"UTC\"\n");
    for (name, lines) in limits {
        let _ = write!(
            text,
            "[[limit]]\nname = \"{name}\"\nlimit = \"5/1m\"\n{lines}\n"
        );
    }
    match parse(&text, Context::default()) {
        Ok(loaded) => loaded.policy,
        Err(errors) => panic!("{text}\n{errors:#?}"),
    }
}

/// Returns the charges of a request: `name cost key ...`, `~` before the name if a value
/// stands in, `!` if a missing key refuses.
fn charged(policy: &Policy, facts: &Facts<'_>) -> Vec<String> {
    let mut charges = Charges::default();
    policy.charges(facts, WallTime::UNKNOWN, &mut charges);
    let entries = charges.entries.iter().map(|entry| {
        let rule = &policy.rules[entry.rule as usize];
        let sign = if entry.fallback { "~" } else { "" };
        let key: Vec<_> = rule.describe_key(charges.key(entry)).collect();
        let line = format!("{sign}{} {} {}", rule.limit.name, entry.cost, key.join(" "));
        line.trim_end().to_owned()
    });
    let missing = charges.missing();
    let missing = missing.map(|rule| format!("!{}", policy.rules[rule as usize].limit.name));
    entries.chain(missing).collect()
}

/// Checks the charges of one request by one limit.
fn check(limit: &str, facts: &Facts<'_>, expected: &[&str]) {
    let policy = policy(&[("l", limit)]);
    assert_eq!(charged(&policy, facts), expected, "{limit}");
}

fn facts() -> Facts<'static> {
    Facts {
        routes: &[],
        method: "POST",
        host: "api.example.com",
        path: "/users/7",
        query: "q=x",
        ip: Some("192.0.2.1".parse().unwrap()),
        country: None,
        network: None,
        headers: &[("x-device", b"d1"), ("x-internal", b"yes")],
        cost: None,
        attributes: &[("user", "u1"), ("amount", "7"), ("odd", "7.5")],
        body: None,
        claims: None,
        descriptor: None,
    }
}

#[test]
fn costs_come_from_the_caller_the_rule_or_an_attribute() {
    let asked = |cost| Facts { cost, ..facts() };
    for (rule, cost, expected) in [
        ("", None, "l 1"),
        ("", Some(5), "l 5"),
        ("", Some(0), "l 0"),
        ("cost = 3", None, "l 3"),
        ("cost = 3", Some(5), "l 3"),
        ("cost = \"attr:amount\"", Some(5), "l 7"),
        ("cost = \"attr:odd\"", Some(5), "l 1"),
        ("cost = \"attr:none\"", Some(5), "l 1"),
    ] {
        let limit = format!("key = [\"all\"]\n{rule}");
        check(&limit, &asked(cost.map(Permits::new)), &[expected]);
    }
}

#[test]
fn of_all_prices_of_a_request_the_highest_counts() {
    let limit = r#"
        key = ["all"]
        cost = [
            { path = "/export/**", is = 3 },
            { method = ["POST", "PUT"], path = "/users/*", is = 2 },
            { host = "bulk.example.com", is = 4 },
            { header = { x-priority = ["high", "top"] }, is = 5 },
            { header.x-priority = "low", is = 1 },
        ]
    "#;
    let free: &[(&str, &[u8])] = &[];
    let low: &[(&str, &[u8])] = &[("x-priority", b"low")];
    let high: &[(&str, &[u8])] = &[("x-priority", b"low"), ("x-priority", b"high")];
    for (method, host, path, headers, expected) in [
        ("GET", "a", "/", free, "l 1"),
        ("GET", "a", "/export/all", free, "l 3"),
        ("GET", "a", "/x/..;/export/all", free, "l 3"), // as some server reads it
        ("GET", "a", "/%65xport/ALL", free, "l 3"),
        ("GET", "a", "/users/7", free, "l 1"),
        ("post", "a", "/users/7", free, "l 2"),
        ("PUT", "Bulk.example.com:80", "/export/all", free, "l 4"),
        ("GET", "a", "/export/all", low, "l 3"), // a header lowers nothing
        ("GET", "a", "/", high, "l 5"),
    ] {
        let facts = Facts {
            cost: Some(Permits::new(9)),
            method,
            host,
            path,
            headers,
            ..facts()
        };
        check(limit, &facts, &[expected]);
    }
    let all = "key = [\"all\"]\ncost = [{ is = 2 }, { path = \"/users/*\", is = 1 }]";
    check(all, &facts(), &["l 2"]);
    let exact =
        "path_case = \"sensitive\"\nkey = [\"all\"]\ncost = [{ path = \"/Users/7\", is = 2 }]";
    check(exact, &facts(), &["l 1"]);
    let unit = "key = [\"all\"]\nunit = { name = \"USD\", decimals = 2 }\n";
    let cents = format!(
        "{unit}cost = [{{ path = \"/users/*\", is = \"1.25\" }}, {{ path = \"/a\", is = 3 }}]"
    );
    for (path, expected) in [("/users/7", "l 125"), ("/a", "l 300"), ("/b", "l 100")] {
        check(&cents, &Facts { path, ..facts() }, &[expected]);
    }
}

#[test]
fn a_descriptor_is_priced_by_its_entries() {
    let policy = policy(&[(
        "l",
        "match = { descriptor.path = \"*\" }\nkey = [\"descriptor:user\"]\n\
         cost = [{ descriptor.path = \"/export\", is = 3 }]",
    )]);
    for (path, cost, expected) in [
        ("/export", None, "l 3 descriptor:user=ada"),
        ("/", None, "l 1 descriptor:user=ada"),
        ("/export", Some(0), "l 0 descriptor:user=ada"), // looks
    ] {
        let entries = [("user", "ada"), ("path", path)];
        let facts = Facts {
            cost: cost.map(Permits::new),
            descriptor: Some(Descriptor {
                domain: "edge",
                entries: &entries,
                instead: None,
            }),
            ..Facts::default()
        };
        assert_eq!(charged(&policy, &facts), [expected], "{path}");
    }
}

#[test]
fn exempt_requests_and_rules_that_are_off_are_not_charged() {
    let mut text = String::from("version = 1\n");
    for (name, mode) in [
        ("a-1", "enforce"),
        ("a-2", "shadow"),
        ("b", "enforce"),
        ("c", "off"),
    ] {
        let _ = write!(
            text,
            "[[limit]]\nname = \"{name}\"\nkey = [\"all\"]\nlimit = \"5/1m\"\nmode = \"{mode}\"\n"
        );
    }
    text += "[[exempt]]\nlimits = [\"a-*\"]\nreason = \"probes\"\n";
    text += "match = { ip = \"192.0.2.0/24\", path = \"/health\" }\n";
    let policy = parse(&text, Context::default()).unwrap().policy;
    for (path, ip, expected) in [
        ("/", "192.0.2.1", &["a-1 1", "a-2 1", "b 1"][..]),
        ("/health", "192.0.2.1", &["b 1"]),
        ("/%68ealth/", "::ffff:192.0.2.1", &["b 1"]),
        ("/health", "192.0.3.1", &["a-1 1", "a-2 1", "b 1"]),
    ] {
        let facts = Facts {
            path,
            ip: Some(ip.parse().unwrap()),
            ..facts()
        };
        assert_eq!(charged(&policy, &facts), expected, "{path} {ip}");
    }
}

#[test]
fn small_requests_stay_on_the_stack() {
    let policy = policy(&[
        ("a", "key = [\"ip\"]"),
        ("b", "key = [\"attr:user\", \"path\"]"),
        ("c", "key = [\"api_key\"]"),
        ("d", "key = [\"all\"]"),
    ]);
    let mut charges = Charges::default();
    policy.charges(&facts(), WallTime::UNKNOWN, &mut charges);
    assert_eq!(charges.entries.len(), 4);
    assert!(!charges.entries.spilled());
    assert!(!charges.bytes.0.spilled());
    // The buffer is reused.
    policy.charges(&facts(), WallTime::UNKNOWN, &mut charges);
    assert_eq!(charges.entries.len(), 4);
    assert_eq!(charges.iter(&policy).count(), 4);
}

proptest! {
    /// A limit is charged under at most four keys, each once.
    #[test]
    fn any_request_is_charged_each_key_once_at_most(
        method in ".{0,4}",
        host in ".{0,8}",
        path in ".{0,300}",
        query in "(\\PC|[&=%+]){0,40}",
        header in prop::collection::vec(any::<u8>(), 0..300),
        name in prop::sample::select(vec!["x-a", "cookie", "authorization", "x-api-key"]),
        attribute in ".{0,200}",
        ip in any::<Option<u128>>(),
    ) {
        let policy = policy(&[
            ("a", "key = [\"ip\", \"ip/24\", \"ip/48\", \"path\"]"),
            ("b", "key = [\"header:x-a\", \"cookie:a\", \"api_key\"]"),
            ("c", "key = [\"query:a\", \"attr:a\", \"host\"]\nmissing_key = \"skip\""),
            ("d", "key = [\"method\", \"route\"]\nmissing_key = \"deny\"\ncost = \"attr:a\""),
            ("e", "key = [\"attr:a\"]\nmatch = { path = \"/a*/**\", attr.a = \"*\" }"),
        ]);
        let facts = Facts {
            routes: &[],
            method: &method,
            host: &host,
            path: &path,
            query: &query,
            ip: ip.map(|bits| std::net::Ipv6Addr::from(bits).into()),
            country: None,
            network: None,
            headers: &[(name, &header)],
            cost: None,
            attributes: &[("a", &attribute)],
            body: None,
            claims: None,
            descriptor: None,
        };
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        let keys = charges.entries.iter().map(|entry| (entry.rule, charges.key(entry).as_bytes()));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        prop_assert!(keys.windows(2).all(|two| two[0] != two[1]));
        prop_assert!(keys.chunk_by(|a, b| a.0 == b.0).all(|of_rule| of_rule.len() <= 4));
        for (entry, charge) in charges.entries.iter().zip(charges.iter(&policy)) {
            let rule = &policy.rules[entry.rule as usize];
            prop_assert_eq!(charge.key.parts().count(), rule.key.len());
            for part in charge.key.parts() {
                prop_assert!(!part.is_empty() && part.len() <= 300);
            }
        }
    }
}
