//! The charges of a request: matching, exemptions, keys and costs.

use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::BodyFields;
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
fn a_made_up_second_credential_gains_nothing() {
    let keys = |limit: &str, headers: &[(&str, &[u8])]| {
        let facts = Facts { headers, ..facts() };
        charged(&policy(&[("l", limit)]), &facts)
    };
    let both = "key = [\"api_key\"]";
    let real: (&str, &[u8]) = ("authorization", b"Bearer real");
    let [bearer] = &*keys(both, &[real]) else {
        panic!("one credential must give one key");
    };
    for made_up in [b"x1", b"x2"] {
        let found = keys(both, &[("x-api-key", made_up), real]);
        assert_eq!(found.len(), 2);
        assert!(found.contains(bearer), "{found:?}");
        // Another part of the key stands in each of them.
        let limit = "key = [\"ip\", \"api_key\", \"attr:user\"]";
        let found = keys(limit, &[("x-api-key", made_up), real]);
        assert_eq!(found.len(), 2);
        assert_ne!(found[0], found[1]);
        assert!(found.iter().all(|key| key.ends_with(" attr:user=u1")));
    }
    // The same value twice is one credential; an empty one is no credential.
    assert_eq!(
        keys(both, &[("x-api-key", b"real"), real]),
        std::slice::from_ref(bearer)
    );
    assert_eq!(
        keys(both, &[("x-api-key", b" "), real]),
        std::slice::from_ref(bearer)
    );
    let only = "key = [\"bearer\"]";
    let found = keys(only, &[("x-api-key", b"x1"), real]);
    assert_eq!(found.len(), 1);
    assert_eq!(found, keys(only, &[("x-api-key", b"x2"), real]));
    // A credential that stands in is charged too, and once where it is not needed.
    let stands_in = "key = [\"header:x-user\"]\nmissing_key = \"use:api_key\"";
    assert_eq!(keys(stands_in, &[("x-api-key", b"x1"), real]).len(), 2);
    let user: (&str, &[u8]) = ("x-user", b"u1");
    assert_eq!(
        keys(stands_in, &[("x-api-key", b"x1"), real, user]).len(),
        1
    );
    // The values of a key that is not needed are forgotten with it.
    let facts = Facts {
        headers: &[("x-api-key", b"x1"), real, user],
        ..facts()
    };
    let shared = policy(&[
        (
            "a",
            "key = [\"header:x-user\", \"ip\"]\nmissing_key = \"use:api_key\"",
        ),
        ("b", "key = [\"ip\"]\nmissing_key = \"use:api_key\""),
    ]);
    assert_eq!(charged(&shared, &facts).len(), 2);
    // A part that is missing refuses once.
    let strict = "key = [\"api_key\", \"header:x-none\"]\nmissing_key = \"deny\"";
    assert_eq!(keys(strict, &[("x-api-key", b"x1"), real]), ["!l"]);
    let lax = "key = [\"api_key\", \"header:x-none\"]\nmissing_key = \"skip\"";
    assert_eq!(keys(lax, &[("x-api-key", b"x1"), real]), [""; 0]);
}

#[test]
fn case_is_a_setting_of_the_limit() {
    let lines = "key = [\"path\"]\nmatch = { path = \"/Users/**\" }\n";
    let at = |limit: &str, path, expected: &[&str]| {
        let facts = Facts { path, ..facts() };
        check(limit, &facts, expected);
    };
    at(lines, "/USERS/Ada/", &["l 1 path=/users/ada"]);
    let sensitive = format!("{lines}path_case = \"sensitive\"");
    at(&sensitive, "/Users/Ada/", &["l 1 path=/Users/Ada"]);
    at(&sensitive, "/users/Ada", &[]);
    // Two cases of one long path in one request are two keys.
    let long = format!("/Users/{}", "X".repeat(200));
    let policy = policy(&[("a", lines), ("b", &sensitive)]);
    let keys = charged(
        &policy,
        &Facts {
            path: &long,
            ..facts()
        },
    );
    assert_ne!(keys[0].strip_prefix('a'), keys[1].strip_prefix('b'));
}

#[test]
fn keys_are_written_in_order() {
    for (limit, expected) in [
        ("key = [\"all\"]", "l 1"),
        ("key = [\"ip\"]", "l 1 ip=192.0.2.1"),
        ("key = [\"ip/24\"]", "l 1 ip/24=192.0.2.0/24"),
        (
            "key = [\"attr:user\", \"ip\", \"method\"]",
            "l 1 attr:user=u1 ip=192.0.2.1 method=POST",
        ),
        ("key = [\"route\"]", "l 1 route=/users/7"),
        (
            "key = [\"route\"]\nmatch = { path = [\"/x\", \"/users/{id}\"] }",
            "l 1 route=/users/{id}",
        ),
        (
            "key = [\"route\"]\nmatch = { path = \"!/x\" }",
            "l 1 route=/users/7",
        ),
    ] {
        check(limit, &facts(), &[expected]);
    }
}

