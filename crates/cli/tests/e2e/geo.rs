//! Countries of visitors: behind a real nginx, with databases that are replaced while the service
//! runs, and by the header of a proxy.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::harness::proxy::{Kind, WhenDown};
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::Visitor;
use crate::harness::{Stage, clock};
use crate::mmdb;

/// Maximum time until a changed file is in force.
const RELOADED_WITHIN: Duration = Duration::from_secs(10);

/// 2026-11-01T00:00:00Z, and a day later.
const BUILT: [u64; 2] = [1_793_491_200, 1_793_577_600];

const REJECTED: &str = r#"ratekeeper_config_reload_total{result="rejected"}"#;
const BUILT_METRIC: &str =
    r#"ratekeeper_geo_database_built_timestamp_seconds{database="country_db"}"#;

const LIMITS: &str = r#"
[geo]
country_db = "countries.mmdb"
asn_db     = "networks.mmdb"

[[limit]]
name   = "norway"
match  = { country = "NO" }
key    = ["country"]
bucket = { size = 3, refill = "1/24h" }

[[limit]]
name   = "network"
match  = { asn = ["AS3320", 15169] }
key    = ["asn"]
bucket = { size = 2, refill = "1/24h" }
"#;

fn write_countries(dir: &Path, bytes: &[u8]) {
    // As programs update a database: written beside it, and renamed.
    fs::write(dir.join("new"), bytes).expect("the test's directory is writable");
    fs::rename(dir.join("new"), dir.join("countries.mmdb")).expect("a file can be renamed");
}

#[test]
fn countries_are_limited_and_the_database_is_replaced_while_running() {
    let begin = |dir: &Path| {
        write_countries(dir, &mmdb::countries(BUILT[0], &[("127.0.0.2/31", "NO")]));
        let networks = mmdb::networks(BUILT[0], &[("127.0.0.4/32", 3_320)]);
        fs::write(dir.join("networks.mmdb"), networks).expect("the test's directory is writable");
        write_policy(dir, LIMITS)
    };
    let Some(stage) = Stage::open_with(Kind::Nginx, WhenDown::Refuse, begin) else {
        return;
    };
    let statuses = |last: u8| [(); 4].map(|()| Visitor::at(last).get(stage.address(), "/").status);
    assert_eq!(statuses(2), [200, 200, 200, 429]);
    assert_eq!(statuses(3), [429; 4], "another address of the same country");
    assert_eq!(
        statuses(4),
        [200, 200, 429, 429],
        "by the number of the network"
    );
    assert_eq!(statuses(5), [200; 4], "no database has it");

    let countries = [("127.0.0.5/32", "NO"), ("127.0.0.3/32", "SE")];
    let replaced = mmdb::countries(BUILT[1], &countries);
    write_countries(stage.dir(), &replaced);
    let seen = clock::poll("new database", RELOADED_WITHIN, || {
        (Visitor::at(5).get(stage.address(), "/").status == 429).then_some(())
    });
    seen.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(statuses(3), [200; 4], "now of another country");
    assert_eq!(statuses(2), [200; 4], "now of none");
    assert!((stage.service.metric(BUILT_METRIC) - 1_793_577_600.0).abs() < 1.0);

    // Cut short: refused, and the one before stays.
    let before = stage.service.metric(REJECTED);
    write_countries(stage.dir(), &replaced[..replaced.len() / 2]);
    let seen = clock::poll("refused database", RELOADED_WITHIN, || {
        (stage.service.metric(REJECTED) > before).then_some(())
    });
    seen.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(statuses(5), [429; 4]);
    assert_eq!(statuses(3), [200; 4]);
    let output = stage
        .service
        .process
        .log_with("could not find MaxMind DB metadata");
    assert!(output.contains("RK0363"), "{output}");
}

#[test]
fn a_header_states_the_country_if_a_trusted_proxy_sends_it() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let policy = write_policy(
        dir.path(),
        "[geo]\nheader = \"cf-ipcountry\"\n\
         [[limit]]\nname = \"norway\"\nmatch = { country = \"NO\" }\nkey = [\"country\"]\n\
         bucket = { size = 1, refill = \"1/24h\" }",
    );
    let service = Service::start(dir.path(), &policy);
    let allowed = |peer: &str, country: &str| {
        let request = format!(
            r#"{{"request": {{"ip": "{peer}", "headers": {{"cf-ipcountry": "{country}", "x-forwarded-for": "192.0.2.9"}}}}}}"#
        );
        let answer = Visitor::at(2).post_json(service.http(), "/v1/check", &request);
        let answer: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        answer["allowed"] == true
    };
    assert!(allowed("127.0.0.1", "NO"));
    assert!(!allowed("127.0.0.1", "no"), "the same country");
    assert!(allowed("127.0.0.1", "SE"));
    assert!(allowed("127.0.0.1", "T1"), "no country");
    assert!(allowed("127.0.0.5", "NO"), "no trusted proxy");
    // By nginx and its like: the country of the original request.
    let proxy = Visitor::at(1).with("x-forwarded-for", "192.0.2.9");
    let status = |visitor: Visitor, country| {
        let visitor = visitor.with("cf-ipcountry", country);
        visitor.get(service.http(), "/v1/auth/").status
    };
    assert_eq!(status(proxy.clone(), "NO"), 429);
    assert_ne!(status(proxy, "SE"), 429);
    assert_ne!(
        status(Visitor::at(6), "NO"),
        429,
        "a client that asks by itself"
    );
}
