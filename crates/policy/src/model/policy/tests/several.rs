//! Several values of one part: in doubt each of them counts against the client.

use super::*;

/// Returns the keys of a request under a limit, without the name of the limit.
fn keys(limit: &str, facts: &Facts<'_>) -> Vec<String> {
    let charged = charged(&policy(&[("l", limit)]), facts);
    let keys = charged.iter().map(|line| line.replacen("l 1 ", "", 1));
    keys.collect()
}

fn query(query: &str) -> Facts<'_> {
    Facts { query, ..facts() }
}

#[test]
fn a_key_is_charged_under_each_value() {
    let user = "key = [\"query:user\"]";
    for (sent, expected) in [
        ("user=ann", &["query:user=ann"][..]),
        ("user=r1&user=ann", &["query:user=r1", "query:user=ann"]),
        ("user=ann&user=ann", &["query:user=ann"]),
        ("user=ann&us%65r=%61nn", &["query:user=ann"]),
        // Some applications read none.
        (
            "user[]=r1&USER=ann",
            &[
                "query:user=r1",
                "query:user=ann",
                "~query:user=~ip=192.0.2.1",
            ],
        ),
        (
            "user=a&user=b&user=c&user=d",
            &[
                "query:user=a",
                "query:user=b",
                "query:user=c",
                "query:user=d",
            ],
        ),
        (
            "user=a&user=b&user=c&user=d&user=e",
            &["query:user=a", "!l"],
        ),
        // One that is empty is read as none.
        (
            "user=&user=ann",
            &["query:user=ann", "~query:user=~ip=192.0.2.1"],
        ),
        (
            "user=ann&user",
            &["query:user=ann", "~query:user=~ip=192.0.2.1"],
        ),
    ] {
        assert_eq!(keys(user, &query(sent)), expected, "{sent}");
    }
    let two = "key = [\"query:a\", \"query:b\"]";
    let found = keys(two, &query("a=1&b=2&a=3&b=4"));
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(
        keys(two, &query("a=1&b=2&a=3&b=4&a=5")).last().unwrap(),
        "!l"
    );
    for (missing, expected) in [
        ("skip", &["query:user=ann"][..]),
        ("deny", &["query:user=ann", "!l"]),
        (
            "use:query:id",
            &[
                "query:user=ann",
                "~query:user=~query:id=1",
                "~query:user=~query:id=2",
            ],
        ),
    ] {
        let limit = format!("{user}\nmissing_key = \"{missing}\"");
        let found = keys(&limit, &query("user=&user=ann&id=1&id=2"));
        assert_eq!(found, expected, "{missing}");
    }
}

#[test]
fn a_key_is_charged_under_each_reading_of_the_path_that_matches() {
    let login = "match = { path = \"/login\" }\nkey = [\"path\"]";
    let route = "match = { path = [\"/u/{id}\", \"/u/{id}/{x}\", \"/login\"] }\nkey = [\"route\"]";
    let all = "key = [\"path\"]";
    for (limit, path, expected) in [
        (login, "/r1%5cx/../login", &["path=/login"][..]),
        (login, "/r2\\y/../login", &["path=/login"]),
        (login, "//r1/LOGIN", &["path=/login"]),
        (all, "/LOGIN", &["path=/login"]),
        (all, "//r1/login", &["path=/r1/login", "path=/login"]),
        (all, "/a%2fb", &["path=/a/b", "path=/a%2fb"]),
        (all, "/a;b%2fc\\..\\d%5c/../e", &["path=/a/e", "!l"]),
        (route, "/login", &["route=/login"]),
        (route, "/x", &[]),
        (
            route,
            "/u/..%2flogin",
            &["route=/login", "route=/u/{id}", "route=/u/{id}/{x}"],
        ),
    ] {
        let facts = Facts { path, ..facts() };
        assert_eq!(keys(limit, &facts), expected, "{path}");
    }
    // A long value is remembered, but not for a rule that is for another reading.
    let long = format!("/{}", "a".repeat(300));
    let path = format!("/r1%5cx/..{long}");
    let limit = format!("match = {{ path = \"{long}\" }}\nkey = [\"path\"]");
    let both = policy(&[("a", "key = [\"path\"]"), ("b", &limit)]);
    let of_both = charged(
        &both,
        &Facts {
            path: &path,
            ..facts()
        },
    );
    let plain = charged(
        &both,
        &Facts {
            path: &long,
            ..facts()
        },
    );
    assert_eq!(of_both.last(), plain.last());
}

/// Returns the number of keys of a request with these headers.
fn with(limit: &str, headers: &[(&str, &[u8])]) -> usize {
    keys(limit, &Facts { headers, ..facts() }).len()
}

