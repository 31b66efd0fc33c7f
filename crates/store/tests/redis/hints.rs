//! Hints: the states that a store is taught after it has lost its data, and those it is not.
//!
//! Bounds, for one key of a limit, beyond the limit:
//!
//! * a server that restarts without persistence: the answers to other processes since the last
//!   answer to the first process that asks;
//! * a server that is flushed: the calls each process had under way, at least one each, because a
//!   flush is not reported;
//! * nothing that was given back, or reset, comes back by a hint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{Gcra, KeyBuilder, Limit, Time};
use ratekeeper_store::conformance::charge;
use ratekeeper_store::{RedisConfig, RedisStore, Remote as _, Store, conformance};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::server::{Server, programs, wait_a_little};

/// Deadline of a decision: nothing here is about time.
const DEADLINE: Duration = Duration::from_secs(2);

/// Two processes that share a server.
struct Bench {
    runtime: Runtime,
    server: Server,
    stores: [Arc<RedisStore>; 2],
    limits: [Limit; 2],
}

const A: usize = 0;
const B: usize = 1;

fn limit(id: u32, version: u32, quota: &str) -> Limit {
    Limit {
        version,
        ..conformance::limit(id, Gcra::token_bucket(quota.parse().unwrap()).unwrap())
    }
}

fn key(client: &str) -> Vec<u8> {
    let mut key = Vec::new();
    KeyBuilder::new(&mut key).part(client.as_bytes());
    key
}

impl Bench {
    fn new(server: Server) -> Self {
        let store = || {
            let config = RedisConfig {
                deadline: DEADLINE,
                ..RedisConfig::new(server.url())
            };
            Arc::new(RedisStore::new(config).unwrap())
        };
        Self {
            runtime: Runtime::new().unwrap(),
            stores: [store(), store()],
            server,
            limits: [limit(0, 1, "1000/1d"), limit(1, 1, "1000/1d")],
        }
    }

    /// Returns true if a request of the first `limits` limits passes, by a process.
    fn ask(&self, process: usize, client: &str, limits: usize, cost: u64) -> bool {
        let key = key(client);
        let charges: Vec<_> = self.limits[..limits]
            .iter()
            .map(|limit| charge(limit, &key, cost))
            .collect();
        let decided = self.stores[process].decide(&charges, Time::ZERO);
        self.runtime.block_on(decided).unwrap().admitted
    }

    /// Returns the remaining permits of the first limit, by a process.
    fn left(&self, process: usize, client: &str) -> u64 {
        let key = key(client);
        let charges = [charge(&self.limits[0], &key, 0)];
        let looked = self.stores[process].look(&charges, Time::ZERO);
        self.runtime.block_on(looked).unwrap().each[0]
            .remaining
            .get()
    }

    fn flush(&self) {
        let flush = redis::cmd("FLUSHALL");
        flush.exec(&mut self.server.connect()).unwrap();
    }

    /// Cuts all connections: a sign of loss to every process, though nothing is lost.
    fn alarm(&self) {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        kill.exec(&mut self.server.connect()).unwrap();
        for process in [A, B] {
            let mut tries = 0;
            while self.runtime.block_on(self.stores[process].ping()).is_err() {
                tries += 1;
                assert!(tries < 500);
                wait_a_little();
            }
        }
    }
}

#[test]
fn debts_are_restored_to_a_flushed_store() {
    for program in programs() {
        for limits in [1, 2] {
            let bench = Bench::new(Server::start(&program, &[]));
            let names = ["ada", "bob", "cid"];
            for client in names {
                // Twice: an answer on the call that made the connection is taught once.
                assert!(bench.ask(A, client, limits, 450) && bench.ask(A, client, limits, 450));
            }
            bench.flush();
            let more = |client: &str, by| {
                let passed = (0..1_000).filter(|_| bench.ask(by, client, limits, 1));
                passed.count()
            };
            // The first to ask finds out, and passes; the others are known.
            for (client, passed) in [("ada", 101), ("bob", 100), ("cid", 100)] {
                assert_eq!(more(client, A), passed, "{client} under {limits}");
            }
            // Another process remembers nothing of them, and is answered by the store.
            assert_eq!(more("ada", B), 0);
        }
    }
}

#[test]
fn processes_that_remember_different_debts_agree_on_the_later_not_the_sum() {
    for program in programs() {
        let mut bench = Bench::new(Server::start(&program, &[]));
        assert!(bench.ask(A, "ada", 1, 300));
        assert!(bench.ask(B, "ada", 1, 200));
        bench.server.kill();
        bench.server.restart(&program, &[]);
        for process in [A, B] {
            let back = |_: &u64| {
                let asked = bench.stores[process].ping();
                bench.runtime.block_on(asked).is_ok()
            };
            assert!(
                (0..500).any(|number| back(&number)),
                "the server did not restart in time"
            );
        }
        assert!(bench.ask(A, "ada", 1, 1));
        assert_eq!(bench.left(A, "ada"), 699, "process A remembered 300");
        assert!(bench.ask(B, "ada", 1, 1));
        assert_eq!(
            bench.left(A, "ada"),
            499,
            "the later debt of 500 counts, and the charge of B"
        );
        assert!(bench.ask(A, "ada", 1, 1));
        assert_eq!(bench.left(B, "ada"), 498, "no debt is restored twice");
    }
}

