//! Geo: databases of every form, and files that are none.

#[path = "../../../../tests/mmdb/mod.rs"]
pub(crate) mod mmdb_writer;

use std::cell::Cell;
use std::sync::Arc;

use mmdb_writer::{Mmdb, map, number, text};

use ratekeeper_core::Time;

use super::*;
use crate::Facts;
use crate::config::{Context, PolicyFiles, parse_file};
use crate::model::matching::request::RequestFacts;

/// 2026-11-01T00:00:00Z
const BUILT: u64 = 1_793_491_200;

fn compile<V: GeoValue>(bytes: &[u8]) -> Result<GeoDatabase<V>, String> {
    GeoDatabase::compile(bytes, String::new())
}

fn at<V: GeoValue>(database: &GeoDatabase<V>, ip: &str) -> Option<V> {
    database.find(ip.parse().unwrap())
}

#[test]
fn addresses_are_found_in_trees_of_each_size() {
    for record_bits in [24, 28, 32] {
        let mut mmdb = Mmdb::new(BUILT);
        mmdb.record_bits = record_bits;
        for (network, code) in [
            ("192.0.2.0/24", "NO"),
            ("192.0.2.128/25", "SE"),
            ("198.51.100.7/32", "XK"),
            ("203.0.113.0/24", "ZZ"),
            ("203.0.113.0/28", "no"),
            ("0.0.0.0/8", "GB"),
            ("2001:db8::/32", "FI"),
            ("2001:db8:ffff::1/128", "DK"),
        ] {
            mmdb.country(network, code);
        }
        let database = compile::<Country>(&mmdb.write()).unwrap();
        assert_eq!(database.built_unix_seconds, BUILT);
        for (ip, code) in [
            ("192.0.2.0", Some("NO")),
            ("192.0.2.127", Some("NO")),
            ("192.0.2.128", Some("SE")),
            ("192.0.2.255", Some("SE")),
            ("::ffff:192.0.2.1", Some("NO")),
            ("::192.0.2.1", Some("NO")),
            ("192.0.3.0", None),
            ("198.51.100.7", Some("XK")),
            ("198.51.100.6", None),
            ("203.0.113.99", None), // no assigned code
            ("203.0.113.1", None),
            ("0.0.0.0", Some("GB")),
            ("127.0.0.1", None),
            ("10.0.0.1", None),
            ("2001:db8::1", Some("FI")),
            ("2001:db8:ffff::1", Some("DK")),
            ("2001:db8:ffff::2", Some("FI")),
            ("2001:db9::1", None),
            ("::1", Some("GB")), // as 0.0.0.1
            ("ffff::", None),
        ] {
            let found = at(&database, ip).map(Country::code);
            assert_eq!(found, code, "{ip}, {record_bits} bits");
        }
    }
}

/// A file of `mmdb_writer`, the writer for Python: pointers, floats, lists and 300 networks.
#[test]
fn the_file_of_another_writer_is_read() {
    let file = include_bytes!("../../../../tests/mmdb/reference.mmdb");
    let countries = compile::<Country>(file).unwrap();
    let networks = compile::<Asn>(file).unwrap();
    for (ip, code, asn) in [
        ("10.0.0.0", Some("AD"), Some(64_512)),
        ("10.0.1.255", Some("AE"), Some(64_513)),
        ("10.1.43.9", Some("DE"), Some(64_811)),
        ("10.1.44.0", None, None),
        ("2001:db8:7::1", Some("NO"), Some(4_294_967_294)),
        ("2001:db8:8::1", None, None),
    ] {
        assert_eq!(at(&countries, ip).map(Country::code), code, "{ip}");
        assert_eq!(at(&networks, ip), asn.map(Asn), "{ip}");
    }
}

