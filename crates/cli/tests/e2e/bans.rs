//! Bans through the real service: behind nginx, by hand, and in a Redis that several processes
//! share.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::ports::free_port;
use crate::harness::proxy::Kind;
use crate::harness::redis::{Make, Redis};
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;
use crate::harness::{Stage, clock};
use crate::store::start;

const LOGIN: &str = r#"
[listen]
admin_writes = "open"

[[limit]]
name  = "login"
match = { path = "/login" }
key   = ["ip"]
limit = "2/30m"
ban   = { after = 3, within = "24h", for = "1h", grow = 2.0, max = "24h" }
"#;

/// Runs `ratekeeper bans ..` against a service; returns its exit code, stdout and stderr.
fn bans(service: &Service, arguments: &[&str]) -> (Option<i32>, String, String) {
    let server = format!("http://localhost:{}", service.admin().port());
    let ran = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .arg("bans")
        .args(arguments)
        .args(["--server", &server])
        .env("NO_COLOR", "1")
        .output()
        .expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// Checks a stated wait; some seconds may have passed since the ban began.
fn about(wait: Option<Duration>, seconds: u64) {
    let wait = wait.expect("the wait is stated").as_secs();
    assert!(
        (seconds - 60..=seconds).contains(&wait),
        "{wait} s, not {seconds}"
    );
}

#[test]
fn nginx_refuses_a_banned_client_until_the_ban_is_lifted() {
    let Some(stage) = Stage::open(Kind::Nginx, LOGIN) else {
        return;
    };
    let (client, other) = (Visitor::at(7), Visitor::at(8));
    let ask = |visitor: &Visitor| visitor.get(stage.address(), "/login");
    let statuses: Vec<u16> = (0..4).map(|_| ask(&client).status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    let refused = ask(&client);
    assert_eq!(refused.status, 429);
    about(refused.retry_after(), 3_600);
    assert_eq!(ask(&other).status, 200, "another client is not banned");
    let begun = stage
        .service
        .metric(r#"ratekeeper_bans_total{limit="login",mode="enforce"}"#);
    assert!((begun - 1.0).abs() < f64::EPSILON, "{begun} bans");
    let log = stage.service.process.log_with("ban.began");
    assert!(!log.contains("127.0.0.7"), "{log}");

    let (code, listed, _) = bans(&stage.service, &["list", "login"]);
    assert_eq!(code, Some(0));
    assert!(
        listed.starts_with("ip=127.0.0.7  banned for another "),
        "{listed}"
    );
    let (code, removed, _) = bans(&stage.service, &["lift", "login", "127.0.0.7"]);
    assert_eq!((code, &*removed), (Some(0), "ip=127.0.0.7: lifted\n"));
    let (code, listed, talk) = bans(&stage.service, &["list", "login"]);
    assert_eq!((code, &*listed), (Some(1), ""), "{talk}");
    // The quota is still used: a permit comes each quarter of an hour.
    about(ask(&client).retry_after(), 900);

    let (code, banned, _) = bans(
        &stage.service,
        &["add", "login", "127.0.0.8", "--for", "30m"],
    );
    assert_eq!(
        (code, &*banned),
        (Some(0), "ip=127.0.0.8  banned by hand for another 30 min\n")
    );
    about(ask(&other).retry_after(), 1_800);
    let (code, _, why) = bans(
        &stage.service,
        &["add", "login", "127.0.0.8", "--for", "366d"],
    );
    assert_eq!(code, Some(2));
    assert!(why.contains("must be a duration of at most"), "{why}");
}

/// Returns the answer about one request of `run`.
fn check(to: SocketAddr, run: &str) -> Value {
    let body = format!(r#"{{"request":{{"path":"/login"}},"attributes":{{"run":"{run}"}}}}"#);
    let answer = Visitor::at(2).post_json(to, "/v1/check", &body);
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{}", answer.body))
}

const PLAIN: &str = r#"
[listen]
admin_writes = "open"

[[limit]]
name  = "plain"
match = { path = "/login" }
key   = ["attr:run"]
limit = "1000/30m"
missing_key = "skip"

[[limit]]
name  = "watched"
match = { path = "/login" }
key   = ["attr:run"]
limit = "1000/30m"
mode  = "shadow"
missing_key = "skip"
"#;

/// Waits until a process has heard of a change, which takes a second at most.
fn heard(service: &Service, run: &str, is_banned: bool) {
    let begun = clock::now();
    while (check(service.http(), run)["banned"] == true) != is_banned {
        // The second, and the calls on a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(5), "{run}");
        clock::wait(Duration::from_millis(50));
    }
}

/// Returns the number of scripts that the server has run.
fn scripts(redis: &Redis) -> u64 {
    let stats = redis.query(&["INFO", "commandstats"]);
    let counts = stats.lines().filter_map(|line| line.split_once(":calls="));
    let scripts = counts.filter(|(name, _)| name.contains("evalsha") || name.contains("fcall"));
    let counts = scripts.map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok());
    counts.map(Option::unwrap_or_default).sum()
}

#[test]
fn a_key_that_is_banned_by_hand_is_banned_in_all_processes_and_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!("url = \"{}\"\ndeadline = \"5s\"", redis.url());
    let node = |number: usize| start(dir.path(), &format!("node-{number}"), &store, PLAIN);
    let (one, two) = (node(0), node(1));
    assert_eq!(check(two.http(), "one")["allowed"], true);
    let (code, said, _) = bans(&one, &["add", "plain", "one", "--for", "1h"]);
    let expected = "attr:run=one  banned by hand for another 1 h\n";
    assert_eq!((code, &*said), (Some(0), expected));
    assert_eq!(check(one.http(), "one")["banned"], true, "at once");
    let (code, _, said) = bans(&one, &["add", "watched", "one", "--for", "1h"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("refuses nothing: its policy says mode = \"shadow\""),
        "{said}"
    );
    heard(&two, "one", true);
    let (_, listed, _) = bans(&two, &["list", "plain"]);
    assert!(
        listed.starts_with("attr:run=one  banned by hand for another "),
        "{listed}"
    );
    let before = scripts(&redis);
    for _ in 0..200 {
        assert_eq!(check(two.http(), "other")["allowed"], true);
    }
    let ran = scripts(&redis) - before;
    assert!(ran < 300, "{ran} scripts for 200 decisions");
    drop(one); // killed
    let again = node(2);
    let begun = clock::now();
    while Visitor::at(1).get(again.admin(), "/readyz").status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(5), "not ready");
        clock::wait(Duration::from_millis(1));
    }
    assert_eq!(
        check(again.http(), "one")["banned"],
        true,
        "once it is ready"
    );

    let (code, said, _) = bans(&two, &["allow", "plain", "one", "--for", "2s"]);
    let expected = "attr:run=one  allowed by hand for another 2 s\n";
    assert_eq!((code, &*said), (Some(0), expected));
    heard(&again, "one", false);
    let (_, said, _) = bans(&again, &["add", "plain", "two", "--for", "1s"]);
    assert!(said.contains("banned by hand"), "{said}");
    heard(&two, "two", true);
    heard(&two, "two", false); // it ends by itself
    let (code, said, _) = bans(&again, &["lift", "plain", "two"]);
    assert_eq!((code, &*said), (Some(1), "attr:run=two: was not banned\n"));

    // A table of 10,000 keys, of another process: its version, then the parts of each key.
    let fill = r"
        local part = function(text) return string.char(#text) .. text end
        local rows = {'versions'}
        for n = 1, 10000 do
            local ends = '\255\255\255\255\255\255\0\0'
            rows[n + 1] = part('plain') .. part(part(tostring(n))) .. part('ban') .. part(ends)
        end
        redis.call('SET', KEYS[1], table.concat(rows))";
    redis.run(&["eval", fill, "1", "rk:{#by-hand}"]);
    heard(&again, "10000", true);
    let (code, _, why) = bans(&again, &["add", "plain", "three", "--for", "1h"]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("RK0534"), "{why}");
}

/// A ban by hand outlives a store that loses everything: a process that knows it writes it back.
#[test]
fn bans_by_hand_are_written_back_to_a_store_that_has_lost_them() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!("url = \"{}\"\ndeadline = \"5s\"", redis.url());
    let node = |number: usize| start(dir.path(), &format!("node-{number}"), &store, PLAIN);
    let (one, two) = (node(0), node(1));
    let (code, ..) = bans(&one, &["add", "plain", "one", "--for", "1h"]);
    assert_eq!(code, Some(0));
    heard(&two, "one", true);
    redis.run(&["flushall"]);
    let is_back = || (redis.query(&["exists", "rk:{#by-hand}"]).trim() == "1").then_some(());
    clock::poll("the table", Duration::from_secs(5), is_back).expect("it is written back");
    for node in [&one, &two, &node(2)] {
        heard(node, "one", true);
    }
    let (code, ..) = bans(&two, &["lift", "plain", "one"]);
    assert_eq!(code, Some(0));
    heard(&one, "one", false);
}

#[test]
fn six_processes_count_strikes_exactly_and_a_restart_keeps_the_ban() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!("url = \"{}\"\ndeadline = \"5s\"", redis.url());
    let limits = LOGIN
        .replace("[\"ip\"]", "[\"attr:run\"]\nmissing_key = \"skip\"")
        .replace("after = 3", "after = 50");
    let node = |number: usize| start(dir.path(), &format!("node-{number}"), &store, &limits);
    let nodes: Vec<Service> = (0..6).map(node).collect();
    let answers: Vec<Value> = thread::scope(|scope| {
        let ask = |service: &Service| {
            let to = service.http();
            scope.spawn(move || (0..20).map(|_| check(to, "one")).collect::<Vec<_>>())
        };
        let asking: Vec<_> = nodes.iter().map(ask).collect();
        let each = asking.into_iter().map(thread::ScopedJoinHandle::join);
        each.flat_map(|each| each.expect("no caller panics"))
            .collect()
    });
    let count = |is: &dyn Fn(&Value) -> bool| answers.iter().filter(|answer| is(answer)).count();
    assert_eq!(count(&|answer| answer["allowed"] == true), 2);
    assert_eq!(count(&|answer| answer["banned"] == true), 120 - 2 - 49);
    let series = r#"ratekeeper_bans_total{limit="login",mode="enforce"}"#;
    let begun: f64 = nodes.iter().map(|node| node.metric(series)).sum();
    assert!((begun - 1.0).abs() < f64::EPSILON, "{begun} bans");

    drop(nodes); // killed
    let again = node(6);
    let refused = check(again.http(), "one");
    assert_eq!(refused["banned"], true, "{refused}");
    let other = node(7);
    let (code, keys, _) = bans(&other, &["list", "login"]);
    assert_eq!(code, Some(0));
    assert!(
        keys.starts_with("attr:run=one  banned for another ") && keys.lines().count() == 1,
        "{keys}"
    );
    let (code, lifted, _) = bans(&again, &["lift", "login", "one"]);
    assert_eq!((code, &*lifted), (Some(0), "attr:run=one: lifted\n"));
    assert!(check(again.http(), "one").get("banned").is_none());
    assert_eq!(bans(&other, &["list", "login"]).0, Some(1), "none is left");
    let (code, _, _) = bans(&again, &["add", "login", "two", "--for", "1h"]);
    assert_eq!(code, Some(0));
    assert_eq!(check(again.http(), "two")["banned"], true);
}

