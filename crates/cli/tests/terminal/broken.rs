//! Broken calls: each names the mistake and a remedy, and exits with 2.

use crate::desk::Desk;
use crate::reviewed::assert_reviewed;

#[test]
fn a_misspelt_call_gets_the_near_spelling_as_a_hint() {
    let desk = Desk::new();
    assert_reviewed!(desk.terminal(&[
        &["valdiate", "a.toml"],
        &["try", "--limt", "per-ip"],
        &["validate", "--format", "srif", "a.toml"],
        &["try", "-n", "0"],
        &["try", "-n", "1000001"],
        &["try", "--rate", "fast"],
        &["check"],
        &["check", "per-ip", "ip"],
        &["check", "per-ip", "ip=somewhere"],
        &["check", "per-ip", "heder:x=1"],
        &["check", "per-ip", "--cost", "-1"],
        &["check", "per-ip", "--server", "https://127.0.0.1"],
        &["check", "per-ip", "--server", "http://[", "ip=192.0.2.1"],
    ]));
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let desk = Desk::new().with("latin1.toml", b"# one\n# caf\xe9\n");
    std::fs::create_dir(desk.path().join("policies")).expect("a directory");
    assert_reviewed!(desk.terminal(&[
        &["validate", "ratekeeper.toml"],
        &["validate", "policies/none.toml"],
        &["validate", "."],
        &["validate", "policies"],
        &["validate", "latin1.toml"],
        // Its first page is never mapped: reading it fails for every user, root too.
        &["validate", "/proc/self/mem"],
        &["validate", "/dev/zero"],
        &["explain", "none.toml"],
        &["try", "none.toml"],
        &["run", "none.toml"],
    ]));
}

#[test]
fn without_a_policy_the_way_to_one_is_shown() {
    assert_reviewed!(Desk::new().terminal(&[&["run"], &["validate"], &["try"], &["explain"]]));
}

#[test]
fn a_missing_service_is_reported() {
    let server = "http://127.0.0.1:1"; // no server listens there
    let shown = Desk::new().terminal(&[
        &["check", "per-ip", "ip=192.0.2.1", "--server", server],
        &[
            "peek",
            "per-ip",
            "ip=192.0.2.1",
            "--server",
            server,
            "--json",
        ],
    ]);
    assert_reviewed!(shown);
}
