//! Imports against the real thing: nginx decides about requests, and the imported limits decide
//! about the same requests at the same times.
//!
//! nginx logs the moment of each request in milliseconds, by another clock than the one it counts
//! with, so the two may be a millisecond apart. The requests are sent where a millisecond decides
//! nothing: about half an interval away from the next permit.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::process::{self, Process};
use crate::harness::visitor::Visitor;

const START_WITHIN: Duration = Duration::from_secs(20);
/// Maximum time until nginx has logged all requests.
const LOG_WITHIN: Duration = Duration::from_secs(20);
/// Requests at one time, and the pause before the next ones: 1.5, 2 and 2 permits at 2 a second.
const BURSTS: [(usize, Duration); 4] = [
    (9, Duration::from_millis(750)),
    (3, Duration::from_secs(1)),
    (4, Duration::from_secs(1)),
    (3, Duration::ZERO),
];
/// Zone, its rate, and the words of `limit_req`.
const LIMITS: [(&str, &str, &str); 5] = [
    ("plain", "2r/s", ""),
    ("burst", "2r/s", "burst=4 nodelay"),
    ("minute", "30r/m", "burst=2 nodelay"),
    ("queued", "2r/s", "burst=3"),
    ("both", "2r/s", "burst=4 delay=2"),
];

/// The directives that are imported.
fn directives() -> String {
    let zones = LIMITS
        .map(|(name, rate, _)| format!("limit_req_zone $http_x_key zone={name}:1m rate={rate};\n"));
    let locations = LIMITS
        .map(|(name, _, words)| format!("location /{name} {{ limit_req zone={name} {words}; }}\n"));
    let (zones, locations) = (zones.concat(), locations.concat());
    format!("{zones}server {{ listen LISTEN; root ROOT; access_log LOG asked; {locations} }}\n")
}

/// Starts nginx with the directives; returns it with its address.
fn nginx(program: &Path, dir: &Path) -> (Process, SocketAddr) {
    let address = free_address();
    let at = dir.display();
    let body = directives()
        .replace("LISTEN", &address.to_string())
        .replace("ROOT", &at.to_string())
        .replace("LOG", &format!("{at}/asked.log"));
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
         events {{}}\n\
         http {{ client_body_temp_path {at}/b; proxy_temp_path {at}/p; access_log off;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         log_format asked '$msec $request_time $uri $limit_req_status';\n{body} }}\n"
    );
    for (zone, _, _) in LIMITS {
        fs::write(dir.join(zone), "served\n").expect("the test's directory is writable");
    }
    let path = dir.join("nginx.conf");
    fs::write(&path, config).expect("the test's directory is writable");
    let mut command = Command::new(program);
    command.arg("-p").arg(dir).arg("-c").arg(&path);
    let process = Process::start("nginx", &mut command, dir.join("out"), dir.join("log"));
    let listens = clock::poll("nginx", START_WITHIN, || TcpStream::connect(address).ok());
    listens.unwrap_or_else(|error| panic!("{error}"));
    (process, address)
}

/// A request as nginx logged it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Asked {
    at_ms: u64,
    answer: Decided,
}

/// In the order of requests that come within one millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Decided {
    Passed,
    Delayed,
    Rejected,
}

/// Reads `1790000000.123` as milliseconds.
fn millis(text: &str) -> u64 {
    text.replace('.', "")
        .parse()
        .expect("seconds with three decimals")
}

/// Returns the requests of a zone in the log, in the order of their decisions.
fn asked(log: &str, zone: &str) -> Vec<Asked> {
    let mut asked = Vec::new();
    for line in log.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [end, took, uri, status] = words[..] else {
            panic!("{line}");
        };
        if uri == format!("/{zone}") {
            let answer = match status {
                "PASSED" => Decided::Passed,
                "DELAYED" => Decided::Delayed,
                "REJECTED" => Decided::Rejected,
                other => panic!("{other}"),
            };
            let at_ms = millis(end) - millis(took);
            asked.push(Asked { at_ms, answer });
        }
    }
    asked.sort_unstable();
    asked
}

/// Returns the decisions of a limit of the policy about the same requests.
fn decided(policy: &Path, limit: &str, asked: &[Asked]) -> Vec<Decided> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let arguments = ["simulate", "--limit", limit, "--events", "-"];
    let mut child = command
        .args(arguments)
        .arg(policy)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let start = asked.first().map_or(0, |asked| asked.at_ms);
    let events = asked.iter().map(|asked| {
        let at_us = (asked.at_ms - start) * 1_000;
        json!({"at_us": at_us, "op": "check", "key": "a"}).to_string() + "\n"
    });
    let events: String = events.collect();
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(events.as_bytes()).expect("it is read");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let output = String::from_utf8(output.stdout).expect("JSON is text");
    let verdict = |line: &str| {
        let answer: Value = serde_json::from_str(line).expect("a line of JSON");
        match answer["verdict"].as_str() {
            Some("allow") => Decided::Passed,
            Some("allow_after") => Decided::Delayed,
            Some("deny") => Decided::Rejected,
            _ => panic!("{line}"),
        }
    };
    output.lines().map(verdict).collect()
}

#[test]
fn nginx_and_its_imported_limits_admit_the_same_requests() {
    let Some(program) = process::find("nginx") else {
        return;
    };
    let dir = TempDir::new().expect("the system has a temporary directory");
    let (_nginx, address) = nginx(&program, dir.path());
    let visitor = Visitor::at(9).with("X-Key", "a");
    let mut sent = 0;
    let mut visitors = Vec::new();
    for (count, pause) in BURSTS {
        for _ in 0..count {
            for (zone, _, _) in LIMITS {
                let visitor = visitor.clone();
                let target = format!("/{zone}");
                sent += 1;
                visitors.push(thread::spawn(move || visitor.get(address, &target).status));
            }
        }
        clock::wait(pause);
    }
    for visitor in visitors {
        visitor.join().expect("a visitor gets an answer");
    }
    let log = clock::poll("all requests in the log", LOG_WITHIN, || {
        let log = fs::read_to_string(dir.path().join("asked.log")).ok()?;
        (log.lines().count() == sent).then_some(log)
    });
    let log = log.unwrap_or_else(|error| panic!("{error}"));

    let source = dir.path().join("limits.conf");
    fs::write(&source, directives()).expect("it is writable");
    let policy = dir.path().join("ratekeeper.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let imported = command
        .args(["import", "--from", "nginx", "-o"])
        .args([&policy, &source])
        .output()
        .expect("the command runs");
    let talk = String::from_utf8_lossy(&imported.stderr);
    assert!(imported.status.success(), "{talk}");
    for (zone, _, words) in LIMITS {
        let asked = asked(&log, zone);
        let theirs: Vec<_> = asked.iter().map(|asked| asked.answer).collect();
        let kinds = [Decided::Passed, Decided::Rejected];
        assert!(
            kinds.iter().all(|kind| theirs.contains(kind)),
            "{zone}: {theirs:?}"
        );
        assert_eq!(
            decided(&policy, zone, &asked),
            theirs,
            "{zone} {words}: {asked:?}"
        );
    }
}
