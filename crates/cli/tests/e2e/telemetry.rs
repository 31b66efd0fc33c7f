//! Metrics and events sent by `ratekeeper run`: OTLP to a receiver that decodes with the classes of
//! the standard.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::clock;
use crate::harness::ports::free_port;
use crate::harness::process::{self, Process};
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;
use crate::recipes::blocks;

const EVENTS: &str = include_str!("../../../../docs/guide/events.md");
const PATIENCE: Duration = Duration::from_secs(60);

const LIMIT: &str = r#"
[[limit]]
name  = "login"
key   = ["attr:user"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }
"#;

/// Writes a policy file.
fn written(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("ratekeeper.toml");
    fs::write(&path, format!("version = 1\n{text}")).expect("the directory is writable");
    path
}

fn ask(to: SocketAddr, times: usize) {
    let body = json!({
        "request": { "method": "POST", "path": "/login?token=x", "headers": { "X-Request-Id": "id-7" } },
        "attributes": { "user": "mallory" },
    });
    for _ in 0..times {
        Visitor::at(2).post_json(to, "/v1/check", &body.to_string());
    }
}

/// Starts the receiver; `None` if its decoder is not installed.
fn receiver(dir: &Path, port: u16, statuses: &[&str]) -> Option<Process> {
    let place = "target/opentelemetry-proto-1.45.2/opentelemetry/proto/metrics/v1/metrics_pb2.py";
    let library = process::carried(place)?;
    let library = library.ancestors().nth(5)?.to_owned();
    let mut command = Command::new("python3");
    command
        .args(["-c", include_str!("telemetry/receiver.py")])
        .arg(port.to_string())
        .args(statuses)
        .env("PYTHONPATH", library);
    let (out, log) = (dir.join("receiver.out"), dir.join("receiver.log"));
    let mut receiver = Process::start("receiver.py", &mut command, out, log);
    let listens = clock::poll("receiver.py", PATIENCE, || {
        assert_eq!(receiver.ended(), None, "{}", receiver.log());
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    listens.unwrap_or_else(|error| panic!("{error}"));
    Some(receiver)
}

fn received(receiver: &Process) -> Vec<Value> {
    let output = receiver.output();
    let lines = output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines.collect()
}

/// Returns the parts of all messages of a kind, at that depth of the document.
fn parts<'a>(messages: &'a [Value], path: &str, names: [&str; 3]) -> Vec<&'a Value> {
    let messages = messages.iter().filter(|it| it["path"] == path);
    let mut found: Vec<_> = messages.map(|it| &it["message"]).collect();
    for name in names {
        let deeper = found.iter().filter_map(|it| it[name].as_array());
        found = deeper.flatten().collect();
    }
    found
}

/// Returns the attributes of a part of a message, by name.
fn attributes(part: &Value) -> BTreeMap<String, Value> {
    let each = part["attributes"].as_array().into_iter().flatten();
    let pair = |it: &Value| {
        let value = it["value"].as_object().and_then(|it| it.values().next());
        (
            it["key"].as_str().unwrap_or_default().to_owned(),
            value.cloned().unwrap_or_default(),
        )
    };
    each.map(pair).collect()
}

/// Returns the value of `Number` of a point whose attributes are `wanted`.
fn point(metric: &Value, kind: &str, wanted: &[(&str, &str)]) -> Value {
    let points = metric[kind]["data_points"].as_array().into_iter().flatten();
    let is_wanted = |point: &&Value| {
        let own = attributes(point);
        wanted
            .iter()
            .all(|(name, value)| own.get(*name) == Some(&json!(value)))
    };
    let found = points.filter(is_wanted).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{wanted:?} {metric}");
    found[0].clone()
}

#[test]
fn a_receiver_of_otlp_gets_all_metrics_and_events() {
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let port = free_port();
    // The first answers ask for a second attempt.
    let Some(receiver) = receiver(dir, port, &["503:1", "503:1"]) else {
        return;
    };
    fs::write(dir.join("token"), "Bearer of-otlp\n").expect("the directory is writable");
    let otlp = format!(
        "log_requests = true\nreveal_keys = \"raw\"\n[otlp]\n\
         endpoint = \"http://127.0.0.1:{port}/base\"\ninterval = \"1s\"\n\
         service_name = \"edge\"\nheaders = {{ Authorization = \"file:token\" }}\n{LIMIT}"
    );
    let path = written(dir, &otlp);
    let mut service = Service::start(dir, &path);
    let (http, admin) = (service.http(), service.admin());
    ask(http, 12);
    let wanted = clock::poll("metrics with the refusals, and events", PATIENCE, || {
        let messages = received(&receiver);
        let metrics = parts(&messages, "/base/v1/metrics", METRICS);
        let decisions = metrics
            .iter()
            .rfind(|it| it["name"] == "ratekeeper_decisions")?;
        let denied = [("outcome", "denied")];
        let enough = point(decisions, "sum", &denied)["as_int"] == "10";
        let events = parts(&messages, "/base/v1/logs", LOGS);
        let last = events
            .iter()
            .any(|it| attributes(it).get("count") == Some(&json!("8")));
        (enough && last).then_some(())
    });
    wanted.unwrap_or_else(|error| panic!("{error}\n{:#?}", received(&receiver)));
    let scraped = Visitor::at(1).get(admin, "/metrics").body;
    service.process.signal("TERM");
    service
        .process
        .end()
        .expect("it sends what is left, and ends");

    let messages = received(&receiver);
    for message in &messages {
        assert_eq!(message["type"], "application/x-protobuf");
        assert_eq!(message["authorization"], "Bearer of-otlp");
        assert!(
            [json!(0), Value::Null].contains(&message["unknown"]),
            "{message}"
        );
    }
    check_metrics(&messages, &scraped, http);
    check_events(&messages);
}