#[test]
fn reset_and_refunded_debts_are_not_restored() {
    for program in programs() {
        let bench = Bench::new(Server::start(&program, &[]));
        for client in ["reset", "refund", "both"] {
            assert!(bench.ask(A, client, 1, 300));
            assert!(bench.ask(B, client, 1, 300)); // both remember
        }
        let give = |client: &str, cost| {
            let key = key(client);
            let charges = [charge(&bench.limits[0], &key, cost)];
            let refunded = bench.stores[A].refund(&charges, Time::ZERO);
            bench.runtime.block_on(refunded).unwrap();
        };
        let reset = |client: &str| {
            let key = key(client);
            let charges = [charge(&bench.limits[0], &key, 0)];
            let reset = bench.stores[A].reset(&charges, Time::ZERO);
            bench.runtime.block_on(reset).unwrap()[0]
        };
        assert!(reset("reset"));
        assert!(!reset("reset"), "the key is already reset");
        give("refund", 200);
        give("both", 200);
        assert!(reset("both"));
        bench.alarm();
        for (client, left) in [("reset", 1_000), ("refund", 600), ("both", 1_000)] {
            assert_eq!(bench.left(B, client), left, "{client}");
            assert!(bench.ask(B, client, 1, 1));
            assert_eq!(bench.left(A, client), left - 1, "{client}");
        }
        // The mark outlives every memory of the key: a day, whatever is owed.
        for client in ["reset", "refund", "both"] {
            let mut lives = redis::cmd("PTTL");
            lives.arg(format!("rk:{{{client}}}:limit-0"));
            let lives: u64 = lives.query(&mut bench.server.connect()).unwrap();
            assert!(lives > 86_300_000, "{client}: {lives} ms");
        }
    }
}

#[test]
fn debts_of_old_parameters_are_not_restored_to_a_changed_limit() {
    for program in programs() {
        let mut bench = Bench::new(Server::start(&program, &[]));
        assert!(bench.ask(A, "ada", 1, 900));
        bench.limits[0] = limit(0, 2, "10/1h");
        bench.flush();
        assert_eq!(bench.left(A, "ada"), 10);
        assert!(bench.ask(A, "ada", 1, 1));
        bench.flush();
        bench.alarm();
        assert_eq!(
            bench.left(A, "ada"),
            9,
            "the charge under the new parameters is restored"
        );
    }
}

/// Callers of two processes, a server that is killed and comes back with nothing.
#[test]
fn a_restart_without_persistence_admits_next_to_nothing_more() {
    const CALLERS: usize = 8;
    for program in programs() {
        let mut bench = Bench::new(Server::start(&program, &[]));
        let (admitted, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let limit = Arc::new(bench.limits[0].clone());
        let calls = |caller: usize| {
            let store = Arc::clone(&bench.stores[caller % 2]);
            let (admitted, stop) = (Arc::clone(&admitted), Arc::clone(&stop));
            let limit = Arc::clone(&limit);
            bench.runtime.spawn(async move {
                let key = key("ada");
                while !stop.load(Ordering::Relaxed) {
                    let charges = [charge(&limit, &key, 1)];
                    if let Ok(decided) = Box::pin(store.decide(&charges, Time::ZERO)).await {
                        admitted.fetch_add(u64::from(decided.admitted), Ordering::Relaxed);
                    }
                    sleep(Duration::from_millis(1)).await;
                }
            })
        };
        let callers: Vec<_> = (0..CALLERS).map(calls).collect();
        let reaches = |count| {
            for _ in 0..2_000 {
                if admitted.load(Ordering::Relaxed) >= count {
                    return;
                }
                wait_a_little();
            }
            panic!("{count} requests were not admitted in time");
        };
        reaches(600);
        bench.server.kill();
        let before = admitted.load(Ordering::Relaxed);
        bench.server.restart(&program, &[]);
        reaches(1_000);
        bench
            .runtime
            .block_on(async { sleep(Duration::from_secs(1)).await });
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            bench.runtime.block_on(caller).unwrap();
        }
        let all = admitted.load(Ordering::Relaxed);
        println!("{}: {before} admitted before, {all} in total", program.name);
        // Each process had at most its callers' requests answered since the other's last.
        let bound = 1_000 + u64::try_from(2 * CALLERS).unwrap();
        assert!((1_000..=bound).contains(&all), "{all}");
    }
}
