//! Real threads on one store: whatever the schedule, exactly the bound is admitted.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Edge, Gcra, Limit, LimitId, Nanos, SubBuckets, Time, Window,
};
use ratekeeper_store::conformance::{charge, limit};
use ratekeeper_store::{GiveBack, Look, MemoryConfig, MemoryStore, Reset};

const THREADS: u64 = 64;
const NOW: Time = Time::from_nanos(5_000_000_000);

fn gcra(quota: &str) -> AnyAlgorithm {
    Gcra::token_bucket(quota.parse().unwrap()).unwrap().into()
}

fn window(quota: &str) -> AnyAlgorithm {
    Window::fixed(quota.parse().unwrap(), Nanos::ZERO)
        .unwrap()
        .into()
}

fn sub_buckets(quota: &str) -> AnyAlgorithm {
    SubBuckets::sub_buckets(quota.parse().unwrap(), 5, Edge::Full, Nanos::ZERO)
        .unwrap()
        .into()
}

/// Runs `work` on 64 threads at once.
fn on_threads(work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for number in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

fn used(store: &MemoryStore, limit: &Limit, key: &[u8]) -> u64 {
    let left = store.settle_now(Look, &[charge(limit, key, 0)], NOW).each[0].remaining;
    (limit.algorithm.capacity() - left).get()
}

#[test]
fn one_key_admits_exactly_the_bound() {
    for algorithm in [gcra("1000/1h"), window("1000/1h"), sub_buckets("1000/1h")] {
        for cost in [1, 7] {
            let (store, limit) = (
                MemoryStore::new(MemoryConfig::default()),
                limit(0, algorithm.clone()),
            );
            let left = Mutex::new(Vec::new());
            on_threads(|_| {
                for _ in 0..50 {
                    let decisions = store.decide_now(&[charge(&limit, b"key", cost)], NOW);
                    if decisions.admitted {
                        left.lock().unwrap().push(decisions.each[0].remaining.get());
                    }
                }
            });
            // The answers are those of the same requests one after the other.
            let mut left = left.into_inner().unwrap();
            left.sort_unstable_by(|a, b| b.cmp(a));
            let expected: Vec<u64> = (1..=1000 / cost).map(|done| 1000 - done * cost).collect();
            assert_eq!(left, expected, "{limit:?}");
            assert_eq!(used(&store, &limit, b"key"), 1000 / cost * cost);
        }
    }
}

#[test]
fn many_keys_admit_exactly_the_bound_each() {
    const KEYS: u64 = 500;
    for algorithm in [gcra("40/1h"), window("40/1h")] {
        let (store, limit) = (
            MemoryStore::new(MemoryConfig::default()),
            limit(0, algorithm),
        );
        let admitted: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        on_threads(|thread| {
            for turn in 0..KEYS {
                let key = (turn + thread * 7) % KEYS;
                let decisions = store.decide_now(&[charge(&limit, &key.to_le_bytes(), 1)], NOW);
                admitted[key as usize].fetch_add(u64::from(decisions.admitted), Ordering::Relaxed);
            }
        });
        assert!(
            admitted
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 40)
        );
    }
}

/// A total, a limit per group and one per user, charged together.
#[test]
fn several_limits_admit_exactly_the_tightest_and_are_all_charged_alike() {
    const USERS: u64 = 30;
    let store = MemoryStore::new(MemoryConfig::default());
    let (total, group, user) = (
        limit(0, gcra("100000/1h")),
        limit(1, window("300/1h")),
        limit(2, sub_buckets("25/1h")),
    );
    let by_group: Vec<_> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let by_user: Vec<_> = (0..USERS).map(|_| AtomicU64::new(0)).collect();
    on_threads(|thread| {
        for turn in 0..USERS * 2 {
            let name = (turn + thread) % USERS;
            let of = name % 3;
            let keys = (of.to_le_bytes(), name.to_le_bytes());
            let charges = [
                charge(&total, b"", 2),
                charge(&group, &keys.0, 2),
                charge(&user, &keys.1, 2),
            ];
            if store.decide_now(&charges, NOW).admitted {
                by_group[of as usize].fetch_add(2, Ordering::Relaxed);
                by_user[name as usize].fetch_add(2, Ordering::Relaxed);
            }
        }
    });
    let mut sum = 0;
    for (name, count) in (0_u64..).zip(&by_user) {
        let count = count.load(Ordering::Relaxed);
        assert_eq!(
            count, 24,
            "a user can spend at most 24 of 25 in steps of two"
        );
        assert_eq!(used(&store, &user, &name.to_le_bytes()), count);
        sum += count;
    }
    for (of, count) in (0_u64..).zip(&by_group) {
        assert_eq!(
            used(&store, &group, &of.to_le_bytes()),
            count.load(Ordering::Relaxed)
        );
    }
    assert_eq!(used(&store, &total, b""), sum);
}