#[test]
fn a_missing_part_is_replaced_skipped_or_denied() {
    let unknown_client = Facts {
        ip: None,
        ..facts()
    };
    let key = "key = [\"attr:none\", \"header:x-device\"]\n";
    for (missing, known, unknown) in [
        (
            "",
            "~l 1 attr:none=~ip=192.0.2.1 header:x-device=d1",
            "~l 1 attr:none=~ header:x-device=d1",
        ),
        (
            "missing_key = \"use:attr:user\"",
            "~l 1 attr:none=~attr:user=u1 header:x-device=d1",
            "~l 1 attr:none=~attr:user=u1 header:x-device=d1",
        ),
        (
            "missing_key = \"shared\"",
            "~l 1 attr:none=~ header:x-device=d1",
            "~l 1 attr:none=~ header:x-device=d1",
        ),
        ("missing_key = \"skip\"", "", ""),
        ("missing_key = \"deny\"", "!l", "!l"),
        ("missing_key = \"deny\"\nmode = \"shadow\"", "!l", "!l"),
        ("missing_key = \"deny\"\nmode = \"off\"", "", ""),
    ] {
        let limit = format!("{key}{missing}");
        let list = |text: &'static str| Vec::from_iter((!text.is_empty()).then_some(text));
        check(&limit, &facts(), &list(known));
        check(&limit, &unknown_client, &list(unknown));
    }
}

#[test]
fn a_value_cannot_pass_for_a_stand_in() {
    let policy = policy(&[("l", "key = [\"header:x-device\"]")]);
    let key = |value: &[u8]| {
        let headers = [("x-device", value)];
        let facts = Facts {
            headers: &headers,
            ..facts()
        };
        charged(&policy, &facts)
    };
    let stand_in = key(b"");
    assert_eq!(stand_in, ["~l 1 header:x-device=~ip=192.0.2.1"]);
    for value in ["~ip=192.0.2.1", "192.0.2.1", "ip=192.0.2.1", "~"] {
        let key = key(value.as_bytes());
        assert!(key[0].starts_with("l 1"), "{key:?}");
        assert_ne!(key[0][1..], stand_in[0][2..], "{value}");
    }
}