const METRICS: [&str; 3] = ["resource_metrics", "scope_metrics", "metrics"];
const LOGS: [&str; 3] = ["resource_logs", "scope_logs", "log_records"];

/// Compares the metrics of the last message with a scrape of the same service.
fn check_metrics(messages: &[Value], scraped: &str, http: SocketAddr) {
    let last = messages.iter().rfind(|it| it["path"] == "/base/v1/metrics");
    let last = std::slice::from_ref(last.expect("there is one"));
    let resource = &last[0]["message"]["resource_metrics"][0]["resource"];
    let resource = attributes(resource);
    assert_eq!(resource["service.name"], "edge");
    let instance = resource["service.instance.id"].as_str().expect("text");
    let host = resource["host.name"].as_str().expect("text");
    assert_eq!(instance, format!("{host}:{}", http.port()));

    let metrics = parts(last, "/base/v1/metrics", METRICS);
    let mut seen = BTreeMap::new();
    for metric in &metrics {
        let kind = ["sum", "gauge", "histogram"]
            .into_iter()
            .find(|kind| metric.get(kind).is_some());
        let kind = kind.unwrap_or_else(|| panic!("{metric}"));
        let data = &metric[kind];
        if kind != "gauge" {
            let cumulative = "AGGREGATION_TEMPORALITY_CUMULATIVE";
            assert_eq!(data["aggregation_temporality"], cumulative, "{metric}");
        }
        assert_eq!(data["is_monotonic"] == true, kind == "sum", "{metric}");
        for point in data["data_points"].as_array().expect("points") {
            let started = point["start_time_unix_nano"].as_str().unwrap_or("0");
            assert_eq!(started == "0", kind == "gauge", "{metric}");
            assert!(
                started < point["time_unix_nano"].as_str().expect("a time"),
                "{metric}"
            );
        }
        let name = metric["name"].as_str().expect("a name").to_owned();
        let name = if kind == "sum" {
            format!("{name}_total")
        } else {
            name
        };
        let known = seen.insert(name, if kind == "sum" { "counter" } else { kind });
        assert_eq!(known, None, "one metric twice");
    }
    let described = scraped
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let described: BTreeMap<_, _> = described.filter_map(|line| line.split_once(' ')).collect();
    for (name, kind) in &described {
        let has_values = scraped.lines().any(|line| line.starts_with(name));
        assert_eq!(seen.get(*name), has_values.then_some(kind), "{name}");
    }
    let of = |name: &str| {
        *metrics
            .iter()
            .find(|it| it["name"] == name)
            .expect("it is sent")
    };
    let durations = of("ratekeeper_decision_duration_seconds");
    assert_eq!(durations["unit"], "s");
    let took = point(
        durations,
        "histogram",
        &[("protocol", "http"), ("path", "local")],
    );
    assert_eq!(took["count"], "12");
    let buckets = took["bucket_counts"].as_array().expect("buckets");
    let bounds = took["explicit_bounds"].as_array().expect("bounds");
    assert_eq!((buckets.len(), bounds.len()), (13, 12));
    assert_eq!(bounds[0], 5e-7);
    let sent = of("ratekeeper_otlp_exports");
    let delivered = [("signal", "events"), ("result", "delivered")];
    assert_ne!(point(sent, "sum", &delivered)["as_int"], "0");
    let failed = [("signal", "metrics"), ("result", "failed")];
    assert_eq!(
        point(sent, "sum", &failed)["as_int"],
        "0",
        "503 is no failure"
    );
    let dropped = of("ratekeeper_otlp_events_dropped");
    assert_eq!(point(dropped, "sum", &[])["as_int"], "0");
}

