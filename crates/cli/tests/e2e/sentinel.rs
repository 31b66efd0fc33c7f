//! Sentinels: services that follow a primary to its replica, and `doctor`, which asks the servers
//! that the sentinels name. Real servers, the real binary.
//!
//! Bounds, for a key of a limit L that two services share, when its primary is killed:
//!
//! * `deny`: L, plus requests in flight; the replica receives charges that it had missed
//! * `local`: at most the share of each service more, L / 2, however often it is without a primary

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::harness::redis::Make;
use crate::harness::sentinel::{MASTER, Watched};
use crate::harness::service::Service;
use crate::harness::visitor::Caller;
use crate::harness::{clock, say};
use crate::store::{admitted, is_active, start};

/// The limit L.
const WHOLE: usize = 1_000;
/// Number of callers of each service.
const CALLERS: usize = 4;
/// A decision waits for a deadline of 0.3 s, and for its turn on a busy machine.
const LONGEST: Duration = Duration::from_secs(2);
const SPENT_WITHIN: Duration = Duration::from_secs(60);

const LIMITS: &str = r#"
[[limit]]
name = "deny"
key = ["attr:run"]
match = { path = "/deny" }
bucket = { size = 1000, refill = "1/1h" }
on_store_error = "deny"
missing_key = "skip"

[[limit]]
name = "local"
key = ["attr:run"]
match = { path = "/local" }
bucket = { size = 1000, refill = "1/1h" }
on_store_error = "local"
missing_key = "skip"

[[limit]]
name = "five"
key = ["attr:run"]
match = { path = "/five" }
bucket = { size = 5, refill = "1/1h" }
on_store_error = "deny"
missing_key = "skip"
"#;

/// Callers that ask all through a test, and their results.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    deny: AtomicUsize,
    local: AtomicUsize,
    answers: AtomicUsize,
    longest_micros: AtomicUsize,
}

impl Load {
    /// Asks for both limits in turn.
    fn call(&self, to: SocketAddr) {
        let mut caller = Caller::connect(to);
        let body = |path| json!({ "request": { "path": path }, "attributes": { "run": "a" } });
        let bodies = ["/deny", "/local"].map(|path| body(path).to_string());
        while !self.stop.load(Ordering::Relaxed) {
            for (body, admitted) in bodies.iter().zip([&self.deny, &self.local]) {
                let begun = clock::now();
                let status = caller.post_json("/v1/check", body);
                let micros = usize::try_from(begun.elapsed().as_micros()).unwrap_or(usize::MAX);
                assert!([200, 429].contains(&status), "{status}");
                admitted.fetch_add(usize::from(status == 200), Ordering::Relaxed);
                self.longest_micros.fetch_max(micros, Ordering::Relaxed);
                self.answers.fetch_add(1, Ordering::Relaxed);
            }
            clock::wait(Duration::from_millis(2));
        }
    }

    fn admitted(&self) -> [usize; 2] {
        [&self.deny, &self.local].map(|admitted| admitted.load(Ordering::Relaxed))
    }
}

