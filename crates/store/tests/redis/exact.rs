//! Exactness: many callers of many processes, one limit, and exactly as many pass as it says.
//!
//! Each store stands for a process: its own connections, its own queue, its own idea of the
//! cluster. The servers decide by their own clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Charge, Edge, Exponential, Gcra, Hybrid, Interval, Key, Limit, Log, Mode, Nanos,
    Permits, QuotaReset, SubBuckets, Time,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{RedisConfig, RedisServers, RedisStore, Store};
use tokio::runtime::Runtime;

use crate::cases::cases;
use crate::server::{Cluster, Server, every_program};

const STORES: u32 = 4;
/// Callers of all stores together.
const CALLERS: u32 = 64;

/// A thousand a day, of each core: none comes back while the test runs. The exponential
/// counter has no twin, and takes longer: every charge is a race.
fn limits() -> Vec<(AnyAlgorithm, u32)> {
    let quota = "1000/1d".parse().unwrap();
    let repetitions = cases(5, 20);
    let (day, thousand) = (Nanos::from_secs(86_400), Permits::new(1_000));
    vec![
        (Gcra::token_bucket(quota).unwrap().into(), repetitions),
        (QuotaReset::new(quota).unwrap().into(), repetitions),
        (
            SubBuckets::sub_buckets(quota, 4, Edge::Full, Nanos::ZERO)
                .unwrap()
                .into(),
            repetitions,
        ),
        (Log::sliding(quota).unwrap().into(), repetitions),
        (
            Interval::from_first(thousand, thousand, day)
                .unwrap()
                .into(),
            repetitions,
        ),
        (Hybrid::quota_linear(quota).unwrap().into(), repetitions),
        (Exponential::new(quota).unwrap().into(), 1),
    ]
}

/// Asks 1,280 times for one permit each, from all stores at once.
fn admitted(runtime: &Runtime, servers: &RedisServers, limit: &Arc<Limit>) -> u32 {
    let admitted = Arc::new(AtomicU32::new(0));
    let stores: Vec<_> = (0..STORES)
        .map(|_| {
            Arc::new(
                RedisStore::new(RedisConfig {
                    servers: servers.clone(),
                    deadline: Duration::from_secs(60),
                    ..RedisConfig::new("")
                })
                .unwrap(),
            )
        })
        .collect();
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let store = Arc::clone(&stores[(caller % STORES) as usize]);
                let (limit, admitted) = (Arc::clone(limit), Arc::clone(&admitted));
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let charge = Charge {
                            limit: &limit,
                            key: Key::from_bytes(b"\x01k"),
                            cost: Permits::ONE,
                            mode: Mode::Enforce,
                        };
                        let decided = store.decide(&[charge], Time::ZERO).await.unwrap();
                        admitted.fetch_add(u32::from(decided.admitted), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
    });
    admitted.load(Ordering::Relaxed)
}

fn check(servers: &RedisServers) {
    let runtime = Runtime::new().unwrap();
    for (id, (algorithm, repetitions)) in (0..).zip(limits()) {
        for repetition in 0..repetitions {
            let limit = Arc::new(Limit {
                name: format!("{id}-{repetition}").into(),
                ..limit(id, algorithm.clone())
            });
            assert_eq!(admitted(&runtime, servers, &limit), 1_000, "{limit:?}");
        }
    }
}

#[test]
fn exactly_as_many_requests_pass_as_the_limit_allows() {
    for program in every_program() {
        let server = Server::start(&program, &[]);
        check(&RedisServers::One(server.url()));
    }
}

#[test]
fn exactly_as_many_requests_pass_on_a_cluster() {
    for program in every_program() {
        let cluster = Cluster::start(&program);
        check(&RedisServers::Cluster(cluster.urls()));
    }
}
