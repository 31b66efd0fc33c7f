//! Eleven incidents, each found in each of three views alone: the dashboard, `ratekeeper top`, and
//! the alerts of Prometheus. The table in docs/guide/is-it-effective.md says where.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ratekeeper_core::Nanos;
use ratekeeper_server::{Door, Event};
use serde_json::Value;

use crate::faults::{in_front_of, leave, nobody, proxy, visit};
use crate::harness::clock::poll;
use crate::harness::in_process::InProcess;
use crate::harness::redis::Redis;
use crate::harness::service::Service;
use crate::harness::staged::{Course, Scrape, staged};
use crate::harness::upstream::Upstream;
use crate::harness::visitor::Visitor;
use crate::promtool::{monitoring, prove};

const PATIENCE: Duration = Duration::from_secs(30);
const GUIDE: &str = include_str!("../../../../docs/guide/is-it-effective.md");

const POLICY: &str = r#"
version = 1
reveal_keys = "raw"
STORE
[[limit]]
name  = "login"
key   = ["attr:user"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }

[[limit]]
name  = "api"
key   = ["attr:customer"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }

[[limit]]
name  = "guarded"
key   = ["attr:guest"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }
ban   = { after = 1, within = "24h", for = "1h" }
"#;
/// The alert of times that are not the usual ones.
const SLOW: &str = "RatekeeperUpstreamSlow";
const DEAD_STORE: &str = "[store.redis]\nurl = \"redis://127.0.0.1:1\"\n";

struct Stage(InProcess);

impl Stage {
    fn new(settings: &str) -> Self {
        let policy = POLICY.replace("STORE", settings);
        if settings.contains("[listen.proxy]") {
            let dir = tempfile::tempdir().expect("a directory of its own");
            return Self(InProcess::start_with(dir, &policy, proxy));
        }
        Self(InProcess::start(&policy))
    }

    /// Returns what the page asks for; it is made once a second.
    fn dashboard(&self) -> Value {
        self.0.clock.clock.advance(Nanos::SECOND);
        serde_json::from_str(&self.0.get("/v1/dashboard")).expect("JSON")
    }

    /// Returns the document and the table of `ratekeeper top --once`.
    fn top(&self) -> (Value, String) {
        let run = |json: &[&str]| {
            let server = format!("http://{}", self.0.door(Door::Admin));
            let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
            command
                .args(["top", "--once", "--server", &server])
                .args(json);
            let ran = command.env("NO_COLOR", "1").output().expect("it runs");
            String::from_utf8(ran.stdout).expect("text")
        };
        let document = serde_json::from_str(&run(&["--json"])).expect("JSON");
        (document, run(&[]))
    }
}

fn stage_abuser(stage: &Stage) {
    stage.0.ask("user", (0..200).map(|_| "mallory".to_owned()));
}

fn stage_low_number(stage: &Stage) {
    stage
        .0
        .ask("customer", (0..600).map(|it| (it % 150).to_string()));
}

fn stage_ban_wave(stage: &Stage) {
    stage
        .0
        .ask("guest", (0..410).map(|it| (it % 41).to_string()));
}

fn stage_store(stage: &Stage) {
    stage.0.ask("user", (0..30).map(|_| "ada".to_owned()));
    stage
        .0
        .wait(|event| matches!(event, Event::StoreDown { .. }));
}

fn stage_refused_policy(stage: &Stage) {
    std::fs::write(stage.0.path("ratekeeper.toml"), "version = 7").expect("it is writable");
    let reloaded = Visitor::at(1).post(stage.0.door(Door::Admin), "/v1/reload");
    assert_eq!(reloaded.status, 422, "{}", reloaded.body);
}

fn stage_gateway(stage: &Stage) {
    visit(&stage.0, 6, &Visitor::at(2));
}

fn stage_slow_application(stage: &Stage) {
    visit(&stage.0, 6, &Visitor::at(2).with("x-wait-ms", "600"));
}

