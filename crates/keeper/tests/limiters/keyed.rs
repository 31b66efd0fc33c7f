//! The keyed limiter: a line for each key, and the promises to each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::core::{Algorithm, Gcra, Nanos, Permits, Time, Verdict};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{Clock, Grant, KeyedLimiter, MostWaiting, SystemClock, WaitError};

use crate::tasks::{Clocked, Tasks};

type Limiter = KeyedLimiter<Gcra, Clocked>;

fn limiter(limit: Gcra) -> (Limiter, Clocked) {
    let clock = Clocked::default();
    let memory = MemoryConfig::default();
    let limiter = KeyedLimiter::with_clock(limit, memory, Arc::clone(&clock));
    (limiter, clock)
}

fn bucket(quota: &str, burst: u64) -> Gcra {
    let quota: ratekeeper::core::Quota = quota.parse().unwrap();
    Gcra::token_bucket(quota.with_burst(Permits::new(burst)).unwrap()).unwrap()
}

fn millis(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn at(ms: u64) -> Time {
    Time::ZERO + millis(ms)
}

const KEYS: usize = 50;
const EACH: usize = 200;

fn key(task: usize) -> String {
    format!("key {}", task % KEYS)
}

#[test]
fn ten_thousand_wait_for_fifty_keys_and_each_key_is_served_in_order() {
    let (limiter, clock) = limiter(bucket("1000/1s", 10));
    let mut tasks = Tasks::new(&clock, KEYS);
    for task in 0..KEYS * EACH {
        tasks.start(task, limiter.key(key(task)).try_acquire(1, Duration::MAX));
    }
    assert_eq!(limiter.key(key(0)).waiting(), EACH - 10);
    tasks.run();
    for wanted in 0..KEYS {
        let of_key = tasks.done.iter().filter(|(task, ..)| task % KEYS == wanted);
        for (place, (task, when, waited)) in of_key.enumerate() {
            let due = millis((place as u64).saturating_sub(9));
            assert_eq!(
                *task,
                wanted + place * KEYS,
                "waiters are served in order of arrival"
            );
            assert_eq!((when.since(Time::ZERO), waited), (due, &Ok(Some(due))));
        }
    }
    assert_eq!(tasks.done.len(), KEYS * EACH);
    assert_eq!(limiter.key(key(0)).waiting(), 0);
}

#[test]
fn a_queue_delays_only_its_own_key() {
    let (limiter, clock) = limiter(bucket("1/1s", 1));
    let mut tasks = Tasks::new(&clock, 1);
    for task in 0..3 {
        tasks.start(task, limiter.key("ann").try_acquire(1, Duration::MAX));
    }
    assert!(limiter.check("bob").is_ok());
    clock.set(at(999));
    let refused = limiter.key("ann").decide(1).verdict;
    assert_eq!(
        refused.retry_after(),
        Some(millis(2_001)),
        "the wait includes the two waiters"
    );
    assert_eq!(limiter.key("ann").reserve(1, Duration::MAX).wait(), None);
    assert_eq!(
        limiter.key("bob").decide(1).verdict.retry_after(),
        Some(millis(1))
    );
    tasks.run();
    assert_eq!(tasks.order(), [0, 1, 2]);
}

#[test]
fn a_waiter_that_leaves_returns_its_permits_and_the_last_one_removes_the_queue() {
    let (limiter, clock) = limiter(bucket("1/1s", 1));
    let mut tasks = Tasks::new(&clock, 1);
    for task in 0..5 {
        tasks.start(task, limiter.key("ann").try_acquire(1, Duration::MAX));
    }
    for task in [1, 2, 3] {
        tasks.drop_task(task);
    }
    assert_eq!(limiter.key("ann").waiting(), 1);
    tasks.run();
    let done: Vec<_> = tasks
        .done
        .iter()
        .map(|(task, at, _)| (*task, *at))
        .collect();
    assert_eq!(done, [(0, at(0)), (4, at(1_000))]);
    assert_eq!(limiter.key("ann").waiting(), 0);
    clock.set(at(2_000));
    assert!(
        limiter.check("ann").is_ok(),
        "no waiter is left in the queue"
    );
}

#[test]
fn deadlines_are_moments_of_the_clock() {
    let (limiter, clock) = limiter(Gcra::spacing(Nanos::SECOND).unwrap());
    let mut tasks = Tasks::new(&clock, 2);
    for (task, deadline) in [0, 999, 1_000, 1_999, 2_000].into_iter().enumerate() {
        let until = limiter.key("ann").try_acquire_until(1, at(deadline));
        tasks.start(task, until);
    }
    let refused: Vec<_> = tasks
        .done
        .iter()
        .map(|(task, _, waited)| (*task, waited.unwrap()))
        .collect();
    assert_eq!(refused, [(0, Some(Nanos::ZERO)), (1, None), (3, None)]);
    tasks.run();
    assert_eq!(tasks.order(), [0, 1, 3, 2, 4]);
    assert_eq!(clock.now(), at(2_000));
}

#[test]
fn waiters_are_bounded_for_a_key_and_in_total() {
    let (limiter, clock) = limiter(bucket("1/1s", 1));
    let bounds = MostWaiting {
        of_one_key: 2,
        in_all: 3,
    };
    let limiter = limiter.with_most_waiting(bounds);
    let mut tasks = Tasks::new(&clock, 2);
    for (task, key) in ["ann", "ann", "ann", "ann", "bob", "bob", "bob"]
        .into_iter()
        .enumerate()
    {
        tasks.start(task, limiter.key(key).try_acquire(1, Duration::MAX));
    }
    let full: Vec<_> = tasks
        .done
        .iter()
        .filter(|done| done.2.is_err())
        .copied()
        .collect();
    let of_one_key = WaitError::TooManyWaiting { most: 2 };
    let in_all = WaitError::TooManyWaiting { most: 3 };
    assert_eq!(full, [(3, at(0), Err(of_one_key)), (6, at(0), Err(in_all))]);
    tasks.run();
    assert_eq!(tasks.done.len(), 7);
    let (cost, capacity) = (2, 1);
    let never = limiter.key("cyd").acquire_n_blocking(cost).unwrap_err();
    assert_eq!(never, WaitError::TooLarge { cost, capacity });
}

type Act = fn(&Limiter, Grant);

#[test]
fn a_new_limit_a_refund_and_a_reset_wake_the_first_waiter() {
    let acts: [(&str, Act); 3] = [
        ("limit", |limiter, _| {
            limiter.set_limit(bucket("1000/1s", 1));
        }),
        ("refund", |limiter, grant| limiter.key("ann").refund(grant)),
        ("reset", |limiter, _| assert!(limiter.key("ann").reset())),
    ];
    for (what, act) in acts {
        let (limiter, clock) = limiter(bucket("1/1h", 2));
        let grant = limiter.check("ann").unwrap();
        let mut tasks = Tasks::new(&clock, 1);
        for task in 0..2 {
            tasks.start(task, limiter.key("ann").try_acquire(1, Duration::MAX));
        }
        clock.advance(Nanos::from_secs(3_599));
        act(&limiter, grant);
        tasks.settle();
        if what == "limit" {
            tasks.run(); // the debt is kept
        }
        assert_eq!(tasks.order(), [0, 1], "{what}");
    }
}

#[test]
fn reservations_of_a_key_can_be_cancelled_from_the_end() {
    let (limiter, _clock) = limiter(bucket("1/1s", 1).with_patience(Nanos::from_secs(10)));
    let reserve = |key| limiter.key(key).reserve(1, Duration::from_secs(5));
    let [first, second, third] = ["ann", "ann", "ann"].map(reserve);
    let due = [&first, &second, &third].map(|it| it.due().unwrap().since(Time::ZERO));
    assert_eq!(due, [Nanos::ZERO, millis(1_000), millis(2_000)]);
    assert_eq!(
        reserve("bob").wait(),
        Some(Duration::ZERO),
        "bob has a queue of his own"
    );
    assert!(
        !limiter.cancel(second),
        "a reservation before another cannot be cancelled"
    );
    assert!(limiter.cancel(third));
    assert_eq!(reserve("ann").wait(), Some(Duration::from_secs(2)));
    let six = limiter.key("ann").reserve(6, Duration::from_secs(5));
    assert!(matches!(six.decision().verdict, Verdict::Deny { .. }));
    assert!(!limiter.cancel(six));
}

#[test]
fn thirty_two_threads_never_exceed_the_bound_of_a_key() {
    const THREADS: usize = 32;
    const EACH: usize = 100;
    let limit = bucket("20000/1s", 50);
    let limiter = KeyedLimiter::with_clock(limit, MemoryConfig::default(), SystemClock::new());
    let start = limiter.clock().now();
    let mut granted: Vec<(usize, Time)> = std::thread::scope(|scope| {
        let work = |thread: usize| -> Vec<(usize, Time)> {
            let ask = |number: usize| {
                let user = number % 3;
                let key = [u8::try_from(user).unwrap()];
                // Some only ask; some give up early.
                let asked = number.is_multiple_of(5) && limiter.check(key).is_ok();
                let tried = || {
                    limiter
                        .key(key)
                        .try_acquire_blocking(1, Duration::from_millis(2))
                        .unwrap()
                };
                if !asked && (!number.is_multiple_of(3) || tried().is_none()) {
                    limiter.key(key).acquire_blocking().unwrap();
                }
                (user, limiter.clock().now())
            };
            (thread..thread + EACH).map(ask).collect()
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    granted.sort_unstable_by_key(|(_, at)| *at);
    assert_eq!(granted.len(), THREADS * EACH, "every call is granted");
    let step_back = Nanos::from_micros(10); // of the processor's counter, between threads
    for user in 0..3 {
        let of_user = granted.iter().filter(|(of, _)| *of == user);
        for (before, (_, at)) in of_user.enumerate() {
            let span = at.since(start) + step_back;
            assert!(
                (before as u64) < limit.bound(span),
                "{before} granted in {span:?}"
            );
        }
        assert_eq!(limiter.key([u8::try_from(user).unwrap()]).waiting(), 0);
    }
}

#[test]
fn each_key_is_settled_separately() {
    // 10 a second, burst 10, debts of a minute. Taken, used; then the wait for one permit.
    for (taken, used, wait) in [
        (10, 10, Some(100)),
        (10, 0, None),
        (4, 10, Some(100)),
        (4, 13, Some(400)),
        (10, 610, Some(60_100)),
        (10, u64::MAX, Some(60_100)), // debt beyond a minute is forgiven
    ] {
        let limit = bucket("10/1s", 10).with_patience(Nanos::from_secs(60));
        let (limiter, _clock) = limiter(limit);
        let grant = limiter.check_n("ann", taken).unwrap();
        limiter.key("ann").settle(grant.used(used));
        let retry_after = |key: &str| limiter.key(key).decide(1).verdict.retry_after();
        assert_eq!(retry_after("ann"), wait.map(millis), "{taken:?}, {used:?}");
        assert_eq!(retry_after("bob"), None);
    }
}

#[test]
fn a_settlement_of_a_key_wakes_only_its_own_queue() {
    let (limiter, clock) = limiter(bucket("10/1s", 10));
    let (taken, used) = (10, 2);
    let mut tasks = Tasks::new(&clock, 2);
    let grant = limiter.check_n("ann", taken).unwrap();
    assert!(limiter.check_n("bob", taken).is_ok());
    for (task, key) in ["ann", "bob"].into_iter().enumerate() {
        tasks.start(task, limiter.key(key).try_acquire(5, Duration::MAX));
    }
    limiter.key("ann").settle(grant.used(used));
    tasks.settle();
    assert_eq!(tasks.order(), [0], "ann is served at once");
    tasks.run();
    assert_eq!(tasks.done[1].1, at(500), "bob waits");
}

#[test]
fn permits_of_a_key_that_time_has_paid_for_do_not_come_back() {
    let (limiter, clock) = limiter(bucket("10/60s", 10));
    let ann = limiter.key("ann");
    let paid = ann.check_n(10).unwrap();
    clock.advance(Nanos::from_secs(60));
    let half = ann.check_n(10).unwrap();
    ann.settle(paid.used(0));
    assert!(ann.check().is_err());
    clock.advance(Nanos::from_secs(30));
    let _ = ann.check_n(5);
    ann.refund(half);
    assert_eq!(ann.peek().remaining, Permits::new(5));
    let (other, _clock) = self::limiter(bucket("10/60s", 10));
    ann.refund(other.check_n("ann", 5).unwrap());
    assert_eq!(ann.peek().remaining, Permits::new(5), "of another limiter");
}
