//! Faults, each staged in a service: the alert of examples/monitoring that is for it fires.
//!
//! ```text
//!   service --scrape--> before      fault      service --scrape--> after
//!   promtool test rules:  before, for 5 minutes; then the same change each minute  -->  alert fires
//! ```

mod receivers;
mod stores;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use ratekeeper_core::Nanos;
use ratekeeper_server::{Config, Door, Event};
use serde_json::{Value, json};

use crate::harness::clock::poll;
use crate::harness::in_process::{InProcess, NEW_YEAR, TOKEN};
use crate::harness::staged::{Course, Scrape, staged};
use crate::harness::upstream::Upstream;
use crate::harness::visitor::{Caller, Visitor};
use crate::mmdb;
use crate::promtool::{monitoring, prove};
use receivers::{with_a_receiver_that_hangs, with_a_receiver_that_refuses, without_a_log};
use stores::STORE_FAULTS;

const PATIENCE: Duration = Duration::from_secs(60);
/// Number of parts that are staged and proved beside each other.
const PARTS: usize = 4;
const DAY: u64 = 86_400;

const POLICY: &str = r#"
version = 1

[plan]
from    = "attr:plan"
default = "free"

[[limit]]
name   = "login"
key    = ["attr:user"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }

[[limit]]
name   = "guarded"
key    = ["attr:guest"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }
ban    = { after = 1, within = "24h", for = "1h" }

[[limit]]
name   = "rehearsed"
mode   = "shadow"
key    = ["attr:trial"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }

[[limit]]
name   = "per-device"
match  = { path = "/device" }
key    = ["header:x-device"]
missing_key = "use:ip"
limit  = "1000/1m"

[[limit]]
name   = "in-flight"
key    = ["attr:worker"]
missing_key = "skip"
concurrency = { max = 9, lease = "60s" }

[[limit]]
name   = "failures"
match  = { path = "/login" }
key    = ["path"]
bucket = { size = 100, refill = "1/1h" }
count  = { status = [401] }

[[limit]]
name   = "watched"
key    = ["attr:member"]
missing_key = "skip"
bucket = { size = 10, refill = "1/1h" }
alert  = { above = "80%", for = "2s" }

[[limit]]
name   = "watched-too"
key    = ["attr:member"]
missing_key = "skip"
bucket = { size = 10, refill = "1/1h" }
alert  = { above = "80%", for = "2s" }

[[limit]]
name   = "night"
key    = ["attr:land"]
missing_key = "skip"
active = { hours = "01:00-06:00", timezone = "Europe/Oslo" }
bucket = { size = 10, refill = "1/1h" }
alert  = { above = "80%", for = "2s" }

[[limit]]
name   = "sold"
key    = ["attr:tenant"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }
plans  = { pro = "1/1h burst 10" }
"#;

type Scrapes = (Scrape, Scrape);
/// Stages a fault.
type Stage = fn() -> Scrapes;