/// Serves requests until their times are the usual ones.
fn serve_as_usual(stage: &Stage) {
    visit(&stage.0, 5, &Visitor::at(2));
    let usual = poll("usual times", PATIENCE, || {
        let top: Value = serde_json::from_str(&stage.0.get("/v1/top")).expect("JSON");
        let usual = &top["upstreams"][0]["usual_half_within_ms"];
        usual.is_number().then_some(())
    });
    usual.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the settings of a gateway in front of an application that stays until the end.
fn in_front_of_application(others: &[&str]) -> String {
    let url = Box::leak(Box::new(Upstream::start())).url();
    let all: Vec<_> = others.iter().copied().chain([&*url]).collect();
    in_front_of(&all)
}

/// Returns true if the first upstream has a fault with these words.
fn fault(document: &Value, words: &str) -> bool {
    mentions(&document["upstreams"][0]["faults"], words)
}

fn stage_clock_step(stage: &Stage) {
    let clock = &stage.0.clock;
    clock.ahead_seconds.store(3_600, Ordering::Relaxed);
    stage
        .0
        .wait(|event| matches!(event, Event::Reloaded { .. }));
}

/// Returns the entry of a list that has that value in a field.
fn entry(list: &Value, field: &str, value: &str) -> Value {
    let mut entries = list.as_array().into_iter().flatten();
    entries
        .find(|it| it[field] == value)
        .cloned()
        .unwrap_or_default()
}

/// Returns true if a text of a list, or of the field `text` of its entries, has these words.
fn mentions(list: &Value, words: &str) -> bool {
    let mut entries = list.as_array().into_iter().flatten();
    let text = |it: &Value| it["text"].as_str().or(it.as_str()).map(str::to_owned);
    entries.any(|it| text(it).is_some_and(|text| text.contains(words)))
}

struct Incident {
    /// As in the guide.
    name: &'static str,
    settings: fn() -> String,
    stage: fn(&Stage),
    dashboard: fn(&Value) -> bool,
    top: fn(&Value) -> bool,
    /// In the table of `top`.
    printed: &'static str,
    alert: &'static str,
}

const INCIDENTS: [Incident; 10] = [
    Incident {
        name: "an abuser",
        settings: String::new,
        stage: stage_abuser,
        dashboard: |it| {
            let login = entry(&it["limits"], "name", "login");
            login["cause"] == "one key" && login["busiest"] == login["denied"]
        },
        top: |it| {
            let login = entry(&it["limits"], "limit", "login");
            login["cause"] == "one key" && it["keys"][0]["key"][0] == "attr:user=mallory"
        },
        printed: "1 (one key)",
        alert: "RatekeeperOneKeyDenied",
    },
    Incident {
        name: "a number that is too low",
        settings: String::new,
        stage: stage_low_number,
        dashboard: |it| entry(&it["limits"], "name", "api")["cause"] == "many keys",
        top: |it| entry(&it["limits"], "limit", "api")["cause"] == "many keys",
        printed: "(many keys)",
        alert: "RatekeeperManyKeysDenied",
    },
    Incident {
        name: "a wave of bans",
        settings: String::new,
        stage: stage_ban_wave,
        dashboard: |it| {
            let guarded = entry(&it["limits"], "name", "guarded");
            guarded["bans"] == 41 && guarded["banned"] == 328
        },
        top: |it| {
            let guarded = entry(&it["limits"], "limit", "guarded");
            guarded["bans"] == 41 && guarded["cause"] == "ban wave"
        },
        printed: "ban wave: 41 keys banned",
        alert: "RatekeeperBanWave",
    },
    Incident {
        name: "a store that fails",
        settings: || DEAD_STORE.to_owned(),
        stage: stage_store,
        dashboard: |it| it["store"]["state"] != "up" && mentions(&it["changes"], "store down"),
        top: |it| mentions(&it["notes"], "the store does not answer"),
        printed: "note: the store does not answer",
        alert: "RatekeeperStoreFails",
    },
    Incident {
        name: "a policy that is refused",
        settings: String::new,
        stage: stage_refused_policy,
        dashboard: |it| mentions(&it["changes"], "policy refused"),
        top: |it| mentions(&it["notes"], "the files of the policy are refused"),
        printed: "note: the files of the policy are refused",
        alert: "RatekeeperReloadRejected",
    },
    Incident {
        name: "a clock that is set",
        settings: String::new,
        stage: stage_clock_step,
        dashboard: |it| mentions(&it["changes"], "the wall clock was set by +3600 s"),
        top: |it| mentions(&it["notes"], "the wall clock was set by +3600 s"),
        printed: "the wall clock was set by +3600 s",
        alert: "RatekeeperWallClockSet",
    },
    Incident {
        name: "an application that is dead",
        settings: || in_front_of(&[&nobody()]),
        stage: stage_gateway,
        dashboard: |it| fault(it, "100 % of 6 requests failed (6 refused)"),
        top: |it| {
            mentions(
                &it["notes"],
                "upstream: 100 % of 6 requests failed (6 refused)",
            )
        },
        printed: "note: upstream: 100 % of 6 requests failed (6 refused)",
        alert: "RatekeeperUpstreamFails",
    },
    Incident {
        name: "an address of the application that is dead",
        settings: || in_front_of_application(&[&nobody()]),
        stage: stage_gateway,
        dashboard: |it| fault(it, "127.0.0.1:1 is left out"),
        top: |it| mentions(&it["notes"], "upstream: 127.0.0.1:1 is left out"),
        printed: "note: upstream: 127.0.0.1:1 is left out",
        alert: "RatekeeperUpstreamAddressDown",
    },
    Incident {
        name: "an application that slows down",
        settings: || in_front_of_application(&[]),
        stage: stage_slow_application,
        dashboard: |it| fault(it, "slow: half of the responses within 1000 ms"),
        top: |it| mentions(&it["notes"], "upstream: slow: half of the responses"),
        printed: "note: upstream: slow: half of the responses within 1000 ms",
        alert: SLOW,
    },
    Incident {
        name: "an application that hangs while clients leave",
        settings: || in_front_of_application(&[]),
        stage: |stage| leave(&stage.0, 6),
        dashboard: |it| fault(it, "6 of 6 requests were left by their clients"),
        top: |it| mentions(&it["notes"], "upstream: 6 of 6 requests were left"),
        printed: "note: upstream: 6 of 6 requests were left by their clients",
        alert: "RatekeeperUpstreamLeft",
    },
];

#[test]
fn each_incident_is_found_in_each_view_alone() {
    let rules = monitoring("ratekeeper.rules.yml").display().to_string();
    let mut tests = format!("rule_files: ['{rules}']\nevaluation_interval: 1m\ntests:\n");
    for incident in INCIDENTS {
        let Incident { name, alert, .. } = incident;
        let row = row_of(name);
        assert!(row.contains(&format!("[{alert}]")), "{row}");

        let settings = (incident.settings)();
        let stage = Stage::new(&settings);
        let quiet = |document: &Value| !(incident.dashboard)(document);
        if settings != DEAD_STORE {
            assert!(quiet(&stage.dashboard()), "{name} before it happens");
            assert!(!(incident.top)(&stage.top().0), "{name} before it happens");
        }
        let course = if alert == SLOW {
            serve_as_usual(&stage);
            Course::Departs
        } else {
            Course::GoesOn
        };
        let before = stage.0.scrape();
        (incident.stage)(&stage);
        let dashboard = stage.dashboard();
        assert!(!quiet(&dashboard), "{name}: {dashboard:#}");
        let (document, printed) = stage.top();
        assert!((incident.top)(&document), "{name}: {document:#}");
        assert!(printed.contains(incident.printed), "{name}: {printed}");
        tests += &staged((name, course), (&before, &stage.0.scrape()), alert);
    }
    let directory = tempfile::tempdir().expect("a directory of its own");
    let file = directory.path().join("incidents.yml");
    std::fs::write(&file, &tests).expect("it is writable");
    prove(&["test", "rules", &file.display().to_string()], "");
}

/// What the views show of a store that failed and returned twice.
pub(crate) struct Flap {
    dashboard: Value,
    notes: Value,
    /// Before, and while it fails.
    pub(crate) scrapes: (Scrape, Scrape),
}

/// Lets a store fail and return twice; `None` if it is not installed.
pub(crate) fn flap() -> Option<Flap> {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let mut redis = Redis::start(dir.path())?;
    let store = format!(
        "[store.redis]\nurl = \"{}\"\ndeadline = \"5s\"\n",
        redis.url()
    );
    let path = dir.path().join("policy.toml");
    std::fs::write(&path, POLICY.replace("STORE", &store)).expect("it is writable");
    let service = Service::start(dir.path(), &path);
    let body = r#"{"attributes":{"user":"ada"}}"#;
    let get = |target: &str| Visitor::at(1).get(service.admin(), target).body;
    let parsed = |target: &str| serde_json::from_str::<Value>(&get(target)).expect("JSON");
    // The metric reads the breaker; the list of changes follows within a tenth of a second.
    let await_changes = |words: &str, count: usize| {
        let seen = poll("a change of the store", PATIENCE, || {
            Visitor::at(2).post_json(service.http(), "/v1/check", body);
            let dashboard = parsed("/v1/dashboard");
            (said(&dashboard["changes"], words) == count).then_some(dashboard)
        });
        seen.unwrap_or_else(|error| panic!("{words}: {error}"))
    };
    let series = r#"ratekeeper_fallback_active{store="redis"}"#;
    let is_asked = poll("the store", PATIENCE, || {
        (service.metric(series) == 0.0).then_some(())
    });
    is_asked.unwrap_or_else(|error| panic!("{error}"));
    let before = Scrape::read(&get("/metrics"));
    redis.crash();
    await_changes("store down", 1);
    let after = Scrape::read(&get("/metrics"));
    redis.restart();
    await_changes("store back", 1);
    redis.crash();
    await_changes("store down", 2);
    redis.restart();
    Some(Flap {
        dashboard: await_changes("store back", 2),
        notes: parsed("/v1/top")["notes"].clone(),
        scrapes: (before, after),
    })
}

/// Returns how many of the changes, or of the notes, have these words.
fn said(list: &Value, words: &str) -> usize {
    let list = list.as_array().expect("a list");
    let texts = list.iter().map(|it| it["text"].as_str().or(it.as_str()));
    texts
        .filter(|text| text.is_some_and(|text| text.contains(words)))
        .count()
}

/// Prometheus sees it in `faults`.
#[test]
fn a_store_that_flaps_is_found_in_each_view() {
    let Some(flap) = flap() else { return };
    let changes = &flap.dashboard["changes"];
    assert_eq!(said(changes, "store down"), 2, "{changes:#?}");
    assert_eq!(said(changes, "store back"), 2, "{changes:#?}");
    let notes = &flap.notes;
    assert_eq!(said(notes, "store down"), 2, "{notes:#?}");
    assert!(row_of("a store that flaps").contains("[RatekeeperStoreFlaps]"));
}

/// Returns what the guide says of an incident.
fn row_of(name: &str) -> &'static str {
    let (_, rest) = GUIDE
        .split_once(&format!("\n- **{name}**"))
        .unwrap_or_else(|| panic!("the guide has no {name}"));
    rest.split("\n- ").next().unwrap_or_default()
}
