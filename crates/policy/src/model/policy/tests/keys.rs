//! The keys of a request: their parts, credentials, and what stands in for a missing part.

use super::*;

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
