//! A store with partial failures: how a service then behaves, and what it logs and reports. Real
//! server, the real binary.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::clock;
use crate::harness::redis::{Redis, cluster};
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;
use crate::store::{
    CHOICES, DEADLINE, Load, SHOWN_WITHIN, admitted, is_active, ready, start, until, with_choices,
};

fn store_calls(service: &Service, result: &str) -> f64 {
    service.metric(&format!(
        r#"ratekeeper_store_requests_total{{store="redis",op="decide",result="{result}"}}"#
    ))
}

fn without_store(service: &Service, choice: &str) -> f64 {
    service.metric(&format!(
        r#"ratekeeper_fallback_decisions_total{{store="redis",choice="{choice}"}}"#
    ))
}

fn until_ready(service: &Service) {
    let is_ready = || (ready(service) == 200).then_some(());
    let seen = clock::poll("readiness", SHOWN_WITHIN, is_ready);
    seen.unwrap_or_else(|error| panic!("{error}"));
}

/// A full server accepts no charge. It fails once, not with every probe, until it has room.
#[test]
fn decisions_go_on_without_a_full_store_until_it_has_room() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let service = with_choices(dir.path(), &redis, DEADLINE);
    let only_deny = CHOICES.split("[[limit]]").last().expect("it has limits");
    let store = format!("url = \"{}\"\ndeadline = \"{DEADLINE:?}\"", redis.url());
    let deny = start(dir.path(), "deny", &store, &format!("[[limit]]{only_deny}"));
    let http = service.http();
    assert_eq!(admitted(http, "/local", "a", 10), 10);
    assert_eq!(ready(&service), 200);
    until_ready(&deny);

    let load = Load::start(http);
    let load_of_deny = Load::start(deny.http());
    redis.run(&["config", "set", "maxmemory", "1"]);
    until(&service, true);
    until(&deny, true);
    clock::wait(Duration::from_secs(2)); // several probes
    assert!(is_active(&service) && is_active(&deny));
    let log = service.process.log_with("store down");
    let downs = log.matches("store down").count();
    assert_eq!(downs, 1, "logged once");
    assert_eq!((ready(&service), ready(&deny)), (200, 503));
    assert_eq!(admitted(http, "/local", "b", 50), 20, "half of 40");
    assert_eq!(admitted(http, "/allow", "b", 5), 5);
    assert_eq!(admitted(http, "/deny", "b", 5), 0);
    for choice in ["local", "allow", "deny"] {
        assert!(without_store(&service, choice) >= 5.0, "{choice}");
    }

    redis.run(&["config", "set", "maxmemory", "0"]);
    until(&service, false);
    until(&deny, false);
    load.end("full and emptied under load");
    load_of_deny.end("full and emptied under load, limits with deny");
    assert_eq!(ready(&service), 200);
    until_ready(&deny); // the metric reads the breaker itself; readiness follows 0.1 s later
    assert_eq!(admitted(http, "/local", "b", 50), 20, "the rest: debited");
    assert_eq!(admitted(http, "/local", "a", 50), 30, "nothing is lost");
}

/// Without requests too, a store that is away is noticed; and it does not look like unused keys.
#[test]
fn an_idle_process_is_not_ready_without_its_store() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(mut redis) = Redis::start(dir.path()) else {
        return;
    };
    let only_deny = CHOICES.split("[[limit]]").last().expect("it has limits");
    let store = format!("url = \"{}\"\ndeadline = \"{DEADLINE:?}\"", redis.url());
    let service = start(dir.path(), "deny", &store, &format!("[[limit]]{only_deny}"));
    until_ready(&service);
    assert_eq!(admitted(service.http(), "/deny", "a", 1), 1);
    redis.crash();
    let is_away = || (ready(&service) == 503).then_some(());
    clock::poll("readiness", Duration::from_secs(10), is_away).expect("it is not ready");
    let key = Visitor::at(1).get(service.admin(), "/v1/keys/deny?key=a");
    assert_eq!(key.status, 503, "{}", key.body);
    redis.restart();
    until_ready(&service);
}

