//! Changes of numbers: each algorithm keeps the used permits, in memory and in Redis.
//!
//! ```text
//!   charges under old numbers --> usage u --change, at that moment--> usage min(u, what the new
//!                                                                     limit holds at once)
//! ```
//!
//! Without algorithms that count no permits used in the past: `concurrency`, `balance`, and the two
//! of Guava, which keep their share.

use std::time::Duration;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Charge, Edge, Exponential, Gcra, Hybrid, Interval, Key, Limit,
    LimitKeys, Log, Mode, Nanos, Permits, Quota, QuotaReset, SubBuckets, Time, Window,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{MemoryConfig, MemoryStore, RedisClock, RedisConfig, RedisStore, Store};

use crate::cases::cases;
use crate::conforms::tomorrow;
use crate::server::{Server, programs};

/// Constructs a limit; `None` if it has no such quota.
type Make = fn(Quota) -> Option<AnyAlgorithm>;

const ALGORITHMS: [(&str, Make); 11] = [
    ("bucket", |quota| {
        Some(Gcra::token_bucket(quota).ok()?.into())
    }),
    ("patient bucket", |quota| {
        Some(Gcra::token_bucket(quota).ok()?.patient().into())
    }),
    ("fixed window", |quota| {
        Some(Window::fixed(quota, Nanos::ZERO).ok()?.into())
    }),
    ("two windows", |quota| {
        Some(Window::two_window(quota, Nanos::ZERO).ok()?.into())
    }),
    ("quota reset", |quota| {
        Some(QuotaReset::new(quota).ok()?.into())
    }),
    ("log", |quota| Some(Log::sliding(quota).ok()?.into())),
    ("sub-buckets", |quota| {
        let buckets = SubBuckets::sub_buckets(quota, 5, Edge::Full, Nanos::ZERO);
        Some(buckets.ok()?.into())
    }),
    ("weighted sub-buckets", |quota| {
        let buckets = SubBuckets::sub_buckets(quota, 4, Edge::Weighted, Nanos::ZERO);
        Some(buckets.ok()?.into())
    }),
    ("interval", |quota| {
        let (most, per) = (quota.permits(), quota.per());
        Some(Interval::from_first(most, most, per).ok()?.into())
    }),
    ("hybrid", |quota| {
        Some(Hybrid::quota_linear(quota).ok()?.into())
    }),
    ("exponential", |quota| {
        Some(Exponential::new(quota).ok()?.into())
    }),
];

#[tokio::test]
async fn every_algorithm_keeps_the_used_permits_in_memory() {
    let store = MemoryStore::new(MemoryConfig::default());
    lives(&store, cases(200, 20_000)).await;
}

#[tokio::test]
async fn every_algorithm_keeps_the_used_permits_in_redis() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let store = RedisStore::new(RedisConfig {
            origin: tomorrow(),
            clock: RedisClock::Caller,
            deadline: Duration::from_secs(60),
            ..RedisConfig::new(server.url())
        });
        lives(&store.unwrap(), cases(20, 2_000)).await;
    }
}

async fn lives(store: &impl Store, count: u64) {
    let (mut id, mut wrong) = (0, Vec::new());
    for (name, make) in ALGORITHMS {
        for seed in 0..count {
            wrong.extend(live(store, (name, make), id, seed).await);
            id += 1;
        }
    }
    assert!(wrong.is_empty(), "{} differ: {:#?}", wrong.len(), wrong);
}

fn charge(limit: &Limit, cost: u64) -> [Charge<'_>; 1] {
    [Charge {
        limit,
        key: Key::from_bytes(b"\x01k"),
        cost: Permits::new(cost),
        mode: Mode::Enforce,
    }]
}

/// Charges over a while, then one change. Returns the difference, if there is one.
async fn live(
    store: &impl Store,
    (name, make): (&str, Make),
    id: u32,
    seed: u64,
) -> Option<String> {
    let mut random = Random::new(seed);
    let mut limit_now = || loop {
        let permits = 1 + random.below(40);
        let seconds = [1, 1, 3, 10, 60][usize::try_from(random.below(5)).unwrap()];
        let quota = Quota::new(Permits::new(permits), Nanos::from_secs(seconds)).unwrap();
        let quota = match random.below(3) {
            0 if name.ends_with("bucket") => quota
                .with_burst(Permits::new(1 + random.below(60)))
                .unwrap(),
            _ => quota,
        };
        if let Some(algorithm) = make(quota) {
            return algorithm;
        }
    };
    let old = Limit {
        name: format!("{id}").into(),
        ..limit(id, limit_now())
    };
    let new = Limit {
        version: old.version + 1,
        algorithm: limit_now(),
        ..old.clone()
    };
    let mut now = Time::ZERO + Nanos::from_secs(random.below(100_000));
    let mut charged = Vec::new();
    for _ in 0..random.below(12) {
        let cost = 1 + random.below(old.algorithm.capacity().get());
        let decided = store.decide(&charge(&old, cost), now).await.unwrap();
        if decided.admitted {
            charged.push((now, cost));
        }
        now = now + Nanos::from_micros(random.below(4_000_000));
    }
    let used = async |limit: &Limit, at: Time| {
        let shown = store.look(&charge(limit, 0), at).await.unwrap();
        (limit.algorithm.capacity() - shown.each[0].remaining).get()
    };
    let before = used(&old, now).await;
    let mut kept = before.min(new.algorithm.capacity().get());
    if name == "log" {
        let per = new.algorithm.window().unwrap();
        let recent = charged.iter().filter(|(at, _)| now.since(*at) < per);
        kept = kept.min(recent.map(|(_, cost)| cost).sum()); // it knows the moments
    }
    let after = used(&new, now).await;
    let mut wrong = after != kept;
    // A bucket below its quota owes more than it shows. A permit may be refilled in part.
    let later = now + Nanos::from_micros(random.below(30_000_000));
    let state = new.algorithm.state_with_usage(Permits::new(kept), now);
    let paid = new.algorithm.usage(&state, later).get();
    let last = used(&new, later).await;
    if name.ends_with("bucket") && before == kept {
        wrong |= last > paid || last + 1 < paid;
    }
    let limits = (&old.algorithm, &new.algorithm);
    wrong.then(|| {
        let used = format!("{before}, then {after}, of {kept}, and {last}, of {paid}, used");
        format!("{name} {seed}: {used}; {limits:?}, {now:?} {later:?}")
    })
}