/// Each alert, and its fault.
const FAULTS: [(&str, Course, Stage); 38] = [
    ("RatekeeperDown", Course::GoesOn, || {
        let service = InProcess::start(POLICY);
        (service.scrape(), service.end())
    }),
    ("RatekeeperNoDecisions", Course::Ends, ordinary),
    ("RatekeeperUnlimitedRequests", Course::GoesOn, || {
        after(|service| service.ask_paths(same("/", 9)))
    }),
    ("RatekeeperDecisionsSlow", Course::GoesOn, || {
        after(|service| {
            let stride = &service.clock.stride;
            stride.store(200_000_000, Ordering::Relaxed);
            service.ask("user", numbers(9));
            stride.store(0, Ordering::Relaxed);
        })
    }),
    ("RatekeeperTaskFailed", Course::GoesOn, || {
        after_seen("ratekeeper_task_failures_total", |service| {
            service.clock.trap.store(true, Ordering::Relaxed);
        })
    }),
    (
        "RatekeeperConnectionsFull",
        Course::GoesOn,
        full_of_connections,
    ),
    ("RatekeeperUpstreamFails", Course::GoesOn, || {
        behind(&[&nobody()], 3, &Visitor::at(2))
    }),
    ("RatekeeperUpstreamAddressDown", Course::GoesOn, || {
        let up = Upstream::start();
        behind(&[&nobody(), &up.url()], 3, &Visitor::at(2))
    }),
    ("RatekeeperUpstreamLeft", Course::GoesOn, || {
        let up = Upstream::start();
        let service = gateway(&[&up.url()]);
        let before = service.scrape();
        leave(&service, 3);
        (before, service.scrape())
    }),
    ("RatekeeperUpstreamSlow", Course::Departs, || {
        let up = Upstream::start();
        let service = gateway(&[&up.url()]);
        visit(&service, 5, &Visitor::at(2));
        let usual = service.scrape();
        visit(&service, 6, &Visitor::at(2).with("x-wait-ms", "600"));
        (usual, service.scrape())
    }),
    ("RatekeeperUpstreamSheds", Course::GoesOn, shedding),
    ("RatekeeperCertificateExpires", Course::GoesOn, || {
        let service = with_certificate(8);
        (service.scrape(), service.scrape())
    }),
    ("RatekeeperCertificateRejected", Course::GoesOn, || {
        let service = with_certificate(300);
        let before = service.scrape();
        write(&service, "site.pem", "nonsense");
        let series = r#"ratekeeper_certificate_reloads_total{listener="proxy",result="rejected"}"#;
        (before, service.scrape_with(series))
    }),
    ("RatekeeperWallClockSet", Course::GoesOn, || {
        after(|service| {
            let ahead = &service.clock.ahead_seconds;
            ahead.store(3_600, Ordering::Relaxed);
            service.wait(|event| matches!(event, Event::Reloaded { .. }));
        })
    }),
    ("RatekeeperWrongToken", Course::GoesOn, || {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let service = InProcess::start_with(dir, POLICY, |mut config| {
            config.admin_token = Some(TOKEN.into());
            config
        });
        let (before, guess) = (
            service.scrape(),
            Visitor::at(1).with("authorization", "Bearer a"),
        );
        for _ in 0..9 {
            let refused = guess.get(service.door(Door::Admin), "/v1/limits");
            assert_eq!(refused.status, 401, "{}", refused.body);
        }
        (before, service.scrape())
    }),
    ("RatekeeperDenialsRise", Course::GoesOn, || {
        after(|service| service.ask("user", same("ada", 9)))
    }),
    ("RatekeeperManyKeysDenied", Course::GoesOn, || {
        after(|service| service.ask("user", (0..600).map(|it| (it % 200).to_string())))
    }),
    ("RatekeeperBanWave", Course::GoesOn, || {
        after(|service| service.ask("guest", (0..400).map(|it| (it % 40).to_string())))
    }),
    ("RatekeeperOneKeyDenied", Course::GoesOn, || {
        after(|service| service.ask("user", same("mallory", 200)))
    }),
    ("RatekeeperShadowWouldDeny", Course::GoesOn, || {
        after(|service| service.ask("trial", same("x", 20)))
    }),
    ("RatekeeperNearLimit", Course::GoesOn, || {
        after(|service| service.ask("user", same("ada", 2)))
    }),
    ("RatekeeperPlanNearLimit", Course::GoesOn, || {
        after(|service| {
            let attributes = json!({ "tenant": "acme", "plan": "pro" });
            let near = service.post("/v1/check", &json!({ "attributes": attributes, "cost": 9 }));
            assert_eq!(near.status, 200, "{}", near.body);
        })
    }),
    ("RatekeeperKeyNearLimit", Course::GoesOn, || {
        after(|service| {
            stay_above(service, "member", 1);
            service.wait(|event| matches!(event, Event::Alert(_)));
        })
    }),
    // The clock of the service shows 01:00 in Norway.
    ("RatekeeperNearLimitInHours", Course::GoesOn, || {
        after(|service| {
            stay_above(service, "land", 1);
            service.wait(|event| matches!(event, Event::Alert(_)));
        })
    }),
    ("RatekeeperKeyMissing", Course::GoesOn, || {
        after(|service| service.ask_paths(same("/device", 9)))
    }),
    ("RatekeeperLeasesExpire", Course::GoesOn, || {
        after_seen("ratekeeper_leases_expired_total", |service| {
            let taken = service.post("/v1/acquire", &json!({ "attributes": { "worker": "w" } }));
            assert_eq!(taken.status, 200, "{}", taken.body);
            service.clock.clock.advance(Nanos::from_secs(60));
            service.ask("worker", same("w", 1));
        })
    }),
    ("RatekeeperReportsLost", Course::GoesOn, || {
        after(|service| {
            for _ in 0..9 {
                let login = json!({ "request": { "path": "/login" } });
                let answer: Value = parsed(&service.post("/v1/check", &login).body);
                service.clock.clock.advance(Nanos::from_secs(3_600));
                let late = json!({ "decision": answer["decision"], "status": 401 });
                let told = service.post("/v1/report", &late);
                assert_eq!(told.status, 410, "{}", told.body);
            }
        })
    }),
    ("RatekeeperReportsMissing", Course::GoesOn, || {
        after(|service| {
            let login = json!({ "request": { "path": "/login" } });
            let answer: Value = parsed(&service.post("/v1/check", &login).body);
            assert!(answer["decision"].is_string(), "{answer}");
            service.clock.clock.advance(Nanos::from_secs(2 * 60 + 2));
        })
    }),
    ("RatekeeperStoreFails", Course::GoesOn, || {
        let dead = "[store.redis]\nurl = \"redis://127.0.0.1:1\"\n";
        let service = InProcess::start(&with(dead));
        let before = service.scrape();
        service.ask("user", same("ada", 30));
        service.wait(|event| matches!(event, Event::StoreDown { .. }));
        (before, service.scrape())
    }),
    ("RatekeeperMemoryFull", Course::GoesOn, || {
        let service = InProcess::start(&with("[store.memory]\nbudget = \"1MiB\"\n"));
        let before = service.scrape();
        service.ask("user", (0..12_000).map(|number| format!("{number:0100}")));
        (before, service.scrape())
    }),
    ("RatekeeperStateNotSaved", Course::GoesOn, || {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let obstacle = dir.path().join("state/.counters.state.tmp");
        std::fs::create_dir_all(obstacle).expect("it is writable");
        let state = with("[store.memory]\nstate = \"state\"\nstate_every = \"1s\"\n");
        let service = InProcess::start_with(dir, &state, |config| config);
        let series = r#"ratekeeper_state_saves_total{result="failed"}"#;
        (Scrape::default(), service.scrape_with(series))
    }),
    ("RatekeeperReloadRejected", Course::GoesOn, || {
        after(|service| {
            write(service, "ratekeeper.toml", "version = 7");
            let reloaded = Visitor::at(1).post(service.door(Door::Admin), "/v1/reload");
            assert_eq!(reloaded.status, 422, "{}", reloaded.body);
        })
    }),
    ("RatekeeperPoliciesDiffer", Course::GoesOn, || {
        let (one, other) = (InProcess::start(POLICY), InProcess::start(&with("# new\n")));
        let before = one.scrape();
        (before, one.scrape().beside(other.scrape()))
    }),
    ("RatekeeperGeoDatabaseOld", Course::GoesOn, || {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let built = mmdb::countries(NEW_YEAR - 50 * DAY, &[("192.0.2.0/24", "NO")]);
        std::fs::write(dir.path().join("c.mmdb"), built).expect("it is writable");
        let geo = with("[geo]\ncountry_db = \"c.mmdb\"\n");
        let geo =
            format!("{geo}[[limit]]\nname = \"land\"\nkey = [\"country\"]\nlimit = \"9/1m\"\n");
        let service = InProcess::start_with(dir, &geo, |config| config);
        (service.scrape(), service.scrape())
    }),
    (
        "RatekeeperWebhookFails",
        Course::GoesOn,
        with_a_receiver_that_hangs,
    ),
    (
        "RatekeeperExportFails",
        Course::GoesOn,
        with_a_receiver_that_refuses,
    ),
    ("RatekeeperKeysUnwatched", Course::GoesOn, || {
        after(|service| stay_above(service, "member", 1_100))
    }),
    ("RatekeeperLogLinesDropped", Course::GoesOn, without_a_log),
];

