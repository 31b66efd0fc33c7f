//! Lists of 100,000 values, in the policy and in a file, for each field of `match`; those of places
//! and of claims are texts as those of headers are.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::net::Ipv4Addr;

use ratekeeper_core::Time;
use ratekeeper_policy::config::{Context, PolicyFiles, parse_file};
use ratekeeper_policy::{Descriptor, Facts, Policy};

const MANY: u32 = 100_000;

/// A field, and its value with a number.
type ListedField = (&'static str, fn(u32) -> String);

/// Returns the policy of one limit with the values of a field, in a list or in a file.
fn policy(field: &str, value: fn(u32) -> String, in_file: bool) -> Policy {
    let values: Vec<_> = (0..MANY).map(value).collect();
    let list = if in_file {
        "\"file:values\"".to_owned()
    } else {
        format!("[\"{}\"]", values.join("\", \""))
    };
    let domain = if field.starts_with("descriptor") {
        "match.domain = \"edge\"\n"
    } else {
        ""
    };
    let text = format!(
        "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1m\"\n\
         {domain}match.{field} = {list}\n"
    );
    let files = PolicyFiles::read(&text, |_, _| Ok(values.join("\n")));
    let loaded = parse_file(&text, &files, Context::default(), Time::ZERO);
    let policy = loaded.map_err(|errors| errors[0].message.clone()).unwrap();
    policy.policy
}

/// Returns true if the limit is for a request with this value.
fn applies(policy: &Policy, field: &str, value: &str) -> bool {
    let headers = [("x-a", value.as_bytes())];
    let cookie = format!("a={value}");
    let cookies = [("cookie", cookie.as_bytes())];
    let query = format!("a={value}");
    let attributes = [("a", value)];
    let entries = [("a", value)];
    let mut facts = Facts::default();
    match field {
        "method" => facts.method = value,
        "host" => facts.host = value,
        "path" => facts.path = value,
        "ip" => facts.ip = value.parse().ok(),
        "query.a" => facts.query = &query,
        "header.x-a" => facts.headers = &headers,
        "cookie.a" => facts.headers = &cookies,
        "attr.a" => facts.attributes = &attributes,
        _ => {
            facts.descriptor = Some(Descriptor {
                domain: "edge",
                entries: &entries,
                instead: None,
            });
        }
    }
    policy.rules[0].applies_to(&facts)
}

#[test]
fn each_field_takes_a_hundred_thousand_values_or_a_file_of_them() {
    let fields: [ListedField; 9] = [
        ("method", |n| format!("M{n}")),
        ("host", |n| format!("t{n}.example.com")),
        ("path", |n| format!("/api/v1/action{n}")),
        ("ip", |n| Ipv4Addr::from_bits(0x0a00_0000 + n).to_string()),
        ("query.a", |n| format!("v{n}")),
        ("header.x-a", |n| format!("v{n}")),
        ("cookie.a", |n| format!("v{n}")),
        ("attr.a", |n| format!("v{n}")),
        ("descriptor.a", |n| format!("v{n}")),
    ];
    for (field, value) in fields {
        // The two shapes of a list in the policy; the others are checked and read as these are.
        let in_policy = matches!(field, "path" | "header.x-a");
        for in_file in [false, true].into_iter().skip(usize::from(!in_policy)) {
            let policy = policy(field, value, in_file);
            for (number, expected) in [(0, true), (MANY - 1, true), (MANY, false)] {
                let applies = applies(&policy, field, &value(number));
                assert_eq!(applies, expected, "{field} {number} {in_file}");
            }
        }
    }
}
