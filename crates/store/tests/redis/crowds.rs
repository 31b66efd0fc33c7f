//! Crowds: many requests of one key at once, under limits that take two calls.
//!
//! ```text
//!   400 requests --> Fallback(RedisStore) --\
//!                                            >-- a slow network -- server
//!   400 requests --> Fallback(RedisStore) --/
//! ```
//!
//! The store is in use all the time, so no process may decide without it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, BanTerms, Banning, Charge, Concurrency, Exponential, Gcra, Key, Limit, Nanos,
    Outage, Permits, Time,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{
    Fallback, FallbackCounts, MemoryConfig, MemoryStore, RedisConfig, RedisStore, Remote as _,
    Store as _,
};
use tokio::task::JoinSet;

use crate::relay::Relay;
use crate::server::{Server, programs};

/// Requests of each process.
const CROWD: usize = 400;
const PERMITS: usize = 100;

fn limits() -> Vec<AnyAlgorithm> {
    let quota = "100/1d".parse().unwrap();
    let bucket = Gcra::token_bucket(quota).unwrap();
    let terms = BanTerms {
        strikes: "100/1h".parse().unwrap(),
        first: Nanos::from_secs(60),
        growth_thousandths: 1_000,
        longest: Nanos::from_secs(60),
    };
    let permits = Permits::new(100);
    vec![
        Exponential::new(quota).unwrap().into(),
        Banning::new(bucket.into(), terms).unwrap().into(),
        Concurrency::new(permits, Nanos::from_secs(600))
            .unwrap()
            .into(),
    ]
}

fn process(relay: &Relay, deadline: Duration) -> Arc<Fallback<RedisStore>> {
    let store = RedisStore::new(RedisConfig {
        deadline,
        ..RedisConfig::new(format!("redis://127.0.0.1:{}", relay.port))
    });
    let local = MemoryStore::new(MemoryConfig::default());
    Arc::new(Fallback::new(store.unwrap(), local, NonZeroU32::MIN))
}

/// Asks as often as the crowd is large, at once; returns how many pass.
async fn ask(stores: &[Arc<Fallback<RedisStore>>], limit: Limit) -> usize {
    let limit = Arc::new(limit);
    let mut crowd = JoinSet::new();
    for store in (0..CROWD).flat_map(|_| stores) {
        let (store, limit) = (Arc::clone(store), Arc::clone(&limit));
        crowd.spawn(async move {
            let charge = Charge::enforced(&limit, Key::ALL, Permits::ONE);
            store.decide(&[charge], Time::ZERO).await.unwrap().admitted
        });
    }
    let admitted = crowd.join_all().await;
    admitted.into_iter().filter(|passes| *passes).count()
}

fn without_store(store: &Fallback<RedisStore>) -> (FallbackCounts, u64) {
    let health = store.health();
    (health.fallback, health.failed)
}

/// The requests of a key share their calls, so that a network of 20 ms serves hundreds within the
/// time that one after the other would take ten.
#[tokio::test]
async fn a_crowd_shares_its_exchanges() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let relay = Relay::start(server.port, Duration::from_millis(20));
        for algorithm in limits() {
            let stores = [(); 2].map(|()| process(&relay, Duration::from_secs(20)));
            let passed = ask(&stores, limit(0, algorithm.clone())).await;
            assert_eq!(passed, PERMITS, "{algorithm:?}");
            for store in stores {
                assert_eq!(without_store(&store), (FallbackCounts::default(), 0));
            }
        }
    }
}

