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

/// Whatever the limit says about outages: the store is in use.
#[tokio::test]
async fn who_waits_in_vain_is_refused() {
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
        let crowded = hasty.main().call_times().crowded.buckets;
        assert_eq!(
            usize::try_from(crowded.iter().sum::<u64>()).unwrap(),
            CROWD - passed
        );
    }
}
