//! Full: the cost of a new key in a memory store of the default budget, before and after that is
//! spent; and the same in a service, over one connection.
//!
//! `cargo run --release -p ratekeeper-benches -- full`; with `--quick`, a store of 16 MiB.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use ratekeeper_core::{Nanos, Time};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use crate::keyed::{Name, decide, limit_by};
use crate::measure::cpu_nanos;
use crate::server::Server;
use crate::{Effort, direct, report};

pub(crate) fn run(effort: Effort) {
    let budget_bytes = if effort.keys < 1_000_000 {
        16 << 20
    } else {
        256 << 20
    };
    let mut flood = Flood {
        store: MemoryStore::new(MemoryConfig { budget_bytes }),
        name: Name::new(),
        keys: 0,
    };
    let hours = |count: u64| Time::ZERO + Nanos::from_secs(3_600 * count);
    report::line(&format!(
        "a new key of 24 bytes, 5/1h, {} MiB, CPU ns",
        budget_bytes >> 20
    ));
    let part = budget_bytes / 1_600; // a third of the keys that fit, or less
    let mut before_full = Vec::new();
    while flood.evicted() == 0 {
        before_full.push(flood.pass(part / 10, Time::ZERO));
    }
    // The last tenths of what fits, growth included.
    let last = &before_full[before_full.len() / 2..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    report::line(&format!("{mean:>8.0}  the second half of those that fit"));
    for floods in 1..=8 {
        let nanos = flood.pass(part, Time::ZERO);
        report::line(&format!("{nanos:>8.0}  full, part {floods} of the flood"));
    }
    for floods in 1..=4 {
        let nanos = flood.pass(part, hours(2));
        report::line(&format!("{nanos:>8.0}  two hours later, part {floods}"));
    }
    in_the_service();
}

/// Budget of the service: a quarter of a million keys and more.
const SERVICE_BUDGET: usize = 16 << 20;
/// Requests that are sent before their answers are read.
const TOGETHER: usize = 100;

fn in_the_service() {
    let directory = tempfile::tempdir().expect("a directory for a policy");
    let path = directory.path().join("full.toml");
    let policy = "version = 1\nstore = { memory = { budget = \"16MiB\" } }\n\
                  [[limit]]\nname = \"users\"\nkey = [\"attr:user\"]\nlimit = \"5/1h\"\n";
    fs::write(&path, policy).expect("a policy is written");
    let mut visitors = Visitors::connect(Server::start(&["service", &path.display().to_string()]));
    report::line("in the service, 16 MiB, CPU us of a check of a new key");
    // A key and its slot take 45 to 80 bytes: full after at most `fits` keys, and not after a half.
    let fits = SERVICE_BUDGET / 45;
    let before = visitors.pass(fits / 4);
    let also_before = visitors.pass(fits / 4);
    visitors.pass(fits / 2);
    let full: Vec<f64> = (0..4).map(|_| visitors.pass(fits / 4)).collect();
    report::line(&format!(
        "{before:>8.2} {also_before:.2}  before it is full"
    ));
    report::line(&format!("{full:>8.2?}  full"));
}

/// Clients that ask once each, over one connection.
struct Visitors {
    server: Server,
    connection: TcpStream,
    count: usize,
    answer_bytes: usize,
}

impl Visitors {
    fn connect(server: Server) -> Self {
        let connection = TcpStream::connect(("127.0.0.1", server.port()));
        let mut visitors = Self {
            server,
            connection: connection.expect("the service listens"),
            count: 0,
            answer_bytes: 0,
        };
        visitors.send(1);
        let mut answer = [0; 4_096];
        visitors.answer_bytes = visitors.connection.read(&mut answer).expect("an answer");
        visitors
    }

    fn send(&mut self, count: usize) {
        let mut requests = String::new();
        for _ in 0..count {
            self.count += 1;
            let body = format!(r#"{{"attributes": {{"user": "user-{:09}"}}}}"#, self.count);
            requests += "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
            write!(requests, "content-length: {}\r\n\r\n{body}", body.len())
                .expect("a string takes all");
        }
        let sent = self.connection.write_all(requests.as_bytes());
        sent.expect("the service reads");
    }

    /// Returns microseconds of the service's CPU for each of `keys` new keys. All answers are as
    /// long as the first, because all keys are.
    fn pass(&mut self, keys: usize) -> f64 {
        let mut answers = vec![0; TOGETHER * self.answer_bytes];
        let total = |server: &Server| server.cpu_micros().iter().sum::<f64>();
        let before = total(&self.server);
        let rounds = keys / TOGETHER;
        for _ in 0..rounds {
            self.send(TOGETHER);
            let read = self.connection.read_exact(&mut answers);
            read.expect("the service answers");
        }
        let last = &answers[(TOGETHER - 1) * self.answer_bytes..];
        assert!(
            last.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(last)
        );
        (total(&self.server) - before) / (rounds * TOGETHER) as f64
    }
}

struct Flood {
    store: MemoryStore,
    name: Name,
    keys: usize,
}

impl Flood {
    /// Returns nanoseconds of CPU for each of `keys` new keys.
    fn pass(&mut self, keys: usize, now: Time) -> f64 {
        let limit = limit_by(direct::gcra("5/1h"));
        let before = cpu_nanos();
        for _ in 0..keys {
            self.keys += 1;
            decide(
                &self.store,
                &limit,
                self.name.set(self.keys).as_bytes(),
                now,
            );
        }
        (cpu_nanos() - before) as f64 / keys as f64
    }

    fn evicted(&self) -> u64 {
        let usage = self.store.usage();
        usage.limits.first().map_or(0, |limit| limit.evicted.budget)
    }
}
