//! Countries and networks, end to end in virtual time.

#[path = "../../../policy/tests/mmdb/mod.rs"]
mod mmdb;

use ratekeeper::core::{Nanos, Origin};
use ratekeeper::policy::config::{Context, PolicyFiles, parse_file};
use ratekeeper::policy::{Country, Facts};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Clock, Keeper, ManualClock, Scope};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

/// 2026-11-21 00:00 in Oslo.
const MIDNIGHT: Origin = Origin::from_unix_nanos(1_795_215_600_000_000_000);

/// The day before.
const BUILT: u64 = 1_795_132_800;

const COUNTRIES: [(&str, &str); 4] = [
    ("192.0.2.0/24", "NO"),
    ("198.51.100.0/24", "SE"),
    ("2001:db8:1::/48", "FI"),
    ("203.0.113.0/24", "US"),
];

fn read(name: &str) -> Result<Vec<u8>, String> {
    match name {
        "c.mmdb" => Ok(mmdb::countries(BUILT, &COUNTRIES)),
        "a.mmdb" => Ok(mmdb::networks(
            BUILT,
            &[("192.0.2.0/25", 3_320), ("2001:db8::/32", 15_169)],
        )),
        _ => Err("no such file".into()),
    }
}

fn keeper(limits: &str) -> TestKeeper {
    let text = format!(
        "version = 1\ntimezone = \"UTC\"\n[client_ip]\ntrusted_proxies = [\"10.0.0.0/8\"]\n{limits}"
    );
    let files = PolicyFiles::read(&text, |name, _| read(name));
    let clock = ManualClock::at(MIDNIGHT);
    let context = Context::from(MIDNIGHT);
    let loaded = parse_file(&text, &files, context, clock.now());
    let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:?}"));
    Keeper::new(
        loaded.policy,
        MemoryStore::new(MemoryConfig::default()),
        clock,
    )
}

fn from(ip: &str) -> Facts<'static> {
    Facts {
        ip: ip.parse().ok(),
        path: "/a",
        ..Facts::default()
    }
}

/// Sends requests until one is refused; returns how many passed, 100 at most.
fn drain(keeper: &TestKeeper, facts: &Facts<'_>) -> usize {
    (0..100)
        .take_while(|_| keeper.check_now(facts, Scope::All).allowed())
        .count()
}

/// The example of the policy language: little is expected from the north by night.
#[test]
fn countries_have_other_limits_by_night() {
    let keeper = keeper(
        r#"
        [geo]
        country_db = "c.mmdb"
        unknown    = "ZZ"
        [[limit]]
        name   = "night-by-country"
        match  = { country = ["NO", "SE", "FI"] }
        key    = ["country"]
        active = { hours = "01:00-06:00", timezone = "Europe/Oslo" }
        limit  = "3/1m"
        [[limit]]
        name   = "day-by-country"
        match  = { country = ["NO", "SE", "FI"] }
        key    = ["country"]
        active = { hours = "06:00-01:00", timezone = "Europe/Oslo" }
        limit  = "50/1m"
        "#,
    );
    let hour = Nanos::from_secs(3_600);
    assert_eq!(drain(&keeper, &from("192.0.2.1")), 50, "00:00");
    keeper.clock().advance(hour);
    assert_eq!(drain(&keeper, &from("192.0.2.1")), 3, "01:00");
    assert_eq!(drain(&keeper, &from("192.0.2.200")), 0, "the same country");
    assert_eq!(
        drain(&keeper, &from("::ffff:192.0.2.7")),
        0,
        "the same address in IPv6"
    );
    assert_eq!(
        drain(&keeper, &from("198.51.100.1")),
        3,
        "a country of its own"
    );
    assert_eq!(drain(&keeper, &from("2001:db8:1::1")), 3);
    for other in [
        "203.0.113.1",
        "127.0.0.1",
        "10.0.0.1",
        "2001:db8:2::1",
        "no address",
    ] {
        assert_eq!(drain(&keeper, &from(other)), 100, "{other}");
    }
    keeper.clock().advance(Nanos::from_secs(5 * 3_600));
    assert_eq!(drain(&keeper, &from("192.0.2.1")), 50, "06:00");
}

