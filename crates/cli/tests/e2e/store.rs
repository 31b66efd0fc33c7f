//! One limit, several processes, one Redis: exact while it is available, and as the policy chose
//! while it is not. Real servers, the real binary.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::cases::cases;
use crate::harness::ports::free_port;
use crate::harness::redis::{Redis, cluster};
use crate::harness::service::Service;
use crate::harness::visitor::{Caller, Visitor};
use crate::harness::{clock, say};

const PROCESSES: usize = 4;
/// Number of connections to each process.
const CONNECTIONS: usize = 16;
/// Number of requests: more than the limit of each trial.
const ATTEMPTS: usize = 1_088;
/// Enough on a busy machine, because a missed deadline would be no fault here.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum time for a change to show: the longest pause of the breaker, and some.
pub(crate) const SHOWN_WITHIN: Duration = Duration::from_secs(20);

/// The four kinds of limit, each of 1,000, without a refill for an hour.
const LIMITS: &str = r#"
[[limit]]
name = "gcra"
key = ["attr:run"]
match = { path = "/gcra" }
bucket = { size = 1000, refill = "1/1h" }
missing_key = "skip"

[[limit]]
name = "window"
key = ["attr:run"]
match = { path = "/window" }
limit = "1000/100d"
algorithm = "fixed-window"
missing_key = "skip"

[[limit]]
name = "log"
key = ["attr:run"]
match = { path = "/log" }
limit = "1000/24h"
algorithm = "sliding-window-log"
missing_key = "skip"

[[limit]]
name = "interval"
key = ["attr:run"]
match = { path = "/interval" }
bucket = { size = 1000, refill = "1/1h", step = true }
missing_key = "skip"
"#;

fn policy(dir: &Path, store: &str, limits: &str) -> std::path::PathBuf {
    let path = dir.join("policy.toml");
    let text = format!("version = 1\n\n[store.redis]\n{store}\n{limits}");
    std::fs::write(&path, text).expect("the test's directory is writable");
    path
}

pub(crate) fn start(dir: &Path, name: &str, store: &str, limits: &str) -> Service {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).expect("the test's directory is writable");
    Service::start(&dir, &policy(&dir, store, limits))
}

fn ask(to: SocketAddr, path: &str, run: &str) -> u16 {
    let visitor = Visitor::at(2);
    visitor.post_json(to, "/v1/check", &body(path, run)).status
}

fn body(path: &str, run: &str) -> String {
    json!({ "request": { "path": path }, "attributes": { "run": run } }).to_string()
}

/// Returns the number of requests to all processes that are admitted; every other is refused.
fn rush(callers: &mut [Caller], path: &str, run: &str) -> usize {
    let each = ATTEMPTS / callers.len();
    let body = body(path, run);
    thread::scope(|scope| {
        let ask = |caller| {
            let body = &body;
            scope.spawn(move || {
                let caller: &mut Caller = caller;
                let statuses = (0..each).map(|_| caller.post_json("/v1/check", body));
                statuses
                    .inspect(|status| assert!([200, 429].contains(status), "{status}"))
                    .filter(|status| *status == 200)
                    .count()
            })
        };
        let asking: Vec<_> = callers.iter_mut().map(ask).collect();
        let admitted = asking.into_iter().map(thread::ScopedJoinHandle::join);
        admitted.map(|each| each.expect("no caller panics")).sum()
    })
}