fn check_events(messages: &[Value]) {
    let events = parts(messages, "/base/v1/logs", LOGS);
    let named = |name: &str| {
        let found = events.iter().filter(|it| it["event_name"] == name);
        found.copied().collect::<Vec<_>>()
    };
    let denied = named("decision.denied");
    let counts: Vec<_> = denied
        .iter()
        .map(|it| attributes(it)["count"].clone())
        .collect();
    assert_eq!(counts, ["1", "2", "4", "8"]);
    let first = attributes(denied[0]);
    for (name, value) in [
        ("limit", json!("login")),
        ("mode", json!("enforce")),
        ("key", json!("attr:user=mallory")),
        ("suppressed", json!("0")),
        ("method", json!("POST")),
        ("path", json!("/login")),
        ("request_id", json!("id-7")),
    ] {
        assert_eq!(first.get(name), Some(&value), "{name} of {first:?}");
    }
    assert_eq!(denied[0]["severity_text"], "INFO");
    assert_eq!(denied[0]["severity_number"], "SEVERITY_NUMBER_INFO");
    let listening = named("listening");
    assert!(!listening.is_empty(), "events from before the exporter ran");
    assert_eq!(named("stopping").len(), 1, "the last message");
    assert!(
        named("otlp.retried").is_empty(),
        "none about the exporter itself"
    );
}

#[test]
fn a_receiver_that_refuses_loses_the_message_and_delays_no_decision() {
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let port = free_port();
    let Some(receiver) = receiver(dir, port, &["400", "413"]) else {
        return;
    };
    let otlp =
        format!("[otlp]\nendpoint = \"http://127.0.0.1:{port}/base\"\nmetrics = false\n{LIMIT}");
    let path = written(dir, &otlp);
    let service = Service::start(dir, &path);
    let lost = || {
        let lost = service.metric("ratekeeper_otlp_events_dropped_total");
        let failed = r#"ratekeeper_otlp_exports_total{signal="events",result="failed"}"#;
        (service.metric(failed) >= 1.0 && lost >= 1.0).then_some(())
    };
    clock::poll("a message that is given up", PATIENCE, lost).expect("it is counted");
    assert_eq!(received(&receiver)[0]["status"], 400);
    service.process.log_with("answered 400");
}

#[test]
fn a_stop_asks_a_receiver_again_that_is_back_by_then() {
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let port = free_port();
    let Some(receiver) = receiver(dir, port, &["503:30"]) else {
        return;
    };
    let otlp =
        format!("[otlp]\nendpoint = \"http://127.0.0.1:{port}/base\"\nmetrics = false\n{LIMIT}");
    let path = written(dir, &otlp);
    let mut service = Service::start(dir, &path);
    service.process.log_with("otlp.retried");
    service.process.signal("TERM");
    let ended = service.process.end();
    ended.expect("it sends what is left, and ends");
    let messages = received(&receiver);
    let events = parts(&messages, "/base/v1/logs", LOGS);
    let listening = events.iter().any(|it| it["event_name"] == "listening");
    assert!(listening, "{messages:#?}");
    assert!(!service.process.log().contains("export.stopped"));
}

/// Type of each field on the page of events, and the fields of each event: true for those that are
/// always there.
fn schema() -> (
    BTreeMap<String, String>,
    BTreeMap<String, BTreeMap<String, bool>>,
) {
    let rows = |head: &str| {
        let table = EVENTS
            .split_once(head)
            .expect("the table")
            .1
            .lines()
            .skip(2);
        let rows = table.take_while(|line| line.starts_with('|'));
        rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>())
    };
    let word = |cell: &str| cell.trim_matches('`').to_owned();
    let fields = rows("| field | type |").map(|row| (word(row[1]), row[2].to_owned()));
    let events = rows("| event | level |").map(|row| {
        let fields = row[3].split(", ").filter(|cell| !cell.is_empty()).map(word);
        let fields = fields.map(|field| match field.strip_suffix('?') {
            Some(field) => (field.to_owned(), false),
            None => (field, true),
        });
        (word(row[1]), fields.collect())
    });
    (fields.collect(), events.collect())
}

