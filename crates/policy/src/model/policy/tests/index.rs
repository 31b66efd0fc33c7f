//! The index of rules finds those that a search finds.

use super::*;

/// Fields of `match`, with values of each kind: exact, with a fixed beginning or end, with
/// neither, and negated.
const FIELDS: [(&str, &[&str]); 8] = [
    (
        "path",
        &[
            "/",
            "/a",
            "/A/",
            "/a/b",
            "/b/**",
            "/a/*",
            "/a/{x}/b",
            "/**/b",
            "/{x}/b",
            "!/a/b",
            "/**/a/b",
            "/a/**/b/a",
            "/a/**/b/b",
            "/**/a/a/**",
            "/**/b/b/**",
            "/*/A/b",
        ],
    ),
    (
        "host",
        &[
            "a.com", "b.a.com", "*.com", "*.a.com", "a.*", "!a.com", "*a.co*", "*b.a.*",
        ],
    ),
    ("method", &["GET", "post", "P*", "!POST"]),
    (
        "header.x-a",
        &[
            "a",
            "ab",
            "a*",
            "*b",
            "*",
            "a*b",
            "!a",
            "!*",
            "*abab*",
            "*baba*",
            "*baba*b",
            "*aa*babb*",
            "!*abba*",
            "a*abab",
            "a*baab",
        ],
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
        texts in prop::collection::vec("[ab]{0,2}|[ab]{8}", 5),
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
}
