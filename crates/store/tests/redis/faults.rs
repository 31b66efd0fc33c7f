//! Faults: failures of servers, and the answers that callers then receive.
//!
//! In every test the limit is a thousand a day; the number that may pass beyond it is stated and
//! checked, as is that no decision takes longer than its deadline. Possible charges by unanswered
//! calls are counted, call by call: a machine that is busy with other things loses calls too.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Balance, Charge, Gcra, Key, KeyBuilder, Limit, Log, Mode, Nanos, Permits, Time,
    Window,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{
    RedisClock, RedisConfig, RedisServers, RedisStore, Remote, Store, StoreError,
};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::conforms::tomorrow;
use crate::punctual::in_time;
use crate::relay::Relay;
use crate::server::{Server, every_program, programs, signal};

/// Deadline of a decision that is to be made, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(30);
/// Deadline of a decision that is to be given up.
const HASTY: Duration = Duration::from_millis(500);
/// Maximum time for a store to come back.
const RECOVERY: Duration = Duration::from_secs(60);

/// A store and one limit in it.
pub(crate) struct Bench {
    runtime: Runtime,
    store: RedisStore,
    deadline: Duration,
    limit: Limit,
}

impl Bench {
    pub(crate) fn new(servers: RedisServers, deadline: Duration) -> Self {
        let config = RedisConfig {
            servers,
            deadline,
            ..RedisConfig::new("")
        };
        Self {
            runtime: Runtime::new().unwrap(),
            store: RedisStore::new(config).unwrap(),
            deadline,
            limit: Limit {
                name: "daily".into(),
                ..limit(0, Gcra::token_bucket("1000/1d".parse().unwrap()).unwrap())
            },
        }
    }

    pub(crate) fn patient(servers: RedisServers) -> Self {
        Self::new(servers, PATIENT)
    }

    fn hasty(servers: RedisServers) -> Self {
        Self::new(servers, HASTY)
    }

    /// Decides for `client`, within the deadline; returns true if it passed.
    pub(crate) fn ask(&self, client: &str, cost: u64) -> Result<bool, StoreError> {
        let mut key = Vec::new();
        KeyBuilder::new(&mut key).part(client.as_bytes());
        let charge = Charge {
            limit: &self.limit,
            key: Key::from_bytes(&key),
            cost: Permits::new(cost),
            mode: Mode::Enforce,
        };
        let charges = [charge];
        let decide = self.store.decide(&charges, Time::ZERO);
        let decided = self.runtime.block_on(in_time(self.deadline, decide));
        decided.map(|decided| decided.admitted)
    }

    /// Returns the remaining permits of `client`.
    pub(crate) fn left(&self, client: &str) -> u64 {
        let mut key = Vec::new();
        KeyBuilder::new(&mut key).part(client.as_bytes());
        let charge = Charge {
            limit: &self.limit,
            key: Key::from_bytes(&key),
            cost: Permits::ZERO,
            mode: Mode::Enforce,
        };
        let looked = self
            .runtime
            .block_on(self.store.look(&[charge], Time::ZERO));
        looked.unwrap().each[0].remaining.get()
    }

    /// Asks until a decision is made again, which must let it pass; returns the number of calls
    /// that were not answered before.
    pub(crate) fn until_passed(&self, client: &str) -> u64 {
        let begun = Instant::now();
        let mut lost = 0;
        while begun.elapsed() < RECOVERY {
            match self.ask(client, 1) {
                Ok(passed) => {
                    assert!(passed);
                    return lost;
                }
                Err(_) => lost += 1,
            }
            crate::server::wait_a_little();
        }
        panic!("the store did not recover in time");
    }

    /// Waits until this number of tasks is left: each carries the bytes of a connection.
    fn until_connections(&self, count: usize) {
        let begun = Instant::now();
        while self.runtime.metrics().num_alive_tasks() != count {
            assert!(begun.elapsed() < RECOVERY, "not {count} connections");
            crate::server::wait_a_little();
        }
    }

    /// Returns `Ok` if the store answers, as its fallback asks.
    pub(crate) fn ping(&self) -> Result<(), StoreError> {
        self.runtime.block_on(self.store.ping())
    }

    /// The addresses of those of three servers that are left alone.
    pub(crate) fn troubled(&self) -> Vec<String> {
        let health = self.store.server_health();
        assert_eq!(health.len(), 3, "{health:?}");
        let troubled = health.into_iter().filter(|server| server.trouble.is_some());
        troubled.map(|server| server.address).collect()
    }

    /// Calls that were given up at the deadline.
    pub(crate) fn given_up(&self) -> u64 {
        let each = self.store.call_times().into_iter();
        each.flat_map(|(_, times)| times.timeout.buckets).sum()
    }
}

