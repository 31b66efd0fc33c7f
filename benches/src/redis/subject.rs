//! Subjects: the requests to the server, and how it is loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Charge, Key, KeyBuilder, Limit, LimitId, Mode, Outage, Permits,
    Time,
};
use ratekeeper_store::{RedisConfig, RedisStore, Store};
use tokio::runtime::{Builder, Runtime};

use super::TOGETHER;
use super::recorder::Recorder;
use super::server::{CONNECTIONS, Server};
use super::wire::{Reply, frame};

/// Number of keys of each subject.
const KEYS: u64 = 960;
/// Decisions of a round, with one call in flight on each connection, and with many: few decisions
/// and many rounds, so that some rounds fall into a quiet moment.
const FEW: usize = 1_024;
const MANY: usize = 2_048;
/// Decisions of a round that the store itself makes.
const EXCHANGES: u64 = 256;
/// Far more than a call takes, so that no failed call is measured.
const DEADLINE: Duration = Duration::from_secs(10);

/// The commonly copied token bucket: two fields of a hash, the caller's clock.
const FOLK: &[u8] = b"
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, cost = tonumber(ARGV[3]), tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(bucket[1]) or burst, tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate) * 2)
return {allowed and 1 or 0, tokens}
";

/// Row of the command of `redis-cell`.
pub(super) const THROTTLE: &str = "CL.THROTTLE, allow";

/// Calls without any limit of ours.
#[derive(Clone, Copy)]
pub(super) enum Calls {
    Incr,
    /// A script with one key that does nothing.
    Nothing,
    Folk,
}

/// The measurement of a row of the table.
pub(super) struct Subject {
    pub(super) name: String,
    work: Work,
}

enum Work {
    /// Prepared calls, sent unchanged.
    Frames {
        frames: Vec<Vec<u8>>,
        /// Decisions per call.
        each: usize,
        next: usize,
    },
    /// Decisions of the store itself.
    Store(Box<Teller>),
}

impl Subject {
    pub(super) fn plain(server: &Server, name: &str, calls: Calls) -> Self {
        let load = |script: &[u8]| match server.ask(&[b"SCRIPT", b"LOAD", script]) {
            Reply::Text(hash) => hash,
            other => panic!("a script is not loaded: {other:?}"),
        };
        let call = |key: &[u8]| match calls {
            Calls::Incr => frame(&[b"INCR", key]),
            Calls::Nothing => frame(&[b"EVALSHA", load(b"return 1").as_bytes(), b"1", key]),
            Calls::Folk => frame(&[
                b"EVALSHA",
                load(FOLK).as_bytes(),
                b"1",
                key,
                b"1.5",
                b"100000",
                b"1763712345.678901",
                b"1",
            ]),
        };
        Self::frames(
            name.to_owned(),
            keys(name).map(|key| call(&key)).collect(),
            1,
        )
    }

    /// Creates the command of the module `redis-cell`; `None` if the server lacks it.
    pub(super) fn throttle(server: &Server) -> Option<Self> {
        match server.ask(&[b"COMMAND", b"INFO", b"CL.THROTTLE"]) {
            Reply::List(known) if known != [Reply::Nothing] => {}
            _ => return None,
        }
        let name = THROTTLE;
        let call = |key: Vec<u8>| frame(&[b"CL.THROTTLE", &key, b"100000", b"100000", b"86400"]);
        Some(Self::frames(
            name.to_owned(),
            keys(name).map(call).collect(),
            1,
        ))
    }

    fn frames(name: String, frames: Vec<Vec<u8>>, each: usize) -> Self {
        assert!(!frames.is_empty(), "{name}: no call was recorded");
        let work = Work::Frames {
            frames,
            each,
            next: 0,
        };
        Self { name, work }
    }

    /// Creates a limit that always allows.
    pub(super) fn allowed(server: &Server, name: String, algorithm: AnyAlgorithm) -> Self {
        let recorder = Recorder::before(server.port);
        let teller = Teller::new(recorder.port, &name, algorithm);
        teller.all_alone(Permits::ONE, true);
        Self::frames(name, recorder.take(1), 1)
    }

    /// Creates a limit that is spent.
    pub(super) fn denied(server: &Server, name: String, algorithm: AnyAlgorithm) -> Self {
        let recorder = Recorder::before(server.port);
        let teller = Teller::new(recorder.port, &name, algorithm);
        teller.all_alone(teller.limit.algorithm.capacity(), true);
        let _ = recorder.take(1);
        teller.all_alone(Permits::ONE, false);
        Self::frames(name, recorder.take(1), 1)
    }

    /// Creates a limit that always allows, with requests of different keys together in a call.
    pub(super) fn gathered_allowed(server: &Server, name: String, open: AnyAlgorithm) -> Self {
        let recorder = Recorder::before(server.port);
        let teller = Teller::new(recorder.port, &name, open);
        teller.all_together(Permits::ONE, true);
        Self::frames(name, recorder.take(TOGETHER), TOGETHER)
    }

    pub(super) fn gathered_denied(server: &Server, name: String, shut: AnyAlgorithm) -> Self {
        let recorder = Recorder::before(server.port);
        let teller = Teller::new(recorder.port, &name, shut);
        teller.all_together(teller.limit.algorithm.capacity(), true);
        let _ = recorder.take(TOGETHER);
        teller.all_together(Permits::ONE, false);
        Self::frames(name, recorder.take(TOGETHER), TOGETHER)
    }

