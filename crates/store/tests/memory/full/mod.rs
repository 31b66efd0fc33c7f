//! A full store: it serves newcomers, forgives little, never grows, never fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Concurrency, Edge, Exponential, Gcra, Hybrid, Interval, Key,
    Limit, Log, Nanos, Quota, QuotaReset, SubBuckets, Time, Verdict, Window,
};
use ratekeeper_store::conformance::{charge, limit};
use ratekeeper_store::{MemoryConfig, MemoryStore, Usage};

mod gains;
mod newcomers;

use gains::Account;

/// Holds about 4,000 keys.
const SMALL: usize = 256 << 10;

fn store(budget_bytes: usize) -> MemoryStore {
    MemoryStore::new(MemoryConfig { budget_bytes })
}

fn bucket(quota: &str) -> Gcra {
    Gcra::token_bucket(quota.parse().unwrap()).unwrap()
}

fn algorithms(quota: &str) -> [AnyAlgorithm; 12] {
    let quota: Quota = quota.parse().unwrap();
    let (most, every) = (quota.permits(), quota.per());
    let sub = |edge| SubBuckets::sub_buckets(quota, 6, edge, Nanos::ZERO).unwrap();
    [
        Gcra::token_bucket(quota).unwrap().into(),
        Window::fixed(quota, Nanos::ZERO).unwrap().into(),
        Window::two_window(quota, Nanos::ZERO).unwrap().into(),
        QuotaReset::new(quota).unwrap().into(),
        sub(Edge::Drop).into(),
        sub(Edge::Full).into(),
        Log::sliding(quota).unwrap().into(),
        Interval::on_grid(most, most, every, Nanos::ZERO)
            .unwrap()
            .into(),
        Interval::from_first(most, most, every).unwrap().into(),
        Hybrid::quota_linear(quota).unwrap().into(),
        Exponential::new(quota).unwrap().into(),
        Concurrency::new(most, every).unwrap().into(),
    ]
}

fn admits(store: &MemoryStore, limit: &Limit, key: &[u8], now: Time) -> bool {
    store.decide_now(&[charge(limit, key, 1)], now).admitted
}

fn seconds(count: u64) -> Time {
    Time::ZERO + Nanos::from_secs(count)
}

fn within_budget(usage: &Usage) {
    assert!(usage.bytes <= usage.budget_bytes, "{usage:?}");
}

