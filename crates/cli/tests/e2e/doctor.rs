//! `ratekeeper doctor` against real servers: sound ones, and each way to be unsound.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::clock;
use crate::harness::ports::free_port;
use crate::harness::redis::{Make, Redis, cluster, cluster_of};
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;
use crate::recipes::blocks;

const END_WITHIN: Duration = Duration::from_secs(30);
const PASSWORD: &str = "correct-horse";

fn doctor(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    command
        .arg("doctor")
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .stdin(Stdio::null());
    command
}

/// Returns the output and the exit code.
fn run(dir: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let Output {
        status,
        stdout,
        stderr,
    } = doctor(dir, arguments).output().expect("the command starts");
    let text = [stdout, stderr].concat();
    (
        String::from_utf8(text).expect("it prints UTF-8"),
        status.code(),
    )
}

/// Returns the result of each check, in order, and the document.
fn results(dir: &Path, store: &str) -> (Vec<(String, String)>, Value) {
    let (text, _) = run(dir, &["--json", "--store", store]);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let checks = document["checks"].as_array().expect("a list");
    let word = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let results = checks
        .iter()
        .map(|check| (word(check, "check"), word(check, "result")));
    (results.collect(), document)
}

fn result_of<'a>(results: &'a [(String, String)], check: &str) -> &'a str {
    let found = results.iter().find(|(name, _)| name == check);
    found.map_or("not made", |(_, result)| result)
}

fn desk() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory of its own")
}

#[test]
fn a_sound_server_is_found_sound_and_left_as_it_was() {
    let dir = desk();
    let options = &["--maxmemory", "100mb", "--appendonly", "yes"];
    let Some(redis) = Redis::start_with(dir.path(), free_port(), options) else {
        return;
    };
    let (text, code) = run(dir.path(), &["--store", &redis.url()]);
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let starts = [
        format!("ok       reachable    127.0.0.1:{} answers", redis.port()),
        "ok       version      redis ".into(),
        "ok       role         the server is a primary".into(),
        "ok       scripts      loaded and run, with the expected decisions".into(),
        "ok       clock        ".into(),
        "ok       eviction     none: noeviction; ".into(),
        "ok       persistence  append-only file: a crash loses the charges of about a second"
            .into(),
    ];
    for (line, start) in lines.iter().zip(&starts) {
        assert!(line.starts_with(start), "{text}");
    }
    assert!(
        lines[4].contains(" this machine's, give or take "),
        "{text}"
    );
    // The latency depends on the machine.
    assert!(
        lines[7].contains("  latency      a decision takes "),
        "{text}"
    );
    let about = format!("{}, prefix rk, deadline 50 ms", redis.url());
    assert!(text.ends_with(&format!("{about}\n")), "{text}");
    assert_eq!(redis.query(&["dbsize"]), "0");

    let (results, document) = results(dir.path(), &redis.url());
    assert_eq!(results.len(), 8, "{document}");
    let latency = &document["checks"][7];
    for figure in ["decisions", "median_ms", "p99_ms"] {
        assert!(
            latency[figure].as_f64().is_some_and(|number| number > 0.0),
            "{latency}"
        );
    }
    assert!(document["checks"][4]["offset_ms"].is_number(), "{document}");
    assert_eq!(redis.query(&["dbsize"]), "0");
}

#[test]
fn the_guide_shows_what_is_printed_for_a_server_that_keeps_nothing() {
    let guide = include_str!("../../../../docs/guide/redis.md");
    let shown = blocks(guide, "text").find(|block| block.starts_with("ok "));
    let dir = desk();
    let options = &["--maxmemory", "100mb"];
    let Some(redis) = Redis::start_with(dir.path(), free_port(), options) else {
        return;
    };
    let (text, _) = run(dir.path(), &["--store", &redis.url()]);
    let (text, shown) = (steady(&text), steady(shown.expect("the guide shows it")));
    // The grade of the latency depends on the machine.
    let text = text.replace("warning  latency", "ok       latency");
    assert!(text.starts_with(&shown), "{text}\nis not\n{shown}");
}