/// This key is held to a process's share; all other keys are decided by the store.
#[test]
fn a_foreign_value_affects_its_key_only() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!(
        "url = \"{}\"\ndeadline = \"{DEADLINE:?}\"\nnodes = 2",
        redis.url()
    );
    let limits = format!("[listen]\nadmin_writes = \"open\"\n{CHOICES}");
    let service = start(dir.path(), "node", &store, &limits);
    redis.run(&["lpush", "rk:{eve}:local", "1"]);
    let http = service.http();
    let errors = store_calls(&service, "error");
    assert_eq!(admitted(http, "/local", "eve", 50), 20, "half of 40");
    assert_eq!(admitted(http, "/local", "ada", 50), 40);
    assert!(!is_active(&service), "the store is there");
    assert_eq!(ready(&service), 200);
    assert!((without_store(&service, "local") - 50.0).abs() < 0.5);
    assert!(store_calls(&service, "error") >= errors + 50.0);

    redis.run(&["del", "rk:{eve}:local"]);
    let debited = || service.metric(r#"ratekeeper_fallback_debited_units_total{store="redis"}"#);
    let paid = clock::poll("debt that is paid", Duration::from_secs(10), || {
        (debited() >= 20.0).then_some(())
    });
    paid.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(admitted(http, "/local", "eve", 50), 20, "the rest");

    // Another one within a minute is not logged again. A reset removes it.
    redis.run(&["del", "rk:{eve}:local"]);
    redis.run(&["set", "rk:{eve}:local", "x"]);
    let _ = admitted(http, "/local", "eve", 50);
    let log = service.process.log_with("store.foreign");
    assert_eq!(log.matches("store.foreign").count(), 1, "{log}");
    assert!(log.contains("a value under limit `local`"), "{log}");
    assert!(!log.contains("{eve}"), "{log}");
    let eve = r#"{"request":{"path":"/local"},"attributes":{"run":"eve"}}"#;
    let reset = Visitor::at(1).post_json(service.admin(), "/v1/reset", eve);
    assert_eq!(reset.status, 200, "{}", reset.body);
    assert_eq!(admitted(http, "/local", "eve", 50), 40);
}

/// Limits of each kind that calls about one key need, all of the key `run`.
const KINDS: &str = r#"
[listen]
admin_writes = "open"

[[limit]]
name = "rate"
key = ["attr:run"]
limit = "5/1h"

[[limit]]
name = "logins"
key = ["attr:run"]
limit = "5/1h"
count = { status = [401] }

[[limit]]
name = "jobs"
key = ["attr:run"]
concurrency = { max = 5, lease = "1h" }

[[limit]]
name = "credits"
key = ["attr:run"]
balance = { start = 5, max = 100 }
"#;

