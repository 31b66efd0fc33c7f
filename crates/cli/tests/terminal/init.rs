//! `init`: a starter policy, never over a file that is there.

use crate::desk::Desk;

#[test]
fn a_file_is_written_once() {
    let desk = Desk::new();
    insta::assert_snapshot!(desk.terminal(&[
        &["init"],
        &["init"],
        &["init", "--force"],
        &["init", "other.toml", "--json"],
        &["init", "no/such/directory.toml"],
        &["init", "--upstream", "http://127.0.0.1:3000"],
        &["init", "--for", "nginks"],
        &["init", "--for", "nginx", "--upstream", "https://app"],
    ]));
    assert!(desk.path().join("ratekeeper.toml").exists());
}

#[test]
fn the_starter_has_no_findings() {
    let desk = Desk::new();
    for arguments in [&["init"][..], &["init", "for.toml", "--for", "nginx"]] {
        assert_eq!(desk.run(arguments).status.code(), Some(0));
    }
    insta::assert_snapshot!(desk.terminal(&[
        &["validate", "--deny-warnings", "ratekeeper.toml", "for.toml"],
        &["explain", "for.toml"],
    ]));
}

#[test]
fn what_is_there_is_kept() {
    let desk = Desk::new().with("ratekeeper.toml", "mine");
    assert_eq!(desk.run(&["init"]).status.code(), Some(2));
    let kept = std::fs::read_to_string(desk.path().join("ratekeeper.toml")).expect("it is there");
    assert_eq!(kept, "mine");
}

#[test]
fn a_proxy_gets_its_configuration_with_the_addresses_in_place() {
    for proxy in ["nginx", "caddy", "haproxy", "traefik", "envoy"] {
        let desk = Desk::new();
        let arguments = [
            "init",
            "--for",
            proxy,
            "--upstream",
            "http://10.0.0.8:3001",
            "--service",
            "10.0.0.7:8088",
        ];
        insta::assert_snapshot!(format!("init_for_{proxy}"), desk.terminal(&[&arguments]));
    }
}
