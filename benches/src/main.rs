//! The machine's floor, ratekeeper and a peer, measured side by side in one run.
//!
//! ```text
//!   round 1:  floor  clock  cell  governor ...      every contender in turn, so that a noisy
//!   round 2:  floor  clock  cell  governor ...      neighbour of this machine hurts all alike
//!   ...
//!   per contender: least and median over the rounds, of wall and of CPU time
//! ```
//!
//! `cargo run --release -p ratekeeper-benches [-- --quick]`; with `-- cores [--quick]`, only
//! the pure functions: see [`cores`]; with `-- http [--quick]`, the service over real
//! connections instead: see [`http`]; with `-- grpc [--quick]`, as Envoy asks it: see [`grpc`];
//! with `-- redis [--quick] [--server PATH]`, what shared limits cost a Redis server, or a
//! Valkey: see [`redis`]; with `-- library [--quick]`, the library's calls beside those of its
//! peers, and with `-- tower [--quick]` only the layer for services: see [`library`]; with
//! `-- compare [--quick]`, all that has a peer in one table: see [`compare`]; with
//! `-- matching [--quick]`, policies of many limits: see [`matching`]; with `-- gateway [--quick]
//! [--beside PROGRAM]`, a forwarded request beside nginx, `HAProxy`, Caddy and another build: see
//! [`gateway`]; with `-- watch [--quick]`,
//! what the service keeps about its decisions: see [`watch`]; with `-- overrides [--quick]`, limits
//! with 100,000 overrides: see [`overrides`]; with `-- full [--quick]`, a full store: see [`full`];
//! with `-- fill [--quick]`, the longest call while keys come: see [`fill`]; with `-- replay [--quick]
//! [--log SAMPLE]..`, lines of an access log: see [`replay`]. `-- all` runs every one that has a row
//! in `COMPARE.md`, one after the other, in about 20 minutes.
//!
//! Governor is measured twice: at the same price of time (ratekeeper receives the time from its
//! caller, so governor is given a clock that costs one load), and each with the clock it ships with
//! (`SystemClock` here, quanta there).

mod bare;
mod bytes;
mod compare;
mod cores;
mod descriptors;
mod direct;
mod fill;
mod floor;
mod full;
mod gateway;
mod grpc;
mod http;
mod keyed;
mod library;
mod machine;
mod matching;
mod measure;
mod overrides;
#[path = "../../crates/store/tests/redis/ports.rs"]
mod ports;
mod redis;
mod replay;
mod report;
mod server;
mod spent;
mod watch;

use std::path::{Path, PathBuf};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Number of rounds and sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    rounds: usize,
    keys: u32,
    http_rounds: usize,
    http_seconds: u32,
    redis_rounds: usize,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [child, store, keys] = &args[..]
        && child == bytes::CHILD
    {
        let number = |text: &str| text.parse().expect("written by this program");
        bytes::of(number(store), number(keys));
        return;
    }
    if let [child, arguments @ ..] = &args[..]
        && child == server::CHILD
    {
        server::serve(arguments);
        return;
    }
    let effort = if args.iter().any(|arg| arg == "--quick") {
        Effort {
            rounds: 15,
            keys: 100_000,
            http_rounds: 3,
            http_seconds: 1,
            redis_rounds: 4,
        }
    } else {
        Effort {
            rounds: 60,
            keys: 1_000_000,
            http_rounds: 5,
            http_seconds: 3,
            redis_rounds: 16,
        }
    };
    report::line(&machine::describe());
    let after = |option| {
        let mut words = args.iter().skip_while(move |arg| *arg != option);
        words.nth(1)
    };
    let server = after("--server").map_or("redis-server", String::as_str);
    match args.first().map_or("", String::as_str) {
        "descriptors" => descriptors::run(effort),
        "watch" => watch::run(effort),
        "matching" => matching::run(effort),
        "overrides" => overrides::run(effort),
        "full" => full::run(effort),
        "fill" => fill::run(effort),
        "all" => {
            compare::run(effort, server);
            gateway::run(effort, after("--beside").map(Path::new));
            http::idle();
            matching::limits(effort);
            watch::run(effort);
            full::run(effort);
        }
        "replay" => {
            let names = args.windows(2).filter(|pair| pair[0] == "--log");
            let samples: Vec<PathBuf> = names.map(|pair| PathBuf::from(&pair[1])).collect();
            replay::run(effort, &samples);
        }
        "compare" => compare::run(effort, server),
        "library" => {
            library::run(effort);
            bytes::run(effort);
        }
        "tower" => library::layer(effort),
        "http" => http::run(effort),
        "gateway" => gateway::run(effort, after("--beside").map(Path::new)),
        "grpc" => grpc::run(effort),
        "redis" => redis::run(effort, server),
        "cores" => cores::run(effort),
        "" | "--quick" => {
            cores::run(effort);
            direct::run(effort);
            keyed::run(effort);
            descriptors::run(effort);
            matching::run(effort);
            overrides::run(effort);
            bytes::run(effort);
            full::run(effort);
        }
        unknown => report::line(&format!("there is no bench `{unknown}`")),
    }
}
