//! Countries and networks: `explain` shows their source, `validate` how old the databases are.

use crate::desk::Desk;
use crate::mmdb;

/// 2100-01-01T00:00:00Z: never old.
const NEW: u64 = 4_102_444_800;
/// 2020-01-01T00:00:00Z
const OLD: u64 = 1_577_836_800;

const LIMITS: &str = r#"
[[limit]]
name  = "north"
match = { country = ["NO", "SE"] }
key   = ["country", "asn"]
limit = "300/1m"
"#;

fn desk(geo: &str, built: u64) -> Desk {
    let countries = [("192.0.2.0/24", "NO"), ("198.51.100.0/24", "FI")];
    let networks = [("192.0.2.0/24", 3_320)];
    Desk::new()
        .with("c.mmdb", mmdb::countries(built, &countries))
        .with("a.mmdb", mmdb::networks(built, &networks))
        .with(
            "ratekeeper.toml",
            format!(
                "version = 1\n[client_ip]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[geo]\n{geo}\n{LIMITS}"
            ),
        )
}

#[test]
fn explain_shows_the_country_of_a_request() {
    let desk = desk("country_db = \"c.mmdb\"\nasn_db = \"a.mmdb\"", NEW);
    let page = desk.terminal(&[
        &["explain"],
        &["explain", "--request", "/", "--ip", "192.0.2.1"],
        &["explain", "--request", "/", "--ip", "198.51.100.1"],
        &["explain", "--request", "/", "--ip", "10.0.0.1"],
    ]);
    for text in [
        "[geo]  country by c.mmdb, made on 2100-01-01; ZZ if it does not have the address",
        "[geo]  network by a.mmdb, made on 2100-01-01; AS0 if it does not have the address",
        "[geo]  country NO, continent EU, network AS3320",
        "country=NO, asn=AS3320",
        "country is FI, and must be NO or SE",
        "[geo]  country ZZ, continent ZZ, network AS0",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
}

#[test]
fn explain_takes_a_header_as_sent_by_a_trusted_proxy() {
    let desk = desk("header = \"cf-ipcountry\"\nasn_db = \"a.mmdb\"", NEW);
    let ask = |header| {
        [
            "explain",
            "--request",
            "/",
            "--ip",
            "192.0.2.1",
            "--header",
            header,
        ]
    };
    let page = desk.terminal(&[
        &["explain"],
        &ask("cf-ipcountry: SE"),
        &ask("cf-ipcountry: T1"),
    ]);
    for text in [
        "[geo]  country by the header cf-ipcountry of trusted proxies; ZZ without it",
        "[geo]  country SE, continent EU, network AS3320",
        "[geo]  country ZZ, continent ZZ, network AS3320",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
}

#[test]
fn an_old_database_is_reported() {
    let desk = desk("country_db = \"c.mmdb\"\nasn_db = \"a.mmdb\"", OLD);
    let page = desk.terminal(&[&["validate"]]);
    for text in ["RK0364", "built on 2020-01-01"] {
        assert!(page.contains(text), "{text}\n{page}");
    }
}

#[test]
fn a_database_of_something_else_is_refused() {
    let desk = desk("country_db = \"a.mmdb\"", NEW);
    let page = desk.terminal(&[&["validate"]]);
    let reason =
        "cannot read the database `a.mmdb`: none of its records has a known `country.iso_code`";
    assert!(page.contains(reason), "{page}");
}
