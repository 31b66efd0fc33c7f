//! Reference: each kind of limit computed again by a few lines of whole numbers, over two months of
//! made-up traffic, and over sample logs whose results are known.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::Hash;
use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use ratekeeper_replay::LogOptions;
use serde_json::Value;

use crate::{replay, with_format};

/// A request of the traffic.
struct Request {
    second: u64,
    client: u64,
    method: &'static str,
    path: u64,
    status: u16,
    plan: &'static str,
}

/// Returns visits of 40 clients, each of up to 60 requests, from February to April: both summer
/// times begin.
fn traffic() -> Vec<Request> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |most: u64| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 33) % most
    };
    let mut requests = Vec::new();
    for _ in 0..600 {
        let client = below(40);
        let mut second = 1_550_966_400 + below(61 * 86_400);
        for _ in 0..below(60) {
            second += below(9);
            requests.push(Request {
                second,
                client,
                method: ["GET", "POST"][usize::from(below(4) == 0)],
                path: below(3),
                status: [200, 404][usize::from(below(5) == 0)],
                plan: ["free", "pro"][usize::from(client % 4 == 0)],
            });
        }
    }
    requests.sort_by_key(|request| request.second);
    requests
}

fn zoned(request: &Request, zone: &str) -> Zoned {
    let at = Timestamp::from_second(request.second.cast_signed()).unwrap();
    at.to_zoned(TimeZone::get(zone).unwrap())
}

/// Decides one request, and charges it if `is_charged`.
type Model = Box<dyn FnMut(&Request, bool) -> bool>;

/// At most `most` requests of a key in a window.
fn windows<K: Hash + Eq + 'static, W: PartialEq + 'static>(
    most: u64,
    key: fn(&Request) -> K,
    window: fn(&Request) -> W,
) -> Model {
    let mut counts: HashMap<K, (W, u64)> = HashMap::new();
    Box::new(move |request, is_charged| {
        let now = window(request);
        let count = counts.entry(key(request)).or_insert((window(request), 0));
        if count.0 != now {
            *count = (now, 0);
        }
        let is_allowed = count.1 < most;
        count.1 += u64::from(is_allowed && is_charged);
        is_allowed
    })
}

/// A bucket that holds `size` times `unit`, gains `refill` a second, and gives `cost` times `unit`.
fn bucket(key: fn(&Request) -> u64, [size, unit, refill, cost]: [u64; 4]) -> Model {
    let mut buckets: HashMap<u64, (u64, u64)> = HashMap::new();
    Box::new(move |request, is_charged| {
        let full = (size * unit, request.second);
        let (level, last) = buckets.entry(key(request)).or_insert(full);
        *level = (*level + refill * (request.second - *last)).min(size * unit);
        *last = request.second;
        let is_allowed = *level >= cost * unit;
        *level -= if is_allowed && is_charged {
            cost * unit
        } else {
            0
        };
        is_allowed
    })
}

/// At most `most` allowed requests of a client in the `span` seconds before and with each.
fn sliding(most: usize, span: u64) -> Model {
    let mut logs: HashMap<u64, Vec<u64>> = HashMap::new();
    Box::new(move |request, is_charged| {
        let log = logs.entry(request.client).or_default();
        log.retain(|at| at + span > request.second);
        let is_allowed = log.len() < most;
        if is_allowed && is_charged {
            log.push(request.second);
        }
        is_allowed
    })
}

/// Applies a model to some requests; the others pass.
fn only(applies: fn(&Request) -> bool, mut model: Model) -> Model {
    Box::new(move |request, is_charged| !applies(request) || model(request, is_charged))
}

/// Returns the requests that one of the limits refuses; none of them is charged for those.
fn refused(requests: &[Request], mut models: Vec<Model>) -> Vec<usize> {
    let refused = requests.iter().enumerate().filter(|(_, request)| {
        let is_allowed = models.iter_mut().all(|model| model(request, false));
        if is_allowed {
            for model in &mut models {
                model(request, true);
            }
        }
        !is_allowed
    });
    refused.map(|(index, _)| index).collect()
}

fn client(request: &Request) -> u64 {
    request.client
}

fn minute(request: &Request) -> u64 {
    request.second / 60
}

