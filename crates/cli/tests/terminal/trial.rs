//! `try`: a limit under a pattern of checks, drawn.

use crate::desk::{Desk, POLICY};
use crate::reviewed::assert_reviewed;

#[test]
fn a_burst_meets_the_limit() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    assert_reviewed!(desk.terminal(&[
        &["try", "--limit", "per-ip", "-n", "25"],
        &["try", "ratekeeper.toml"],
        &["try", "--limit", "signup", "-n", "25", "--json"],
        &["try", "--limit", "per-ip", "-n", "3", "--cost", "21"],
        &["try", "--limit", "per-ip", "-n", "3", "--cost", "0"],
        &["try", "--limit", "per-pi"],
        &["try", "--limit", "zebra"],
    ]));
}

#[test]
fn a_rate_is_tried_in_virtual_time() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    assert_reviewed!(desk.terminal(&[
        &["try", "--limit", "per-ip", "-n", "50", "--rate", "40/s"],
        &[
            "try", "--limit", "per-user", "-n", "1000", "--rate", "200/1m"
        ],
        &["try", "--limit", "signup", "-n", "40", "--rate", "1/h"],
    ]));
}

const COSTS: &str = r#"
version = 1

[[limit]]
name   = "spend"
key    = ["ip"]
unit   = { name = "USD", decimals = 2 }
bucket = { size = "5.00", refill = "1.00/1h" }
cost   = "attr:amount"

[[limit]]
name  = "points"
key   = ["ip"]
limit = "10/1h"
cost  = [{ is = 2 }, { path = "/export", is = 5 }]
"#;

/// As the service charges a request whose caller states no cost, and that has no price of its own.
#[test]
fn a_plain_request_has_the_usual_cost_of_its_limit() {
    let desk = Desk::new().with("ratekeeper.toml", COSTS);
    assert_reviewed!(desk.terminal(&[
        &["try", "-n", "8"],
        &["try", "-n", "8", "--cost", "250", "--json"],
        &[
            "simulate",
            "--limit",
            "spend",
            "--workload",
            "bursty",
            "--rate",
            "8/1h",
            "--for",
            "1h"
        ],
    ]));
}

const DESCRIPTORS: &str = r#"
version = 1

[[limit]]
name   = "per-user"
match  = { domain = "edge", descriptor.plan = ["free", "trial-*"] }
key    = ["descriptor:user"]
bucket = { size = 3, refill = "3/1m" }
cost   = [{ descriptor.user = "dan", is = 3 }]

[[limit]]
name   = "edge"
match  = { domain = "edge" }
key    = ["all"]
bucket = { size = 5, refill = "5/1s" }

[[limit]]
name   = "per-ip"
key    = ["ip"]
bucket = { size = 4, refill = "4/1s" }

[[override]]
limit = "per-user"
key   = { "descriptor:user" = "eve" }
set   = "7/1m"
"#;

/// Tries the limits that apply to it, and reports why the others do not.
#[test]
fn limits_on_descriptors_are_tried() {
    let desk = Desk::new().with("ratekeeper.toml", DESCRIPTORS);
    let ask = |rest: &[&'static str]| [&["try", "-n", "8"], rest].concat();
    let runs = [
        ask(&[
            "--domain",
            "edge",
            "--descriptor",
            "plan=free",
            "--descriptor",
            "user=ada",
        ]),
        ask(&[
            "--domain",
            "edge",
            "--descriptor",
            "plan=free,user=ada",
            "--limit",
            "per-user",
        ]),
        ask(&[
            "--domain",
            "edge",
            "--descriptor",
            "plan=pro,user=ada",
            "--limit",
            "per-user",
        ]),
        ask(&["--domain", "edge", "--descriptor", "plan=free,user=eve"]),
        ask(&["--domain", "edge", "--descriptor", "plan=free,user=dan"]),
        ask(&["--descriptor", "user=ada", "--limit", "per-ip"]),
        ask(&["--descriptor", "user=ada"]),
        ask(&["--descriptor", "user"]),
        ask(&["--domain", "edge"]),
    ];
    let runs: Vec<&[&str]> = runs.iter().map(Vec::as_slice).collect();
    assert_reviewed!(desk.terminal(&runs));
}

/// One limit is played, so a reader has to know what the service decides with more than that.
#[test]
fn what_is_played_without_others_is_named() {
    let limit = |name: &str, more: &str| {
        format!(
            "[[limit]]\nname = \"{name}\"\nmatch = {{ path = \"/{name}\" }}\nkey = [\"ip\"]\n\
             limit = \"10/1h\"\n{more}\n"
        )
    };
    let policy = [
        "version = 1\n[listen.proxy]\nupstream = \"http://127.0.0.1:3000\"\n".to_owned(),
        "[[listen.proxy.route]]\nname = \"spare\"\nupstream = \"http://127.0.0.1:5000\"\n".into(),
        limit("messages", "soft = { extra = \"20%\" }"),
        limit("api", "otherwise = \"team\""),
        limit("team", ""),
        limit(
            "users",
            "algorithm = \"fixed-window\"\ndistinct = \"header:x-user\"",
        ),
        limit("server", "on_limit = \"route:spare\""),
    ];
    let desk = Desk::new().with("ratekeeper.toml", policy.concat());
    assert_reviewed!(desk.terminal(&[&["try", "-n", "14"]]));
}