/// Checks that at most `lost` of the calls without an answer were charged.
fn check_left(left: u64, most: u64, lost: u64) {
    assert!(
        (most - lost..=most).contains(&left),
        "{left} of {most} remain, {lost} calls lost"
    );
}

#[test]
fn flushed_scripts_are_loaded_again_and_no_request_is_charged_twice() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let bench = Bench::patient(RedisServers::One(server.url()));
        for left in (900..1_000).rev().step_by(10) {
            assert_eq!(bench.ask("ada", 10), Ok(true));
            assert_eq!(bench.left("ada"), left - 9);
            let mut flush = redis::cmd("SCRIPT");
            flush.arg("FLUSH").exec(&mut server.connect()).unwrap();
        }
    }
}

#[test]
fn a_lost_connection_is_replaced() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let bench = Bench::patient(RedisServers::One(server.url()));
        assert_eq!(bench.ask("ada", 1), Ok(true));
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        kill.exec(&mut server.connect()).unwrap();
        // The loss may be noticed by the next call, which may have run: it is not sent again.
        let lost = bench.until_passed("ada");
        check_left(bench.left("ada"), 998, lost);
    }
}

/// A server may close a connection that is idle, as its `timeout` says.
#[test]
fn a_connection_that_has_ended_before_a_call_is_replaced_without_a_loss() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let bench = Bench::patient(RedisServers::One(server.url()));
        assert_eq!(bench.ask("ada", 1), Ok(true));
        bench.until_connections(1);
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        kill.exec(&mut server.connect()).unwrap();
        bench.until_connections(0);
        assert_eq!(bench.ask("ada", 1), Ok(true));
        assert_eq!(bench.left("ada"), 998);
    }
}

#[test]
fn a_server_that_is_down_is_an_error_at_once_and_is_used_again_when_it_is_back() {
    for program in programs() {
        let mut server = Server::start(&program, &[]);
        let bench = Bench::patient(RedisServers::One(server.url()));
        assert_eq!(bench.ask("ada", 999), Ok(true));
        server.kill();
        for _ in 0..20 {
            assert!(matches!(
                bench.ask("ada", 1),
                Err(StoreError::Unavailable(_))
            ));
        }
        assert_eq!(bench.given_up(), 0, "no call waited for its deadline");
        server.restart(&program, &[]);
        // It kept nothing, and is taught the debt.
        bench.until_passed("ada");
        assert_eq!(bench.left("ada"), 0);
    }
}

#[test]
fn a_server_that_hangs_costs_at_most_the_deadline() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let patient = Bench::patient(RedisServers::One(server.url()));
        let hasty = Bench::hasty(RedisServers::One(server.url()));
        assert_eq!(patient.ask("ada", 900), Ok(true));
        let before = hasty.until_passed("ada");
        signal(&server, "STOP");
        for _ in 0..4 {
            assert!(matches!(
                hasty.ask("ada", 1),
                Err(StoreError::Unavailable(_))
            ));
        }
        signal(&server, "CONT");
        let after = hasty.until_passed("ada");
        // Calls sent meanwhile may have been charged, once each: less passes, never more.
        check_left(patient.left("ada"), 98, before + 4 + after);
    }
}

#[test]
fn a_connection_that_hangs_is_replaced() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let relay = Relay::start(server.port, Duration::ZERO);
        let hasty = Bench::hasty(RedisServers::One(format!(
            "redis://127.0.0.1:{}",
            relay.port
        )));
        let before = hasty.until_passed("ada");
        relay.falls_silent();
        assert!(matches!(
            hasty.ask("ada", 1),
            Err(StoreError::Unavailable(_))
        ));
        let after = hasty.until_passed("ada"); // by another connection
        // The call that was lost with the first never arrived.
        let patient = Bench::patient(RedisServers::One(server.url()));
        check_left(patient.left("ada"), 998, before + after);
    }
}

#[test]
fn a_foreign_key_fails_alone_and_is_not_changed() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let bench = Bench::patient(RedisServers::One(server.url()));
        let mut connection = server.connect();
        for (client, command, value) in [
            ("eve", "LPUSH", "x"),
            ("mal", "APPEND", "x"),
            ("sue", "SET", ""),
        ] {
            let name = format!("rk:{{{client}}}:daily");
            redis::cmd(command)
                .arg(&name)
                .arg(value)
                .exec(&mut connection)
                .unwrap();
            let refused = bench.ask(client, 1).unwrap_err();
            assert!(matches!(refused, StoreError::Foreign(_)), "{refused}");
            let mut kind = redis::cmd("EXISTS");
            assert_eq!(kind.arg(&name).query::<u64>(&mut connection).unwrap(), 1);
        }
        // Those that travel with it are decided.
        let others = bench.runtime.block_on(async {
            let ask = |client: &'static str| {
                let mut key = Vec::new();
                KeyBuilder::new(&mut key).part(client.as_bytes());
                let (store, limit) = (&bench.store, &bench.limit);
                async move {
                    let charge = Charge {
                        limit,
                        key: Key::from_bytes(&key),
                        cost: Permits::ONE,
                        mode: Mode::Enforce,
                    };
                    store.decide(&[charge], Time::ZERO).await.is_ok()
                }
            };
            tokio::join!(
                ask("ada"),
                ask("eve"),
                ask("bob"),
                ask("mal"),
                ask("cid"),
                ask("dan")
            )
        });
        assert_eq!(others, (true, false, true, false, true, true));
    }
}

