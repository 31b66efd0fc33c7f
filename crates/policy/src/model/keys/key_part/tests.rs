//! Key parts: their texts, and the values that they write.

use ratekeeper_core::Key;

use super::*;
use crate::model::matching::request::RequestFacts;
use crate::{Facts, Field, KeyBytes, Matcher, Pattern};

#[test]
fn key_parts_print_as_they_are_written() {
    for text in [
        "all",
        "ip",
        "ip/1",
        "ip/24",
        "ip/32",
        "ip/48",
        "ip/128",
        "path",
        "route",
        "method",
        "host",
        "country",
        "continent",
        "asn",
        "header:x-user-id",
        "cookie:SID",
        "query:a[b]",
        "query:a b",
        "bearer",
        "api_key",
        "attr:user_id",
        "attr:a:b",
        "descriptor:user",
        "descriptor:generic_key#2",
    ] {
        assert_eq!(KeyPart::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn invalid_key_parts_are_refused_with_a_correction() {
    for (text, reason, help) in [
        ("", "unknown key part ``", "one of: all"),
        ("ipp", "unknown key part `ipp`", "`ip`"),
        ("IP", "unknown key part `IP`", "`ip`"),
        ("apikey", "unknown", "`api_key`"),
        ("api-key", "unknown", "`api_key`"),
        ("headers:x-a", "unknown", "`header:x-a`"),
        ("Header:x-a", "unknown", "`header:x-a`"),
        ("paht", "unknown", "`path`"),
        ("user", "unknown", "one of: all"),
        ("ip:24", "unknown", "`ip`"),
        ("header", "needs a name", "\"header:NAME\""),
        ("attr", "needs a name", "\"attr:NAME\""),
        ("header:", "is not a valid header name", "\"header:NAME\""),
        ("header: x", "is not a valid header name", "\"header:NAME\""),
        (
            "cookie:a;b",
            "is not a valid cookie name",
            "\"cookie:NAME\"",
        ),
        ("attr:", "is not a valid attr name", "\"attr:NAME\""),
        ("ip/0", "same for every address", "\"all\""),
        ("ip/129", "not a valid number of bits", "1 to 32"),
        ("ip/x", "not a valid number of bits", "1 to 32"),
        ("ip/-1", "not a valid number of bits", "1 to 32"),
        ("ip/", "not a valid number of bits", "1 to 32"),
        ("countries", "unknown key part", "write one of: all"),
        ("contry", "unknown key part", "`country`"),
        ("as", "unknown key part", "`asn`"),
        ("jwts:sub", "unknown key part", "did you mean `jwt:sub`?"),
        ("form", "needs a name", "\"form:NAME\""),
        ("form:", "is not a valid form name", "\"form:NAME\""),
        ("forms:a", "unknown key part", "did you mean `form:a`?"),
        ("json", "is not a JSON pointer", "\"json:/NAME\""),
        ("json:", "is not a valid json name", "\"json:/NAME\""),
        ("json:user.id", "is not a JSON pointer", "\"json:/user/id\""),
        ("json:/a~2", "is not an escape", "`~1`"),
        ("json:/a~", "is not an escape", "`~0`"),
        (
            "json:/1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7",
            "is too long",
            "at most 16",
        ),
        ("descriptor", "needs a name", "\"descriptor:NAME\""),
    ] {
        let error = KeyPart::parse(text).unwrap_err();
        assert!(error.reason.contains(reason), "{text}: {error}");
        assert!(error.help.contains(help), "{text}: {error}");
    }
    let long = format!("attr:{}", "x".repeat(MAX_NAME + 1));
    let error = KeyPart::parse(&long).unwrap_err();
    assert!(error.reason.contains("129 bytes"), "{error}");
}

#[test]
fn values_come_in_one_spelling() {
    let facts = Facts {
        method: "post",
        host: "API.example.com.:443",
        path: "//a/../Users/7/",
        query: "q=a+b%21&q=second&e=",
        ip: Some("2001:db8:1:2:3:4:5:6".parse().unwrap()),
        headers: &[
            ("X-User", b""),
            ("x-user", b" u1 "),
            ("x-user", b"u2"),
            ("authorization", b"bearer  abc "),
            ("cookie", b"sid=\"abc\""),
        ],
        attributes: &[("user_id", "u1"), ("none", "")],
        ..Facts::default()
    };
    let pattern = Pattern::parse(&Field::Path, "/users/{id}").unwrap();
    let users = Matcher {
        fields: vec![(Field::Path, vec![pattern].into())],
        ..Matcher::default()
    };
    let abc = "sha256:ba7816bf8f01cfea414140de5dae2223";
    for (part, expected) in [
        ("ip", Some("2001:db8:1:2::/64")),
        ("ip/24", Some("2001:db8:1:2::/64")),
        ("ip/48", Some("2001:db8:1::/48")),
        ("ip/128", Some("2001:db8:1:2:3:4:5:6")),
        ("path", Some("/users/7")),
        ("route", Some("/users/{id}")),
        ("method", Some("POST")),
        ("host", Some("api.example.com")),
        ("header:x-user", Some("u1")),
        ("header:x-none", None),
        ("cookie:sid", Some(abc)),
        ("cookie:none", None),
        ("query:q", Some("a b!")),
        ("query:e", None),
        ("query:none", None),
        ("bearer", Some(abc)),
        ("api_key", Some(abc)),
        ("attr:user_id", Some("u1")),
        ("attr:none", None),
    ] {
        check(part, &facts, Some(&users), expected);
    }
    check("route", &facts, None, Some("/users/7"));
}

#[test]
fn an_operator_writes_a_value_as_a_request_brings_it_or_as_a_key_shows_it() {
    let abc = "sha256:ba7816bf8f01cfea414140de5dae2223";
    for (part, value, expected) in [
        ("api_key", "abc", abc),
        ("api_key", abc, abc),
        ("header:x-api-key", "abc", abc),
        ("cookie:sid", "abc", abc),
        ("bearer", "abc", abc),
        ("header:x-user", "abc", "abc"),
        ("attr:user", "~ip=192.0.2.1", "~ip=192.0.2.1"),
        ("ip", "2001:db8::1", "2001:db8::/64"),
        ("ip", "2001:db8::/64", "2001:db8::/64"),
        ("ip", "::ffff:192.0.2.7", "192.0.2.7"),
        ("ip/24", "192.0.2.7", "192.0.2.0/24"),
        ("ip/24", "192.0.2.0/24", "192.0.2.0/24"),
        ("descriptor:remote_address", "2001:db8::1", "2001:db8::/64"),
        (
            "descriptor:remote_address",
            "64:ff9b::192.0.2.7",
            "192.0.2.7",
        ),
        ("descriptor:remote_address", "unix:", "unix:"),
        ("descriptor:user", "2001:db8::1", "2001:db8::1"),
    ] {
        let mut out = KeyBytes::default();
        KeyPart::parse(part)
            .unwrap()
            .write_plain(value, 64, &mut out);
        let key = Key::from_bytes(&out);
        let parts: Vec<_> = key.display_parts().collect();
        assert_eq!(parts, [expected], "{part} {value}");
    }
    // A value that only begins like a hash is treated as any other.
    let mut out = KeyBytes::default();
    KeyPart::ApiKey.write_plain("sha256:abc", 64, &mut out);
    let key = Key::from_bytes(&out);
    assert_ne!(key.display_parts().next().as_deref(), Some("sha256:abc"));
}

#[test]
fn an_api_key_is_the_header_or_the_bearer_token() {
    let abc = Some("sha256:ba7816bf8f01cfea414140de5dae2223");
    for (headers, expected) in [
        (&[("x-api-key", &b"abc"[..])][..], abc),
        (&[("X-API-Key", b" abc ")], abc),
        (&[("authorization", b"Bearer abc")], abc),
        (&[("authorization", b"BEARER abc")], abc),
        (
            &[("authorization", b"Bearer other"), ("x-api-key", b"abc")],
            abc,
        ),
        (&[("x-api-key", b""), ("authorization", b"Bearer abc")], abc),
        (&[("authorization", b"Basic abc")], None),
        (&[("authorization", b"Bearer")], None),
        (&[("authorization", b"Bearer  ")], None),
        (
            &[("authorization", b"Bearerabc")], // one word: its scheme may be missing
            Some("sha256:1993c7ac5496b8c9421df4740ccb417b"),
        ),
        (&[], None),
    ] {
        let facts = Facts {
            headers,
            ..Facts::default()
        };
        check("api_key", &facts, None, expected);
    }
}

#[test]
fn ipv4_is_cut_only_up_to_32_bits() {
    let facts = Facts {
        ip: Some("::ffff:192.0.2.77".parse().unwrap()),
        ..Facts::default()
    };
    for (part, expected) in [
        ("ip", "192.0.2.77"),
        ("ip/24", "192.0.2.0/24"),
        ("ip/32", "192.0.2.77"),
        ("ip/64", "192.0.2.77"),
    ] {
        check(part, &facts, None, Some(expected));
    }
}

#[test]
fn an_unknown_value_is_missing() {
    let nothing = Facts::default();
    for part in [
        "ip", "ip/24", "method", "host", "header:a", "cookie:a", "query:a",
    ] {
        check(part, &nothing, None, None);
    }
    check("path", &nothing, None, Some("/"));
    check("api_key", &nothing, None, None);
}

fn check(part: &str, facts: &Facts<'_>, matcher: Option<&Matcher>, expected: Option<&str>) {
    let mut out = KeyBytes::default();
    let request = RequestFacts::new(facts);
    let any = Matcher::default();
    let around = Around {
        matcher: matcher.unwrap_or(&any),
        ipv6_prefix: 64,
    };
    let part = KeyPart::parse(part).unwrap();
    let value = part.write(&request, around, &mut out);
    let key = Key::from_bytes(&out);
    let mut written = key.display_parts();
    assert_eq!(written.next().as_deref(), expected, "{part}");
    assert_eq!(value != PartValue::Missing, expected.is_some(), "{part}");
}