/// The numbers of a step: the limit's own, those of a plan, or of single keys.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Numbers {
    Own,
    Pro,
    Single(&'static str),
}
use Numbers::{Own, Pro, Single};

/// Each step charges one permit by these numbers; the permits left afterwards.
type Steps = [(Numbers, u64)];

/// Added, changed, changed back, removed, and added again. States of the hybrid and the exponential
/// counter mean something else by another quota, so in Redis they follow the first numbers only.
const CHANGES: &Steps = &[
    (Own, 9),
    (Own, 8),
    (Single("20/10h"), 17),
    (Single("50/10h"), 46),
    (Single("20/10h"), 15),
    (Own, 4),
    (Single("50/10h"), 43),
];
const OF_A_PLAN: &Steps = &[
    (Pro, 29),
    (Pro, 28),
    (Single("50/10h"), 47),
    (Single("20/10h"), 16),
];
const BACK_TO_THE_PLAN: &Steps = &[(Pro, 29), (Single("50/10h"), 48), (Pro, 27)];
const OTHER_WINDOW: &Steps = &[(Own, 9), (Own, 8), (Single("20/20h"), 17)];

#[tokio::test]
async fn numbers_of_single_keys_keep_the_usage_in_memory() {
    let store = MemoryStore::new(MemoryConfig::default());
    let mut stories = 0;
    for (name, make) in ALGORITHMS {
        for steps in [CHANGES, OF_A_PLAN, BACK_TO_THE_PLAN, OTHER_WINDOW] {
            story(&store, (name, make), stories, steps).await;
            stories += 1;
        }
    }
}

#[tokio::test]
async fn numbers_of_single_keys_keep_the_usage_in_redis() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let store = RedisStore::new(RedisConfig::new(server.url())).unwrap();
        let mut stories = 0;
        for (name, make) in ALGORITHMS {
            let all = match name {
                "hybrid" | "exponential" => [&CHANGES[..3], &OF_A_PLAN[..3], OTHER_WINDOW],
                _ => [CHANGES, OF_A_PLAN, OTHER_WINDOW],
            };
            for steps in all {
                story(&store, (name, make), stories, steps).await;
                stories += 1;
            }
        }
    }
}

async fn story(store: &impl Store, (name, make): (&str, Make), index: u32, steps: &Steps) {
    let by = |id, suffix: &str, quota: &str, keys| Limit {
        name: format!("{index}{suffix}").into(),
        keys,
        ..limit(index * 10 + id, make(quota.parse().unwrap()).unwrap())
    };
    let own = by(0, "", "10/10h", LimitKeys::All);
    let pro = by(1, "=pro", "30/10h", LimitKeys::Plan(own.id));
    let base: std::sync::Arc<[Limit]> = [own.clone(), pro.clone()].into();
    let single = |quota: &str| {
        let id = 2 + u32::from(quota.as_bytes()[0] - b'0');
        by(
            id,
            &format!("={quota}"),
            quota,
            LimitKeys::Single(base.clone()),
        )
    };
    for (version, (numbers, left)) in (2..).zip(steps) {
        let limit = match numbers {
            Own => own.clone(),
            Pro => pro.clone(),
            Single(quota) => single(quota),
        };
        let limit = Limit { version, ..limit };
        let now = Time::ZERO + Nanos::from_secs(3_600);
        let shown = store.look(&charge(&limit, 0), now).await.unwrap();
        let decided = store.decide(&charge(&limit, 1), now).await.unwrap();
        let remaining = [shown.each[0].remaining, decided.each[0].remaining];
        let expected = [left + 1, *left].map(Permits::new);
        assert_eq!(remaining, expected, "{name}: {numbers:?} of {steps:?}");
    }
    let bob = Charge {
        key: Key::from_bytes(b"\x03bob"),
        ..charge(&own, 1)[0]
    };
    let decided = store.decide(&[bob], Time::ZERO).await.unwrap();
    assert_eq!(decided.each[0].remaining.get(), 9, "{name}: another key");
}
