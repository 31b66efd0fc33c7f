//! Decisions: as in service, and what a log does not have.

use jiff::tz::TimeZone;
use ratekeeper_replay::LogOptions;
use ratekeeper_replay::report::ReplayReport;

use crate::{read, replay, with_format};

/// Runs a policy over lines `(time, client, status, path)`; returns the refused ones by their places.
fn refused(limits: &str, lines: &[(&str, &str, u16, &str)]) -> (Vec<usize>, ReplayReport) {
    let lines = lines.iter().map(|(time, client, status, path)| {
        format!("{client} - - [{time}] \"GET {path} HTTP/1.1\" {status} 5 \"-\" \"curl\" \"-\"\n")
    });
    let text = lines.collect::<Vec<String>>().concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    let (report, records) = replay(&[path], &LogOptions::default(), limits).unwrap();
    let refused = records
        .iter()
        .enumerate()
        .filter(|(_, record)| record.starts_with('-'));
    (refused.map(|(index, _)| index).collect(), report)
}

#[test]
fn policies_decide_as_in_service() {
    const A: &str = "22/Jan/2019:00:26:59 +0000";
    const B: &str = "22/Jan/2019:00:27:00 +0000"; // the next minute
    const C: &str = "31/Jan/2019:23:30:00 +0000"; // in Oslo, February
    for (limits, lines, expected) in [
        (
            "[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1m'\nalgorithm = 'fixed-window'",
            &[
                (A, "h.org", 200, "/"),
                (A, "h.org", 200, "/"),
                (A, "g.org", 200, "/"),
                (B, "h.org", 200, "/"),
            ][..],
            &[1][..],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1m'\nalgorithm = 'sliding-window-log'",
            &[
                (A, "::1", 200, "/"),
                (B, "::1", 200, "/"),
                (B, "::2", 200, "/"),
            ],
            &[1, 2], // one /64
        ),
        (
            "timezone = 'Europe/Oslo'\n[[limit]]\nname = 'a'\nkey = ['all']\nlimit = '1/month'",
            &[
                (A, "::1", 200, "/"),
                (B, "::1", 200, "/"),
                (C, "::1", 200, "/"),
            ],
            &[1],
        ),
        (
            "[[limit]]\nname = 'a'\nmatch = { path = '/a/**' }\nkey = ['path']\nlimit = '1/1m'",
            &[
                (A, "::1", 200, "/a/1"),
                (A, "::1", 200, "/a/2"),
                (A, "::9", 200, "/a/%31"),
                (A, "::1", 200, "/"),
            ],
            &[2],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['ip']\nbucket = { size = 1, refill = '1/1h' }\ncount = { status = ['4xx', '5xx'] }",
            &[
                (A, "::1", 200, "/"),
                (A, "::1", 404, "/"),
                (A, "::1", 200, "/"),
                (B, "::1", 404, "/"),
            ],
            &[2, 3],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['all']\nlimit = '2/1m'\n[[limit]]\nname = 'b'\nkey = ['ip']\nlimit = '1/1m'",
            &[
                (A, "::1", 200, "/"),
                (A, "::1", 200, "/"),
                (A, "9.9.9.9", 200, "/"),
                (A, "8.8.8.8", 200, "/"),
            ],
            &[1, 3],
        ),
    ] {
        let (refused, report) = refused(limits, lines);
        assert_eq!(refused, expected, "{limits}");
        assert_eq!(report.all.refused, expected.len() as u64);
    }
}

#[test]
fn a_report_says_what_the_log_does_not_have() {
    let limits = "[[limit]]\nname = 'a'\nkey = ['header:x-user']\nlimit = '1/1m'\nmissing_key = 'shared'\n\
                  [[limit]]\nname = 'b'\nmatch = { path = '/never' }\nkey = ['ip']\nlimit = '1/1m'";
    let time = "22/Jan/2019:00:26:59 +0000";
    let (refused, report) = refused(
        limits,
        &[(time, "h.org", 200, "/"), (time, "::1", 200, "/")],
    );
    assert_eq!(refused, [1]);
    let notes = report.notes.join("\n");
    for words in [
        "1 of the clients are named by a text that is not an address",
        "limit a: the log has no `header:x-user`; `missing_key` decided 2 of 2 requests",
        "limit b: no request of the log is for it",
    ] {
        assert!(notes.contains(words), "{notes}");
    }
    let limit = &report.limits[0];
    assert_eq!(limit.worst_clients, [("::/64".to_owned(), 1)]);
    assert_eq!((limit.counts.clients, limit.counts.clients_hit), (2, 1));
    assert_eq!(report.from.as_deref(), Some("2019-01-22T00:26:59+00:00"));
}

