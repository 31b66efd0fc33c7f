//! Matching: cost of a decision with one limit in the policy, and with up to ten thousand, of
//! which the request meets one; and with one limit that has a list of 100,000 values.

use std::net::{IpAddr, Ipv4Addr};

use ratekeeper::policy::{Descriptor, Facts};

use crate::descriptors::{BenchKeeper, decide, keeper, limit};
use crate::measure::{Contender, cpu_nanos, measure};
use crate::{Effort, report};

/// Number of values of a long list.
const LISTED: usize = 100_000;

/// A field that limits match by: the `match` of limit number `n`, and the value that meets it.
struct MatchedField {
    title: &'static str,
    matches: fn(usize) -> String,
    value: fn(usize) -> String,
}

const FIELDS: [MatchedField; 14] = [
    MatchedField {
        title: "header",
        matches: |n| format!("header.x-tenant = \"t{n}\""),
        value: |n| format!("t{n}"),
    },
    MatchedField {
        title: "cookie",
        matches: |n| format!("cookie.tenant = \"t{n}\""),
        value: |n| format!("tenant=t{n}"),
    },
    MatchedField {
        title: "query",
        matches: |n| format!("query.tenant = \"t{n}\""),
        value: |n| format!("tenant=t{n}"),
    },
    MatchedField {
        title: "attr",
        matches: |n| format!("attr.tenant = \"t{n}\""),
        value: |n| format!("t{n}"),
    },
    MatchedField {
        title: "ip",
        matches: |n| format!("ip = \"{}\"", address(n)),
        value: |n| address(n).to_string(),
    },
    MatchedField {
        title: "path",
        matches: |n| format!("path = \"/api/v1/users/{{id}}/action{n}\""),
        value: |n| format!("/api/v1/users/7/action{n}"),
    },
    MatchedField {
        title: "path prefix",
        matches: |n| format!("path = \"/api/v1/service{n}/**\""),
        value: |n| format!("/api/v1/service{n}/users/7"),
    },
    MatchedField {
        title: "host",
        matches: |n| format!("host = \"t{n}.example.com\""),
        value: |n| format!("t{n}.example.com"),
    },
    MatchedField {
        title: "host suffix",
        matches: |n| format!("host = \"*.t{n}.example.com\""),
        value: |n| format!("www.t{n}.example.com"),
    },
    MatchedField {
        title: "header glob",
        matches: |n| format!("header.x-tenant = \"*-t{n}-*\""),
        value: |n| format!("eu-t{n}-1"),
    },
    MatchedField {
        title: "host glob",
        matches: |n| format!("host = \"*.t{n}.*\""),
        value: |n| format!("www.t{n}.example.com"),
    },
    MatchedField {
        title: "path glob",
        matches: |n| format!("path = \"/api/v1/service{n}-*\""),
        value: |n| format!("/api/v1/service{n}-eu"),
    },
    MatchedField {
        title: "path end",
        matches: |n| format!("path = \"/api/**/action{n}\""),
        value: |n| format!("/api/v1/users/7/action{n}"),
    },
    MatchedField {
        title: "descriptor",
        matches: |n| format!("domain = \"edge\", descriptor.tenant = \"t{n}\""),
        value: |n| format!("t{n}"),
    },
];

/// Returns the address of tenant `n`.
fn address(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(n).unwrap_or_default())
}

/// Decides a request with `value` in the field called `title`.
fn decide_value(keeper: &BenchKeeper, title: &str, value: &str) -> bool {
    let entries = [("tenant", value)];
    let headers = [
        ("accept", &b"*/*"[..]),
        ("user-agent", b"bench"),
        (
            if title == "cookie" {
                "cookie"
            } else {
                "x-tenant"
            },
            value.as_bytes(),
        ),
    ];
    let attributes = [("tenant", value)];
    let mut facts = Facts {
        method: "GET",
        path: "/",
        ..Facts::default()
    };
    match title.split(' ').next() {
        Some("header" | "cookie") => facts.headers = &headers,
        Some("query") => facts.query = value,
        Some("attr") => facts.attributes = &attributes,
        Some("ip") => facts.ip = value.parse::<IpAddr>().ok(),
        Some("path") => facts.path = value,
        Some("host") => facts.host = value,
        _ => {
            facts.descriptor = Some(Descriptor {
                domain: "edge",
                entries: &entries,
                instead: None,
            });
        }
    }
    decide(keeper, &facts)
}

pub(crate) fn run(effort: Effort) {
    limits(effort);
    lists(effort);
}

/// Measures one limit with a list of values.
fn lists(effort: Effort) {
    for field in FIELDS.iter().filter(|field| field.title != "descriptor") {
        let of = |count: usize| {
            let matches = (0..count).map(|n| (field.matches)(LISTED / 2 + n));
            // `name = "value"` of each, in one list.
            let split = |one: String| {
                one.split_once(" = ")
                    .map(|(n, v)| (n.to_owned(), v.to_owned()))
            };
            let (names, values): (Vec<_>, Vec<_>) = matches.filter_map(split).unzip();
            let list = format!("match.{} = [{}]", names[0], values.join(", "));
            keeper(&limit(0, &format!("{list}\nkey = [\"all\"]")))
        };
        let met = (field.value)(LISTED / 2);
        let one = of(1);
        let start = cpu_nanos();
        let many = of(LISTED);
        let load = (cpu_nanos() - start) / 1_000_000;
        let mut contenders = [
            Contender::new("1 value", |_| decide_value(&one, field.title, &met)),
            Contender::new("100,000 values", |_| decide_value(&many, field.title, &met)),
        ];
        let rows = measure(effort.rounds, &mut contenders);
        let by = field.title;
        let title = format!("a list of 100,000 by {by}, loaded in {load} ms");
        report::table(&title, "1 value", &rows);
    }
}

pub(crate) fn limits(effort: Effort) {
    for field in &FIELDS {
        let of = |numbers: std::ops::Range<usize>| {
            let each = numbers.map(|n| {
                let matches = (field.matches)(n);
                limit(n, &format!("match = {{ {matches} }}\nkey = [\"all\"]"))
            });
            keeper(&each.collect::<String>())
        };
        // The limit that is met stands in the middle of each policy.
        let met = |number: usize| (field.value)(5_000 + number / 2);
        let sized = |number: usize| (of(5_000..5_000 + number), met(number));
        let (one, three) = (sized(1), sized(3));
        let (hundred, thousand, most) = (sized(100), sized(1_000), sized(10_000));
        let ask =
            |(keeper, value): &(BenchKeeper, String)| decide_value(keeper, field.title, value);
        let mut contenders = [
            Contender::new("1 limit", |_| ask(&one)),
            Contender::new("3 limits", |_| ask(&three)),
            Contender::new("100 limits", |_| ask(&hundred)),
            Contender::new("1,000 limits", |_| ask(&thousand)),
            Contender::new("10,000 limits", |_| ask(&most)),
        ];
        let rows = measure(effort.rounds, &mut contenders);
        let title = format!("limits by {}, one of them met", field.title);
        report::table(&title, "1 limit", &rows);
    }
}
