//! A memory store that is saved and restored: it continues as if it had never ended.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::ErrorKind;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    AnyAlgorithm, Balance, BanTerms, Banning, Concurrency, Decision, Denials, Edge, Exponential,
    Gcra, GrantId, Hybrid, Interval, LeaseId, Lend, Limit, LimitKeys, Log, Nanos, Permits, Quota,
    QuotaReset, SubBuckets, Time, Verdict, WarmUp, Window,
};
use ratekeeper_store::conformance::{charge, limit};
use ratekeeper_store::{Ban, Decide, GiveBack, Grant, MemoryConfig, MemoryStore, Restored};

const BUDGET: usize = 4 << 20;
/// The moment of every snapshot that is not of a random life.
const THEN: Time = Time::from_nanos(1_000_000_123_456_789);

fn store() -> MemoryStore {
    MemoryStore::new(MemoryConfig {
        budget_bytes: BUDGET,
    })
}

fn bucket(quota: &str) -> Gcra {
    Gcra::token_bucket(quota.parse().unwrap()).unwrap()
}

fn banning(over: impl Into<AnyAlgorithm>) -> Banning {
    let terms = BanTerms {
        strikes: "3/20s".parse().unwrap(),
        first: Nanos::from_secs(9),
        growth_thousandths: 1_500,
        longest: Nanos::from_secs(60),
    };
    Banning::new(over.into(), terms).unwrap()
}

fn algorithms() -> Vec<AnyAlgorithm> {
    let quota: Quota = "7/10s".parse().unwrap();
    let (most, every) = (quota.permits(), quota.per());
    let phase = Nanos::from_millis(37);
    let sub = |edge| SubBuckets::sub_buckets(quota, 6, edge, phase).unwrap();
    vec![
        Gcra::token_bucket(quota).unwrap().into(),
        Gcra::token_bucket(quota)
            .unwrap()
            .with_denials(Denials::Counted)
            .into(),
        Gcra::leaky_queue(quota, Permits::new(4)).unwrap().into(),
        Window::fixed(quota, phase).unwrap().into(),
        Window::two_window(quota, phase).unwrap().into(),
        QuotaReset::new(quota).unwrap().into(),
        sub(Edge::Drop).into(),
        sub(Edge::Full).into(),
        sub(Edge::Weighted).into(),
        Log::sliding(quota).unwrap().into(),
        Interval::on_grid(most, most, every, phase).unwrap().into(),
        Interval::from_first(most, most, every).unwrap().into(),
        Hybrid::quota_linear(quota).unwrap().into(),
        Exponential::new(quota).unwrap().into(),
        WarmUp::bursty(0.7, 3.0).unwrap().into(),
        Concurrency::new(most, every).unwrap().into(),
        Balance::new(Permits::new(20), Permits::new(500))
            .unwrap()
            .into(),
        banning(Log::sliding(quota).unwrap()).into(),
        banning(Gcra::token_bucket(quota).unwrap()).into(),
    ]
}

fn spend(store: &MemoryStore, limit: &Limit, key: &[u8], cost: u64) -> Decision {
    store.decide_now(&[charge(limit, key, cost)], THEN).each[0]
}

fn look(store: &MemoryStore, limit: &Limit, key: &[u8]) -> Decision {
    store.decide_now(&[charge(limit, key, 0)], THEN).each[0]
}

fn saved(store: &MemoryStore, limits: &[Limit], now: Time) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(limits, now, &mut bytes).unwrap();
    bytes
}

fn restored(bytes: &[u8], limits: &[Limit], now: Time) -> (MemoryStore, Restored) {
    let store = store();
    let named = |name: &str| limits.iter().find(|limit| &*limit.name == name);
    let restored = store.restore(&mut &*bytes, now, named).unwrap();
    (store, restored)
}

/// One step of a life, the same in every store.
#[derive(Clone, Debug)]
struct Step {
    key: Vec<u8>,
    limit: usize,
    cost: u64,
    kind: u64,
}

impl Step {
    fn random(random: &mut Random, limits: usize) -> Self {
        let number = random.below(40);
        let width = [1, 12, 25, 70][usize::try_from(number % 4).unwrap()];
        Self {
            key: format!("{number:0>width$}").into_bytes(),
            limit: usize::try_from(random.below(limits as u64)).unwrap(),
            cost: random.below(4),
            kind: random.below(16),
        }
    }

    fn run(&self, store: &MemoryStore, limits: &[Limit], now: Time) -> String {
        let limit = &limits[self.limit];
        let charge = [charge(limit, &self.key, self.cost)];
        let id = LeaseId::from_bytes([self.key[0]; 16]);
        match self.kind {
            0 => format!("{:?}", store.settle_now(Decide(Lend::To(id)), &charge, now)),
            1 => {
                store.settle_now(GiveBack, &charge, now);
                String::new()
            }
            2 if matches!(limit.algorithm, AnyAlgorithm::Banning(_)) => {
                format!(
                    "{:?}",
                    store.settle_now(Ban(Nanos::from_secs(5)), &charge, now)
                )
            }
            3 if matches!(limit.algorithm, AnyAlgorithm::Balance(_)) => {
                let id = GrantId::of(&self.cost.to_string());
                format!("{:?}", store.settle_now(Grant(id), &charge, now))
            }
            _ => format!("{:?}", store.decide_now(&charge, now)),
        }
    }
}

