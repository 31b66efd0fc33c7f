//! Grpc: processor time of the service per decision that Envoy asks, over HTTP/2.
//!
//! ```text
//!   h2load -c10 -m10 ----> a process of its own: the service, or a bare tonic service
//!                            /proc/PID/stat before and after: user and system time
//!   figure = that time / answers that h2load counted
//! ```
//!
//! The bare service reads the same request and answers a constant of the same length. All run in
//! turn, round after round; the least counts.
//!
//! `cargo run --release -p ratekeeper-benches -- grpc [--quick]`; needs `h2load` (Debian:
//! `nghttp2-client`).

use std::fs;
use std::path::Path;
use std::process::Command;

use prost::Message;
use ratekeeper_wire::rate_limit_descriptor::Entry;
use ratekeeper_wire::{RateLimitDescriptor, RateLimitRequest};

use crate::server::Server;
use crate::spent::{self, Spent};
use crate::{Effort, report};

/// Ten connections of ten streams each.
const LOAD: [&str; 3] = ["-t1", "-c10", "-m10"];
/// Goal for the service, in microseconds of processor time per decision.
const GOAL: f64 = 9.0;

const POLICY: &str = r#"
version = 1
[[limit]]
name  = "per-user"
match = { domain = "edge" }
key   = ["descriptor:user"]
limit = "LIMIT"
algorithm = "fixed-window"
"#;

struct Row<'a> {
    name: &'static str,
    server: &'a Server,
    spent: Spent,
}

/// Measures all rows and prints them.
pub(crate) fn run(effort: Effort) {
    if Command::new("h2load").arg("--version").output().is_err() {
        report::line("grpc: `h2load` is not installed (Debian: nghttp2-client): not measured");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory for two policies");
    let policy = |name: &str, limit: &str| {
        let path = directory.path().join(name);
        fs::write(&path, POLICY.replace("LIMIT", limit)).expect("a policy is written");
        path.display().to_string()
    };
    let question = directory.path().join("question");
    fs::write(&question, question_bytes()).expect("a question is written");
    let allowing = Server::start(&["envoy", &policy("allow.toml", "4000000000/1s")]);
    let refusing = Server::start(&["envoy", &policy("refuse.toml", "1/24h")]);
    let bare = Server::start(&["tonic"]);
    let row = |name, server| Row {
        name,
        server,
        spent: Spent::default(),
    };
    let mut rows = [
        row(BARE, &bare),
        row("one key, allowed", &allowing),
        row("one key, refused", &refusing),
    ];
    for _ in 0..effort.http_rounds {
        for row in &mut rows {
            let seconds = effort.http_seconds;
            let load = |port| ((), h2load(port, &question, seconds));
            row.spent.round(row.server, seconds, load);
        }
    }
    let title = format!(
        "grpc   (us of server CPU per decision, `h2load {}`; goal {GOAL}; ratio of least to: {BARE})",
        LOAD.join(" ")
    );
    let rows: Vec<_> = rows.iter().map(|row| (row.name, &row.spent)).collect();
    spent::table(&title, BARE, &rows);
    spent::note("Envoy's protocol", BARE, &rows);
}

/// Row that the others are compared with.
const BARE: &str = "bare tonic service, a constant";

/// Returns a request of one descriptor, with its prefix.
fn question_bytes() -> Vec<u8> {
    let request = RateLimitRequest {
        domain: "edge".into(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: "user".into(),
                value: "ada".into(),
            }],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    };
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message");
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

/// Loads that port for `seconds`, and returns the number of answers.
fn h2load(port: u16, question: &Path, seconds: u32) -> u64 {
    let output = Command::new("h2load")
        .args(LOAD)
        .arg(format!("-D{seconds}"))
        .arg("-d")
        .arg(question)
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg(format!(
            "http://127.0.0.1:{port}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        ))
        .output()
        .expect("h2load starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |after: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with("requests:"));
        let before = line.and_then(|line| line.split(&format!(" {after}")).next());
        let number = before.and_then(|before| before.rsplit(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("h2load counts `{after}`:\n{text}"))
    };
    assert_eq!((number("failed"), number("errored")), (0, 0), "{text}");
    number("succeeded")
}
