//! Footprint: bytes per key of each core, including all that the server keeps for a key.

use ratekeeper_core::{AnyAlgorithm, Permits};

use super::remembered;
use super::server::Server;
use super::subject::Teller;
use super::wire::Reply;
use crate::{Effort, report};

/// Number of keys of each core: three quarters of a table of the server, as 100,000 are of the
/// next.
const KEYS: u64 = 50_000;
/// Number of keys in a short run.
const FEW: u64 = 12_500;
/// Goal for a GCRA key on Redis 7, in bytes.
const GOAL: f64 = 133.0;
/// Number of concurrent requests.
const AT_ONCE: usize = 125;

/// Prints the growth of memory per key on a server that holds nothing else, and the server's own
/// figure for a key.
pub(super) fn run(effort: Effort, program: &str) {
    let count = if effort.redis_rounds > 4 { KEYS } else { FEW };
    report::line(&format!(
        "\nredis: bytes of a key, {count} keys of 8 letters under a limit of 8   (grown: \
         used_memory; reported: MEMORY USAGE)"
    ));
    report::line(&format!(
        "{:<42} {:>8} {:>8}  goal",
        "", "grown", "reported"
    ));
    for (name, algorithm, cost) in remembered() {
        let Some(server) = Server::start(program) else {
            return;
        };
        let (grown, reported) = measure(&server, algorithm, cost, count);
        let stands = match name {
            "gcra" if grown <= GOAL => format!("{GOAL:.0}: met {:.2}", grown / GOAL),
            "gcra" => format!("{GOAL:.0}: missed {:.2}", grown / GOAL),
            _ => String::new(),
        };
        report::line(&format!("{name:<42} {grown:>8.1} {reported:>8}  {stands}"));
    }
}

fn measure(server: &Server, algorithm: AnyAlgorithm, cost: Permits, count: u64) -> (f64, i64) {
    let teller = Teller::new(server.port, "rk", algorithm);
    // Connects, teaches the script, and lets buffers grow to their size.
    teller.each(count..count + AT_ONCE as u64, cost, |admitted| {
        assert!(admitted);
    });
    let before = server.used_memory();
    for first in (0..count).step_by(AT_ONCE) {
        teller.each(first..first + AT_ONCE as u64, cost, |admitted| {
            assert!(admitted);
        });
    }
    let grown = server.used_memory().saturating_sub(before);
    let Reply::Text(key) = server.ask(&[b"RANDOMKEY"]) else {
        panic!("there are {count} keys");
    };
    let reported = match server.ask(&[b"MEMORY", b"USAGE", key.as_bytes()]) {
        Reply::Number(bytes) => bytes,
        other => panic!("MEMORY USAGE of {key} returned {other:?}"),
    };
    (grown as f64 / count as f64, reported)
}