#[test]
fn a_skipped_rule_leaves_no_bytes_and_no_memory() {
    let long = "x".repeat(500);
    let headers = [("x-long", long.as_bytes())];
    let facts = Facts {
        headers: &headers,
        ..facts()
    };
    // The first rule hashes the header before it finds the other part missing.
    let policy = policy(&[
        (
            "first",
            "key = [\"ip\", \"header:x-long\", \"attr:none\"]\nmissing_key = \"skip\"",
        ),
        ("second", "key = [\"header:x-long\", \"ip\"]"),
        ("third", "key = [\"ip\", \"header:x-long\"]"),
    ]);
    let mut charges = Charges::default();
    policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
    let keys: Vec<Vec<_>> = charges
        .iter(&policy)
        .map(|charge| charge.key.display_parts().map(String::from).collect())
        .collect();
    let [second, third] = keys.as_slice() else {
        panic!("{keys:?}");
    };
    assert_eq!(second[1], "192.0.2.1");
    assert!(second[0].starts_with("sha256:"), "{second:?}");
    assert_eq!([&second[1], &second[0]], [&third[0], &third[1]]);
    let used: u32 = charges
        .entries
        .iter()
        .map(|e| e.key.end - e.key.start)
        .sum();
    assert_eq!(
        used as usize,
        charges.bytes.len(),
        "no bytes of the first rule remain"
    );
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

/// Fields of `match`, with values of each kind: exact, with a fixed beginning or end, with
/// neither, and negated.
const FIELDS: [(&str, &[&str]); 8] = [
    (
        "path",
        &[
            "/", "/a", "/A/", "/a/b", "/b/**", "/a/*", "/a/{x}/b", "/**/b", "/{x}/b", "!/a/b",
        ],
    ),
    (
        "host",
        &["a.com", "b.a.com", "*.com", "*.a.com", "a.*", "!a.com"],
    ),
    ("method", &["GET", "post", "P*", "!POST"]),
    (
        "header.x-a",
        &["a", "ab", "a*", "*b", "*", "a*b", "!a", "!*"],
    ),
    ("cookie.c", &["a", "b", "a*", "!b"]),
    ("query.q", &["a", "a b", "*b", "!a"]),
    ("attr.t", &["a", "b", "ab", "b*", "!ab"]),
    (
        "ip",
        &[
            "10.0.0.1",
            "10.0.0.0/8",
            "10.0.0.0/31",
            "2001:db8::/32",
            "::/0",
            "0.0.0.0/0",
            "!10.0.0.2",
        ],
    ),
];

/// Returns the lines of limits that match by up to three fields each.
fn matchers() -> impl Strategy<Value = Vec<String>> {
    let field = prop::sample::select(&FIELDS[..]).prop_flat_map(|(name, values)| {
        let chosen = prop::sample::subsequence(values, 1..4);
        chosen.prop_map(move |values| (name, format!("{name} = {values:?}")))
    });
    let fields = prop::collection::btree_map(any::<u8>(), field, 0..4);
    let one = fields.prop_map(|fields| {
        let fields: std::collections::BTreeMap<_, _> = fields.into_values().collect();
        let fields: Vec<_> = fields.into_values().collect();
        match fields.as_slice() {
            [] => "key = [\"all\"]".into(),
            fields => format!("key = [\"all\"]\nmatch = {{ {} }}", fields.join(", ")),
        }
    });
    prop::collection::vec(one, 1..60)
}

proptest! {
    /// The index changes nothing: every rule that matches is charged, once, in order.
    #[test]
    fn the_index_and_a_search_find_the_same_limits(
        limits in matchers(),
        path in "(/|a|b|%61|\\.\\./){0,6}",
        host in prop::sample::select(vec!["a.com", "B.a.com:80", "c.com", ""]),
        method in prop::sample::select(vec!["GET", "post", ""]),
        texts in prop::collection::vec("[ab]{0,2}", 5),
        query in "(q=|%71=|a|b|&|\\+|%20){0,6}",
        ip in prop::sample::select(vec!["10.0.0.1", "::ffff:10.0.0.2", "2001:db8::1", "::1", ""]),
    ) {
        let names: Vec<String> = (0..limits.len()).map(|index| format!("l{index}")).collect();
        let named: Vec<_> = names.iter().zip(&limits).map(|(n, l)| (&**n, &**l)).collect();
        let policy = policy(&named);
        let cookies = format!("c={}; c=\"{}\"", texts[0], texts[1]);
        let headers = [
            ("x-a", texts[2].as_bytes()),
            ("cookie", cookies.as_bytes()),
            ("X-A", texts[3].as_bytes()),
        ];
        let attributes = [("t", &*texts[4])];
        let facts = Facts {
            path: &path,
            host,
            method,
            query: &query,
            ip: ip.parse().ok(),
            headers: &headers,
            attributes: &attributes,
            ..Facts::default()
        };
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        let found: Vec<_> = charges.entries.iter().map(|entry| entry.rule).collect();
        let expected: Vec<_> = (0..)
            .zip(&policy.rules)
            .filter(|(_, rule)| rule.matcher.matches(&facts))
            .map(|(index, _)| index)
            .collect();
        prop_assert_eq!(found, expected, "{}", limits.join("\n"));
    }

    /// Each rule has a limit of its own, so no limit is charged twice.
    #[test]
    fn any_request_is_charged_each_limit_once_at_most(
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
        let rules = charges.entries.iter().map(|entry| entry.rule);
        let all: Vec<_> = rules.chain(charges.missing()).collect();
        let mut names: Vec<_> = all
            .iter()
            .map(|rule| &policy.rules[*rule as usize].limit.name)
            .collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), all.len());
        for (entry, charge) in charges.entries.iter().zip(charges.iter(&policy)) {
            let rule = &policy.rules[entry.rule as usize];
            prop_assert_eq!(charge.key.parts().count(), rule.key.len());
            for part in charge.key.parts() {
                prop_assert!(!part.is_empty() && part.len() <= 300);
            }
        }
    }
}

