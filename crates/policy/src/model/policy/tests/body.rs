//! Limits that count by values of the body.

use super::*;
use crate::BodyFields;

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
            [] if charges.missing().next().is_none() => String::new(),
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
            "2 7",
        ),
        (
            "/chat",
            json,
            r#"{"user":{"id":7},"max_tokens":1e99}"#,
            "9007199254740992 7",
        ),
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
fn a_cost_is_the_largest_that_an_application_may_read() {
    let text = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"99/1m\"\n\
        cost = \"form:n\"\n";
    let policy = parse(text, Context::default()).unwrap().policy;
    let cost = |query: &str, body: &str| {
        let headers = [("content-type", &b"application/x-www-form-urlencoded"[..])];
        let body = BodyFields::read(policy.rules.body_fields(), &headers, body.as_bytes());
        let facts = Facts {
            query,
            body: Some(&body),
            ..Facts::default()
        };
        let mut charges = Charges::default();
        policy.charges(&facts, WallTime::UNKNOWN, &mut charges);
        charges.entries.first().map(|entry| entry.cost.get())
    };
    for (query, body, expected) in [
        ("", "n=11", Some(11)),
        ("", "n=10.6", Some(11)),
        ("", "n=0", Some(1)),
        ("", "x=1", Some(1)),
        ("n=11", "x=1", Some(11)),
        ("n=2&n=11", "x=1", Some(11)),
        // Some application reads 11, and others something else.
        ("", "n=%2B11", None),
        ("", "n=1.1e1", None),
        ("", "n=11px", None),
        ("", "n=-1", None),
        ("", "n[]=11&n[]=1", None),
        ("n=+11", "x=1", None),
    ] {
        assert_eq!(cost(query, body), expected, "?{query} {body}");
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
fn a_field_of_a_form_that_the_query_names_is_refused_or_counted_by_the_query() {
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
        // Servlets and `params` of Rack read it in the query.
        ("user=victim", "x=1", (1, 0)),
        ("user=r1&user=victim", "x=1", (2, 0)),
    ] {
        assert_eq!(charged(query, body, &[]), expected, "?{query} and {body}");
    }
    let stated = &[("form:user", "ann")];
    assert_eq!(charged("user=victim", "user=bob", stated), (1, 0));
}
