//! `explain`: the limits that a request must pass, and why.

mod policies;

use crate::desk::{Desk, OFF, POLICY};
use crate::reviewed::assert_reviewed;

use policies::{ALGORITHMS, CHAINS, DESCRIPTORS, DOLLARS, RESULTS, SHARED};

#[test]
fn explain_shows_the_worst_case_of_every_limit() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    assert_reviewed!(desk.terminal(&[&["explain"], &["explain", "ratekeeper.toml", "--json"]]));
}

/// A late call is charged, although its caller was answered without the store.
#[test]
fn explain_mentions_late_charges_of_a_shared_store() {
    let desk = Desk::new().with("ratekeeper.toml", SHARED);
    assert_reviewed!(desk.terminal(&[&["explain"], &["explain", "ratekeeper.toml", "--json"]]));
}

#[test]
fn explain_adds_up_the_limits_of_a_chain() {
    let desk = Desk::new().with("ratekeeper.toml", CHAINS);
    assert_reviewed!(desk.terminal(&[&["explain"]]));
}

#[test]
fn the_sum_of_a_chain_is_that_of_its_worst_cases() {
    let limit = |name: &str, more: &str| {
        format!(
            "[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\nlimit = \"10/1h\"\n\
             cost = {{ reserve = \"attr:tokens\" }}\n{more}\n"
        )
    };
    let policy = [
        "version = 1\n".to_owned(),
        limit("first", "otherwise = [\"second\"]"),
        limit("second", ""),
    ];
    let desk = Desk::new().with("ratekeeper.toml", policy.concat());
    let told = desk.terminal(&[&["explain"]]);
    assert!(
        told.contains("at worst  at most 19 in any 1 h; 10 at once"),
        "{told}"
    );
    assert!(
        told.contains("at most 38 in any 1 h: 19 by first; 19 by second"),
        "{told}"
    );
}

