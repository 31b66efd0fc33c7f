//! Metrics and the files of examples/monitoring, judged by Prometheus's own tool. Faults are staged
//! in `cli/tests/e2e/faults.rs`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use ratekeeper_core::Nanos;
use serde_json::Value;

use super::Fixture;
use super::client::Client;
use super::promtool::{monitoring, prove};
use ratekeeper_server::{Door, Event};

const POLICY: &str = r#"
version = 1

[[limit]]
name   = "login"
key    = ["attr:user"]
missing_key = "skip"
bucket = { size = 2, refill = "1/1h" }

[[limit]]
name   = "signup"
key    = ["attr:visitor"]
missing_key = "skip"
bucket = { size = 1, refill = "1/1h" }

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
"#;

fn check(http: &mut Client, attribute: &str, value: &str) {
    let body = format!(r#"{{"attributes":{{"{attribute}":"{value}"}}}}"#);
    http.post("/v1/check", &body);
}

fn check_path(http: &mut Client, path: &str) {
    let body = format!(r#"{{"request":{{"path":"{path}","ip":"192.0.2.1"}}}}"#);
    http.post("/v1/check", &body);
}

#[test]
fn promtool_finds_no_fault_in_a_scrape() {
    let fixture = Fixture::new(POLICY);
    check(&mut fixture.http(), "user", "ada");
    let mut admin = fixture.admin();
    let text = admin.get("/metrics").body;
    prove(&["check", "metrics"], &text);

    // Its linter reads the text format alone; its importer reads OpenMetrics, with times.
    let open = admin.ask("GET /metrics\naccept: application/openmetrics-text", b"");
    let timed = open.body.lines().map(|line| {
        if line.starts_with('#') {
            return format!("{line}\n");
        }
        format!("{line} 1767225600\n")
    });
    let file = fixture.path("scrape.txt");
    std::fs::write(&file, timed.collect::<String>()).unwrap();
    let (file, blocks) = (file.display().to_string(), fixture.path("blocks"));
    let blocks = blocks.display().to_string();
    prove(
        &["tsdb", "create-blocks-from", "openmetrics", &file, &blocks],
        "",
    );
}

#[test]
fn a_scrape_is_compressed_for_a_reader_that_accepts_it() {
    let fixture = Fixture::new(POLICY);
    let address = fixture.service.address(Door::Admin).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept-encoding: gzip\r\n\
                connection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.unwrap() + 4);
    let head = String::from_utf8(head.to_vec()).unwrap();
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(body);
    decoder.read_to_string(&mut text).unwrap();
    assert!(text.contains("ratekeeper_build_info"), "{text}");
    assert!(body.len() * 4 < text.len(), "{} bytes", body.len());
}

#[test]
fn limits_beyond_the_maximum_are_counted_together() {
    let fixture =
        Fixture::new(&POLICY.replace("version = 1", "version = 1\n[metrics]\nmax_limits = 1"));
    let mut http = fixture.http();
    for _ in 0..3 {
        check(&mut http, "user", "ada");
        check(&mut http, "visitor", "grace");
        check(&mut http, "trial", "lin");
    }
    check_path(&mut http, "/device");
    let text = fixture.admin().get("/metrics").body;
    for line in [
        r#"ratekeeper_decisions_total{limit="login",outcome="denied",mode="enforce"} 1"#,
        r#"ratekeeper_decisions_total{limit="(other)",outcome="allowed",mode="enforce"} 2"#,
        r#"ratekeeper_decisions_total{limit="(other)",outcome="denied",mode="enforce"} 2"#,
        r#"ratekeeper_decisions_total{limit="(other)",outcome="denied",mode="shadow"} 1"#,
        r#"ratekeeper_key_missing_total{limit="(other)"} 1"#,
        r#"ratekeeper_keys{limit="(other)"} 3"#,
        r#"ratekeeper_denied_keys{limit="login"} 1"#,
        "ratekeeper_limits_folded 3",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
    assert!(!text.contains(r#"limit="signup""#), "{text}");
    prove(&["check", "metrics"], &text);
}

/// Without the header of a proxy, `missing_key` decides; each hour says so once.
#[test]
fn a_limit_whose_key_is_missing_is_noticed_once_an_hour() {
    let limits = "[[limit]]\nname = \"user\"\nmatch = { path = \"/a\" }\nkey = [\"header:x-user\"]\n\
                  missing_key = \"use:ip\"\nlimit = \"1000/1m\"\n\
                  [[limit]]\nname = \"sent\"\nmatch = { path = \"/b\" }\nkey = [\"attr:tenant\"]\n\
                  missing_key = \"shared\"\nlimit = \"1000/1m\"\n";
    let fixture = Fixture::new(&format!("version = 1\n{limits}"));
    for _ in 0..2 {
        let mut http = fixture.http();
        for number in 0..100 {
            let user = if number < 59 {
                r#"{"x-user": "ada"}"#
            } else {
                "{}"
            };
            let a = format!(r#"{{"request": {{"path": "/a", "headers": {user}}}}}"#);
            assert_eq!(http.ask("POST /v1/check", a.as_bytes()).status, 200);
            // 40 of 100 are not above 40 %.
            let tenant = if number < 60 {
                r#"{"tenant": "t"}"#
            } else {
                "{}"
            };
            let b = format!(r#"{{"request": {{"path": "/b"}}, "attributes": {tenant}}}"#);
            assert_eq!(http.ask("POST /v1/check", b.as_bytes()).status, 200);
        }
        let notice = fixture.await_event(|event| match event {
            Event::Notice(text) if text.contains("RK-W104") => Some(text),
            _ => None,
        });
        let words = "limit `user` 41 of 100 (header:x-user); look";
        assert!(notice.contains(words), "{notice}");
        fixture.clock.advance(Nanos::from_secs(3_600));
    }
}

/// If another limit refuses a request, this one has charged nothing, and counts no missing key.
#[test]
fn a_missing_key_counts_as_its_request_does() {
    let limits = "[[limit]]\nname = \"few\"\nkey = [\"all\"]\nlimit = \"1/1h\"\n\
                  [[limit]]\nname = \"user\"\nkey = [\"header:x-user\"]\n\
                  missing_key = \"shared\"\nlimit = \"1000/1m\"\n";
    let fixture = Fixture::new(&format!("version = 1\n{limits}"));
    let mut http = fixture.http();
    for _ in 0..5 {
        check_path(&mut http, "/");
    }
    let text = fixture.admin().get("/metrics").body;
    for line in [
        r#"ratekeeper_decisions_total{limit="user",outcome="allowed",mode="enforce"} 1"#,
        r#"ratekeeper_decisions_total{limit="user",outcome="uncharged",mode="enforce"} 4"#,
        r#"ratekeeper_units_total{limit="user",outcome="allowed",mode="enforce"} 1"#,
        r#"ratekeeper_key_missing_total{limit="user"} 1"#,
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
}

#[test]
fn requests_without_a_limit_are_counted() {
    let limit =
        "[[limit]]\nname = \"a\"\nmatch = { path = \"/a\" }\nkey = [\"ip\"]\nlimit = \"5/1m\"";
    let fixture = Fixture::new(&format!("version = 1\n{limit}"));
    let mut http = fixture.http();
    for path in ["/a", "/b", "/c"] {
        check_path(&mut http, path);
    }
    let text = fixture.admin().get("/metrics").body;
    let line = r#"ratekeeper_unlimited_requests_total{protocol="http"} 2"#;
    assert!(text.contains(line), "{text}");
}

#[test]
fn each_alert_fires_for_its_fault() {
    let rules = monitoring("ratekeeper.rules.yml").display().to_string();
    let tests = monitoring("ratekeeper.rules.test.yml");
    prove(&["check", "rules", &rules], "");
    prove(&["test", "rules", &tests.display().to_string()], "");
    let text = std::fs::read_to_string(rules).unwrap();
    let tested = std::fs::read_to_string(tests).unwrap();
    let runbook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/runbook.md");
    let runbook = std::fs::read_to_string(runbook).unwrap();
    for name in text.split("- alert: ").skip(1) {
        let name = name.split_whitespace().next().unwrap();
        let anchor = format!("runbook.md#{}\"", name.to_lowercase());
        assert!(text.contains(&anchor), "{anchor}");
        assert!(runbook.contains(&format!("\n## {name}\n")), "no ## {name}");
        let case = format!("- name: {name}\n");
        assert!(tested.contains(&case), "no test of {name}");
    }
}

#[test]
fn prometheus_reads_the_queries_of_the_dashboard_and_the_guide() {
    let dashboard = std::fs::read_to_string(monitoring("grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().into_iter().flatten();
        queries.extend(targets.map(|target| target["expr"].as_str().unwrap().to_owned()));
    }
    let marks = dashboard["annotations"]["list"].as_array().unwrap();
    queries.extend(
        marks
            .iter()
            .map(|mark| mark["expr"].as_str().unwrap().to_owned()),
    );
    let guide = include_str!("../../../../docs/guide/is-it-effective.md");
    let blocks = guide.split("```promql\n").skip(1);
    queries.extend(blocks.map(|block| block.split("```").next().unwrap().to_owned()));
    assert!(queries.len() > 30, "{queries:?}");
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| {
            let query = query.replace("$__rate_interval", "5m");
            serde_json::json!({ "record": format!("query:{at}"), "expr": query })
        })
        .collect();
    let rules = serde_json::json!({ "groups": [{ "name": "queries", "rules": rules }] });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("queries.yml"); // JSON is YAML
    std::fs::write(&file, rules.to_string()).unwrap();
    prove(&["check", "rules", &file.display().to_string()], "");
}

#[test]
fn calls_of_the_guide_are_answered() {
    let fixture = Fixture::new(POLICY);
    check(&mut fixture.http(), "user", "ada");
    let guide = include_str!("../../../../docs/guide/is-it-effective.md");
    let calls: Vec<&str> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("GET "))
        .collect();
    assert_eq!(calls.len(), 6, "{calls:?}");
    for call in calls {
        let answer = fixture.admin().get(call);
        assert_eq!(answer.status, 200, "{call}: {}", answer.body);
    }
}

#[test]
fn files_of_the_policy_are_refused_until_they_are_good_again() {
    let fixture = Fixture::new(POLICY);
    let path = fixture.path("ratekeeper.toml");
    for (text, status, rejected) in [
        ("version = 7", 422, "ratekeeper_config_rejected 1\n"),
        (POLICY, 200, "ratekeeper_config_rejected 0\n"),
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(fixture.admin().post("/v1/reload", "").status, status);
        let metrics = fixture.admin().get("/metrics").body;
        assert!(metrics.contains(rejected), "{metrics}");
    }
}
