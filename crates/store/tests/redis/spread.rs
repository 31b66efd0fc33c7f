//! Requests with keys on several nodes of a cluster: all charges are made, or none.

use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Charge, Exponential, Gcra, Hybrid, Key, KeyBuilder, Limit, Log, Mode, Nanos,
    Permits, Time, WarmUp, Window,
};
use ratekeeper_store::{RedisConfig, RedisServers, RedisStore, Store, StoreError, conformance};
use tokio::runtime::Runtime;

use crate::server::{Cluster, programs};

/// Requests of a client that has used up its own limit.
const ATTACKS: usize = 60;
/// Other clients; all of them fit into the shared limit.
const OTHERS: u32 = 50;

pub(crate) fn limit(id: u32, name: &str, algorithm: AnyAlgorithm) -> Limit {
    Limit {
        name: name.into(),
        ..conformance::limit(id, algorithm)
    }
}

pub(crate) fn key_of(client: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    KeyBuilder::new(&mut bytes).part(client.as_bytes());
    bytes
}

pub(crate) fn one<'a>(limit: &'a Limit, key: &'a [u8]) -> Charge<'a> {
    Charge {
        limit,
        key: Key::from_bytes(key),
        cost: Permits::ONE,
        mode: Mode::Enforce,
    }
}

pub(crate) fn store(cluster: &Cluster, prefix: &str) -> RedisStore {
    RedisStore::new(RedisConfig {
        servers: RedisServers::Cluster(cluster.urls()),
        prefix: prefix.into(),
        deadline: Duration::from_secs(10),
        ..RedisConfig::new("")
    })
    .unwrap()
}

/// A hundred permits, of which none comes back while the test runs; a post-paid limit lets a
/// request go while any of them is left.
fn shared() -> Vec<(&'static str, AnyAlgorithm)> {
    let quota = "100/10h".parse().unwrap();
    let hours = 36_000.0;
    vec![
        ("gcra", Gcra::token_bucket(quota).unwrap().into()),
        ("fixed", Window::fixed(quota, Nanos::ZERO).unwrap().into()),
        ("log", Log::sliding(quota).unwrap().into()),
        ("hybrid", Hybrid::quota_linear(quota).unwrap().into()),
        ("exponential", Exponential::new(quota).unwrap().into()),
        (
            "smooth-bursty",
            WarmUp::bursty(100.0 / hours, hours).unwrap().into(),
        ),
    ]
}

/// A client with a limit of its own that refuses all but one of its requests takes one permit of
/// the limit that all clients share, in whichever order the policy names the two.
#[test]
fn a_refused_request_takes_no_permits_from_others() {
    let runtime = Runtime::new().unwrap();
    for program in programs() {
        let cluster = Cluster::start(&program);
        for (name, algorithm) in shared() {
            for order in ["shared-first", "own-first"] {
                let store = store(&cluster, &format!("{name}-{order}"));
                let all = limit(0, "shared", algorithm.clone());
                let quota = "1/10h".parse().unwrap();
                let own = limit(1, "own", Gcra::token_bucket(quota).unwrap().into());
                let passes = async |client: &str| {
                    let key = key_of(client);
                    let mut charges = [one(&all, &[]), one(&own, &key)];
                    if order == "own-first" {
                        charges.reverse();
                    }
                    store.decide(&charges, Time::ZERO).await.unwrap().admitted
                };
                runtime.block_on(async {
                    assert!(passes("attacker").await, "{name}, {order}");
                    for _ in 0..ATTACKS {
                        assert!(!passes("attacker").await, "{name}, {order}");
                    }
                    for other in 0..OTHERS {
                        let client = format!("198.51.100.{other}");
                        assert!(passes(&client).await, "{name}, {order}: {client}");
                    }
                });
            }
        }
    }
}

/// Several limits that take nothing back are charged in one call, wherever their subjects are.
#[test]
fn limits_without_refunds_are_charged_together() {
    let runtime = Runtime::new().unwrap();
    let post_paid = |id, name: &str| {
        let algorithm = WarmUp::bursty(0.001, 5_000.0).unwrap(); // five stored
        limit(id, name, algorithm.into())
    };
    for program in programs() {
        let cluster = Cluster::start(&program);
        let store = store(&cluster, "rk");
        let limits = [post_paid(0, "a"), post_paid(1, "b"), post_paid(2, "c")];
        let keys = [key_of("ada"), key_of("bob"), key_of("cleo")];
        runtime.block_on(async {
            // Six pass the last: five that are stored, and one that the next pays for.
            for _ in 0..6 {
                let spent = [one(&limits[2], &keys[2])];
                assert!(store.decide(&spent, Time::ZERO).await.unwrap().admitted);
            }
            let all: Vec<_> = limits
                .iter()
                .zip(&keys)
                .map(|(limit, key)| one(limit, key))
                .collect();
            for _ in 0..20 {
                assert!(!store.decide(&all, Time::ZERO).await.unwrap().admitted);
            }
            for at in [0, 1] {
                for _ in 0..6 {
                    let untouched = [one(&limits[at], &keys[at])];
                    assert!(store.decide(&untouched, Time::ZERO).await.unwrap().admitted);
                }
            }
            let refund = store.refund(&all, Time::ZERO).await.unwrap_err();
            assert!(matches!(refund, StoreError::Unsupported(_)), "{refund}");
        });
    }
}