/// Half of the threads flood a store that holds a few hundred keys, one sweeps; the others
/// ask for one key that has spent half, in time that stands still. It is never the one that
/// used least, and is not pushed out.
#[test]
fn evictions_and_sweeps_never_admit_more() {
    for algorithm in [gcra("100/1h"), window("100/1h"), sub_buckets("100/1h")] {
        let config = MemoryConfig {
            budget_bytes: 64 << 10,
        };
        let (store, limit) = (MemoryStore::new(config), limit(0, algorithm));
        assert!(
            store
                .decide_now(&[charge(&limit, b"key", 50)], NOW)
                .admitted
        );
        let admitted = AtomicU64::new(50);
        on_threads(|thread| match thread {
            0 => (0..2000).for_each(|_| store.sweep(NOW)),
            flooder if flooder % 2 == 0 => {
                for number in 0..2000_u32 {
                    let key = (flooder << 32) + u64::from(number);
                    let _ = store.decide_now(&[charge(&limit, &key.to_le_bytes(), 10)], NOW);
                }
            }
            _ => {
                for _ in 0..200 {
                    let decisions = store.decide_now(&[charge(&limit, b"key", 1)], NOW);
                    admitted.fetch_add(u64::from(decisions.admitted), Ordering::Relaxed);
                }
            }
        });
        let usage = store.usage();
        assert!(
            usage.limits[0].evicted.budget > 0,
            "the flood reached the budget"
        );
        assert!(usage.bytes <= usage.budget_bytes);
        assert_eq!(admitted.into_inner(), 100);
    }
}

/// Charges not yet given back never pass the bound, and nothing is lost.
#[test]
fn refunds_race_with_charges() {
    for algorithm in [gcra("10/1h"), window("10/1h")] {
        let (store, limit) = (
            MemoryStore::new(MemoryConfig::default()),
            limit(0, algorithm),
        );
        let other = Limit {
            id: LimitId::new(1),
            ..limit.clone()
        };
        let held = AtomicI64::new(0);
        on_threads(|_| {
            for _ in 0..200 {
                let charges = [charge(&limit, b"key", 1), charge(&other, b"other", 1)];
                if store.decide_now(&charges, NOW).admitted {
                    assert!(held.fetch_add(1, Ordering::Relaxed) < 10);
                    held.fetch_sub(1, Ordering::Relaxed);
                    store.settle_now(GiveBack, &charges, NOW);
                }
            }
        });
        assert_eq!(used(&store, &limit, b"key"), 0);
        assert_eq!(used(&store, &other, b"other"), 0);
    }
}

/// Every reset grants one more burst at most.
#[test]
fn resets_race_with_charges() {
    const RESETS: u64 = 20;
    let (store, limit) = (
        MemoryStore::new(MemoryConfig::default()),
        limit(0, gcra("10/1h")),
    );
    let admitted = AtomicU64::new(0);
    on_threads(|thread| {
        for turn in 0..200 {
            if thread == 0 && turn % 10 == 0 {
                store.settle_now(Reset, &[charge(&limit, b"key", 1)], NOW);
            }
            let decisions = store.decide_now(&[charge(&limit, b"key", 1)], NOW);
            admitted.fetch_add(u64::from(decisions.admitted), Ordering::Relaxed);
        }
    });
    let admitted = admitted.into_inner();
    assert!((10..=10 * (RESETS + 1)).contains(&admitted), "{admitted}");
}

/// A reload every few requests, each to another algorithm; older policies still in flight.
#[test]
fn reloads_race_with_charges() {
    const KEYS: u64 = 50;
    let algorithms = [gcra("40/1h"), window("40/1h"), sub_buckets("40/1h")];
    let versions: Vec<Limit> = (0_u32..12)
        .map(|version| Limit {
            version,
            ..limit(0, algorithms[version as usize % 3].clone())
        })
        .collect();
    let store = MemoryStore::new(MemoryConfig::default());
    let admitted: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    on_threads(|thread| {
        for turn in 0..KEYS * 4 {
            let key = (turn + thread * 7) % KEYS;
            let version = (turn / 16).saturating_sub(thread % 3) as usize;
            let limit = &versions[version.min(versions.len() - 1)];
            let decisions = store.decide_now(&[charge(limit, &key.to_le_bytes(), 1)], NOW);
            admitted[key as usize].fetch_add(u64::from(decisions.admitted), Ordering::Relaxed);
        }
    });
    assert!(
        admitted
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 40)
    );
}