#[test]
fn limits_count_by_values_of_the_body() {
    let text = r#"
        version = 1
        [[limit]]
        name  = "login"
        match = { path = "/login" }
        key   = ["form:user"]
        limit = "5/1m"
        missing_key = "use:ip"
        [[limit]]
        name  = "chat"
        match = { path = "/chat" }
        key   = ["json:/user/id"]
        missing_key = "skip"
        bucket = { size = 100, refill = "1/1s" }
        cost  = "json:/max_tokens"
    "#;
    let policy = parse(text, Context::default()).unwrap().policy;
    let fields = policy.rules.body_fields();
    let names: Vec<_> = fields.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["form:user", "json:/user/id", "json:/max_tokens"]);
    let needs = |path| {
        let facts = Facts {
            path,
            ..Facts::default()
        };
        policy.needs_body(&facts, WallTime::UNKNOWN)
    };
    assert!(needs("/login") && needs("/chat") && !needs("/other"));

    // One entry as its cost and key; `-` for a denial, nothing if no limit applies.
    let charged = |path, content_type: &str, body: &str| {
        let headers = [("content-type", content_type.as_bytes())];
        let body = BodyFields::read(fields, &headers, body.as_bytes());
        let facts = Facts {
            path,
            ip: Some("192.0.2.1".parse().unwrap()),
            body: Some(&body),
            ..Facts::default()
        };
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        match &charges.entries[..] {
            [] if charges.uncharged.is_empty() => String::new(),
            [] => "-".to_owned(),
            [entry] => {
                let key: Vec<_> = charges.key(entry).display_parts().collect();
                format!("{} {}", entry.cost, key.join(","))
            }
            _ => panic!("{charges:?}"),
        }
    };
    let (form, json) = ("application/x-www-form-urlencoded", "application/json");
    for (path, content_type, body, expected) in [
        ("/login", form, "user=ann", "1 ann"),
        ("/login", json, "user=ann", "1 ~ip=192.0.2.1"),
        ("/login", form, "user=ann&user=bob", "-"),
        (
            "/chat",
            json,
            r#"{"user":{"id":7},"max_tokens":30}"#,
            "30 7",
        ),
        (
            "/chat",
            json,
            r#"{"user":{"id":7},"max_tokens":1.5}"#,
            "1 7",
        ),
        (
            "/chat",
            json,
            r#"{"user":{"id":7},"max_tokens":1e99}"#,
            "9007199254740992 7",
        ),
        ("/chat", json, r#"{"user":{"id":7},"max_tokens":-3}"#, "1 7"),
        // Else a client would pass a spent limit.
        ("/chat", json, r#"{"user":{"id":7},"max_tokens":0}"#, "1 7"),
        (
            "/chat",
            json,
            r#"{"user":{"id":7},"max_tokens":-0.0}"#,
            "1 7",
        ),
        ("/chat", json, r#"{"user":{"id":7}}"#, "1 7"),
        ("/chat", json, r#"{"max_tokens":30}"#, ""),
        ("/chat", json, r#"{"user":{"id":7},"user":{"id":8}}"#, "-"),
        (
            "/chat",
            json,
            r#"{"user":{"id":7},"max_tokens":1,"max_tokens":9}"#,
            "-",
        ),
    ] {
        assert_eq!(charged(path, content_type, body), expected, "{body}");
    }
}

#[test]
fn an_application_that_reads_the_body_itself_sends_its_values_as_attributes() {
    let text = "version = 1\n[[limit]]\nname = \"login\"\nkey = [\"form:user\"]\nlimit = \"5/1m\"\n\
        missing_key = \"deny\"\n";
    let policy = parse(text, Context::default()).unwrap().policy;
    let facts = Facts {
        attributes: &[("form:user", "ann")],
        ..Facts::default()
    };
    let mut charges = Charges::default();
    policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
    let key = charges.key(&charges.entries[0]);
    assert_eq!(key.display_parts().collect::<Vec<_>>(), ["ann"]);
    policy.charges(&Facts::default(), WallTime::UNKNOWN, &mut charges);
    assert_eq!((charges.entries.len(), charges.missing().count()), (0, 1));
}

#[test]
fn a_field_of_a_form_that_the_query_names_is_refused() {
    let text = "version = 1\n[[limit]]\nname = \"login\"\nkey = [\"form:user\"]\nlimit = \"5/1m\"\n\
        missing_key = \"skip\"\n";
    let policy = parse(text, Context::default()).unwrap().policy;
    let form = ("content-type", &b"application/x-www-form-urlencoded"[..]);
    // Number of charges, and of refusals.
    let charged = |query, body: &str, attributes| {
        let body = BodyFields::read(policy.rules.body_fields(), &[form], body.as_bytes());
        let facts = Facts {
            query,
            attributes,
            body: Some(&body),
            ..Facts::default()
        };
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        (charges.entries.len(), charges.missing().count())
    };
    for (query, body, expected) in [
        ("", "user=ann", (1, 0)),
        ("users=1&x=user", "user=ann", (1, 0)),
        ("user=victim", "user=ann", (0, 1)),
        ("x=1&us%65r=victim", "user=ann", (0, 1)),
        ("USER", "user=ann", (0, 1)),
        ("user=victim", "x=1", (0, 0)),
    ] {
        assert_eq!(charged(query, body, &[]), expected, "?{query} and {body}");
    }
    let stated = &[("form:user", "ann")];
    assert_eq!(charged("user=victim", "user=bob", stated), (1, 0));
}