/// Traffic without a fault.
fn ordinary() -> Scrapes {
    after(|service| service.ask("user", numbers(9)))
}

/// Stages a fault in a service of the policy.
fn after(fault: impl FnOnce(&InProcess)) -> Scrapes {
    let service = InProcess::start(POLICY);
    let before = service.scrape();
    fault(&service);
    (before, service.scrape())
}

/// The same, for a fault that a series shows later.
fn after_seen(series: &str, fault: impl FnOnce(&InProcess)) -> Scrapes {
    let service = InProcess::start(POLICY);
    let before = service.scrape();
    fault(&service);
    (before, service.scrape_with(series))
}

/// Returns the policy with further settings.
fn with(settings: &str) -> String {
    POLICY.replace("version = 1\n", &format!("version = 1\n{settings}"))
}

fn same(value: &str, times: usize) -> impl Iterator<Item = String> + use<> {
    std::iter::repeat_n(value.to_owned(), times)
}

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| number.to_string())
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn write(service: &InProcess, name: &str, text: &str) {
    std::fs::write(service.path(name), text).expect("it is writable");
}

/// Keeps that many values above the level of the alert of each limit for longer than its span.
fn stay_above(service: &InProcess, attribute: &str, values: usize) {
    let mut caller = Caller::connect(service.door(Door::Http));
    for value in numbers(values) {
        let body = json!({ "attributes": { (attribute): value }, "cost": 9 }).to_string();
        assert_eq!(caller.post_json("/v1/check", &body), 200);
    }
    service.clock.clock.advance(Nanos::from_secs(3));
}