/// Returns the text with `N` for each number, and one word for each unit and direction of time.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    for letter in text.chars() {
        let is_part = letter == '.' && steady.ends_with('N');
        match letter {
            letter if letter.is_ascii_digit() && !steady.ends_with('N') => steady.push('N'),
            letter if letter.is_ascii_digit() || is_part => {}
            letter => steady.push(letter),
        }
    }
    let steady = steady.replace("ahead of", "behind");
    [" us", " ns", " s"].iter().fold(steady, |text, unit| {
        let ends = [" ", ",", ")", ";", "\n"];
        ends.iter().fold(text, |text, end| {
            text.replace(&format!("N{unit}{end}"), &format!("N ms{end}"))
        })
    })
}

#[test]
fn the_store_of_a_policy_is_checked() {
    let dir = desk();
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let write = |text: &str| {
        let limit = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1/1s\"\n";
        let text = format!("version = 1\n{text}\n{limit}");
        std::fs::write(dir.path().join("ratekeeper.toml"), text).expect("it is written");
    };
    let url = redis.url();
    write(&format!(
        "[store.redis]\nurl = \"{url}\"\nprefix = \"edge\"\ndeadline = \"1s\""
    ));
    let (text, code) = run(dir.path(), &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains(&format!("{url}, prefix edge, deadline 1 s")),
        "{text}"
    );
    assert!(
        text.contains("warning  persistence  off: a restart loses"),
        "{text}"
    );
    assert!(
        text.contains("\n           hint: set `appendonly yes`"),
        "{text}"
    );
    let (text, code) = run(dir.path(), &["--deny-warnings"]);
    assert_eq!(code, Some(1), "{text}");

    write("");
    let (text, code) = run(dir.path(), &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("ok       store        each process counts in its memory"),
        "{text}"
    );
    write("[store.redis]\nurl = \"mysql://h\"");
    let (text, code) = run(dir.path(), &[]);
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn a_policy_that_every_user_may_write_is_a_warning() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = desk();
    let path = dir.path().join("ratekeeper.toml");
    let limit = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1/1s\"\n";
    std::fs::write(&path, format!("version = 1\n{limit}")).expect("it is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("it is ours");
    let (text, code) = run(dir.path(), &["--deny-warnings"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("warning  policy       RK-W102: "), "{text}");
    assert!(text.contains("hint: chmod o-w "), "{text}");
}

#[test]
fn an_absent_server_is_distinguished_from_one_that_refuses() {
    let dir = desk();
    let absent = format!("redis://127.0.0.1:{}", free_port());
    let (text, code) = run(dir.path(), &["--store", &absent]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("failure  reachable"), "{text}");
    assert!(
        text.contains("hint: check that the server is running"),
        "{text}"
    );

    let options = &["--requirepass", PASSWORD];
    let Some(redis) = Redis::start_with(dir.path(), free_port(), options) else {
        return;
    };
    let at = format!("127.0.0.1:{}", redis.port());
    for (login, code, words) in [
        (String::new(), 1, "the server requires a password"),
        (
            ":wrong-secret@".into(),
            1,
            "the server rejects the password",
        ),
        (format!(":{PASSWORD}@"), 0, "  latency  "),
    ] {
        let store = format!("redis://{login}{at}");
        for arguments in [&["--store", &*store][..], &["--json", "--store", &store]] {
            let (text, exit) = run(dir.path(), arguments);
            assert_eq!(exit, Some(code), "{text}");
            assert!(arguments.len() == 3 || text.contains(words), "{text}");
            assert!(
                !text.contains(PASSWORD) && !text.contains("wrong-secret"),
                "{text}"
            );
        }
    }
    let output = doctor(dir.path(), &[])
        .env("RATEKEEPER_STORE", format!("redis://:{PASSWORD}@{at}"))
        .output();
    assert_eq!(output.expect("the command starts").status.code(), Some(0));
}

#[test]
fn missing_permissions_of_a_user_are_named() {
    let dir = desk();
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let grant = [
        "acl", "setuser", "ada", "on", ">secret", "+ping", "+info", "+select",
    ];
    assert_eq!(redis.query(&grant), "OK");
    let store = format!("redis://ada:secret@127.0.0.1:{}", redis.port());
    let (text, code) = run(dir.path(), &["--store", &store]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("failure  scripts"), "{text}");
    assert!(text.contains("hint: let the user run EVALSHA"), "{text}");
    // As the hint says, with the prefix of these checks.
    let more =
        "acl setuser ada ~ratekeeper-doctor-* +@read +@write +@scripting +@connection +time +role";
    assert_eq!(redis.query(&more.split(' ').collect::<Vec<_>>()), "OK");
    let (text, code) = run(dir.path(), &["--store", &store]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_server_that_drops_keys_fails() {
    let dir = desk();
    let options = &["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(redis) = Redis::start_with(dir.path(), free_port(), options) else {
        return;
    };
    let (text, code) = run(dir.path(), &["--store", &redis.url()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("failure  eviction     maxmemory-policy allkeys-lru drops"),
        "{text}"
    );
    assert!(
        text.contains("hint: run CONFIG SET maxmemory-policy noeviction"),
        "{text}"
    );
    redis.query(&["config", "set", "maxmemory-policy", "noeviction"]);
    redis.query(&["config", "set", "maxmemory", "1"]);
    let (text, code) = run(dir.path(), &["--store", &redis.url()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("failure  scripts"), "it is full: {text}");
}

#[test]
fn a_replica_is_no_store() {
    let dir = desk();
    let Some(primary) = Redis::start(dir.path()) else {
        return;
    };
    let Some(replica) = Redis::start(dir.path()) else {
        return;
    };
    let port = primary.port().to_string();
    replica.query(&["replicaof", "127.0.0.1", &port]);
    let (text, code) = run(dir.path(), &["--store", &replica.url()]);
    assert_eq!(code, Some(1), "{text}");
    let words = format!("the server is a replica of 127.0.0.1:{port}");
    assert!(text.contains(&words), "{text}");
}

#[test]
fn a_cluster_is_whole_or_fails() {
    let dir = desk();
    let Some(nodes) = cluster(dir.path()) else {
        return;
    };
    let one = nodes[0].url();
    let all: Vec<String> = nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    let all = format!("redis://{}", all.join(","));
    for store in [&all, &format!("{one}?cluster")] {
        let (text, code) = run(dir.path(), &["--store", store]);
        assert_eq!(code, Some(0), "{text}");
        for words in [
            "ok       reachable    3 servers answer",
            ", on each of 3 servers",
            "ok       cluster      3 primaries and 0 replicas serve all 16,384 slots",
            "ok       scripts",
            ", the largest difference of 3 servers",
            "  latency      a decision takes",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    for node in &nodes {
        assert_eq!(node.query(&["dbsize"]), "0");
    }

    let (results, document) = results(dir.path(), &one);
    assert_eq!(result_of(&results, "cluster"), "failure", "{document}");
    assert_eq!(result_of(&results, "latency"), "not made", "{document}");
    for node in &nodes {
        node.query(&["cluster", "delslots", "100"]);
    }
    let (text, code) = run(dir.path(), &["--store", &all]);
    assert_eq!(code, Some(1), "{text}");
    let words = "failure  cluster      no node serves 1 of 16,384 slots, the first of them 100;";
    assert!(text.contains(words), "{text}");
    assert!(
        text.contains("hint: run redis-cli --cluster check 127.0.0.1:"),
        "{text}"
    );

    let mut nodes = nodes;
    nodes[2].crash();
    let (text, code) = run(dir.path(), &["--store", &all]);
    assert_eq!(code, Some(1), "{text}");
    let words = "failure  reachable    1 server of 3 cannot be queried; 127.0.0.1:";
    assert!(text.contains(words), "{text}");
}

/// Valkey reports a version of Redis too, for clients that ask for it.
#[test]
fn valkey_goes_by_its_own_name() {
    for (make, product) in [
        (Make::Valkey91, "valkey 9.1.2"),
        (Make::Valkey81, "valkey 8.1.8"),
    ] {
        let dir = desk();
        let Some(valkey) = Redis::start_make(make, dir.path(), free_port(), &[]) else {
            continue;
        };
        let (text, code) = run(dir.path(), &["--store", &valkey.url()]);
        assert_eq!(code, Some(0), "{text}");
        let line = format!("\nok       version      {product}\n");
        assert!(text.contains(&line), "{text}");
    }
    let dir = desk();
    let Some(nodes) = cluster_of(Make::Valkey91, dir.path()) else {
        return;
    };
    let store = format!("{}?cluster", nodes[0].url());
    let (text, code) = run(dir.path(), &["--store", &store]);
    assert_eq!(code, Some(0), "{text}");
    for words in [
        "version      valkey 9.1.2, on each of 3 servers",
        "cluster      3 primaries and 0 replicas serve all 16,384 slots",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Overrides the policy.
#[test]
fn a_service_uses_the_store_of_its_command_line() {
    let dir = desk();
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let limit =
        "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nbucket = { size = 5, refill = \"1/1h\" }\n";
    let start = |name: &str, store: &str, chosen: &str| {
        let dir = dir.path().join(name);
        std::fs::create_dir_all(&dir).expect("the test's directory is writable");
        let policy = dir.join("policy.toml");
        std::fs::write(&policy, format!("version = 1\n{store}\n{limit}")).expect("written");
        Service::start_with(&dir, &policy, &["--store", chosen])
    };
    let ask = |service: &Service| {
        let body = r#"{"request": {"ip": "192.0.2.1"}}"#;
        Visitor::at(2)
            .post_json(service.http(), "/v1/check", body)
            .status
    };
    let shared = start("a", "", &redis.url());
    let policy = format!(
        "[store.redis]\nurl = \"redis://127.0.0.1:{}\"\nprefix = \"edge\"\ndeadline = \"5s\"",
        1
    );
    let other = start("b", &policy, &redis.url());
    // A policy without a store has the default deadline, and a busy machine may miss it.
    let in_time = r#"ratekeeper_store_requests_total{store="redis",op="decide",result="ok"}"#;
    let decided = clock::poll("a decision of the store", END_WITHIN, || {
        ask(&shared);
        (shared.metric(in_time) >= 1.0).then_some(())
    });
    decided.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ask(&other), 200);
    // The probe of whether the store decides uses none of the service's limits.
    let keys = || {
        let all = redis.query(&["keys", "*{all}*"]);
        let mut keys: Vec<String> = all.lines().map(str::to_owned).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(), ["edge:{all}", "rk:{all}"]);
    for series in [
        r#"ratekeeper_store_duration_seconds_count{store="redis",op="decide",outcome="ok"}"#,
        in_time,
        r#"ratekeeper_decision_duration_seconds_count{protocol="http",path="store"}"#,
    ] {
        assert!(shared.metric(series) >= 1.0, "{series}");
    }
    let local = r#"ratekeeper_decision_duration_seconds_count{protocol="http",path="local"}"#;
    assert!(other.metric(local).abs() < f64::EPSILON);
    let offset = clock::poll("compared clock", END_WITHIN, || {
        let name = r#"ratekeeper_store_clock_offset_seconds{store="redis"}"#;
        let text = Visitor::at(1).get(shared.admin(), "/metrics").body;
        let number = |line: &str| line.strip_prefix(name)?.trim().parse::<f64>().ok();
        text.lines().find_map(number)
    });
    let offset = offset.unwrap_or_else(|error| panic!("{error}"));
    assert!(offset.abs() < 5.0, "one machine has one clock: {offset}");
    let alone = start("c", &policy, "memory://");
    redis.query(&["flushall"]);
    assert_eq!(ask(&alone), 200);
    assert!(keys().is_empty());
    let metrics = Visitor::at(1).get(alone.admin(), "/metrics").body;
    assert!(!metrics.contains("ratekeeper_store_requests"), "{metrics}");
}