#[test]
fn each_field_and_key_part_has_a_value_for_every_address() {
    for (limit, within, outside) in [
        ("match = { country = \"!NO\" }", "198.51.100.1", "192.0.2.1"),
        ("match = { country = \"!NO\" }", "127.0.0.1", "192.0.2.1"),
        ("match = { country = \"ZZ\" }", "127.0.0.1", "192.0.2.1"),
        ("match = { country = \"no\" }", "192.0.2.1", "198.51.100.1"),
        (
            "match = { continent = \"EU\" }",
            "2001:db8:1::1",
            "203.0.113.1",
        ),
        (
            "match = { continent = [\"NA\", \"ZZ\"] }",
            "203.0.113.1",
            "192.0.2.1",
        ),
        (
            "match = { continent = [\"NA\", \"ZZ\"] }",
            "127.0.0.1",
            "192.0.2.1",
        ),
        (
            "match = { asn = [3320, \"as15169\"] }",
            "192.0.2.1",
            "192.0.2.200",
        ),
        (
            "match = { asn = [3320, \"as15169\"] }",
            "2001:db8::1",
            "203.0.113.1",
        ),
        ("match = { asn = \"AS0\" }", "203.0.113.1", "192.0.2.1"),
        ("match = { asn = \"AS0\" }", "no address", "192.0.2.1"),
    ] {
        let keeper = keeper(&format!(
            "[geo]\ncountry_db = \"c.mmdb\"\nasn_db = \"a.mmdb\"\n\
             [[limit]]\nname = \"a\"\nkey = [\"country\", \"continent\", \"asn\"]\n\
             missing_key = \"deny\"\nlimit = \"5/1m\"\n{limit}"
        ));
        assert_eq!(drain(&keeper, &from(within)), 5, "{limit} {within}");
        assert_eq!(drain(&keeper, &from(outside)), 100, "{limit} {outside}");
    }
}

#[test]
fn exemptions_and_overrides_name_countries() {
    let keeper = keeper(
        r#"
        [geo]
        country_db = "c.mmdb"
        asn_db     = "a.mmdb"
        unknown    = "US"
        [[limit]]
        name  = "by-place"
        key   = ["country", "asn"]
        limit = "5/1m"
        [[exempt]]
        limits = ["*"]
        match  = { country = "SE" }
        [[override]]
        limit = "by-place"
        key   = { country = "no", asn = "3320" }
        set   = "9/1m"
        "#,
    );
    for (ip, passed) in [
        ("192.0.2.1", 9),
        ("192.0.2.200", 5),
        ("198.51.100.1", 100),
        ("203.0.113.1", 5),
        ("127.0.0.1", 0), // counted with those from the US, by `unknown`
    ] {
        assert_eq!(drain(&keeper, &from(ip)), passed, "{ip}");
    }
}

#[test]
fn a_header_is_believed_from_a_trusted_proxy_alone() {
    let keeper = keeper(
        "[geo]\nheader = \"cf-ipcountry\"\n\
         [[limit]]\nname = \"a\"\nkey = [\"country\"]\nmatch = { country = \"NO\" }\nlimit = \"5/1m\"",
    );
    let policy = keeper.policy();
    let long = vec![b'N'; 1 << 20];
    for (peer, value, country) in [
        ("10.0.0.1", &b"NO"[..], Some("NO")),
        ("::ffff:10.0.0.1", b"no", Some("NO")),
        ("192.0.2.1", b"NO", None),
        ("10.0.0.1", b"XX", None),
        ("10.0.0.1", &*long, None),
    ] {
        let peer = peer.parse().expect("an address");
        let headers = [("CF-IPCountry", value)];
        let stated = policy.stated_country(peer, &headers);
        assert_eq!(stated.map(Country::code), country, "{peer}");
        let facts = Facts {
            country: stated,
            headers: &headers,
            ..from("192.0.2.1")
        };
        let limited = keeper.check_now(&facts, Scope::All).outcomes().count();
        assert_eq!(limited, usize::from(country.is_some()), "{peer}");
    }
}

/// Limits by country alone are indexed by it, those with other fields by these.
#[test]
fn many_limits_by_country_are_found() {
    let limit = |(index, code): (usize, &str)| {
        format!(
            "[[limit]]\nname = \"l{index}\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\n\
             match = {{ country = \"{code}\", path = \"/a\" }}\n\
             [[limit]]\nname = \"m{index}\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\n\
             match = {{ country = \"{code}\" }}\n"
        )
    };
    let codes = ["NO", "SE", "FI", "DK", "DE", "FR", "GB", "US", "ZZ"];
    let limits: String = codes.into_iter().enumerate().map(limit).collect();
    let keeper = keeper(&format!("[geo]\ncountry_db = \"c.mmdb\"\n{limits}"));
    for (ip, index) in [
        ("192.0.2.1", 0),
        ("2001:db8:1::1", 2),
        ("203.0.113.1", 7),
        ("10.1.1.1", 8),
    ] {
        let answer = keeper.check_now(&from(ip), Scope::All);
        let names: Vec<_> = answer
            .outcomes()
            .map(|one| one.rule.limit.name.to_string())
            .collect();
        assert_eq!(names, [format!("l{index}"), format!("m{index}")], "{ip}");
    }
}