/// The store answers: no call about one key takes the value of another program for an outage.
#[test]
fn calls_about_a_foreign_value_say_what_it_is() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!("url = \"{}\"\ndeadline = \"{DEADLINE:?}\"", redis.url());
    let service = start(dir.path(), "node", &store, KINDS);
    let post = |to, path: &str, body: &Value| {
        let answer = Visitor::at(1).post_json(to, path, &body.to_string());
        let read = serde_json::from_str::<Value>(&answer.body).expect("an answer is JSON");
        (answer.status, read)
    };
    let (http, admin) = (service.http(), service.admin());
    let of = |limit: &str| json!({ "attributes": { "run": "eve" }, "limits": [limit] });
    let (_, checked) = post(http, "/v1/check", &of("logins"));
    let (_, acquired) = post(http, "/v1/acquire", &of("jobs"));
    let ids: Vec<_> = acquired["permits"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    let permits = json!({ "permits": ids.iter().map(|it| &it["id"]).collect::<Vec<_>>() });
    assert_eq!(post(http, "/v1/check", &of("rate")).0, 200);
    let grant =
        |id: &str| json!({ "limit": "credits", "key": { "run": "eve" }, "permits": 5, "id": id });
    assert_eq!(post(admin, "/v1/grant", &grant("first")).0, 200);

    let names = redis.query(&["keys", "rk:{eve}:*"]);
    assert_eq!(names.lines().count(), 4, "{names}");
    for name in names.lines() {
        redis.run(&["del", name]);
        redis.run(&["lpush", name, "1"]);
    }
    let report = json!({ "decision": checked["decision"], "status": 200 });
    let look = Visitor::at(1).get(admin, "/v1/keys/rate?key=eve");
    let look = serde_json::from_str(&look.body).map(|read| (look.status, read));
    for (call, (status, answer), limit) in [
        ("look", look.expect("an answer is JSON"), "rate"),
        ("refund", post(admin, "/v1/refund", &of("rate")), "rate"),
        ("report", post(http, "/v1/report", &report), "logins"),
        ("renew", post(http, "/v1/renew", &permits), "jobs"),
        ("release", post(http, "/v1/release", &permits), "jobs"),
        (
            "grant",
            post(admin, "/v1/grant", &grant("second")),
            "credits",
        ),
    ] {
        assert_eq!(
            (status, &answer["code"]),
            (409, &json!("RK0535")),
            "{call}: {answer}"
        );
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(
            detail.contains(&format!("under limit `{limit}`")),
            "{call}: {detail}"
        );
    }
    assert!(!is_active(&service), "the store is there");
    assert_eq!(ready(&service), 200);
    let log = service.process.log_with("store.foreign");
    assert!(!log.contains("store.failed"), "{log}");
    assert_eq!(post(admin, "/v1/reset", &of("rate")).0, 200);
    assert_eq!(post(admin, "/v1/refund", &of("rate")).0, 200);
}

/// One primary of three is lost without a replica: its keys are decided without it, and the log and
/// the metrics name the server.
#[test]
fn a_cluster_that_has_lost_a_server_names_it() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(mut nodes) = cluster(dir.path()) else {
        return;
    };
    for node in &nodes {
        node.run(&["config", "set", "cluster-require-full-coverage", "no"]);
    }
    let urls = nodes.iter().map(|node| format!("\"{}\"", node.url()));
    let urls: Vec<_> = urls.collect();
    // No decision waits for a lost server; only a busy machine needs this deadline.
    let store = format!("url = [{}]\ndeadline = \"5s\"", urls.join(", "));
    let service = start(dir.path(), "node", &store, CHOICES);
    let http = service.http();
    let up = |node: &Redis| {
        let port = node.port();
        service.metric(&format!(
            r#"ratekeeper_store_server_up{{store="redis",server="127.0.0.1:{port}"}}"#
        )) > 0.0
    };
    let ask_all = || {
        let asked = (0..30).map(|user| admitted(http, "/deny", &format!("user-{user}"), 1));
        asked.sum::<usize>()
    };
    let passes = clock::poll("answer of the whole store", SHOWN_WITHIN, || {
        (ask_all() == 30).then_some(())
    });
    passes.unwrap_or_else(|error| panic!("{error}"));
    assert!(nodes.iter().all(up));

    nodes[1].crash();
    let found = clock::poll("report of the lost server", SHOWN_WITHIN, || {
        ask_all();
        (!up(&nodes[1])).then_some(())
    });
    found.unwrap_or_else(|error| panic!("{error}"));
    service.process.log_with("store partly down");
    let line = format!(
        "limits of the keys that 127.0.0.1:{} holds follow",
        nodes[1].port()
    );
    assert_eq!(
        service.process.log().matches(&line).count(),
        1,
        "logged once"
    );
    assert!(up(&nodes[0]) && up(&nodes[2]));
    let decided = ask_all();
    assert!((1..30).contains(&decided), "a part of the keys: {decided}");
    assert!(!is_active(&service), "others are decided by the store");
    assert_eq!(ready(&service), 200);
    assert!(!service.process.log().contains("store down"));

    nodes[1].restart();
    let line = format!("decides the keys of 127.0.0.1:{} again", nodes[1].port());
    service.process.log_with(&line);
    let whole = clock::poll("the whole store", SHOWN_WITHIN, || {
        (ask_all() == 30).then_some(())
    });
    whole.unwrap_or_else(|error| panic!("{error}"));
    assert!(nodes.iter().all(up));
}
