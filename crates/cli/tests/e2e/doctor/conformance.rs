//! `ratekeeper doctor --conformance`: the table of the store against real servers.

use std::process::Stdio;

use super::*;

#[test]
fn a_server_passes_the_conformance_table() {
    let dir = desk();
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    redis.query(&["set", "mine", "1"]);
    let (text, code) = run(dir.path(), &["--conformance", &redis.url()]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("ok  burst, then pace; keys apart (8 calls)\n"),
        "{text}"
    );
    assert!(
        text.contains(" calls compared, all as expected\n"),
        "{text}"
    );
    assert!(text.contains(", keys under ratekeeper-doctor-"), "{text}");
    assert_eq!(redis.query(&["keys", "*"]), "mine");

    let Some(nodes) = cluster(dir.path()) else {
        return;
    };
    let (text, code) = run(dir.path(), &["--json", "--conformance", &nodes[1].url()]);
    assert_eq!(code, Some(0), "{text}");
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(document["result"], "ok");
    let rows = document["rows"].as_array().map_or(0, Vec::len);
    assert!(
        rows > 20 && document["calls"].as_u64() > Some(100),
        "{document}"
    );
    for node in &nodes {
        assert_eq!(node.query(&["dbsize"]), "0");
    }
}

/// Valkey reports a version of Redis too, for clients that ask for it.
#[test]
fn valkey_goes_by_its_own_name_and_passes_the_table() {
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
        let (text, code) = run(dir.path(), &["--conformance", &valkey.url()]);
        assert_eq!(code, Some(0), "{text}");
        let head = format!(", {product}, keys under ratekeeper-doctor-");
        assert!(text.contains(&head), "{text}");
        assert!(
            text.contains(" calls compared, all as expected\n"),
            "{text}"
        );
        assert_eq!(valkey.query(&["dbsize"]), "0");
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

#[test]
fn a_server_that_cannot_be_tested_is_reported() {
    let dir = desk();
    let (text, code) = run(dir.path(), &["--conformance", "memory://"]);
    assert_eq!(code, Some(2), "{text}");
    let absent = format!("redis://127.0.0.1:{}", free_port());
    let (text, code) = run(dir.path(), &["--conformance", &absent]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("failure  reachable"), "{text}");
}

/// Ended while a call that will write is in flight: its key is removed.
#[test]
fn an_interrupted_conformance_run_leaves_no_keys_behind() {
    let dir = desk();
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    redis.query(&["client", "pause", "60000", "write"]);
    let child = doctor(dir.path(), &["--conformance", &redis.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let waits = clock::poll("call that waits", END_WITHIN, || {
        let info = redis.query(&["info", "clients"]);
        info.contains("blocked_clients:1").then_some(())
    });
    waits.unwrap_or_else(|error| panic!("{error}"));
    let kill = Command::new("kill")
        .args(["-s", "INT", &child.id().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
    redis.query(&["client", "unpause"]);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("interrupted before the end of the table"),
        "{said}"
    );
    assert!(
        redis
            .query(&["info", "commandstats"])
            .contains("cmdstat_set:calls=")
    );
    assert_eq!(redis.query(&["dbsize"]), "0");
}