#[test]
fn lines_of_the_log_have_the_fields_and_types_of_the_page() {
    let home = tempfile::tempdir().expect("a directory of its own");
    let dir = home.path();
    let text = format!(
        "reveal_keys = \"raw\"\noverrides = \"overrides.csv\"\n\
         [listen]\nadmin_writes = \"open\"\n{LIMIT}\
         ban = {{ after = 5, within = \"1h\", for = \"1h\" }}\n\
         [[limit]]\nname = \"soft\"\nkey = [\"attr:user\"]\nmissing_key = \"skip\"\n\
         bucket = {{ size = 1, refill = \"1/1h\" }}\nmode = \"shadow\"\n\
         alert = {{ above = \"50%\", for = \"1s\" }}\n\
         [[limit]]\nname = \"generous\"\nkey = [\"attr:user\"]\nmissing_key = \"skip\"\n\
         limit = \"1/1h\"\nsoft = {{ extra = \"300%\" }}\n\
         [[limit]]\nname = \"brief\"\nkey = [\"attr:guest\"]\nmissing_key = \"skip\"\n\
         limit = \"1/5s\"\nban = {{ after = 1, within = \"1m\", for = \"1s\" }}\n"
    );
    let path = written(dir, &text);
    fs::write(dir.join("overrides.csv"), "limit,key,set\n").expect("it is writable");
    let mut service = Service::start_with(dir, &path, &["--log-format", "json"]);
    let (http, admin) = (service.http(), service.admin());
    ask(http, 30);
    let guest = r#"{ "attributes": { "guest": "dot" } }"#;
    for _ in 0..5 {
        Visitor::at(2).post_json(http, "/v1/check", guest); // banned for some seconds
    }
    let call = |method: &str, target: &str| {
        let answer = Visitor::at(1)
            .ask(admin, method, target)
            .expect("it answers");
        assert!(answer.status < 500, "{target}: {}", answer.body);
    };
    call("POST", "/v1/bans?limit=login&key=ada&for=1h");
    call("DELETE", "/v1/bans?limit=login&key=ada");
    call("POST", "/v1/bans?limit=login&key=grace&act=allow&for=1s");
    call("DELETE", "/v1/keys/login?key=ada");
    call("PUT", "/v1/overrides?limit=login&key=eve&set=9/1h");
    fs::write(&path, format!("version = 1\nlog_requests = true\n{text}")).expect("it is writable");
    call("POST", "/v1/reload");
    ask(http, 3);
    fs::write(&path, "version = 7").expect("it is writable");
    call("POST", "/v1/reload");
    let wanted = [
        "listening",
        "decision.denied",
        "decision.shadow_denied",
        "decision.soft",
        "override.changed",
        "alert",
        "ban.began",
        "ban.set",
        "ban.lifted",
        "ban.ended",
        "key.allowed",
        "key.reset",
        "admin.write",
        "config.reload",
        "stopping",
        "stopped",
    ];
    let has = |log: &str, event: &str| log.contains(&format!("\"event\":\"{event}\""));
    let all = clock::poll("the events", PATIENCE, || {
        let log = service.process.log();
        wanted[..wanted.len() - 2]
            .iter()
            .all(|event| has(&log, event))
            .then_some(())
    });
    all.unwrap_or_else(|error| panic!("{error}\n{}", service.process.log()));
    service.process.signal("TERM");
    clock::poll("the end", PATIENCE, || service.process.ended()).expect("it ends");

    let log = service.process.log();
    assert!(wanted.iter().all(|event| has(&log, event)), "{log}");
    check_log(&log);
    let lines = log.lines().map(serde_json::from_str::<Value>);
    let denials = lines.filter_map(Result::ok);
    let denials = denials.filter(|line| line["event"] == "decision.shadow_denied");
    let shown: BTreeSet<_> = denials.map(|line| line["path"].to_string()).collect();
    let expected = ["null", "\"/login\""].map(str::to_owned);
    assert_eq!(shown, expected.into(), "with `log_requests` only: {log}");

    let dead = format!("[store.redis]\nurl = \"redis://127.0.0.1:1\"\n{LIMIT}");
    let path = written(dir, &dead);
    let service = Service::start_with(dir, &path, &["--log-format", "json"]);
    ask(service.http(), 30);
    let failed = || has(&service.process.log(), "store.fallback").then_some(());
    clock::poll("the failure of the store", PATIENCE, failed).expect("it is logged");
    check_log(&service.process.log());
}

#[test]
fn the_line_that_the_page_shows_has_its_fields_and_types() {
    let lines: Vec<_> = blocks(EVENTS, "json")
        .map(|line| line.replace('\n', ""))
        .collect();
    assert_eq!(lines.len(), 1);
    check_log(&lines[0]);
}

/// Compares each line of a log with the page.
fn check_log(log: &str) {
    let (types, events) = schema();
    for line in log.lines().filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let name = line["event"].as_str().unwrap_or_else(|| panic!("{line}"));
        let fields = events.get(name).unwrap_or_else(|| panic!("{line}"));
        for (field, value) in line.as_object().expect("an object") {
            let expected = match &**field {
                "timestamp" | "level" | "target" | "event" => continue,
                field if fields.contains_key(field) => &*types[field],
                field => panic!("{field} of {line}"),
            };
            let is = match value {
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "boolean",
                _ => "other",
            };
            assert_eq!(is, expected, "{field} of {line}");
        }
        for (field, is_always) in fields {
            assert!(!is_always || line.get(field).is_some(), "{field} of {line}");
        }
    }
}