/// `client_ip.ipv6_prefix` identifies a client, so a client that uses many addresses is one.
#[test]
fn addresses_of_one_network_are_one_client() {
    let time = "22/Jan/2019:00:26:59 +0000";
    let lines = [
        "2001:db8::1",
        "2001:db8::2",
        "2001:db8:0:1::1",
        "h.org",
        "192.0.2.1",
    ];
    let lines = lines.map(|client| (time, client, 200, "/"));
    for (prefix, clients, hit) in [(64, 4, 1), (128, 5, 0), (48, 3, 1)] {
        let limits = format!(
            "[client_ip]\nipv6_prefix = {prefix}\n[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1m'"
        );
        let (_, report) = refused(&limits, &lines);
        let counts = (report.all.clients, report.all.clients_hit);
        assert_eq!(counts, (clients, hit), "{prefix}");
    }
}

/// A request that is charged under several keys, or that a limit is not asked about, is counted as
/// what it is.
#[test]
fn a_limit_counts_each_request_that_it_is_asked_about_once() {
    let time = "22/Jan/2019:00:26:59 +0000";
    let limits = "[[limit]]\nname = 'a'\nkey = ['query:q']\nlimit = '1/1m'\notherwise = 'b'\n\
                  [[limit]]\nname = 'b'\nkey = ['all']\nlimit = '2/1m'";
    let (refused, report) = refused(limits, &[(time, "::1", 200, "/?q=1&q=2"); 4]);
    assert_eq!(refused, [2, 3]);
    let counts = report.limits.iter().map(|limit| {
        let counts = &limit.counts;
        let hours: u64 = counts.hours.iter().map(|(_, _, refused)| refused).sum();
        (
            counts.requests,
            counts.refused,
            limit.enforced,
            hours,
            limit.worst.len(),
        )
    });
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [(4, 2, 2, 2, 2), (3, 2, 2, 2, 1)]
    );
}

#[test]
fn a_report_names_each_part_of_a_limit_that_the_log_does_not_have() {
    let time = "22/Jan/2019:00:26:59 +0000";
    for (fields, words) in [
        (
            "match = { header = { x-tier = 'free' } }",
            "the log has no `header:x-tier`",
        ),
        (
            "match = { cookie = { a = 'b' } }",
            "the log has no `cookie:a`",
        ),
        ("match = { attr = { a = 'b' } }", "the log has no `attr:a`"),
        (
            "match = { country = ['NO'] }\n[geo]\nheader = 'x-country'\n[client_ip]\ntrusted_proxies = ['10.0.0.0/8']",
            "the log has no `country`",
        ),
        (
            "[[exempt]]
limits = ['*']
match = { header = { x-tier = 'paid' } }",
            "the log has no `header:x-tier`",
        ),
        ("cost = 'attr:n'", "the log has no `attr:n`"),
        (
            "count = { outcome = 'failed' }",
            "the log lacks a status or an outcome",
        ),
        ("mode = 'off'", ""),
        ("count = { status = ['4xx'] }", ""),
        ("match = { header = { user-agent = 'curl' } }", ""),
    ] {
        let limit = format!("[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1m'\n{fields}");
        let (_, report) = refused(&limit, &[(time, "::1", 200, "/")]);
        let notes = report.notes.join("\n");
        assert!(notes.contains(words), "{fields}: {notes}");
        assert_eq!(notes.is_empty(), words.is_empty(), "{fields}: {notes}");
    }
}

#[test]
fn a_cookie_of_another_name_is_not_the_one_of_a_key() {
    let format = "$remote_addr [$msec] \"$request\" $cookie_theme";
    let limits = "[[limit]]\nname = 'a'\nkey = ['cookie:THE']\nlimit = '9/1m'";
    for (key, notes) in [
        ("cookie:session", 1),
        ("cookie:the", 1),
        ("cookie:theme", 0),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        std::fs::write(&path, "::1 [12.0] \"GET / HTTP/1.1\" dark\n").unwrap();
        let limits = limits.replace("cookie:THE", key);
        let (report, _) = replay(&[path], &with_format(format), &limits).unwrap();
        assert_eq!(report.notes.len(), notes, "{key}: {:?}", report.notes);
    }
}