/// Decides the traffic by the limits of each row, and by their models.
fn check(rows: Vec<(String, Vec<Model>)>) {
    let requests = traffic();
    let mut text = String::new();
    for request in &requests {
        let (client, second) = (request.client, request.second);
        let (method, path, status) = (request.method, request.path, request.status);
        let plan = request.plan;
        let _ = writeln!(
            text,
            "192.0.2.{client} [{second}] \"{method} /{path} HTTP/1.1\" {status} \"{plan}\""
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    std::fs::write(&log, text).unwrap();
    let options = with_format("%h [%t] \"%r\" %>s \"%{X-Plan}i\"");
    for (limits, models) in rows {
        let (report, records) = replay(std::slice::from_ref(&log), &options, &limits).unwrap();
        let signs = records.iter().enumerate();
        let decided: Vec<usize> = signs
            .filter(|(_, record)| record.starts_with('-'))
            .map(|(index, _)| index)
            .collect();
        let expected = refused(&requests, models);
        assert!(expected.len() > 100, "{}: {limits}", expected.len());
        assert_eq!(decided, expected, "{limits}");
        assert_eq!(report.lines, requests.len() as u64);
    }
}

const PER_CLIENT: &str = "[[limit]]\nname = 'a'\nkey = ['ip']\n";

#[test]
fn numbers_and_calendars_decide_as_their_references() {
    check(vec![
        (
            format!("{PER_CLIENT}limit = '9/1m'\nalgorithm = 'fixed-window'"),
            vec![windows(9, client, minute)],
        ),
        (
            format!("{PER_CLIENT}limit = '20/1h'\nalgorithm = 'sliding-window-log'"),
            vec![sliding(20, 3_600)],
        ),
        (
            // A cell rate: ten at once, and one more in six seconds.
            format!("{PER_CLIENT}limit = '10/1m'"),
            vec![bucket(client, [10, 6, 1, 1])],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['all']\nbucket = { size = 5, refill = '2/17s' }".into(),
            vec![bucket(|_| 0, [5, 17, 2, 1])],
        ),
        (
            format!("{PER_CLIENT}spacing = '5s'"),
            vec![bucket(client, [1, 5, 1, 1])],
        ),
        (
            format!("timezone = 'Europe/Oslo'\n{PER_CLIENT}limit = '60/week'"),
            vec![windows(60, client, |request| {
                let day = zoned(request, "Europe/Oslo").date().iso_week_date();
                (day.year(), day.week())
            })],
        ),
        (
            format!("timezone = 'America/New_York'\n{PER_CLIENT}limit = '200/month'"),
            vec![windows(200, client, |request| {
                let day = zoned(request, "America/New_York").date();
                (day.year(), day.month())
            })],
        ),
        (
            format!("timezone = 'Asia/Kolkata'\n{PER_CLIENT}limit = '30/day'"),
            vec![windows(30, client, |request| {
                zoned(request, "Asia/Kolkata").date()
            })],
        ),
    ]);
}

#[test]
fn parts_of_requests_decide_as_their_references() {
    check(vec![
        (
            format!(
                "{PER_CLIENT}limit = '6/1m'\nalgorithm = 'fixed-window'\nplans = {{ pro = '12/1m' }}\n\
                 [plan]\nfrom = 'header:x-plan'\ndefault = 'free'\n\
                 [[limit]]\nname = 'b'\nkey = ['all']\nlimit = '14/1m'\nalgorithm = 'fixed-window'"
            ),
            vec![
                only(|request| request.plan == "free", windows(6, client, minute)),
                only(|request| request.plan == "pro", windows(12, client, minute)),
                windows(14, |_| 0, minute),
            ],
        ),
        (
            format!(
                "{PER_CLIENT}bucket = {{ size = 20, refill = '20/1h' }}\n\
                 [[limit]]\nname = 'b'\nkey = ['ip']\nmatch = {{ method = 'POST' }}\ncost = 5\n\
                 bucket = {{ size = 12, refill = '1/1m' }}"
            ),
            vec![
                bucket(client, [20, 180, 1, 1]),
                only(|request| request.method == "POST", bucket(client, [12, 60, 1, 5])),
            ],
        ),
        (
            "[[limit]]\nname = 'a'\nkey = ['ip', 'path']\nlimit = '4/1m'\nalgorithm = 'fixed-window'"
                .into(),
            vec![windows(4, |request| (request.client, request.path), minute)],
        ),
        (
            format!(
                "{PER_CLIENT}limit = '3/1m'\nalgorithm = 'fixed-window'\n\
                 active = {{ hours = '22:30-06:00', days = ['mon-fri'], timezone = 'Europe/Oslo' }}"
            ),
            vec![only(
                |request| {
                    let at = zoned(request, "Europe/Oslo");
                    let begun = if at.hour() < 6 { at.yesterday().unwrap() } else { at.clone() };
                    let is_night = at.hour() < 6 || (at.hour(), at.minute()) >= (22, 30);
                    is_night && begun.weekday().to_monday_one_offset() <= 5
                },
                windows(3, client, minute),
            )],
        ),
        (
            format!(
                "{PER_CLIENT}bucket = {{ size = 6, refill = '10/1h' }}\n\
                 count = {{ status = ['4xx', '5xx'] }}"
            ),
            vec![{
                let mut model = bucket(client, [6, 360, 1, 1]);
                Box::new(move |request: &Request, is_charged| {
                    model(request, is_charged && request.status >= 400)
                })
            }],
        ),
    ]);
}

/// Policies of the results beside the sample logs, by name.
const KNOWN: [(&str, &str); 6] = [
    (
        "fixed_30_per_60s_by_client",
        "key = ['ip']\nlimit = '30/1m'\nalgorithm = 'fixed-window'",
    ),
    (
        "sliding_log_100_per_3600s_by_client",
        "key = ['ip']\nlimit = '100/1h'\nalgorithm = 'sliding-window-log'",
    ),
    (
        "token_bucket_cap20_refill_1_per_s_by_client",
        "key = ['ip']\nbucket = { size = 20, refill = '1/1s' }",
    ),
    (
        "token_bucket_cap20_refill_2_per_s_global",
        "key = ['all']\nbucket = { size = 20, refill = '2/1s' }",
    ),
    (
        "fixed_200_per_utc_day_by_client",
        "key = ['ip']\nlimit = '200/day'",
    ),
    (
        "token_bucket_cap10_refill_10_per_h_by_client_charged_only_on_status_ge_400",
        "key = ['ip']\nbucket = { size = 10, refill = '10/1h' }\ncount = { status = ['4xx', '5xx'] }",
    ),
];

/// Real logs are not a part of the repository: the variable names a folder of them, with their
/// results in `expected.json`.
#[test]
fn sample_logs_give_their_known_results() {
    let Some(folder) = std::env::var_os("RATEKEEPER_SAMPLE_LOGS") else {
        eprintln!("skipped: RATEKEEPER_SAMPLE_LOGS names no folder of sample logs");
        return;
    };
    let folder = Path::new(&folder);
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    for (name, log) in expected.as_object().unwrap() {
        let results = log["policies"].as_object().unwrap();
        assert_eq!(results.len(), KNOWN.len());
        for (policy, limit) in KNOWN {
            let limits = format!("timezone = 'UTC'\n[[limit]]\nname = 'a'\n{limit}");
            let path = folder.join(name);
            let (report, _) = replay(&[path], &LogOptions::default(), &limits).unwrap();
            let (found, known) = (&report.limits[0], &results[policy]);
            let counts = &found.counts;
            assert_eq!(known["denied"], counts.refused, "{name} {policy}");
            assert_eq!(
                known["allowed"],
                counts.requests - counts.refused,
                "{name} {policy}"
            );
            assert_eq!(
                known["clients_denied"], counts.clients_hit,
                "{name} {policy}"
            );
            let first = found.first_refused.as_ref();
            let first = first.map(|at| at.parse::<Timestamp>().unwrap().as_second());
            assert_eq!(
                known["first_denied_epoch"].as_i64(),
                first,
                "{name} {policy}"
            );
            for (place, top) in known["top_denied"].as_array().unwrap().iter().enumerate() {
                let refused = &found.worst_clients[place].1;
                assert_eq!(top[1], *refused, "{name} {policy} {place}");
                let is_listed = |it: &(String, u32)| top[0] == it.0.as_str() && top[1] == it.1;
                assert!(
                    found.worst_clients.iter().any(is_listed),
                    "{name} {policy} {top}"
                );
            }
        }
    }
}
