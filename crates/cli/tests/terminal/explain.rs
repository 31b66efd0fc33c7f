//! `explain`: which limits a request must pass, and why.

use crate::desk::{Desk, OFF, POLICY};

#[test]
fn every_limit_says_what_it_does_at_worst() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    insta::assert_snapshot!(
        desk.terminal(&[&["explain"], &["explain", "ratekeeper.toml", "--json"]])
    );
}

#[test]
fn a_limit_that_does_not_apply_says_why() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    insta::assert_snapshot!(desk.terminal(&[
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
fn a_warning_is_talk_and_a_limit_that_is_off_is_shown() {
    let desk = Desk::new().with("ratekeeper.toml", format!("{POLICY}{OFF}"));
    insta::assert_snapshot!(desk.terminal(&[
        &["explain", "--request", "GET /health"],
        &["try", "--limit", "old"],
    ]));
}

#[test]
fn a_window_ends_where_the_calendar_says() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    // The clocks of Oslo go forward on 2026-03-29 at 02:00: that day has 23 hours.
    insta::assert_snapshot!(desk.terminal(&[
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
            "2026-03-28T22:59:59"
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