/// The result of a request comes when it ends, so a request that is in flight holds its permit.
#[test]
fn durations_hold_permits() {
    let limits = "[[limit]]\nname = 'a'\nkey = ['all']\nconcurrency = 1";
    let format = "$remote_addr [$msec] $request_time \"$request\" $status";
    let text = ["::1 [12.0] 2.0", "::1 [13.0] 2.0", "::1 [14.5] 2.0"];
    let text = text
        .map(|text| format!("{text} \"GET / HTTP/1.1\" 200\n"))
        .concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    let (report, records) = replay(&[path], &with_format(format), limits).unwrap();
    let signs: Vec<&str> = records.iter().map(|record| &record[..1]).collect();
    assert_eq!(signs, ["+", "-", "+"], "{:?}", report.notes);
}

#[test]
fn clients_behind_a_trusted_proxy_are_told_apart() {
    let limits = "[client_ip]\ntrusted_proxies = ['10.0.0.0/8']\n[[limit]]\nname = 'a'\nkey = ['ip']\nlimit = '1/1h'";
    let text: String = ["192.0.2.1", "192.0.2.2", "192.0.2.1"]
        .map(|client| {
            format!("10.0.0.1 - - [22/Jan/2019:00:26:59 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" \"{client}\"\n")
        })
        .concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    let (report, _) = replay(&[path], &LogOptions::default(), limits).unwrap();
    assert_eq!(
        (
            report.all.refused,
            report.all.clients,
            report.all.clients_hit
        ),
        (1, 2, 1)
    );
    assert_eq!(report.limits[0].worst[0].key, "ip=192.0.2.1");
}

/// The header of `[geo]` counts where the peer is a trusted proxy, as at a listener.
#[test]
fn a_trusted_proxy_states_the_country() {
    let limits = "[client_ip]\ntrusted_proxies = ['10.0.0.0/8']\n[geo]\nheader = 'cf-ipcountry'\n\
                  [[limit]]\nname = 'a'\nmatch = { country = ['NO', 'SE'] }\nkey = ['country']\nlimit = '1/1h'";
    let format = "$remote_addr [$msec] \"$request\" \"$http_cf_ipcountry\"";
    for (peer, countries, signs, note) in [
        ("10.0.0.1", ["NO", "DE", "NO", "SE"], "++-+", ""),
        (
            "192.0.2.1",
            ["NO"; 4],
            "++++",
            "limit a: the log has no `country`",
        ),
    ] {
        let line = |country| format!("{peer} [12.0] \"GET / HTTP/1.1\" \"{country}\"\n");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        std::fs::write(&path, countries.map(line).concat()).unwrap();
        let (report, records) = replay(&[path], &with_format(format), limits).unwrap();
        let found: String = records.iter().map(|record| &record[..1]).collect();
        assert_eq!(found, signs, "{:?}", report.notes);
        assert_eq!(report.notes.concat(), note);
    }
}

/// As at the gateway: the limit refuses nothing, and others are charged.
#[test]
fn requests_that_a_limit_sends_to_a_route_are_not_refused() {
    let time = "22/Jan/2019:00:26:59 +0000";
    let limits = "[listen.proxy]\nupstream = 'http://127.0.0.1:3000'\n\
                  [[listen.proxy.route]]\nname = 'spare'\nupstream = 'http://127.0.0.1:5000'\n\
                  [[limit]]\nname = 'a'\nkey = ['all']\nlimit = '1/1h'\non_limit = 'route:spare'\n\
                  [[limit]]\nname = 'b'\nkey = ['ip']\nlimit = '2/1h'";
    let (refused, report) = refused(limits, &[(time, "::1", 200, "/"); 4]);
    assert_eq!(refused, [2, 3]);
    let counts = report.limits.iter();
    let counts = counts.map(|limit| (limit.counts.refused, limit.enforced));
    assert_eq!(counts.collect::<Vec<_>>(), [(3, 0), (2, 2)]);
}

#[test]
fn the_zone_of_a_reader_applies_to_times_without_one() {
    let options = LogOptions {
        zone: TimeZone::get("Europe/Oslo").unwrap(),
        ..with_format("json")
    };
    let text = r#"{"time":"2019-01-22 01:26:14","path":"/"}"#;
    let (report, records) = read(text.as_bytes(), &options).unwrap();
    assert!(records[0].starts_with("+ 1548116774000 "), "{records:?}");
    assert!(
        report.notes.concat().contains("without an offset"),
        "{:?}",
        report.notes
    );
}