/// At any moment of any life: the restored store answers as the one that went on. Moments are whole
/// microseconds, to which `quota-reset` rounds up.
#[test]
fn a_restored_store_continues_all_algorithms() {
    let algorithms = algorithms().into_iter();
    let limits: Vec<Limit> = algorithms.zip(0..).map(|(it, id)| limit(id, it)).collect();
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut now = Time::from_nanos(random.below(1 << 50) * 1_000);
        let continued = store();
        for _ in 0..random.below(3_000) {
            let step = Step::random(&mut random, limits.len());
            now = now + Nanos::from_micros(random.below(200_000));
            let _ = step.run(&continued, &limits, now);
        }
        let bytes = saved(&continued, &limits, now);
        let pause = random.below(3) * random.below(20_000_000);
        now = now + Nanos::from_micros(pause);
        let (store, found) = restored(&bytes, &limits, now);
        assert_eq!(found.dropped, BTreeSet::new());
        for number in 0..1_500 {
            let step = Step::random(&mut random, limits.len());
            now = now + Nanos::from_micros(random.below(200_000));
            let (expected, answer) = (
                step.run(&continued, &limits, now),
                step.run(&store, &limits, now),
            );
            assert_eq!(answer, expected, "seed {seed}, step {number}: {step:?}");
        }
    }
}

/// A clock that was set back while no process ran: no time has passed.
#[test]
fn an_earlier_moment_counts_as_that_of_saving() {
    let limits = [limit(0, bucket("4/1h"))];
    let before = store();
    let _ = spend(&before, &limits[0], b"ada", 4);
    let bytes = saved(&before, &limits, THEN);
    let (store, found) = restored(&bytes, &limits, Time::ZERO);
    assert_eq!(found.keys, 1);
    assert!(!spend(&store, &limits[0], b"ada", 1).verdict.allows());
}

/// Returns what a key that used `cost` of a limit has left under another one.
fn left(before: AnyAlgorithm, cost: u64, after: AnyAlgorithm) -> u64 {
    let first = store();
    let _ = spend(&first, &limit(0, before.clone()), b"ada", cost);
    let bytes = saved(&first, &[limit(0, before)], THEN);
    let after = [limit(0, after)];
    let (store, _) = restored(&bytes, &after, THEN);
    // The file counts in microseconds and rounds debts up; six of the new rate are one of the old.
    let soon = THEN + Nanos::from_micros(6);
    let look = store.decide_now(&[charge(&after[0], b"ada", 0)], soon);
    look.each[0].remaining.get()
}

#[test]
fn a_changed_limit_gives_no_key_more() {
    let window = |quota: &str| {
        Window::fixed(quota.parse().unwrap(), Nanos::ZERO)
            .unwrap()
            .into()
    };
    let log = |quota: &str| Log::sliding(quota.parse().unwrap()).unwrap().into();
    let bucket = |quota| bucket(quota).into();
    let balance = |start, max| {
        Balance::new(Permits::new(start), Permits::new(max))
            .unwrap()
            .into()
    };
    assert_eq!(left(bucket("100/1m"), 100, bucket("100/1h")), 0);
    assert_eq!(left(bucket("100/1m"), 80, bucket("1000/1h")), 920);
    assert_eq!(left(bucket("10/1m"), 4, bucket("20/1m")), 16);
    assert_eq!(left(window("10/1m"), 4, window("20/1m")), 16);
    assert_eq!(left(window("10/1m"), 4, window("20/1h")), 16);
    assert_eq!(left(window("10/1m"), 10, bucket("5/1h")), 0);
    assert_eq!(left(bucket("10/1m"), 4, log("10/1m")), 6);
    assert_eq!(left(balance(50, 100), 20, balance(40, 100)), 30, "credits");
    let (lent, credits) = (
        Concurrency::new(Permits::new(50), Nanos::SECOND).unwrap(),
        balance(50, 100),
    );
    assert_eq!(
        left(credits, 20, lent.into()),
        30,
        "no balance is read as loans"
    );
}

#[test]
fn a_ban_outlives_a_change_of_its_limit() {
    let old = [limit(
        0,
        banning(Log::sliding("5/1m".parse().unwrap()).unwrap()),
    )];
    let first = store();
    let banned = [charge(&old[0], b"eve", 0)];
    first.settle_now(Ban(Nanos::from_secs(30)), &banned, THEN);
    let bytes = saved(&first, &old, THEN);
    let new = [limit(0, banning(bucket("5/1m")))];
    for limits in [&old, &new] {
        let (store, _) = restored(&bytes, limits, THEN);
        let verdict = spend(&store, &limits[0], b"eve", 1).verdict;
        let expected = Verdict::Banned {
            retry_after: Nanos::from_secs(30),
        };
        assert_eq!(verdict, expected);
    }
}

