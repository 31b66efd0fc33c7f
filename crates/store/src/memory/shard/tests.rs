//! Work for a new key, in slots read: of one hash seed, so the same on every run.

use super::*;
use crate::conformance::limit;
use crate::memory::flat::reads;
use crate::memory::key::hash_of;
use crate::{MemoryConfig, MemoryStore};
use ratekeeper_core::{
    AnyAlgorithm, Charge, Concurrency, Gcra, Key, LimitKeys, Log, Mode, Permits, Quota, Window,
};

/// Holds 20,000 to 40,000 keys under a bucket.
const BUDGET: usize = 1 << 20;
/// Maximum number of slots read for a new key, on average: a look-up, a sample twice, a removal and
/// an insertion at 4/5 full, and the share of a table that grows or gives up a third.
const MAX_READS: usize = 150;

struct Flood {
    shard: Shard,
    hasher: KeyHasher,
    limit: Limit,
    key_bytes: usize,
    keys: u64,
}

impl Flood {
    fn of(algorithm: AnyAlgorithm, key_bytes: usize) -> Self {
        let hasher = KeyHasher::default();
        Self {
            shard: Shard::new(
                Arc::new(MemoryBudget::new(BUDGET)),
                BUDGET,
                Arc::default(),
                hasher.clone(),
                TablesBox::new::<AnyAlgorithm>,
            ),
            hasher,
            limit: limit(0, algorithm),
            key_bytes,
            keys: 0,
        }
    }

    /// Decides for `keys` new keys; returns the slots read for each, on average.
    fn pass(&mut self, keys: usize, now: Time) -> usize {
        reads::take();
        for _ in 0..keys {
            self.keys += 1;
            let mut key = vec![0; self.key_bytes];
            key[..4].copy_from_slice(&u32::try_from(self.keys).unwrap().to_le_bytes());
            let budget = Arc::clone(&self.shard.budget);
            let ask = TableAsk {
                cost: Permits::ONE,
                ..TableAsk::new(&key, hash_of(&self.hasher, &key), now, &budget)
            };
            let _ = self.shard.decide(&self.limit, &ask);
        }
        reads::take() / keys
    }

    fn usage(&mut self) -> LimitUsage {
        let mut usage = Vec::new();
        self.shard.add_usage(&mut usage);
        usage.remove(0)
    }
}

fn algorithms() -> [AnyAlgorithm; 4] {
    let quota: Quota = "5/1h".parse().unwrap();
    [
        Gcra::token_bucket(quota).unwrap().into(),
        Window::fixed(quota, Nanos::ZERO).unwrap().into(),
        Log::sliding(quota).unwrap().into(),
        Concurrency::new(quota.permits(), quota.per())
            .unwrap()
            .into(),
    ]
}

/// Ten tables full of keys used once, of each size; then all expire, and no sweeper runs; then a
/// few keys at a time, and again as many as fit.
#[test]
fn a_new_key_reads_as_few_slots_however_long_the_store_is_full() {
    for algorithm in algorithms() {
        for key_bytes in [4, 12, 24, 60] {
            let mut flood = Flood::of(algorithm.clone(), key_bytes);
            let mut pass = |keys, hour: u64| {
                let now = Time::ZERO + Nanos::from_secs(3_600 * hour);
                let reads = flood.pass(keys, now);
                let shown = format!("{key_bytes} bytes, hour {hour}, {:?}", flood.usage());
                assert!(reads <= MAX_READS, "{reads}: {shown}, {algorithm:?}");
            };
            for _ in 0..100 {
                pass(4_000, 0);
            }
            for hour in 2..12 {
                pass(500, hour);
            }
            for _ in 0..20 {
                pass(4_000, 12);
            }
        }
    }
}

/// A key with numbers of its own has a home. Homes of keys that are gone make room for new ones,
/// however long the service runs, and cost a new key as little where the store is full.
#[test]
fn homes_of_keys_that_are_gone_make_room() {
    for algorithm in algorithms() {
        let mut flood = Flood::of(algorithm.clone(), 12);
        flood.limit.keys = LimitKeys::Single([flood.limit.clone()].into());
        for hour in 0..400 {
            let now = Time::ZERO + Nanos::from_secs(3_600 * hour);
            let reads = flood.pass(1_000, now);
            assert!(reads <= MAX_READS, "{reads} in hour {hour}, {algorithm:?}");
        }
        let homes = flood.shard.homes.fill().slots;
        assert!(homes <= 10_000, "{homes} homes, {algorithm:?}");
        for _ in 0..50 {
            let reads = flood.pass(4_000, Time::ZERO + Nanos::from_secs(3_600 * 500));
            assert!(reads <= 2 * MAX_READS, "{reads}, {algorithm:?}");
        }
    }
}

/// Every part of the array gives up keys: the keys of one that was filled first are evicted as
/// evenly as they lie.
#[test]
fn keys_are_evicted_from_the_whole_table() {
    for algorithm in &algorithms()[..3] {
        let mut flood = Flood::of(algorithm.clone(), 12);
        flood.pass(60_000, Time::ZERO);
        let all = flood.usage().keys;
        let mut eighths = [0; 8];
        let tables = flood.shard.known(&flood.limit, Time::ZERO).unwrap();
        tables.show_live(Time::ZERO, &mut |key, _| {
            let eighth = hash_of(&flood.hasher, key) >> 61;
            eighths[usize::try_from(eighth).unwrap()] += 1;
        });
        let even = all / 8;
        let near = even - even / 10..=even + even / 10;
        assert!(
            eighths.iter().all(|keys| near.contains(keys)),
            "{eighths:?}"
        );
    }
}

#[test]
fn a_store_of_one_algorithm_denies_limits_by_others() {
    let [bucket, window, ..] = algorithms();
    let store = MemoryStore::of::<Gcra>(MemoryConfig::default());
    let before = store.usage().bytes;
    let ask = |limit: &Limit| {
        let (key, cost, mode) = (Key::from_bytes(b"ann"), Permits::ONE, Mode::Enforce);
        let charge = Charge {
            limit,
            key,
            cost,
            mode,
        };
        store.decide_one(&charge, Time::ZERO).verdict.allows()
    };
    assert!(!ask(&limit(1, window)));
    assert_eq!(
        store.usage().bytes - before,
        2 * size_of::<Option<TablesBox>>()
    );
    assert!(ask(&limit(0, bucket)));
}
