//! Soak: every door under load while the policy is reloaded each second and the store is
//! killed again and again. Memory, descriptors and threads stay flat, bounds are kept.
//!
//! ```text
//!   check, kept connection    \                             / memory, reloads
//!   auth, a new one each time  >  two services, one each:  <
//!   batch; gRPC; rude clients /                             \ Redis, killed and started empty
//! ```
//!
//! In `cargo xtask test --all` it lasts 20 s; `cargo xtask soak --minutes 30` is this test, for longer,
//! and that of the gateway.

mod clients;
mod gateway;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use self::clients::{Count, Seen, auths, batches, calls, checks, rude};
use crate::harness::redis::Redis;
use crate::harness::service::Service;
use crate::harness::{clock, say};

/// Length of a run, in minutes, if it is not one of the tests.
const MINUTES: &str = "RATEKEEPER_SOAK_MINUTES";
const OF_THE_TESTS: Duration = Duration::from_secs(20);

/// Size and refill of each limit and key: at once, and each second.
const SIZE: u64 = 40;
const PER_SECOND: u64 = 5;
/// Number of keys of each door.
const KEYS: u64 = 5;
/// Length of each outage of the store.
const AWAY: Duration = Duration::from_secs(1);

/// Maximum increase from before the middle to the end.
const MORE_KIB: u64 = 6 << 10;
const MORE_DESCRIPTORS: u64 = 6;
const MORE_THREADS: u64 = 1;

fn policy(version: u64, redis: Option<&str>) -> String {
    let store = redis.map_or(String::new(), |url| {
        format!("[store.redis]\nurl = \"{url}\"\ndeadline = \"200ms\"\n")
    });
    let limit = |name: &str, applies: &str, key: &str| {
        format!(
            "[[limit]]\nname = \"{name}\"\nmatch = {{ {applies} }}\nkey = [\"{key}\"]\n\
             bucket = {{ size = {SIZE}, refill = \"{PER_SECOND}/1s\" }}\n\n"
        )
    };
    // The limit that changes each second is not one that clients ask for.
    let changing = format!(
        "[[limit]]\nname = \"v{}\"\nmatch = {{ path = \"/nothing\" }}\nkey = [\"all\"]\n\
         bucket = {{ size = {}, refill = \"1/1s\" }}\n\n",
        version % 7,
        version % 100 + 1
    );
    format!(
        "version = 1\n{store}\n{}{}{}{}{changing}",
        limit("check", "path = \"/check\"", "ip"),
        limit("auth", "path = [\"/soak\", \"/v1/auth/soak\"]", "ip"),
        limit("batch", "path = \"/batch\"", "ip"),
        limit("grpc", "domain = \"soak\"", "descriptor:user"),
    )
}

/// Resources of a process, as counted by the system.
#[derive(Clone, Copy, Debug)]
struct Sample {
    kib: u64,
    descriptors: u64,
    threads: u64,
}

fn sample(id: u32) -> Sample {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let digits = line.expect("Linux has it").trim().trim_end_matches(" kB");
        digits.parse().expect("a number")
    };
    let descriptors = fs::read_dir(format!("/proc/{id}/fd")).expect("it runs");
    Sample {
        kib: field("VmRSS:"),
        descriptors: descriptors.count() as u64,
        threads: field("Threads:"),
    }
}

/// Returns the least of a part of the samples: connections come and go, and what leaks stays.
fn least(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> u64 {
    samples.iter().map(of).min().expect("each second has one")
}

/// One service with its clients.
struct Side<'a> {
    name: &'static str,
    service: &'a Service,
    seen: Seen,
}

impl<'a> Side<'a> {
    fn new(name: &'static str, service: &'a Service) -> Self {
        Self {
            name,
            service,
            seen: Seen::default(),
        }
    }

