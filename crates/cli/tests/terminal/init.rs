//! `init`: a starter policy, never over an existing file.

use crate::desk::Desk;
use crate::reviewed::assert_reviewed;

#[test]
fn a_file_is_written_once() {
    let desk = Desk::new();
    assert_reviewed!(desk.terminal(&[
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
fn the_gateway_forwards_to_each_kind_of_upstream() {
    for (named, written) in [
        ("127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("https://app.example.com", "https://app.example.com:443"),
        ("unix:/run/app.sock", "unix:/run/app.sock"),
    ] {
        let desk = Desk::new();
        desk.terminal(&[&["init", "--upstream", named]]);
        let policy = std::fs::read_to_string(desk.path().join("ratekeeper.toml")).unwrap();
        let line = format!("upstream = \"{written}\"\n");
        assert!(policy.contains(&line), "{named}: {policy}");
        assert_eq!(desk.run(&["validate"]).status.code(), Some(0));
    }
}

#[test]
fn the_starter_has_no_findings() {
    let desk = Desk::new();
    for arguments in [&["init"][..], &["init", "for.toml", "--for", "nginx"]] {
        assert_eq!(desk.run(arguments).status.code(), Some(0));
    }
    assert_reviewed!(desk.terminal(&[
        &["validate", "--deny-warnings", "ratekeeper.toml", "for.toml"],
        &["explain", "for.toml"],
    ]));
}

#[test]
fn an_existing_file_is_kept() {
    let desk = Desk::new().with("ratekeeper.toml", "mine");
    assert_eq!(desk.run(&["init"]).status.code(), Some(2));
    let kept = std::fs::read_to_string(desk.path().join("ratekeeper.toml")).expect("it is there");
    assert_eq!(kept, "mine");
}

#[test]
fn a_proxy_gets_its_configuration_with_the_addresses_in_place() {
    let rows: [(&str, &[&str]); 5] = [
        ("nginx", &[include_str!("../../src/snippets/nginx.conf")]),
        ("caddy", &[include_str!("../../src/snippets/Caddyfile")]),
        (
            "haproxy",
            &[
                concat!(
                    "==> haproxy.cfg <==\n",
                    include_str!("../../src/snippets/haproxy.cfg")
                ),
                concat!(
                    "==> ratekeeper.lua <==\n",
                    include_str!("../../src/snippets/haproxy.lua")
                ),
            ],
        ),
        ("traefik", &[include_str!("../../src/snippets/traefik.yml")]),
        ("envoy", &[include_str!("../../src/snippets/envoy.yaml")]),
    ];
    for (proxy, files) in rows {
        let output = Desk::new().run(&[
            "init",
            "--for",
            proxy,
            "--upstream",
            "http://10.0.0.8:3001",
            "--service",
            "10.0.0.7:8088",
        ]);
        let expected = files
            .concat()
            .replace("127.0.0.1:8080", "10.0.0.7:8088")
            .replace("127.0.0.1:3000", "10.0.0.8:3001")
            .replace("127.0.0.1, port_value: 8080", "10.0.0.7, port_value: 8088")
            .replace("127.0.0.1, port_value: 3000", "10.0.0.8, port_value: 3001");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{proxy}");
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(talk.starts_with("wrote ratekeeper.toml\n"), "{talk}");
    }
}

#[test]
fn a_policy_for_a_proxy_trusts_the_one_on_this_machine() {
    let desk = Desk::new();
    let trusted = |file: &str| {
        let text = std::fs::read_to_string(desk.path().join(file)).expect("it is there");
        text.lines().any(|line| line.starts_with("trusted_proxies"))
    };
    desk.run(&["init", "alone.toml"]);
    desk.run(&["init", "behind.toml", "--for", "caddy"]);
    assert!(!trusted("alone.toml"));
    assert!(trusted("behind.toml"));
}