fn exact(title: &str, store: &str) {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let name = |number| format!("node-{number}");
    let nodes: Vec<Service> = (0..PROCESSES)
        .map(|number| start(dir.path(), &name(number), store, LIMITS))
        .collect();
    let doors = nodes.iter().map(Service::http).cycle();
    let callers = doors.take(PROCESSES * CONNECTIONS).map(Caller::connect);
    let mut callers: Vec<Caller> = callers.collect();
    let begun = clock::now();
    let repetitions = cases(5, 50);
    for run in 0..repetitions {
        for kind in ["gcra", "window", "log", "interval"] {
            let admitted = rush(&mut callers, &format!("/{kind}"), &format!("{kind}-{run}"));
            assert_eq!(admitted, 1_000, "{kind} on {title}, repetition {run}");
        }
    }
    for node in &nodes {
        let failed = node
            .metric(r#"ratekeeper_store_requests_total{store="redis",op="decide",result="error"}"#);
        assert!(failed.abs() < f64::EPSILON, "{failed} calls failed");
    }
    say(&format!(
        "exact on {title}: {PROCESSES} processes, {} connections, 1,000 of {ATTEMPTS} admitted, \
         4 kinds of limit, repetitions {repetitions}, in {:?}",
        PROCESSES * CONNECTIONS,
        begun.elapsed()
    ));
}

#[test]
fn four_processes_share_one_limit_exactly() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let store = format!("url = \"{}\"\ndeadline = \"{DEADLINE:?}\"", redis.url());
    exact("a single server", &store);
}

#[test]
fn four_processes_share_one_limit_exactly_in_a_cluster() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(nodes) = cluster(dir.path()) else {
        return;
    };
    let urls: Vec<String> = nodes
        .iter()
        .map(|node| format!("\"{}\"", node.url()))
        .collect();
    let store = format!("url = [{}]\ndeadline = \"{DEADLINE:?}\"", urls.join(", "));
    exact("a cluster of three", &store);
}

/// Limits for what each choice lets pass while the store is away: of one key, after ten charges.
pub(crate) const CHOICES: &str = r#"
[[limit]]
name = "local"
key = ["attr:run"]
match = { path = ["/local", "/any"] }
bucket = { size = 40, refill = "1/1h" }
on_store_error = "local"
missing_key = "skip"

[[limit]]
name = "allow"
key = ["attr:run"]
match = { path = ["/allow", "/any"] }
bucket = { size = 1, refill = "1/1h" }
on_store_error = "allow"
missing_key = "skip"

[[limit]]
name = "deny"
key = ["attr:run"]
match = { path = ["/deny", "/any"] }
bucket = { size = 1000000, refill = "1/1s" }
on_store_error = "deny"
missing_key = "skip"
"#;
/// Deadline of a store that is to stand still.
const SHORT: Duration = Duration::from_millis(300);
/// Time for which the store does not ask again about a key that it denied.
const DENIALS_REMEMBERED: Duration = Duration::from_millis(1_100);
/// Time for which a store stands still.
const STOPPED_FOR: Duration = Duration::from_secs(5);

pub(crate) fn is_active(service: &Service) -> bool {
    // While the breaker is closed, denials of the store are still remembered.
    service.metric(r#"ratekeeper_store_breaker_state{store="redis"}"#) > 0.0
}

pub(crate) fn until(service: &Service, active: bool) {
    let seen = clock::poll("change of the fallback", SHOWN_WITHIN, || {
        (is_active(service) == active).then_some(())
    });
    seen.unwrap_or_else(|error| panic!("{error} (active: {active})"));
}

/// Returns the number of `requests` that are admitted, sent one after the other.
pub(crate) fn admitted(to: SocketAddr, path: &str, run: &str, requests: usize) -> usize {
    let statuses = (0..requests).map(|_| ask(to, path, run));
    statuses.filter(|status| *status == 200).count()
}

/// Results of visitors that keep asking for all of a test.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    visitors: Vec<thread::JoinHandle<(BTreeMap<u16, usize>, Duration)>>,
}

impl Load {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let visitor = |path: &'static str| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let (mut statuses, mut longest) = (BTreeMap::new(), Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let begun = clock::now();
                    // Mostly of keys with remaining permits: charges, not denials.
                    let run = format!("load-{}", statuses.values().sum::<usize>() / 4);
                    *statuses.entry(ask(to, path, &run)).or_default() += 1;
                    longest = longest.max(begun.elapsed());
                    clock::wait(Duration::from_millis(2));
                }
                (statuses, longest)
            })
        };
        let visitors = ["/local", "/allow", "/deny", "/any"].map(visitor);
        Self {
            stop,
            visitors: visitors.into(),
        }
    }

    /// Ends the load, and asserts that every answer was one that a policy gives. Returns the time
    /// that the slowest took.
    pub(crate) fn end(self, title: &str) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let mut longest = Duration::ZERO;
        let mut count = 0;
        for visitor in self.visitors {
            let (statuses, each) = visitor.join().expect("no visitor panics");
            let strange = statuses.keys().find(|status| ![200, 429].contains(*status));
            assert_eq!(strange, None, "{statuses:?}");
            count += statuses.values().sum::<usize>();
            longest = longest.max(each);
        }
        say(&format!(
            "{title}: {count} answers, all of them the policy's; the longest took {longest:?}"
        ));
        longest
    }
}