#[test]
fn numbers_of_networks_are_read_and_shown() {
    let largest = u32::MAX;
    let file = mmdb_writer::networks(
        BUILT,
        &[
            ("192.0.2.0/24", 3_320),
            ("198.51.100.0/24", largest),
            ("203.0.113.0/24", 0),
        ],
    );
    let database = compile::<Asn>(&file).unwrap();
    for (ip, asn) in [
        ("192.0.2.1", Some(3_320)),
        ("198.51.100.1", Some(largest)),
        ("203.0.113.1", Some(0)),
        ("203.0.114.1", None),
    ] {
        assert_eq!(at(&database, ip), asn.map(Asn), "{ip}");
    }
    for number in [0, 1, 9, 10, 3_320, 15_169, 99_999, 100_000, largest] {
        assert_eq!(
            Asn(number).text().as_slice(),
            format!("AS{number}").as_bytes()
        );
        assert_eq!(Asn::parse(&format!("as{number}")).unwrap(), Asn(number));
    }
    for wrong in ["", "AS", "A", "AS-1", "+1", "4294967296", "\u{e9}1", "AS 1"] {
        assert!(Asn::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_file_of_something_else_is_refused_with_the_reason() {
    let country = mmdb_writer::countries(BUILT, &[("192.0.2.0/24", "NO")]);
    let network = mmdb_writer::networks(BUILT, &[("192.0.2.0/24", 3_320)]);
    let reason = compile::<Asn>(&country).unwrap_err();
    assert_eq!(
        reason,
        "none of its records has a known `autonomous_system_number`"
    );
    let reason = compile::<Country>(&network).unwrap_err();
    assert_eq!(reason, "none of its records has a known `country.iso_code`");
    for none in [&b""[..], b"limit,key,set\n", &country[..country.len() / 2]] {
        let reason = compile::<Country>(none).unwrap_err();
        assert!(
            reason.contains("could not find MaxMind DB metadata"),
            "{reason}"
        );
    }
    let mut large = country.clone();
    let count = large
        .windows(10)
        .rposition(|name| name == b"node_count")
        .unwrap();
    large[count + 12] = 255; // the last byte of the number of nodes
    let reason = compile::<Country>(&large).unwrap_err();
    assert!(reason.contains("search tree extends beyond"), "{reason}");
}

/// Nothing that a file holds makes the compiler or a look-up panic or go on forever.
#[test]
fn damaged_files_are_refused_or_read_within_their_bytes() {
    let mut mmdb = Mmdb::new(BUILT);
    mmdb.country("192.0.2.0/24", "NO");
    mmdb.country("2001:db8::/32", "FI");
    mmdb.network("198.51.100.0/24", 3_320);
    let file = mmdb.write();
    let ips = [
        "192.0.2.1",
        "198.51.100.1",
        "2001:db8::1",
        "::",
        "ffff::ffff",
    ];
    let read = |bytes: &[u8]| {
        let countries = compile::<Country>(bytes);
        let networks = compile::<Asn>(bytes);
        for ip in ips {
            let _ = countries.as_ref().map(|database| at(database, ip));
            let _ = networks.as_ref().map(|database| at(database, ip));
        }
        countries.is_ok()
    };
    assert!(read(&file));
    for length in 0..file.len() {
        read(&file[..length]);
    }
    let mut good = 0;
    for at in 0..file.len() {
        for flip in [1, 0x20, 0x80, 0xff] {
            let mut bytes = file.clone();
            bytes[at] ^= flip;
            good += usize::from(read(&bytes));
        }
    }
    assert!(good > 0 && good < file.len() * 4, "{good}");
}

#[test]
fn hostile_values_cost_no_more_than_their_file() {
    let pointer_to_itself = vec![0x20, 0x00];
    let deep = vec![0xe1; 20_000]; // maps in maps, without names
    let wide = vec![0xff, 0xff, 0xff, 0xff]; // a map of 16 million fields
    let list = vec![0x1f, 0x04, 0xff, 0xff, 0xff]; // a list of 16 million values
    for value in [pointer_to_itself, deep, wide, list, vec![0x00, 0xff]] {
        let mut mmdb = Mmdb::new(BUILT);
        mmdb.insert("192.0.2.0/24", value);
        assert!(compile::<Country>(&mmdb.write()).is_err());
    }
    // 60,000 records that begin within each other: each would read the rest of the data.
    let mut mmdb = Mmdb::new(BUILT);
    let mut nested = text("x");
    for _ in 0..60_000 {
        nested.splice(0..0, [0xe1, 0x41, b'x']);
    }
    mmdb.insert("1.0.0.0/8", map(&[("a", nested), ("country", number(1))]));
    let reason = compile::<Country>(&mmdb.write()).unwrap_err();
    assert!(reason.contains("maximum data structure depth"), "{reason}");
}

#[test]
fn ipv4_addresses_within_ipv6_are_found_where_the_database_has_them() {
    let networks = [("192.0.2.0/24", "NO"), ("2001:db8::/32", "FI")];
    let (teredo, six_to_four) = ("2001:0:c000:201::1", "2002:c000:201::1");
    let mut mmdb = Mmdb::new(BUILT);
    for (network, code) in networks {
        mmdb.country(network, code);
    }
    let without = compile::<Country>(&mmdb.write()).unwrap();
    assert_eq!(
        (at(&without, teredo), at(&without, six_to_four)),
        (None, None)
    );
    let with = compile::<Country>(&mmdb_writer::countries(BUILT, &networks)).unwrap();
    for (ip, code) in [
        (teredo, Some("NO")),
        (six_to_four, Some("NO")),
        ("192.0.2.1", Some("NO")),
        ("2001:db8::1", Some("FI")),
        ("2002:c000:301::1", None),
    ] {
        assert_eq!(at(&with, ip).map(Country::code), code, "{ip}");
    }
}

#[test]
fn a_circle_in_the_tree_is_refused() {
    let mut mmdb = Mmdb::new(BUILT);
    mmdb.country("192.0.2.0/24", "NO");
    let mut file = mmdb.write();
    let database = compile::<Country>(&file).unwrap();
    assert_eq!(at(&database, "192.0.2.1").map(Country::code), Some("NO"));
    file[..6].copy_from_slice(&[0; 6]); // the first node leads to itself
    let reason = compile::<Country>(&file).unwrap_err();
    assert!(reason.contains("cycle"), "{reason}");
    // Both records of each node lead to the next: 120 nodes, and 2^120 networks.
    for (node, next) in file.chunks_exact_mut(6).zip(1..=120_u8) {
        node.copy_from_slice(&[0, 0, next, 0, 0, next]);
    }
    let reason = compile::<Country>(&file).unwrap_err();
    assert!(reason.contains("lead into each other"), "{reason}");
}

#[test]
fn an_address_is_looked_up_only_if_a_limit_asks() {
    let limit = |name: &str, fields: &str| {
        format!(
            "[[limit]]\nname = \"{name}\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\nmatch = {{ {fields} }}\n"
        )
    };
    let text = ["version = 1\n[geo]\ncountry_db = \"c.mmdb\"\n".to_owned()]
        .into_iter()
        .chain([
            limit("a", "country = \"NO\", path = \"/a\""),
            limit("b", "country = \"SE\", path = \"/a\""),
            limit("c", "country = \"SE\", method = \"POST\", path = \"/c\""),
            limit("d", "path = \"/d\""),
        ])
        .collect::<String>();
    let database = |_: &str, _| Ok(mmdb_writer::countries(BUILT, &[("192.0.2.0/24", "NO")]));
    let files = PolicyFiles::read(&text, database);
    let loaded = parse_file(&text, &files, Context::default(), Time::ZERO);
    let policy = loaded.unwrap().policy;
    for (method, path, is_located, matched) in [
        ("GET", "/d", false, 1),
        ("GET", "/b", false, 0),
        ("GET", "/c", false, 0),
        ("POST", "/c", true, 0),
        ("GET", "/a", true, 1),
    ] {
        let facts = Facts {
            method,
            path,
            ip: "192.0.2.1".parse().ok(),
            ..Facts::default()
        };
        let request = RequestFacts::new(&facts).located_by(policy.geo.as_ref());
        let candidates = policy.rules.candidates(&request);
        let found = candidates.filter(|(_, rule)| rule.holds(&request)).count();
        assert_eq!(
            (found, request.is_located()),
            (matched, is_located),
            "{method} {path}"
        );
    }
}

#[test]
fn a_header_states_an_assigned_code_once() {
    let geo = Geo {
        header: Some("cf-ipcountry".into()),
        ..Geo::default()
    };
    for (headers, code) in [
        (&[("CF-IPCountry", &b"NO"[..])][..], Some("NO")),
        (&[("cf-ipcountry", b" se ")], Some("SE")),
        (&[("cf-ipcountry", b"XX")], None),
        (&[("cf-ipcountry", b"T1")], None),
        (&[("cf-ipcountry", b"ZZ")], None),
        (&[("cf-ipcountry", b"NOR")], None),
        (&[("cf-ipcountry", b"")], None),
        (&[("cf-ipcountry", b"\xff\xff")], None),
        (&[("cf-ipcountry", b"NO, SE")], None),
        (&[("cf-ipcountry", b"NO"), ("cf-ipcountry", b"SE")], None),
        (&[("x-country", b"NO")], None),
    ] {
        assert_eq!(geo.stated(headers).map(Country::code), code, "{headers:?}");
    }
}

#[test]
fn a_database_is_old_after_thirty_days() {
    let file = GeoFile {
        field: "country_db",
        name: "c.mmdb",
        built_unix_seconds: BUILT,
    };
    assert!(!file.is_old(BUILT + 30 * 86_400));
    assert!(file.is_old(BUILT + 30 * 86_400 + 1));
    assert_eq!(file.days_old(BUILT + 45 * 86_400), 45);
    assert!(!file.is_old(0), "the clock may be wrong");
}

/// Counts the reads, and compares the compiled databases by their place in memory.
#[test]
fn a_database_that_has_not_changed_is_neither_read_nor_compiled_again() {
    let policy = |more: &str| format!("version = 1\n{more}[geo]\ncountry_db = \"c.mmdb\"\n");
    let place = |files: &PolicyFiles| Arc::as_ptr(&files.country_database().unwrap());
    let reads = Cell::new(0);
    let read = |code: &'static str| {
        let reads = &reads;
        move |_: &str, _| {
            reads.set(reads.get() + 1);
            Ok(mmdb_writer::countries(BUILT, &[("192.0.2.0/24", code)]))
        }
    };
    let first = PolicyFiles::read(&policy(""), read("NO"));
    assert_eq!(reads.get(), 1);
    // The policy has changed, or not; the file has not.
    let changed = first.read_changed(&policy("timezone = \"UTC\"\n"), |_| true, read("SE"));
    let again = first.read_again(|_| true, read("SE"));
    assert_eq!(reads.get(), 1);
    assert_eq!([place(&changed), place(&again)], [place(&first); 2]);
    // It may have changed, and has not.
    let changed = first.read_changed(&policy("timezone = \"UTC\"\n"), |_| false, read("NO"));
    assert_eq!((reads.get(), place(&changed)), (2, place(&first)));
    // It has.
    let other = first.read_changed(&policy(""), |_| false, read("SE"));
    assert_eq!(reads.get(), 3);
    assert_ne!(place(&other), place(&first));
    // Another name is another file.
    let renamed = policy("").replace("c.mmdb", "d.mmdb");
    let _ = first.read_changed(&renamed, |_| true, read("SE"));
    assert_eq!(reads.get(), 4);
    // An error is read again.
    let broken = PolicyFiles::read(&policy(""), |_, _| Err::<Vec<u8>, _>("gone".into()));
    let _ = broken.read_again(|_| true, read("SE"));
    assert_eq!(reads.get(), 5);
}