/// Two processes share a store with more keys than one answer looks at.
#[test]
fn bans_of_one_process_are_listed_and_lifted_by_another() {
    for make in [Make::Redis, Make::Valkey91] {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let Some(redis) = Redis::start_make(make, dir.path(), free_port(), &[]) else {
            continue;
        };
        let store = format!("url = \"{}\"\ndeadline = \"5s\"", redis.url());
        let limits = LOGIN.replace("[\"ip\"]", "[\"attr:run\"]\nmissing_key = \"skip\"");
        let [one, two] = ["one", "two"].map(|name| start(dir.path(), name, &store, &limits));
        let fill = "for i = 1, 30000 do redis.call('set', 'other:' .. i, i) end";
        redis.run(&["EVAL", fill, "0"]);
        for (run, span) in [("a", "1h"), ("b", "3h"), ("c", "2h")] {
            let (code, ..) = bans(&one, &["add", "login", run, "--for", span]);
            assert_eq!(code, Some(0));
        }
        let mut refusals = (0..100).map(|_| check(one.http(), "d"));
        assert!(refusals.any(|answer| answer["banned"] == true));
        let (code, listed, _) = bans(&two, &["list", "login", "--top", "2"]);
        let keys: Vec<_> = listed
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        let expected = ["attr:run=b", "attr:run=c", "attr:run=d"];
        assert_eq!((code, &*keys), (Some(0), &expected[..]));
        let part = Visitor::at(1).get(two.admin(), "/v1/bans?limit=login&top=1");
        let part: Value = serde_json::from_str(&part.body).expect("JSON");
        assert!(part["next"].is_string(), "{part}");

        assert_eq!(bans(&two, &["lift", "login", "b"]).0, Some(0));
        let (_, listed, _) = bans(&one, &["list", "login", "--json"]);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        let keys = ["by_hand", "bans"].map(|name| listed[name].as_array());
        let keys = keys.into_iter().flatten().flatten();
        let keys: Vec<_> = keys.map(|ban| &ban["key"][0]).collect();
        assert_eq!(keys, ["attr:run=c", "attr:run=a", "attr:run=d"]);
        assert!(listed["next"].is_null());

        drop(redis); // killed
        let (code, _, error) = bans(&one, &["list", "login"]);
        assert_eq!(code, Some(2));
        let why = "the store does not answer, try again later [RK0515]";
        assert!(error.contains(why), "{error}");
    }
}
