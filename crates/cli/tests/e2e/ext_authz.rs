//! Envoy's `ext_authz` over HTTP, as the guide prints it.

use std::time::Duration;

use tempfile::TempDir;

use crate::every_proxy::assert_denied;
use crate::harness::clock;
use crate::harness::envoy::start;
use crate::harness::free_address;
use crate::harness::proxy::snippets;
use crate::harness::service::Service;
use crate::harness::upstream::Upstream;
use crate::harness::visitor::Visitor;

/// Envoy writes its own address behind the visitor's: that of the connection to the service.
const POLICY: &str = r#"
version = 1

[client_ip]
trusted_proxies = ["127.0.0.1/32"]

[[limit]]
name   = "three"
match  = { method = "GET", path = "/", host = "app.example" }
key    = ["all"]
bucket = { size = 3, refill = "3/1h" }

[[limit]]
name   = "paced"
match  = { path = "/paced" }
key    = ["all"]
bucket = { size = 1, refill = "1/1s" }
queue  = { max = 3 }
"#;

#[test]
fn the_printed_configuration_limits_and_holds_back() {
    let dir = TempDir::new().expect("the system has a temporary directory");
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, POLICY).expect("the test's directory is writable");
    let upstream = Upstream::start();
    let service = Service::start(dir.path(), &policy);
    let address = free_address();
    let fields =
        |at: std::net::SocketAddr| format!("address: 127.0.0.1, port_value: {}", at.port());
    let [printed] = snippets(&policy, "envoy");
    let config = printed
        .replace(
            "address: 0.0.0.0, port_value: 80 ",
            &format!("{} ", fields(address)),
        )
        .replace(
            "address: 127.0.0.1, port_value: 8080",
            &fields(service.http()),
        )
        .replace(
            "address: 127.0.0.1, port_value: 3000",
            &fields(upstream.address()),
        );
    assert!(config.contains(&fields(address)), "{config}");
    let Some(_envoy) = start(dir.path(), &config, address) else {
        return;
    };
    let visitor = Visitor::at(2);
    for _ in 0..3 {
        let answer = visitor.get(address, "/");
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.header("ratelimit").is_some());
    }
    assert_denied(&visitor.get(address, "/"), "three");
    let begun = clock::now();
    for _ in 0..3 {
        assert_eq!(visitor.get(address, "/paced").status, 200);
    }
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(upstream.total(), 6);
}