#[test]
fn headers_and_cookies_are_charged_under_each_value() {
    let long = [b"sid=", &[b'a'; 99][..], b"; sid=a"].concat();
    for (limit, headers, expected) in [
        (
            "header:x-user",
            &[("x-user", &b"r1"[..]), ("X-User", b"ann")][..],
            4, // servers make one line of two: `r1, ann`, or `r1,ann`
        ),
        (
            "header:x-user",
            &[("x-user", b"ann"), ("x-user", b" ann ")],
            1,
        ),
        ("cookie:sid", &[("cookie", b"sid=r1; SID=ann")], 2),
        (
            "cookie:sid",
            &[("cookie", b"sid=r1"), ("cookie", b"sid=ann")],
            2,
        ),
        (
            "cookie:sid",
            &[("cookie", b"sid=real; sid=r%65al; sid=\"r\\145al\"")],
            1,
        ),
        ("cookie:sid", &[("cookie", b"sid=abc; sid=ab; sid=abc")], 2),
        ("cookie:sid", &[("cookie", &long)], 2),
        (
            "bearer",
            &[
                ("authorization", b"Bearer r1"),
                ("authorization", b"bearer ann"),
            ],
            4,
        ),
        (
            "bearer",
            &[
                ("authorization", b"Basic YTpi"),
                ("authorization", b"Bearer ann"),
            ],
            2,
        ),
        (
            "api_key",
            &[
                ("x-api-key", b"r1"),
                ("x-api-key", b"r1"),
                ("authorization", b"Bearer t"),
            ],
            2,
        ),
        (
            "header:authorization",
            &[
                ("authorization", b"Basic YTpi"),
                ("authorization", b"basic  YTpi"),
            ],
            2, // PHP decodes both lines as one
        ),
        (
            "header:authorization",
            &[("authorization", b"Basic YTpi=Yw")],
            2,
        ),
    ] {
        let found = with(&format!("key = [\"{limit}\"]"), headers);
        assert_eq!(found, expected, "{limit} {headers:?}");
    }
    // Spellings of one value are one key, and one override of an operator meets them.
    let key = |value: &[u8]| {
        let line = [b"sid=", value].concat();
        let headers: &[(&str, &[u8])] = &[("cookie", &line)];
        keys("key = [\"cookie:sid\"]", &Facts { headers, ..facts() })
    };
    for value in [&b"r%65al"[..], b"%72eal", b"\"real\""] {
        assert_eq!(key(value), key(b"real"));
    }
}

#[test]
fn authorization_is_charged_under_each_word() {
    // A word that only some applications take for a key leaves the key missing for others.
    for (value, expected) in [
        (&b"Bearer real"[..], 1),
        (b"real", 2),
        (b"x Bearer real", 2),
    ] {
        let headers = &[("authorization", value)];
        assert_eq!(with("key = [\"api_key\"]", headers), expected);
        let headers = &[("authorization", value), ("x-api-key", b"k")];
        assert_eq!(with("key = [\"api_key\"]", headers), 2);
    }
    for (value, by_bearer, by_header) in [
        (&b"Bearer abc.def-ghi"[..], 1, 1),
        (b"Bearer real x1", 3, 3),
        (b"Bearer real,x1", 3, 3),
        (b"Bearer x1 Bearer real", 3, 3),
        (b"x Bearer real", 2, 2),
        (b"Bearer\treal", 2, 2),
        (b"Bearer real\xa0\xa0", 2, 2),
        (b"Bearer a b c d", 5, 5),
        (b"Token real x1", 1, 2),
        (b"Token token=\"real\", email=\"x\", nonce=\"y\"", 1, 2),
        (b"real", 2, 1),
        (b"Basic YTpi", 1, 1),
        (
            b"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=c;x-security-token;x-target, Signature=e",
            1,
            1,
        ),
    ] {
        let headers = &[("authorization", value)];
        for (part, expected) in [("bearer", by_bearer), ("header:authorization", by_header)] {
            let found = with(&format!("key = [\"{part}\"]"), headers);
            let expected = if expected > 4 { 2 } else { expected }; // refused
            assert_eq!(found, expected, "{part} {}", value.escape_ascii());
        }
    }
}