/// Returns the exit code of `ratekeeper doctor`, and its output.
fn doctor(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    command.arg("doctor").args(arguments).env_clear();
    let output = command.output().expect("the command starts");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Starts two services: one reads the sentinels from its policy, the other from its command line.
fn services(dir: &Path, sentinels: &[String]) -> [Service; 2] {
    let urls: Vec<String> = sentinels
        .iter()
        .map(|at| format!("\"redis://{at}\""))
        .collect();
    let shared = "deadline = \"300ms\"\nnodes = 2\n";
    let store = format!(
        "url = [{}]\nsentinel = {{ master = \"{MASTER}\" }}\n{shared}",
        urls.join(", ")
    );
    let by_policy = start(dir, "policy", &store, LIMITS);
    let home = dir.join("option");
    std::fs::create_dir_all(&home).expect("the test's directory is writable");
    let policy = home.join("policy.toml");
    let elsewhere = "url = \"redis://127.0.0.1:1\"";
    let text = format!("version = 1\n[store.redis]\n{elsewhere}\n{shared}{LIMITS}");
    std::fs::write(&policy, text).expect("the test's directory is writable");
    let url = format!("redis+sentinel://{}/{MASTER}", sentinels.join(","));
    let by_option = Service::start_with(&home, &policy, &["--store", &url]);
    [by_policy, by_option]
}

fn follows(make: Make) {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(mut watched) = Watched::start(make, dir.path()) else {
        return;
    };
    let sentinels = watched.addresses();
    let mut services = services(dir.path(), &sentinels);
    let load = Arc::new(Load::default());
    let call = |to: SocketAddr| {
        let load = Arc::clone(&load);
        thread::spawn(move || load.call(to))
    };
    let doors = services.iter().map(Service::http).cycle();
    let callers: Vec<_> = doors.take(2 * CALLERS).map(call).collect();
    let reaches = |what: &str, count| {
        let reached = clock::poll(what, SPENT_WITHIN, || {
            (load.admitted()[0] >= count).then_some(())
        });
        reached.unwrap_or_else(|error| panic!("{error}: {:?}", load.admitted()));
    };
    reaches("a third of the limit", WHOLE / 3);
    let before = load.admitted();
    let killed = clock::now();
    watched.fail_over();
    let away = killed.elapsed();
    // A call in flight may have been charged without an answer.
    reaches("the whole limit", WHOLE - 2 * CALLERS);
    clock::wait(Duration::from_millis(500));
    load.stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.join().expect("every caller receives 200 or 429");
    }
    let [deny, local] = load.admitted();
    let outages = services.each_ref().map(|service| {
        let log = service.process.log();
        log.matches("store down").count()
    });
    let longest = load.longest_micros.load(Ordering::Relaxed);
    say(&format!(
        "sentinels, {make:?}: primary killed at {before:?} of {WHOLE}, replica in use after \
         {away:?}; {outages:?} outages; admitted {deny} (deny) and {local} (local) in {} answers, \
         the longest {} ms",
        load.answers.load(Ordering::Relaxed),
        longest / 1_000
    ));
    assert!(deny <= WHOLE + 2 * CALLERS, "{deny}");
    assert!(local <= 2 * WHOLE + 2 * CALLERS, "{local}");
    let longest = Duration::from_micros(u64::try_from(longest).expect("small"));
    assert!(longest < LONGEST, "{longest:?}");
    // One limit again, shared by services that ran all the time.
    let [first, second] = [0, 1].map(|index| services[index].http());
    assert_eq!(admitted(first, "/five", "b", 3), 3);
    assert_eq!(admitted(second, "/five", "b", 5), 2);
    for service in &mut services {
        assert!(service.process.ended().is_none());
        assert!(!is_active(service));
    }
}

#[test]
fn services_follow_a_primary_of_redis_to_its_replica() {
    follows(Make::Redis);
}

#[test]
fn services_follow_a_primary_of_valkey_to_its_replica() {
    follows(Make::Valkey91);
}

#[test]
fn doctor_checks_the_primary_that_the_sentinels_name() {
    for make in [Make::Redis, Make::Valkey91] {
        let dir = tempfile::tempdir().expect("a directory of its own");
        let Some(mut watched) = Watched::start(make, dir.path()) else {
            continue;
        };
        let sentinels = watched.addresses().join(",");
        let url = format!("redis+sentinel://{sentinels}/{MASTER}");
        let [primary, replica] = [0, 1].map(|index| watched.servers[index].port());
        let (code, text) = doctor(&["--store", &url]);
        assert_eq!(code, Some(0), "{text}");
        for words in [
            &*format!("ok       reachable    127.0.0.1:{primary} answers"),
            "ok       role         the server is a primary",
            "ok       scripts      loaded and run, with the expected decisions",
            &format!("{MASTER} of sentinels redis://127.0.0.1:"),
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        watched.fail_over();
        let found = clock::poll("replica that is named", SPENT_WITHIN, || {
            let (_, text) = doctor(&["--store", &url]);
            let words = format!("ok       reachable    127.0.0.1:{replica} answers");
            text.contains(&words).then_some(())
        });
        found.unwrap_or_else(|error| panic!("{error}"));

        let other = format!("redis+sentinel://{sentinels}/other");
        let (code, text) = doctor(&["--store", &other]);
        assert_eq!(code, Some(1), "{text}");
        for words in [
            "failure  reachable    no primary was found: ",
            "`other`",
            "hint: run SENTINEL MASTERS on a sentinel to list the names that it knows",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