fn full_of_connections() -> Scrapes {
    let service = InProcess::start(&with("[listen]\nmax_connections = 8\n"));
    let before = service.scrape();
    let http = service.door(Door::Http);
    let mut busy = Vec::new();
    for _ in 0..8 {
        let mut stream = Visitor::at(2).connect(http).expect("it listens");
        let head = "POST /v1/check HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n\
                    content-length: 2\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
            .read_exact(&mut [0; 25])
            .expect("it waits for the body");
        busy.push(stream);
    }
    let mut ninth = Visitor::at(2).connect(http).expect("it listens");
    assert_eq!(ninth.read(&mut [0]).expect("its end"), 0, "turned away");
    (before, service.scrape())
}

pub(crate) fn proxy(config: Config) -> Config {
    config.listen("proxy=127.0.0.1:0").expect("it is right")
}

/// Returns an upstream where nothing listens.
pub(crate) fn nobody() -> String {
    "http://127.0.0.1:1".to_owned()
}

/// Returns the settings of a gateway in front of these upstreams.
pub(crate) fn in_front_of(upstreams: &[&str]) -> String {
    format!("[listen]\nhttp = \"127.0.0.1:0\"\n[listen.proxy]\nupstream = {upstreams:?}\n")
}

/// Lets a visitor send requests to a gateway in front of these upstreams.
fn behind(upstreams: &[&str], requests: usize, visitor: &Visitor) -> Scrapes {
    let service = gateway(upstreams);
    let before = service.scrape();
    visit(&service, requests, visitor);
    (before, service.scrape())
}

fn gateway(upstreams: &[&str]) -> InProcess {
    let dir = tempfile::tempdir().expect("a directory of its own");
    InProcess::start_with(dir, &with(&in_front_of(upstreams)), proxy)
}

pub(crate) fn visit(service: &InProcess, requests: usize, visitor: &Visitor) {
    for _ in 0..requests {
        visitor.get(service.door(Door::Proxy), "/");
    }
}

/// Sends requests to a gateway, which their clients leave before a response.
pub(crate) fn leave(service: &InProcess, requests: usize) {
    let waits = Visitor::at(2).with("x-wait-ms", "60000");
    for _ in 0..requests {
        drop(waits.begin(service.door(Door::Proxy), "/"));
    }
    let left = poll("clients that left", PATIENCE, || {
        let series = "ratekeeper_upstream_left_total{route=\"\"}";
        let all = service.scrape().has(series, &requests.to_string());
        all.then_some(())
    });
    left.unwrap_or_else(|error| panic!("{error}"));
}