    /// Returns the figures, and adds the violations to `wrong`; `most` of a key may be admitted.
    fn verdict(&self, samples: &[Sample], most: u64, wrong: &mut Vec<String>) -> String {
        // The first quarter warms up.
        let quarter = samples.len() / 4;
        let before = &samples[quarter..2 * quarter];
        let after = &samples[samples.len() - quarter..];
        let mut shown = String::new();
        for (what, of, more) in [
            ("KiB", (|s| s.kib) as fn(&Sample) -> u64, MORE_KIB),
            ("descriptors", |s| s.descriptors, MORE_DESCRIPTORS),
            ("threads", |s| s.threads, MORE_THREADS),
        ] {
            let (before, after) = (least(before, of), least(after, of));
            let _ = write!(shown, ", {what} {before} then {after}");
            if after > before + more {
                wrong.push(format!(
                    "{}: {what} grew from {before} to {after}",
                    self.name
                ));
            }
        }
        let counts = self.seen.counts.lock().expect("the clients have ended");
        for door in ["check", "auth", "batch", "grpc"] {
            for key in 0..KEYS {
                let Count { answers, admitted } = counts[&(door, key)];
                // A busy machine may ask less often than the limit allows.
                let least = SIZE.min(answers);
                if !(least..=most).contains(&admitted) {
                    let bounds = format!("{least} to {most} of {answers} were due");
                    wrong.push(format!(
                        "{}: {door} {key} admitted {admitted}, {bounds}",
                        self.name
                    ));
                }
            }
        }
        wrong.extend(self.seen.failures.lock().expect("ended").iter().cloned());
        for series in [
            "task_failures_total",
            "accept_failures_total{listener=\"http\"}",
        ] {
            let count = self.service.metric(&format!("ratekeeper_{series}"));
            if count > 0.0 {
                wrong.push(format!("{}: {series} {count}", self.name));
            }
        }
        let largest = counts.values().map(|count| count.admitted).max();
        let answers: u64 = counts.values().map(|count| count.answers).sum();
        format!(
            "{}: {answers} answers, at most {} of {most} a key{shown}",
            self.name,
            largest.unwrap_or_default()
        )
    }
}

/// Writes the next version as an editor does; every fifth is invalid.
fn write(path: &Path, version: u64, redis: Option<&str>) {
    let mut text = policy(version, redis);
    if version % 5 == 4 {
        text.push_str("broken");
    }
    let beside = path.with_extension("new");
    fs::write(&beside, text).expect("the test's directory is writable");
    fs::rename(&beside, path).expect("the same directory");
}

#[test]
fn soak() {
    let minutes = std::env::var(MINUTES).ok();
    let span = minutes.map_or(OF_THE_TESTS, |minutes| {
        let minutes: u64 = minutes.parse().expect("whole minutes");
        Duration::from_secs(60 * minutes)
    });
    let each = if span > OF_THE_TESTS { 60 } else { 6 };
    let dir = tempfile::TempDir::new().expect("the system has a temporary directory");
    let Some(mut redis) = Redis::start(dir.path()) else {
        return;
    };
    let url = redis.url();
    let start = |name: &str, redis: Option<&str>| {
        let home = dir.path().join(name);
        fs::create_dir(&home).expect("the test's directory is writable");
        let path = home.join("policy.toml");
        write(&path, 0, redis);
        (Service::start(&home, &path), path)
    };
    let (alone, alone_policy) = start("memory", None);
    let (sharing, sharing_policy) = start("redis", Some(&url));
    let (memory, shared) = (Side::new("memory", &alone), Side::new("redis", &sharing));

    let began = clock::now();
    let stop = AtomicBool::new(false);
    let (mut kills, mut samples) = (0, [Vec::new(), Vec::new()]);
    thread::scope(|scope| {
        let stop = &stop;
        for side in [&memory, &shared] {
            let (service, seen) = (side.service, &side.seen);
            scope.spawn(move || checks(service, seen, stop));
            scope.spawn(move || auths(service, seen, stop));
            scope.spawn(move || batches(service, seen, stop));
            scope.spawn(move || calls(service, seen, stop));
            scope.spawn(move || rude(service, stop));
        }
        for second in 1.. {
            write(&alone_policy, second, None);
            write(&sharing_policy, second, Some(&url));
            if second % each == 0 {
                redis.crash();
                kills += 1;
                clock::wait(AWAY);
                redis.restart();
            } else {
                clock::wait(Duration::from_secs(1));
            }
            samples[0].push(sample(alone.process.id()));
            samples[1].push(sample(sharing.process.id()));
            if began.elapsed() > span {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let lasted = began.elapsed().as_secs() + 1;
    let steady = SIZE + PER_SECOND * lasted;
    let mut wrong = Vec::new();
    // While the store is away each limit is decided here, and the store comes back empty, so each
    // time a key may begin anew, twice.
    let lines = [
        memory.verdict(&samples[0], steady, &mut wrong),
        shared.verdict(&samples[1], steady + 2 * SIZE * kills, &mut wrong),
    ];
    for line in lines {
        say(&format!("soak of {lasted} s, {kills} kills, {line}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for mut service in [alone, sharing] {
        service.process.signal("TERM");
        assert!(service.process.end().expect("it ends").success());
    }
}
