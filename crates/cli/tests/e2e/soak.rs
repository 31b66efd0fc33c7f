//! Soak: every door under load while the policy is reloaded each second and the store is
//! killed again and again. Memory, descriptors and threads stay flat, bounds are kept.
//!
//! ```text
//!   check, kept connection    \                             / memory, reloads
//!   auth, a new one each time  >  two services, one each:  <
//!   batch; gRPC; rude clients /                             \ Redis, killed and started empty
//! ```
//!
//! A run of the tests lasts 20 s; `cargo xtask soak --minutes 30` is this test, for longer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use ratekeeper_wire::rate_limit_descriptor::Entry;
use ratekeeper_wire::rate_limit_response::Code;
use ratekeeper_wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};

use crate::harness::redis::Redis;
use crate::harness::service::Service;
use crate::harness::visitor::{Caller, Visitor};
use crate::harness::{clock, say};

/// How long a run lasts, in minutes, if it is not one of the tests.
const MINUTES: &str = "RATEKEEPER_SOAK_MINUTES";
const OF_THE_TESTS: Duration = Duration::from_secs(20);

/// Of each limit and key: at once, and each second.
const SIZE: u64 = 40;
const PER_SECOND: u64 = 5;
/// Keys of each door.
const KEYS: u64 = 5;
/// Between two requests of a client: four clients of two services share a small machine.
const PAUSE: Duration = Duration::from_millis(4);
/// How long the store is away each time.
const AWAY: Duration = Duration::from_secs(1);

/// What may be more at the end than before the middle.
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
    // What changes each second is not what is asked for.
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

/// What the clients of one service saw.
#[derive(Default)]
struct Seen {
    /// By door and key.
    admitted: Mutex<BTreeMap<(&'static str, u64), u64>>,
    answers: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Seen {
    fn answer(&self, door: &'static str, key: u64, admitted: bool) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        if admitted {
            let mut all = self.admitted.lock().expect("no client panics");
            *all.entry((door, key)).or_default() += 1;
        }
    }

    fn fail(&self, what: impl Into<String>) {
        let mut failures = self.failures.lock().expect("no client panics");
        if failures.len() < 20 {
            failures.push(what.into());
        }
    }

    fn status(&self, door: &'static str, key: u64, status: u16) {
        match status {
            200 => self.answer(door, key, true),
            429 => self.answer(door, key, false),
            other => self.fail(format!("{door}: status {other}")),
        }
    }
}

/// Asks until `stop`; every client goes through the keys in turn.
fn turns(stop: &AtomicBool, mut ask: impl FnMut(u64)) {
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        ask(turn % KEYS);
        clock::wait(PAUSE);
    }
}