fn shedding() -> Scrapes {
    let up = Upstream::start();
    let one = "adaptive_concurrency = { min = 1, max = 1 }\n";
    let dir = tempfile::tempdir().expect("a directory of its own");
    let settings = with(&(in_front_of(&[&up.url()]) + one));
    let service = InProcess::start_with(dir, &settings, proxy);
    let (before, gateway) = (service.scrape(), service.door(Door::Proxy));
    let held = Visitor::at(2).with("x-wait-ms", "60000");
    let _held = held.begin(gateway, "/");
    let at_work = poll("a request at work", PATIENCE, || {
        (up.total() > 0).then_some(())
    });
    at_work.unwrap_or_else(|error| panic!("{error}"));
    let shed = poll("a request that is shed", PATIENCE, || {
        let answer = Visitor::at(2).get(gateway, "/");
        (answer.status == 503).then_some(())
    });
    shed.unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..9 {
        Visitor::at(2).get(gateway, "/");
    }
    (before, service.scrape())
}

/// Starts a service whose certificate expires on that day of the year.
fn with_certificate(day: u32) -> InProcess {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let names = vec!["a.example".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).expect("a name");
    let (month, day) = (1 + day / 28, 1 + day % 28);
    let month = u8::try_from(month).expect("below 13");
    params.not_after = rcgen::date_time_ymd(2026, month, u8::try_from(day).expect("below 29"));
    let key = rcgen::KeyPair::generate().expect("a key");
    let signed = params.self_signed(&key).expect("it signs itself");
    for (name, text) in [
        ("site.pem", signed.pem()),
        ("site.key", key.serialize_pem()),
    ] {
        std::fs::write(dir.path().join(name), text).expect("it is writable");
    }
    let listen = "[listen]\nhttp = \"127.0.0.1:0\"\n[listen.proxy]\nupstream = \"http://127.0.0.1:1\"\n\
                  tls = { certificate = \"site.pem\", key = \"site.key\" }\n";
    InProcess::start_with(dir, &with(listen), proxy)
}

#[test]
fn each_alert_fires_for_its_fault_in_a_service() {
    let rules = monitoring("ratekeeper.rules.yml");
    let text = std::fs::read_to_string(&rules).expect("it ships");
    let alerts = text.split("- alert: ").skip(1);
    let alerts: BTreeSet<_> = alerts
        .filter_map(|alert| alert.split_whitespace().next())
        .collect();
    let each = FAULTS.iter().map(|(alert, ..)| *alert);
    let staged_ones = each.chain(STORE_FAULTS.iter().map(|(alert, ..)| *alert));
    assert_eq!(alerts, staged_ones.collect(), "each alert has a fault");

    let ordinary: (_, _, Stage) = ("no fault", Course::GoesOn, ordinary);
    let each = [ordinary].into_iter().chain(FAULTS);
    let each = each.map(|(alert, course, stage)| Case {
        alert,
        course,
        stage: Box::new(move || Some(stage())),
    });
    let stores = STORE_FAULTS.map(|(alert, course, stage)| Case {
        alert,
        course,
        stage: Box::new(stage),
    });
    let cases: Vec<Case> = each.chain(stores).collect();
    // Prometheus evaluates all rules in each minute of each case, on one core.
    thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(PARTS)) {
            let rules = &rules;
            scope.spawn(move || fire(rules, part));
        }
    });
}

struct Case {
    alert: &'static str,
    course: Course,
    stage: Box<dyn Fn() -> Option<Scrapes> + Sync>,
}

/// Stages the faults, and shows the scrapes to Prometheus.
fn fire(rules: &Path, cases: &[Case]) {
    let mut tests = format!(
        "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n",
        rules.display()
    );
    for case in cases {
        if let Some((before, after)) = (case.stage)() {
            let fires = if case.alert == "no fault" {
                ""
            } else {
                case.alert
            };
            tests += &staged((case.alert, case.course), (&before, &after), fires);
        }
    }
    let directory = tempfile::tempdir().expect("a directory of its own");
    let file = directory.path().join("faults.yml");
    std::fs::write(&file, &tests).expect("it is writable");
    prove(&["test", "rules", &file.display().to_string()], "");
}