#[test]
fn keys_of_a_limit_that_is_gone_are_dropped() {
    let limits = [limit(0, bucket("5/1h")), limit(1, bucket("5/1h"))];
    let first = store();
    for limit in &limits {
        let _ = spend(&first, limit, b"ada", 5);
    }
    let bytes = saved(&first, &limits, THEN);
    let (store, found) = restored(&bytes, &limits[1..], THEN);
    assert_eq!(found.keys, 1);
    assert_eq!(found.dropped, BTreeSet::from(["limit-0".to_owned()]));
    assert!(!spend(&store, &limits[1], b"ada", 1).verdict.allows());
}

/// A key that has not asked since its override was changed or removed is where that counted it.
#[test]
fn a_key_keeps_its_usage_by_numbers_that_are_gone() {
    let own = limit(0, bucket("20/1h"));
    let single = |id, quota| Limit {
        keys: LimitKeys::Single([own.clone()].into()),
        ..limit(id, bucket(quota))
    };
    let (before, after) = (single(1, "10/1h"), single(2, "7/1h"));
    let first = store();
    let _ = spend(&first, &before, b"ada", 5);
    for (limits, remaining) in [(vec![own.clone()], 15), (vec![own.clone(), after], 2)] {
        let bytes = saved(&first, &limits, THEN);
        let (store, _) = restored(&bytes, &limits, THEN);
        let found = look(&store, limits.last().unwrap(), b"ada");
        assert_eq!(found.remaining.get(), remaining, "{limits:?}");
    }
}

/// A flood is saved and restored where fewer keys fit: the budget holds, and what was pushed out,
/// before or now, is charged to newcomers.
#[test]
fn a_smaller_store_forgives_no_more_than_a_full_one() {
    let limits = [limit(0, bucket("100/1h")), limit(1, bucket("100/1h"))];
    let full = MemoryStore::new(MemoryConfig {
        budget_bytes: 256 << 10,
    });
    for number in 0..40_000_u32 {
        let _ = spend(&full, &limits[0], &number.to_le_bytes(), 100);
    }
    let _ = spend(&full, &limits[1], b"ada", 100);
    let bytes = saved(&full, &limits, THEN);
    for budget_bytes in [64 << 10, 256 << 10, BUDGET] {
        let store = MemoryStore::new(MemoryConfig { budget_bytes });
        let named = |name: &str| limits.iter().find(|limit| &*limit.name == name);
        store.restore(&mut &*bytes, THEN, named).unwrap();
        let usage = store.usage();
        assert!(usage.bytes <= usage.budget_bytes, "{usage:?}");
        let newcomer = look(&store, &limits[0], &90_000_u32.to_le_bytes());
        assert_eq!(newcomer.remaining, Permits::new(12), "{budget_bytes}");
        let ada = look(&store, &limits[1], b"ada");
        assert_eq!(ada.remaining, Permits::ZERO, "a small limit is not touched");
    }
}

/// Other bytes are an error or a state, never a panic.
/// The bytes in the file of a key under a token bucket.
#[test]
fn a_key_takes_the_bytes_of_the_guide() {
    const KEYS: u32 = 100_000;
    let guide = include_str!("../../../../docs/guide/deploy.md");
    let limit = limit(0, bucket("100/1h"));
    let store = store();
    for number in 0..KEYS {
        let [a, b, c, d] = number.to_be_bytes();
        assert!(spend(&store, &limit, &[4, a, b, c, d], 1).verdict.allows());
    }
    let bytes = saved(&store, std::slice::from_ref(&limit), THEN).len();
    // Rounded, because the file has a head, and each part of it too.
    let each = (bytes + KEYS as usize / 2) / KEYS as usize - 5;
    let shown = format!(
        "In the file a key under a token bucket takes {each} bytes, and the bytes of the key itself."
    );
    let guide: Vec<&str> = guide.split_whitespace().collect();
    assert!(
        guide.join(" ").contains(&shown),
        "{shown}: not in the guide"
    );
}

#[test]
fn damage_is_no_panic() {
    let algorithms = algorithms().into_iter();
    let limits: Vec<Limit> = algorithms.zip(0..).map(|(it, id)| limit(id, it)).collect();
    let first = store();
    for (number, limit) in limits.iter().enumerate() {
        let _ = spend(&first, limit, format!("{number:0>20}").as_bytes(), 3);
    }
    let bytes = saved(&first, &limits, THEN);
    let named = |name: &str| limits.iter().find(|limit| &*limit.name == name);
    for length in 0..bytes.len() {
        let cut = store().restore(&mut &bytes[..length], THEN, named);
        assert_eq!(
            cut.unwrap_err().kind(),
            ErrorKind::UnexpectedEof,
            "{length}"
        );
    }
    let mut random = Random::new(3);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= u8::try_from(1 + random.below(255)).unwrap();
        let store = store();
        let _ = store.restore(&mut &*damaged, THEN, named);
        for (number, limit) in limits.iter().enumerate() {
            let key = format!("{number:0>20}");
            let _ = spend(&store, limit, key.as_bytes(), 1);
        }
    }
}