/// Each request has a key of its own beside the one that all share, as the first or the second.
#[tokio::test]
async fn users_of_one_address_share_its_exchanges() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let relay = Relay::start(server.port, Duration::from_millis(20));
        for shared in [0, 1] {
            let store = process(&relay, Duration::from_secs(20));
            let quota = "400/1d".parse().unwrap();
            let limits = [0, 1].map(|id| limit(id, Exponential::new(quota).unwrap()));
            let before = scripts_run(&server);
            let mut crowd = JoinSet::new();
            for user in 0..CROWD {
                let (store, limits) = (Arc::clone(&store), limits.clone());
                crowd.spawn(async move {
                    let mut names = [format!("\u{1}user-{user}"), "\u{1}address".into()];
                    names.rotate_left(shared);
                    let charges = [0, 1].map(|at| {
                        let key = Key::from_bytes(names[at].as_bytes());
                        Charge::enforced(&limits[at], key, Permits::ONE)
                    });
                    store.decide(&charges, Time::ZERO).await.unwrap().admitted
                });
            }
            let admitted = crowd.join_all().await;
            assert!(admitted.iter().all(|passes| *passes));
            assert_eq!(without_store(&store), (FallbackCounts::default(), 0));
            let calls = scripts_run(&server) - before;
            assert!(calls <= 40, "{calls} calls, {shared}");
        }
    }
}

/// Every second key has an override: they share calls with the others.
#[tokio::test]
async fn keys_with_numbers_of_their_own_share_calls() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let relay = Relay::start(server.port, Duration::from_millis(20));
        let store = process(&relay, Duration::from_secs(20));
        let limits = [(0, "10/1d"), (1, "20/1d")].map(|(id, quota)| Limit {
            name: "calls".into(),
            ..limit(id, Gcra::token_bucket(quota.parse().unwrap()).unwrap())
        });
        let before = scripts_run(&server);
        let mut crowd = JoinSet::new();
        for user in 0..CROWD {
            let (store, limits) = (Arc::clone(&store), limits.clone());
            crowd.spawn(async move {
                let name = format!("\u{1}user-{user}");
                let key = Key::from_bytes(name.as_bytes());
                let charge = Charge::enforced(&limits[user % 2], key, Permits::ONE);
                let decided = store.decide(&[charge], Time::ZERO).await.unwrap();
                decided.each[0].remaining.get()
            });
        }
        let mut left = crowd.join_all().await;
        left.sort_unstable();
        let half = CROWD / 2;
        assert_eq!(
            (left[0], left[half - 1], left[half], left[CROWD - 1]),
            (9, 9, 19, 19)
        );
        let calls = scripts_run(&server) - before;
        assert!(calls <= 20, "{calls} calls");
    }
}

/// The number of scripts that a server has run.
fn scripts_run(server: &Server) -> u64 {
    let mut info = redis::cmd("INFO");
    let stats: String = info
        .arg("commandstats")
        .query(&mut server.connect())
        .unwrap();
    let calls = |line: &str| {
        line.strip_prefix("cmdstat_evalsha:calls=")?
            .split(',')
            .next()?
            .parse()
            .ok()
    };
    stats.lines().find_map(calls).unwrap_or(0)
}

/// Whatever the limit says about outages: the store is in use.
#[tokio::test]
async fn a_request_that_waits_too_long_is_refused() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let relay = Relay::start(server.port, Duration::from_millis(600));
        let limit = Limit {
            outage: Outage::Allow,
            ..limit(0, Exponential::new("1000/1d".parse().unwrap()).unwrap())
        };
        // The server learns the scripts, and the connection is made.
        let patient = process(&relay, Duration::from_secs(60));
        let charge = Charge::enforced(&limit, Key::ALL, Permits::ONE);
        assert!(patient.decide(&[charge], Time::ZERO).await.is_ok());
        let hasty = process(&relay, Duration::from_secs(6)); // two rounds, and a second to spare
        assert!(hasty.main().ping().await.is_ok());
        let passed = ask(std::slice::from_ref(&hasty), limit).await;
        assert!((1..CROWD).contains(&passed), "{passed} of {CROWD}");
        assert_eq!(without_store(&hasty), (FallbackCounts::default(), 0));
        let (_, decisions) = &hasty.main().call_times()[0];
        let crowded = decisions.crowded.buckets;
        assert_eq!(
            usize::try_from(crowded.iter().sum::<u64>()).unwrap(),
            CROWD - passed
        );
    }
}
