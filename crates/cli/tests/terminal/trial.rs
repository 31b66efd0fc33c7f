//! `try`: a limit under a pattern of checks, drawn.

use crate::desk::{Desk, POLICY};

#[test]
fn a_burst_meets_the_limit() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    insta::assert_snapshot!(desk.terminal(&[
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
    insta::assert_snapshot!(desk.terminal(&[
        &["try", "--limit", "per-ip", "-n", "50", "--rate", "40/s"],
        &[
            "try",
            "--limit",
            "per-ip",
            "-n",
            "60",
            "--rate",
            "30/s",
            "--pattern",
            "burst"
        ],
        &[
            "try", "--limit", "per-user", "-n", "1000", "--rate", "200/1m"
        ],
        &["try", "--limit", "signup", "-n", "40", "--rate", "1/h"],
    ]));
}

#[test]
fn random_moments_come_again_with_their_seed() {
    let desk = Desk::new().with("ratekeeper.toml", POLICY);
    let run = |seed| {
        let arguments = [
            "try",
            "--limit",
            "per-ip",
            "-n",
            "500",
            "--rate",
            "25/s",
            "--pattern",
            "poisson",
        ];
        desk.run(&[&arguments[..], &["--json", "--seed", seed]].concat())
            .stdout
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}