#[test]
fn a_limit_applies_if_one_value_matches_and_an_exemption_if_all_do() {
    let text = |limit: &str, exempt: &str| {
        let text = format!(
            "version = 1\n[[limit]]\nname = \"l\"\nlimit = \"5/1m\"\nkey = [\"all\"]\n{limit}\n{exempt}"
        );
        parse(&text, Context::default()).unwrap().policy
    };
    for (sent, limited, exempt) in [
        ("kind=good", false, true),
        ("kind=bad", true, false),
        ("kind=bad&kind=good", true, false),
        ("kind=good&kind=bad", true, false),
        ("kind=good&kind=", true, false),
        ("kind=good&KIND=bad", true, false),
        ("kind=good&kind=g%6Fod", false, true),
        ("", true, false),
    ] {
        let policy_of_match = text("match = { query.kind = \"!good\" }", "");
        let found = charged(&policy_of_match, &query(sent));
        assert_eq!(found.len(), usize::from(limited), "{sent}");
        let exemption =
            "[[exempt]]\nlimits = [\"l\"]\nreason = \"r\"\nmatch = { query.kind = \"good\" }";
        let found = charged(&text("", exemption), &query(sent));
        assert_eq!(found.is_empty(), exempt, "{sent}");
    }
    let by_cookie = text("match = { cookie.kind = \"!good\" }", "");
    let by_scheme = text("match = { header.authorization = \"Basic *\" }", "");
    for (policy, name, value, limited) in [
        (&by_cookie, "cookie", &b"kind=bad; kind=good"[..], true),
        (&by_cookie, "cookie", b"kind=good", false),
        (&by_cookie, "cookie", b"kind=g%6Fod", true),
        (&by_scheme, "authorization", b"basic YTpi", true),
        (&by_scheme, "authorization", b"Basic YTpi", true),
        (&by_scheme, "authorization", b"Bearer YTpi", false),
    ] {
        let headers = &[(name, value)];
        let found = charged(policy, &Facts { headers, ..facts() });
        assert_eq!(found.len(), usize::from(limited), "{value:?}");
    }
}

#[test]
fn a_plan_that_is_stated_twice_is_the_default() {
    let text = "version = 1\nplan = { from = \"header:x-plan\", default = \"free\" }\n\
        [[limit]]\nname = \"l\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\nplans = { free = \"5/1m\", pro = \"50/1m\" }";
    let policy = parse(text, Context::default()).unwrap().policy;
    for (values, pro) in [
        (&[&b"pro"[..]][..], true),
        (&[b"pro", b"pro"], true),
        (&[b"pro", b"free"], false),
        (&[b"free", b"pro"], false),
        (&[b"", b"pro"], false),
    ] {
        let headers: Vec<_> = values.iter().map(|value| ("x-plan", *value)).collect();
        let facts = Facts {
            headers: &headers,
            ..facts()
        };
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        let limit = charges.limit(&charges.entries[0], &policy.rules[0]);
        assert_eq!(&*limit.name == "l=pro", pro, "{values:?}");
    }
}

#[test]
fn a_second_value_replaces_no_limit_and_is_counted_as_a_value() {
    let text = "version = 1\ntimezone = \"UTC\"\n[[limit]]\nname = \"api\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\n\
        [[limit]]\nname = \"upload\"\nkey = [\"ip\"]\nlimit = \"50/1m\"\nmatch = { query.kind = \"upload\" }\nreplaces = [\"api\"]\n\
        [[limit]]\nname = \"names\"\nkey = [\"ip\"]\nlimit = \"5/day\"\ndistinct = \"query:name\"\nmissing_key = \"skip\"";
    let policy = parse(text, Context::default()).unwrap().policy;
    let names = |sent: &str| {
        let charged = charged(&policy, &query(sent));
        let names = charged
            .iter()
            .map(|line| line.split(' ').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names("kind=upload"), ["upload"]);
    assert_eq!(names("kind=upload&kind=other"), ["api", "upload"]);
    assert_eq!(
        names("name=a&name=b")
            .iter()
            .filter(|name| *name == "names")
            .count(),
        2
    );
}

#[test]
fn a_body_with_two_values_is_refused_also_where_one_stands_in() {
    let limit = "key = [\"query:k\"]\nmissing_key = \"use:json:/user\"";
    let policy = policy(&[("l", limit)]);
    for (query, body, expected) in [
        ("", "{\"user\": \"u1\"}", "~l 1 query:k=~json:/user=u1"),
        ("", "{\"user\": \"u1\", \"User\": 1}", "!l"),
        ("k=a&k=", "{\"user\": \"u1\", \"User\": 1}", "!l"),
    ] {
        let headers: &[(&str, &[u8])] = &[("content-type", b"application/json")];
        let body = crate::BodyFields::read(policy.rules.body_fields(), headers, body.as_bytes());
        let facts = Facts {
            query,
            body: Some(&body),
            ..facts()
        };
        assert_eq!(charged(&policy, &facts).last().unwrap(), expected);
    }
}

#[test]
fn a_missing_address_is_missing_for_each_limit() {
    let key = "key = [\"ip\"]";
    let unknown = Facts {
        ip: None,
        ..facts()
    };
    let charged = charged(&policy(&[("a", key), ("b", key)]), &unknown);
    assert_eq!(charged, ["~a 1 ip=~", "~b 1 ip=~"]);
}