/// A server that denies a command to the scripts fails as a whole: no value is foreign.
#[test]
fn missing_rights_are_a_failure_of_the_store() {
    for program in every_program() {
        for command in ["get", "set", "time"] {
            let server = Server::start(&program, &[]);
            let bench = Bench::patient(RedisServers::One(server.url()));
            assert!(bench.ask("ada", 1).unwrap());
            let mut denied = redis::cmd("ACL");
            denied
                .arg("SETUSER")
                .arg("default")
                .arg(format!("-{command}"));
            denied.exec(&mut server.connect()).unwrap();
            let refused = bench.ask("ada", 1).unwrap_err();
            let is_down = matches!(refused, StoreError::Unavailable(_)) && bench.ping().is_err();
            assert!(is_down, "{program:?}, {command}: {refused}");
        }
    }
}

#[tokio::test]
async fn a_reset_removes_a_foreign_value() {
    let quota = || "3/1h".parse().unwrap();
    let algorithms: [AnyAlgorithm; 4] = [
        Gcra::token_bucket(quota()).unwrap().into(),
        Balance::new(Permits::new(3), Permits::new(3))
            .unwrap()
            .into(),
        Window::fixed(quota(), Nanos::ZERO).unwrap().into(),
        Log::sliding(quota()).unwrap().into(),
    ];
    for program in programs() {
        for (clock, algorithm) in [RedisClock::Server, RedisClock::Caller]
            .into_iter()
            .flat_map(|clock| algorithms.iter().map(move |algorithm| (clock, algorithm)))
        {
            let server = Server::start(&program, &[]);
            let mut connection = server.connect();
            let store = RedisStore::new(RedisConfig {
                origin: tomorrow(),
                deadline: Duration::from_secs(60),
                clock,
                ..RedisConfig::new(server.url())
            });
            let (store, limit) = (store.unwrap(), limit(0, algorithm.clone()));
            let charge = [Charge {
                limit: &limit,
                key: Key::from_bytes(b"\x01k"),
                cost: Permits::new(3),
                mode: Mode::Enforce,
            }];
            assert!(store.decide(&charge, Time::ZERO).await.unwrap().admitted);
            let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
            for (command, value) in [("APPEND", "x"), ("LPUSH", "x"), ("SET", "")] {
                redis::cmd("DEL").arg(&names).exec(&mut connection).unwrap();
                let mut foreign = redis::cmd(command);
                foreign
                    .arg(&names[0])
                    .arg(value)
                    .exec(&mut connection)
                    .unwrap();
                let refused = store.decide(&charge, Time::ZERO).await.unwrap_err();
                let why = refused.to_string();
                assert!(why.contains("a value under limit `limit-0`"), "{why}");
                store.reset(&charge, Time::ZERO).await.unwrap();
                assert!(store.decide(&charge, Time::ZERO).await.unwrap().admitted);
            }
        }
    }
}

/// A runtime ends although callers wait for the store.
#[test]
fn callers_that_wait_for_the_store_do_not_delay_the_end_of_a_runtime() {
    let (say, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..40 {
            let bench = Bench::hasty(RedisServers::One("redis://127.0.0.1:1".into()));
            let (store, limit) = (Arc::new(bench.store), Arc::new(bench.limit));
            for _ in 0..8 {
                let (store, limit) = (Arc::clone(&store), Arc::clone(&limit));
                bench.runtime.spawn(async move {
                    loop {
                        let charge = Charge {
                            limit: &limit,
                            key: Key::from_bytes(b"\x03ada"),
                            cost: Permits::ONE,
                            mode: Mode::Enforce,
                        };
                        let _ = store.decide(&[charge], Time::ZERO).await;
                    }
                });
            }
            crate::server::wait_a_little();
            drop(bench.runtime);
        }
        let _ = say.send(());
    });
    let ended = hear.recv_timeout(Duration::from_secs(60));
    assert_eq!(ended, Ok(()), "the runtime did not shut down in time");
}