    /// Creates a limit without a twin.
    pub(super) fn exchanged(server: &Server, name: &str, algorithm: AnyAlgorithm) -> Self {
        let teller = Teller::new(server.port, name, algorithm);
        Self {
            name: name.to_owned(),
            work: Work::Store(Box::new(teller)),
        }
    }

    /// Loads the server; returns the number of decisions.
    pub(super) fn run(&mut self, server: &Server, at_once: usize) -> usize {
        match &mut self.work {
            Work::Store(teller) => {
                let count = if at_once == 1 { 1 } else { 2 } * EXCHANGES;
                teller.several(count, at_once as u64);
                usize::try_from(count).expect("a few thousand")
            }
            Work::Frames { frames, each, next } => {
                let most = if at_once == 1 { FEW } else { MANY };
                let calls = if *each > 1 { most / 8 } else { most };
                let rounds = calls.div_ceil(CONNECTIONS * at_once);
                for _ in 0..rounds {
                    for wire in &mut *server.wires.borrow_mut() {
                        let mut batch = Vec::new();
                        for _ in 0..at_once {
                            batch.extend_from_slice(&frames[*next]);
                            *next = (*next + 1) % frames.len();
                        }
                        wire.send(&batch);
                    }
                    for wire in &mut *server.wires.borrow_mut() {
                        for _ in 0..at_once {
                            if let Reply::Error(why) = wire.receive() {
                                panic!("{}: {why}", self.name);
                            }
                        }
                    }
                }
                rounds * CONNECTIONS * at_once * *each
            }
        }
    }
}

fn keys(name: &str) -> impl Iterator<Item = Vec<u8>> {
    (0..KEYS).map(move |number| format!("{name}:{number:07}").into_bytes())
}

/// A store with one limit, which makes the decisions.
pub(super) struct Teller {
    runtime: Runtime,
    store: Arc<RedisStore>,
    pub(super) limit: Arc<Limit>,
    asked: AtomicU64,
}

impl Teller {
    pub(super) fn new(port: u16, prefix: &str, algorithm: AnyAlgorithm) -> Self {
        let config = RedisConfig {
            deadline: DEADLINE,
            prefix: prefix.replace(['{', ' ', ','], ""),
            ..RedisConfig::new(format!("redis://127.0.0.1:{port}"))
        };
        Self {
            runtime: Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
            store: Arc::new(RedisStore::new(config).expect("a URL")),
            limit: Arc::new(Limit {
                name: "per-user".into(),
                id: LimitId::new(0),
                version: 1,
                outage: Outage::Deny,
                scope: ratekeeper_core::LimitScope::Cluster,
                keys: ratekeeper_core::LimitKeys::All,
                algorithm,
            }),
            asked: AtomicU64::new(0),
        }
    }

    /// Decides for every key, one after the other.
    fn all_alone(&self, cost: Permits, allows: bool) {
        self.runtime.block_on(async {
            for number in 0..KEYS {
                let admitted = decide(&self.store, &self.limit, number, cost).await;
                assert_eq!(admitted, allows, "{:?}", self.limit.algorithm);
            }
        });
    }

    /// Decides for every key, [`TOGETHER`] at a time.
    fn all_together(&self, cost: Permits, allows: bool) {
        let together = TOGETHER as u64;
        for first in (0..KEYS).step_by(TOGETHER) {
            self.each(first..first + together, cost, |admitted| {
                assert_eq!(admitted, allows, "{:?}", self.limit.algorithm);
            });
        }
    }

    /// Decides once for each of these keys, all at once.
    pub(super) fn each(&self, numbers: std::ops::Range<u64>, cost: Permits, check: impl Fn(bool)) {
        self.runtime.block_on(async {
            let ask = |number| {
                let (store, limit) = (Arc::clone(&self.store), Arc::clone(&self.limit));
                tokio::spawn(async move { decide(&store, &limit, number, cost).await })
            };
            for asked in numbers.map(ask).collect::<Vec<_>>() {
                check(asked.await.expect("a decision does not panic"));
            }
        });
    }

    /// Makes `count` decisions, by `callers` concurrent callers.
    fn several(&self, count: u64, callers: u64) {
        self.runtime.block_on(async {
            let ask = |_| {
                let (store, limit) = (Arc::clone(&self.store), Arc::clone(&self.limit));
                let each = count / callers;
                let first = self.asked.fetch_add(each, Ordering::Relaxed);
                tokio::spawn(async move {
                    for number in first..first + each {
                        let admitted = decide(&store, &limit, number % KEYS, Permits::ONE).await;
                        assert!(admitted, "{:?}", limit.algorithm);
                    }
                })
            };
            for caller in (0..callers).map(ask).collect::<Vec<_>>() {
                caller.await.expect("a decision does not panic");
            }
        });
    }
}

async fn decide(store: &RedisStore, limit: &Limit, number: u64, cost: Permits) -> bool {
    let mut key = Vec::new();
    KeyBuilder::new(&mut key).part(format!("u{number:07}").as_bytes());
    let charge = Charge {
        limit,
        key: Key::from_bytes(&key),
        cost,
        mode: Mode::Enforce,
    };
    let decided = store.decide(&[charge], Time::ZERO).await;
    decided.expect("the server is there").admitted
}