/// As the service decides: each key is charged, and one spelling without the key refuses.
#[test]
fn explain_shows_each_key_of_a_request() {
    let policy = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"query:user\"]\nlimit = \"2/1h\"\n\
                  missing_key = \"deny\"\n";
    let desk = Desk::new().with("ratekeeper.toml", policy);
    for (request, expected) in [
        ("GET /?user=a", "counts    query:user=a, cost 1\n    limit"),
        ("GET /?user=a&user=c", "and       query:user=c, cost 1"),
        (
            "GET /",
            "key part query:user is missing (missing_key = \"deny\")",
        ),
        (
            "GET /?User=a",
            "key part query:user is missing in one spelling",
        ),
        (
            "GET /?user[]=a",
            "key part query:user is missing in one spelling",
        ),
        (
            "GET /?user=a&user=b&user=c&user=d&user=e",
            "or the request has over four keys",
        ),
    ] {
        let told = desk.terminal(&[&["explain", "--request", request, "--ip", "192.0.2.1"]]);
        assert!(told.contains(expected), "{request}: {told}");
    }
    let request = "GET /?user=a&user=c";
    let told = desk.terminal(&[&["explain", "--json", "--request", request]]);
    assert!(told.contains(r#""more_keys":[["query:user=c"]]"#), "{told}");
}

/// Requests without priority are refused while only the last part is free.
#[test]
fn the_minimum_leaves_the_part_of_a_priority_out() {
    let limit = |name: &str, numbers: &str| {
        format!(
            "[[limit]]\nname = \"{name}\"\nkey = [\"all\"]\n{numbers}\npriority = {{ last = \"40%\", \
             match = {{ header.x-tier = \"gold\", ip = \"10.0.0.0/8\" }} }}\n"
        )
    };
    let policy = [
        "version = 1\ntimezone = \"UTC\"\n".to_owned(),
        limit("hour", "limit = \"5/1h\""),
        limit("day", "limit = \"10/day\""),
        limit("flight", "concurrency = 10"),
    ];
    let desk = Desk::new().with("ratekeeper.toml", policy.concat());
    let told = desk.terminal(&[
        &["validate"],
        &["explain", "--json"],
        &["try", "--limit", "hour"],
    ]);
    for expected in [
        "at least every request of a client that sends at most 3 in any 1 h",
        "at least every request of a client that sends at most 6 in each calendar day",
        "at least every request of a client that never has more than 6 in flight",
        r#""at_least":{"of":1,"permits":3,"served":1,"span_ms":3600000}"#,
        r#""at_least":{"of":1,"permits":6,"served":1,"span_ms":null}"#,
        "`hour` is played whole: every request may use the part that `priority` keeps",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn descriptors_are_explained_as_requests_are() {
    let desk = Desk::new().with("ratekeeper.toml", DESCRIPTORS);
    let ask = |text| ["explain", "--domain", "edge", "--descriptor", text];
    assert_reviewed!(desk.terminal(&[
        &["explain"],
        &ask("user=ada,plan=trial-9"),
        &ask("plan=pro,user=ada"),
        &ask("user=ada"),
        &ask("plan=free,user=probe"),
        &ask("nothing"),
        &["explain", "--request", "GET /"],
    ]));
}

#[test]
fn explain_shows_the_worst_case_of_every_algorithm() {
    let desk = Desk::new().with("ratekeeper.toml", ALGORITHMS);
    assert_reviewed!(desk.terminal(&[&["explain"], &["explain", "--json"]]));
}

#[test]
fn explain_shows_why_a_limit_does_not_apply() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    assert_reviewed!(desk.terminal(&[
        &["explain", "--request", "POST /signup", "--ip", "192.0.2.1"],
        &["explain", "--request", "GET /health", "--ip", "192.0.2.1"],
        &[
            "explain",
            "--request",
            "/api/users?page=2",
            "--header",
            "x-plan: pro",
            "--ip",
            "2001:db8::1"
        ],
        &[
            "explain",
            "--request",
            "/api/users",
            "--header",
            "X-Plan: free",
            "--attr",
            "user_id=u1",
            "--cost",
            "3"
        ],
        &[
            "explain",
            "--request",
            "/api/users",
            "--header",
            "x-plan: trial"
        ],
        &[
            "explain",
            "--request",
            "POST http://a.example/signup",
            "--ip",
            "192.0.2.1",
            "--json"
        ],
    ]));
}

#[test]
fn a_warning_goes_to_stderr_and_a_limit_that_is_off_is_shown() {
    let desk = Desk::new().with("ratekeeper.toml", format!("{POLICY}{OFF}"));
    assert_reviewed!(desk.terminal(&[
        &["explain", "--request", "GET /health"],
        &["try", "--limit", "old"],
    ]));
}

#[test]
fn a_window_ends_by_the_calendar() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    // The clocks of Oslo go forward on 2026-03-29 at 02:00: that day has 23 hours.
    assert_reviewed!(desk.terminal(&[
        &[
            "explain",
            "--request",
            "POST /signup",
            "--at",
            "2026-03-29T00:30+01:00"
        ],
        &[
            "explain",
            "--request",
            "POST /signup",
            "--at",
            "2026-03-28T23:30"
        ],
        &[
            "explain",
            "--request",
            "POST /signup",
            "--at",
            "2026-03-28T22:59:59Z",
            "--json"
        ],
        &["explain", "--request", "POST /signup", "--at", "tomorrow"],
        &["explain", "--at", "2026-03-29T00:30+01:00"],
        &["explain", "--request", "signup"],
        &["explain", "--request", "/", "--header", "nothing"],
        &["explain", "--request", "/", "--attr", "nothing"],
        &["explain", "--request", "/", "--ip", "192.0.2"],
    ]));
}

/// A policy means the same on each machine, whatever database of time zones that has.
#[test]
fn zones_are_those_of_the_policy() {
    let utc = [&b"TZif"[..], &[0; 35], b"\x01\0\0\0\x04", &[0; 6], b"UTC\0"].concat();
    let desk = Desk::new()
        .with("Japan", utc)
        .with(
            "ratekeeper.toml",
            "version = 1\ntimezone = \"Japan\"\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"3/day\"\n\
             active = { hours = \"08:00-10:00\" }\n",
        )
        .with("a.jsonl", r#"{"time":"2026-03-01 00:30:00","path":"/"}"#);
    for (arguments, words) in [
        (
            &["explain", "--request", "GET /", "--at", "2026-03-01T08:30"][..],
            "until     2026-03-02T00:00:00+09:00",
        ),
        (
            &["explain", "--at", "2026-03-01T00:30"],
            "2026-03-01T08:00:00+09:00",
        ),
        (
            &["replay", "ratekeeper.toml", "a.jsonl", "--zone", "Japan"],
            "from 2026-03-01T00:30:00+09:00",
        ),
    ] {
        let output = desk.command(arguments).env("TZDIR", desk.path()).output();
        let output = output.expect("the command starts").stdout;
        let output = String::from_utf8_lossy(&output);
        assert!(output.contains(words), "{arguments:?}: {output}");
    }
}

#[test]
fn lists_with_exclamation_marks_and_exemptions_without_a_reason_are_put_in_words() {
    let policy = r#"version = 1
[[limit]]
name  = "hours"
match = { attr.hour = ["!1", "!2"], path = ["/api/**", "!/api/health"] }
key   = ["ip"]
limit = "5/1m"

[[exempt]]
limits = ["*"]
match  = { ip = "192.0.2.0/24" }
"#;
    let desk = Desk::new().with("ratekeeper.toml", policy);
    let page = desk.terminal(&[
        &["explain"],
        &["explain", "--request", "/api/a", "--attr", "hour=1"],
        &[
            "explain",
            "--request",
            "/API/HEALTH/",
            "--ip",
            "198.51.100.1",
        ],
        &["explain", "--request", "/api/health/"],
        &["explain", "--request", "/api/a", "--ip", "192.0.2.1"],
    ]);
    for line in [
        "path /api/** but not /api/health",
        "attr.hour neither 1 nor 2",
        "    exempt    ip 192.0.2.0/24",
        "hours  does not apply: attr.hour is 1, and must be neither 1 nor 2",
        "hours  applies  (enforce, line 2)",
        "hours  does not apply: path is /api/health/, and must be /api/** but not /api/health",
        "hours  does not apply: exempt: ip 192.0.2.0/24",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[test]
fn active_hours_and_their_next_change_are_shown() {
    let policy = r#"version  = 1
timezone = "Europe/Oslo"
[[limit]]
name   = "night"
key    = ["ip"]
limit  = "10/1m"
active = { hours = "01:00-06:00" }

[[limit]]
name   = "day"
key    = ["ip"]
limit  = "100/1m"
active = { hours = "06:00-01:00" }

[[limit]]
name   = "campaign"
match  = { path = "/offer" }
key    = ["ip"]
limit  = "50/1m"
active = { from = 2026-03-01, until = 2026-04-01T00:00:00Z }
"#;
    let desk = Desk::new().with("ratekeeper.toml", policy);
    // The clocks of Oslo go forward on 2026-03-29 at 02:00.
    let night = "2026-03-29T01:30+01:00";
    assert_reviewed!(desk.terminal(&[
        &["explain", "--at", night],
        &[
            "explain",
            "--request",
            "/",
            "--ip",
            "192.0.2.1",
            "--at",
            night
        ],
        &[
            "explain",
            "--request",
            "/offer",
            "--ip",
            "192.0.2.1",
            "--at",
            "2026-04-01T00:00Z",
            "--json"
        ],
        &["try", "--limit", "night", "-n", "3"],
    ]));
}

#[test]
fn results_that_are_reported_are_explained() {
    let desk = Desk::new().with("ratekeeper.toml", RESULTS);
    let page = desk.terminal(&[&["explain"], &["explain", "ratekeeper.toml", "--json"]]);
    for line in [
        "only status 401, 500-599, outcome locked counts: any other gives the charge back",
        "status 200 forgives the charges of the key",
        "reported with POST /v1/report within 10 min; without a report the charge stays",
        "a span also admits the permits that come back in it of earlier charges, each once",
        "the estimate is charged first, and becomes the actual cost",
        "\"report_within_ms\":600000",
        "\"returned\":[\"of_earlier_charges\"]",
        "body      read by the proxy listener and the tower layer; other callers send `form:user` as \
         an attribute",
        "becomes the actual cost: the field `x-used` of the response (at the proxy listener and the \
         tower layer), or that of the report",
        "reported with POST /v1/report within 5 min",
        "\"settle\":\"x-used\"",
        "becomes the actual cost: `json:/usage/total_tokens` of the response's body (at the proxy \
         listener and the tower layer), or that of the report",
        "\"settle\":\"json:/usage/total_tokens\"",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    let forgives = "results   what is used beyond the permits that are left is forgiven";
    assert_eq!(
        page.matches(forgives).count(),
        1,
        "only steps cannot owe\n{page}"
    );
}

/// A unit is that of every number, not only of the one that is written.
#[test]
fn numbers_of_a_unit_are_shown_in_it() {
    let desk = Desk::new().with("ratekeeper.toml", DOLLARS);
    let page = desk.terminal(&[&["explain"], &["validate"]]);
    for line in [
        "bucket of 200.00 USD, 50.00 USD/24h",
        "at most 399.99 USD in any 4 d; 200.00 USD at once",
        "a client that spends at most 200.00 USD in any 4 d",
        "starts once more than 160.00 USD of 200.00 USD (80%) are used",
        "at most 1399.99 USD in any 4 d: 399.99 USD by purchases; 1000.00 USD by credits",
        "at most 1000.00 USD at once, and what is granted to it",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}