pub(crate) fn with_choices(dir: &Path, redis: &Redis, deadline: Duration) -> Service {
    let store = format!(
        "url = \"{}\"\ndeadline = \"{deadline:?}\"\nnodes = 2",
        redis.url()
    );
    start(dir, "node", &store, CHOICES)
}

#[test]
fn decisions_go_on_without_a_killed_store_until_it_returns() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(mut redis) = Redis::start(dir.path()) else {
        return;
    };
    let service = with_choices(dir.path(), &redis, DEADLINE);
    let http = service.http();
    assert_eq!(admitted(http, "/local", "a", 50), 40);
    assert_eq!(admitted(http, "/allow", "a", 5), 1);
    assert_eq!(admitted(http, "/deny", "a", 5), 5);
    assert_eq!(ready(&service), 200);

    let load = Load::start(http);
    redis.crash();
    until(&service, true);
    assert_eq!(
        admitted(http, "/local", "a", 50),
        20,
        "half of 40: there are two nodes"
    );
    assert_eq!(admitted(http, "/allow", "a", 5), 5);
    assert_eq!(admitted(http, "/deny", "a", 5), 0);
    assert_eq!(admitted(http, "/any", "b", 5), 0, "any refusal refuses");
    assert_eq!(ready(&service), 200, "a fallback is active");
    service.process.log_with("store down");

    redis.restart();
    until(&service, false);
    clock::wait(DENIALS_REMEMBERED);
    // The server came back empty, and received the counters that this process remembers.
    assert_eq!(admitted(http, "/local", "a", 50), 0);
    assert_eq!(admitted(http, "/allow", "a", 5), 0);
    assert_eq!(admitted(http, "/deny", "a", 5), 5);
    load.end("killed and restarted under load");
    service.process.log_with("store back");
}

#[test]
fn decisions_do_not_wait_for_a_stopped_store() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let service = with_choices(dir.path(), &redis, SHORT);
    let load = Load::start(service.http());
    clock::wait(Duration::from_millis(200));
    redis.signal("STOP");
    let stopped = clock::now();
    until(&service, true);
    clock::wait(STOPPED_FOR.saturating_sub(stopped.elapsed()));
    redis.signal("CONT");
    until(&service, false);
    let longest = load.end("stopped for 5 s under load, with a deadline of 0.3 s");
    assert!(longest < STOPPED_FOR, "{longest:?}");
}

#[test]
fn a_service_starts_without_its_store() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let port = free_port();
    let only_deny = CHOICES.split("[[limit]]").last().expect("it has limits");
    // A busy machine does not refuse in its place.
    let store = format!("url = \"redis://127.0.0.1:{port}\"\ndeadline = \"5s\"");
    let all = start(dir.path(), "all", &store, CHOICES);
    let deny = start(dir.path(), "deny", &store, &format!("[[limit]]{only_deny}"));
    until(&all, true);
    until(&deny, true);
    assert_eq!((ready(&all), ready(&deny)), (200, 503));
    assert_eq!(admitted(all.http(), "/local", "a", 50), 40);
    assert_eq!(ask(deny.http(), "/deny", "a"), 429);

    let Some(_redis) = Redis::start_at(dir.path(), port) else {
        return;
    };
    until(&all, false);
    until(&deny, false);
    assert_eq!((ready(&all), ready(&deny)), (200, 200));
    assert_eq!(admitted(all.http(), "/local", "a", 5), 0, "debited");
    assert_eq!(ask(deny.http(), "/deny", "a"), 200);
}

pub(crate) fn ready(service: &Service) -> u16 {
    Visitor::at(1).get(service.admin(), "/readyz").status
}