fn question(path: &str, key: u64) -> String {
    format!(r#"{{"request": {{"ip": "192.0.2.{key}", "path": "{path}"}}}}"#)
}

fn checks(service: &Service, seen: &Seen, stop: &AtomicBool) {
    let mut caller = Caller::connect(service.http());
    turns(stop, |key| {
        let status = caller.post_json("/v1/check", &question("/check", key));
        seen.status("check", key, status);
    });
}

fn auths(service: &Service, seen: &Seen, stop: &AtomicBool) {
    turns(stop, |key| {
        let last = u8::try_from(key).expect("a few keys") + 10;
        match Visitor::at(last).ask(service.http(), "GET", "/v1/auth/soak") {
            Ok(answer) => seen.status("auth", key, answer.status),
            Err(error) => seen.fail(format!("auth: {error}")),
        }
    });
}

fn batches(service: &Service, seen: &Seen, stop: &AtomicBool) {
    turns(stop, |key| {
        let check = question("/batch", key);
        let body = format!(r#"{{"checks": [{check}, {check}, {check}]}}"#);
        let answer = Visitor::at(3).post_json(service.http(), "/v1/check/batch", &body);
        let parsed: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let Some(results) = parsed["results"].as_array() else {
            return seen.fail(format!("batch: {} {}", answer.status, answer.body));
        };
        for result in results {
            seen.answer("batch", key, result["allowed"] == true);
        }
    });
}

/// Connections that never ask, that leave in the middle, and that send what is no request.
fn rude(service: &Service, stop: &AtomicBool) {
    turns(stop, |key| {
        for door in [service.http(), service.grpc()] {
            let Ok(mut stream) = Visitor::at(4).connect(door) else {
                continue;
            };
            let sent: &[u8] = match key {
                0 => b"",
                1 => b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{",
                2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                3 => b"\x16\x03\x01\x00\xff",
                _ => b"GET /v1/auth HTTP/1.1\r\nhost: a\r\n\r\n",
            };
            let _ = stream.write_all(sent); // it may have been closed already
        }
    });
}

/// Calls over one connection of HTTP/2 after the other, fifty each.
fn calls(service: &Service, seen: &Seen, stop: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let failed = |error: h2::Error| seen.fail(format!("grpc: {error}"));
    runtime.block_on(async {
        while !stop.load(Ordering::Relaxed) {
            let stream = tokio::net::TcpStream::connect(service.grpc()).await;
            let handshake = h2::client::handshake(stream.expect("the door is open")).await;
            let (mut sender, connection) = match handshake {
                Ok(connected) => connected,
                Err(error) => return failed(error),
            };
            let connection = tokio::spawn(connection);
            for turn in 0..50 {
                match call(&mut sender, turn % KEYS).await {
                    Ok(admitted) => seen.answer("grpc", turn % KEYS, admitted),
                    Err(error) => failed(error),
                }
                tokio::time::sleep(PAUSE).await;
            }
            drop(sender);
            let _ = connection.await; // it ends because nobody asks any more
        }
    });
}

/// Whether the call of that user was admitted.
async fn call(sender: &mut h2::client::SendRequest<Bytes>, key: u64) -> Result<bool, h2::Error> {
    let request = RateLimitRequest {
        domain: "soak".into(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: "user".into(),
                value: key.to_string(),
            }],
            ..Default::default()
        }],
        hits_addend: 0,
    };
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(request.encoded_len()).expect("a short message"));
    message.put_slice(&request.encode_to_vec());
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let head = http::Request::post(format!("http://soak{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let mut ready = sender.clone().ready().await?;
    let (response, mut send) = ready.send_request(head.body(()).expect("a request"), false)?;
    send.send_data(message.freeze(), true)?;
    let mut body = response.await?.into_body();
    let mut answer = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        answer.extend_from_slice(&data);
    }
    let message = answer.get(5..).unwrap_or_default();
    let response = RateLimitResponse::decode(message).expect("an answer of gRPC");
    Ok(response.overall_code() == Code::Ok)
}

/// What the system counts of a process.
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

/// The middle one of a part of the samples.
fn median(samples: &[Sample], of: impl Fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
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

    /// The figures, and what is wrong with them; `most` of a key may have been admitted.
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
            let (before, after) = (median(before, of), median(after, of));
            let _ = write!(shown, ", {what} {before} then {after}");
            if after > before + more {
                wrong.push(format!(
                    "{}: {what} grew from {before} to {after}",
                    self.name
                ));
            }
        }
        let admitted = self.seen.admitted.lock().expect("the clients have ended");
        for door in ["check", "auth", "batch", "grpc"] {
            for key in 0..KEYS {
                let count = admitted.get(&(door, key)).copied().unwrap_or_default();
                if !(SIZE..=most).contains(&count) {
                    let bounds = format!("{SIZE} to {most} were due");
                    wrong.push(format!(
                        "{}: {door} {key} admitted {count}, {bounds}",
                        self.name
                    ));
                }
            }
        }
        wrong.extend(self.seen.failures.lock().expect("ended").iter().cloned());
        for series in [
            "task_failures_total",
            "accept_failures_total{door=\"http\"}",
        ] {
            let count = self.service.metric(&format!("ratekeeper_{series}"));
            if count > 0.0 {
                wrong.push(format!("{}: {series} {count}", self.name));
            }
        }
        let largest = admitted.values().max().copied().unwrap_or_default();
        let answers = self.seen.answers.load(Ordering::Relaxed);
        format!(
            "{}: {answers} answers, at most {largest} of {most} a key{shown}",
            self.name
        )
    }
}

/// Writes the next version as an editor does; every fifth is refused.
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
    // While the store is away each limit is decided here, and it comes back empty: each time
    // a key may begin anew, twice.
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