/// Numbers that look random (xorshift), the same on every run.
fn random() -> impl FnMut(u64) -> u64 {
    let mut state = 0x5EED_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// A flood: fifty times more keys than fit, half of the requests from 500 keys that ask far
/// too often; 200 s in all.
fn flood(mut request: impl FnMut(Vec<u8>, Time)) {
    let mut random = random();
    for number in 0..200_000_u64 {
        let key = if random(2) == 0 {
            random(500).to_le_bytes().to_vec()
        } else {
            let width = 8 + 30 * usize::from(random(4) == 0);
            format!("{:0>width$}", random(200_000)).into_bytes()
        };
        request(key, Time::from_nanos(number * 1_000_000));
    }
}

/// Returns true if one request less in the past never lets more requests pass in sum: not where a
/// request sets off a window or the strokes, nor where it changes the mode.
fn pointwise(algorithm: &AnyAlgorithm) -> bool {
    let quota: Quota = "5/60s".parse().unwrap();
    let stepped = Interval::from_first(quota.permits(), quota.permits(), quota.per()).unwrap();
    let opening = QuotaReset::new(quota).unwrap();
    match algorithm {
        AnyAlgorithm::Hybrid(_) | AnyAlgorithm::Exponential(_) => false,
        other => *other != opening.into() && *other != stepped.into(),
    }
}

/// The part that a key which comes back is forgiven: an eighth, at least 2 permits, at most half.
fn forgiven(limit: &Limit) -> u64 {
    let capacity = limit.algorithm.capacity().get();
    (capacity / 8).max(2).min(capacity.div_ceil(2))
}

fn lends(algorithm: &AnyAlgorithm) -> bool {
    matches!(algorithm, AnyAlgorithm::Concurrency(_))
}

/// Ten million keys are not needed to see that the bound holds: a hundred times the capacity.
#[test]
fn a_flood_uses_most_of_the_budget_and_never_exceeds_it() {
    let (store, limit) = (store(SMALL), limit(0, bucket("1/1h")));
    for number in 0..400_000_u32 {
        let _ = admits(&store, &limit, &number.to_le_bytes(), Time::ZERO);
    }
    let usage = store.usage();
    within_budget(&usage);
    assert!(usage.bytes > usage.budget_bytes / 2, "{usage:?}");
}

/// The flood of one limit pushes out its own keys, not those of a limit that takes little.
#[test]
fn a_flood_leaves_other_limits_alone() {
    let store = store(SMALL);
    let (flooded, quiet) = (limit(0, bucket("1/1h")), limit(1, bucket("10/1h")));
    for name in 0..20_u8 {
        assert!(admits(&store, &quiet, &[name], Time::ZERO));
    }
    for number in 0..50_000_u32 {
        let _ = admits(&store, &flooded, &number.to_le_bytes(), Time::ZERO);
    }
    for name in 20..200_u8 {
        assert!(
            admits(&store, &quiet, &[name], Time::ZERO),
            "new keys of the quiet limit are admitted too"
        );
    }
    let usage = store.usage();
    within_budget(&usage);
    assert_eq!(usage.limits[1].keys, 200);
    assert_eq!(usage.limits[1].evicted.budget, 0);
    assert!(usage.limits[0].evicted.budget > 0);
}

/// All or none also when the second of two new keys finds no room: every request is admitted
/// with both its charges, or with none.
#[test]
fn requests_are_charged_whole_or_not_at_all_when_memory_runs_out() {
    let store = store(SMALL);
    let (first, second) = (limit(0, bucket("4/1h")), limit(1, bucket("4/1h")));
    let mut random = random();
    let mut accounts: HashMap<[u8; 8], Account> = HashMap::new();
    for _ in 0..100_000 {
        let (key, other) = (random(20_000).to_le_bytes(), random(20_000).to_le_bytes());
        let account = accounts.entry(key).or_default();
        account.note(&store, &first, &key, Time::ZERO);
        let charges = [charge(&first, &key, 1), charge(&second, &other, 1)];
        let decisions = store.decide_now(&charges, Time::ZERO);
        let allowed = decisions.each.iter().all(|each| each.verdict.allows());
        assert_eq!(decisions.admitted, allowed);
        account.here += u64::from(decisions.admitted);
        account.settle(&store, &first, &key, Time::ZERO);
        assert!(account.here <= 4 + 2 * account.pushed_out, "{account:?}");
    }
    within_budget(&store.usage());
}

#[test]
fn a_store_without_any_room_denies_with_a_wait() {
    let limit = limit(0, bucket("5/1s"));
    let retry_after = Nanos::SECOND;
    for budget in [0, 100, 300] {
        let store = store(budget);
        let decisions = store.decide_now(&[charge(&limit, b"key", 1)], Time::ZERO);
        assert!(!decisions.admitted);
        assert_eq!(decisions.each[0].verdict, Verdict::Deny { retry_after });
        let both = [charge(&limit, b"a", 1), charge(&limit, b"b", 1)];
        assert!(!store.decide_now(&both, Time::ZERO).admitted);
    }
    for budget in (0..20_000).step_by(97) {
        let store = store(budget);
        for number in 0..1_000_u32 {
            let _ = admits(&store, &limit, &number.to_le_bytes(), Time::ZERO);
        }
        let usage = store.usage();
        let fixed = MemoryStore::new(MemoryConfig { budget_bytes: 0 })
            .usage()
            .bytes;
        assert!(usage.bytes <= budget.max(fixed), "{budget}: {usage:?}");
    }
}

/// A limit id far out of range does not make the store grow.
#[test]
fn ids_are_bounded_by_the_budget() {
    let store = store(SMALL);
    let limit = limit(u32::MAX, bucket("5/1s"));
    assert!(!admits(&store, &limit, b"key", Time::ZERO));
    within_budget(&store.usage());
}

#[test]
fn expired_keys_are_erased_and_their_memory_is_freed() {
    for algorithm in algorithms("2/60s") {
        let (store, limit) = (store(8 << 20), limit(0, algorithm));
        let empty = store.usage().bytes;
        for number in 0..10_000_u32 {
            assert!(admits(&store, &limit, &number.to_le_bytes(), Time::ZERO));
        }
        assert_eq!(store.usage().limits[0].keys, 10_000);
        for _ in 0..100 {
            store.sweep(seconds(1));
        }
        assert_eq!(
            store.usage().limits[0].keys,
            10_000,
            "all keys are still in debt"
        );
        for _ in 0..100 {
            store.sweep(seconds(100_000));
        }
        let usage = store.usage();
        assert_eq!(usage.limits[0].keys, 0);
        assert_eq!(usage.limits[0].evicted.idle, 10_000);
        assert!(usage.bytes < empty + 64 * 1024, "{usage:?}");
    }
}

/// States that take more room under the new numbers are counted so, and counted back.
#[test]
fn reloads_that_change_the_size_of_states_keep_the_memory_count_exact() {
    let log = |permits: u64| {
        limit(
            0,
            Log::sliding(format!("{permits}/60s").parse().unwrap()).unwrap(),
        )
    };
    for (before, after) in [(3, 40), (40, 3), (3, 2_000)] {
        let (before, after) = (log(before), log(after));
        let after = Limit {
            version: 2,
            ..after
        };
        let store = store(SMALL);
        let empty = store.usage().bytes;
        for limit in [&before, &after] {
            for number in 0..500_u32 {
                let _ = admits(&store, limit, &number.to_le_bytes(), Time::ZERO);
            }
            within_budget(&store.usage());
        }
        for _ in 0..200 {
            store.sweep(seconds(1_000));
        }
        let usage = store.usage();
        assert_eq!(usage.limits[0].keys, 0);
        assert!(usage.bytes < empty + 64 * 1024, "{usage:?}");
    }
}

/// Inserts alone keep a store of short-lived keys small, without any sweep.
#[test]
fn inserts_erase_expired_keys() {
    let (store, limit) = (store(64 << 20), limit(0, bucket("1/1s")));
    for number in 0..100_000_u64 {
        let now = Time::from_nanos(number * 1_000_000); // a thousand keys a second
        assert!(admits(&store, &limit, &number.to_le_bytes(), now));
    }
    assert!(store.usage().limits[0].keys < 5_000, "{:?}", store.usage());
}

/// So they do after many keys have expired.
#[test]
fn inserts_free_the_memory_of_expired_keys() {
    for key_bytes in [8, 24] {
        let (store, limit) = (store(64 << 20), limit(0, bucket("1/1s")));
        let ask = |number: u64, now| {
            let mut key = [0; 24];
            key[..8].copy_from_slice(&number.to_le_bytes());
            assert!(admits(&store, &limit, &key[..key_bytes], now));
        };
        let empty = store.usage().bytes;
        for number in 0..100_000 {
            ask(number, Time::ZERO);
        }
        let crowd = store.usage().bytes - empty;
        for number in 100_000..160_000 {
            ask(number, Time::from_nanos(number * 1_000_000)); // a thousand keys a second
        }
        let after = store.usage().bytes - empty;
        assert!(after < crowd / 8, "{after} bytes of {crowd}");
        within_budget(&store.usage());
    }
}

/// A state forgotten as expired stays so when the clock steps back: no second burst.
#[test]
fn a_clock_set_back_brings_no_second_burst() {
    let (store, limit) = (store(SMALL), limit(0, bucket("2/2s")));
    assert!(admits(&store, &limit, b"key", seconds(10)));
    assert!(admits(&store, &limit, b"key", seconds(10)));
    (0..64).for_each(|_| store.sweep(seconds(20)));
    assert_eq!(
        store.usage().limits[0].keys,
        0,
        "the expired state is erased"
    );
    // A newcomer is judged at 20 s, the latest moment at which something was forgotten.
    assert!(admits(&store, &limit, b"key", seconds(10)));
    assert!(!admits(&store, &limit, b"key", seconds(10)));
    assert!(admits(&store, &limit, b"key", seconds(20)));
    assert!(!admits(&store, &limit, b"key", seconds(20)));
    assert!(admits(&store, &limit, b"key", seconds(21)));
}

#[test]
fn listing_returns_the_keys_with_the_fewest_remaining_permits() {
    let (store, limit) = (store(SMALL), limit(0, bucket("100/100s")));
    for number in 0..200_u32 {
        let key = number.to_le_bytes();
        let charges = [charge(&limit, &key, u64::from(number % 100))];
        let _ = store.decide_now(&charges, Time::ZERO);
    }
    let listed = store.keys(&limit, 4, Time::ZERO);
    let shown: Vec<(Vec<u8>, u64)> = listed
        .into_iter()
        .map(|entry| (entry.key, entry.decision.remaining.get()))
        .collect();
    let key = |number: u32| number.to_le_bytes().to_vec();
    assert_eq!(
        shown,
        [(key(99), 1), (key(199), 1), (key(98), 2), (key(198), 2)]
    );
    assert!(store.keys(&limit, 0, Time::ZERO).is_empty());
    assert_eq!(
        store.keys(&limit, 1_000, Time::ZERO).len(),
        198,
        "only keys in debt are listed"
    );
    assert!(store.keys(&limit, 1_000, seconds(100)).is_empty());
    let left = store.key(&limit, Key::from_bytes(&key(42)), Time::ZERO);
    assert_eq!(left.unwrap().remaining.get(), 58);
}
