//! The embedded limiter: its three verbs, and the line of waiters.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::core::{
    Algorithm, AnyAlgorithm, Balance, Exponential, Gcra, Hybrid, Log, Nanos, Permits, QuotaReset,
    Time, Verdict, WarmUp, Window,
};
use ratekeeper::limiter::LimiterAlgorithm;
use ratekeeper::{Block, Clock, Grant, Limiter, SystemClock, WaitError};

use crate::tasks::{Clocked, Tasks};

fn limiter<A: LimiterAlgorithm>(algorithm: A) -> (Limiter<A, Clocked>, Clocked) {
    let clock = Clocked::default();
    (Limiter::with_clock(algorithm, Arc::clone(&clock)), clock)
}

fn bucket(quota: &str, burst: u64) -> Gcra {
    let quota: ratekeeper::core::Quota = quota.parse().unwrap();
    Gcra::token_bucket(quota.with_burst(Permits::new(burst)).unwrap()).unwrap()
}

fn millis(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// No span of the grants holds more than the limit's bound.
fn within_bound<A: Algorithm>(limit: &A, granted: &[(Time, u64)]) {
    for (first, (start, _)) in granted.iter().enumerate() {
        let mut sum = 0;
        for (at, cost) in &granted[first..] {
            sum += cost;
            let span = at.since(*start) + Nanos::from_nanos(1);
            assert!(sum <= limit.bound(span), "{sum} granted in {span:?}");
        }
    }
}

const MANY: usize = 10_000;

#[test]
fn ten_thousand_wait_and_are_served_in_order() {
    let limit = bucket("1000/1s", 10);
    let (limiter, clock) = limiter(limit);
    let mut tasks = Tasks::new(&clock, 1);
    for task in 0..MANY {
        tasks.start(task, limiter.try_acquire(1, Duration::MAX));
    }
    assert_eq!(limiter.waiting(), MANY - 10);
    tasks.run();
    assert_eq!(tasks.order(), (0..MANY).collect::<Vec<_>>());
    for (task, at, waited) in &tasks.done {
        let due = millis((*task as u64).saturating_sub(9));
        assert_eq!((at.since(Time::ZERO), waited), (due, &Ok(Some(due))));
    }
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn a_waiter_that_leaves_returns_its_permits_and_the_others_move_up() {
    let limit = bucket("1000/1s", 1);
    let (limiter, clock) = limiter(limit);
    let mut tasks = Tasks::new(&clock, 1);
    for task in 0..MANY {
        tasks.start(task, limiter.try_acquire(1, Duration::MAX));
    }
    let leaves = |task: usize| task > 0 && !task.is_multiple_of(10);
    for task in (0..MANY).filter(|&task| leaves(task)) {
        tasks.drop_task(task);
    }
    tasks.run();
    let stayed: Vec<_> = (0..MANY).filter(|&task| !leaves(task)).collect();
    assert_eq!(tasks.order(), stayed);
    for (place, (_, at, _)) in tasks.done.iter().enumerate() {
        assert_eq!(
            at.since(Time::ZERO),
            millis(place as u64),
            "one permit per ms is granted, without a gap"
        );
    }
}

#[test]
fn the_first_waiter_may_leave_at_any_time() {
    let (limiter, clock) = limiter(Gcra::spacing(Nanos::SECOND).unwrap());
    let mut tasks = Tasks::new(&clock, 1);
    for task in 0..4 {
        tasks.start(task, limiter.try_acquire(1, Duration::MAX));
    }
    clock.advance(millis(600));
    tasks.drop_task(1);
    tasks.settle();
    clock.set(Time::ZERO + Nanos::SECOND);
    tasks.drop_task(2); // its moment has come, but it never knew
    tasks.run();
    let at: Vec<_> = tasks
        .done
        .iter()
        .map(|(task, at, _)| (*task, *at))
        .collect();
    assert_eq!(at, [(0, Time::ZERO), (3, Time::ZERO + Nanos::SECOND)]);
    assert_eq!(limiter.waiting(), 0);
}

/// Costs of all kinds, whatever the algorithm: in order, and within the bound.
fn check_waiters<A: LimiterAlgorithm>(limit: A) {
    let (limiter, clock) = limiter(limit);
    let mut tasks = Tasks::new(&clock, 1);
    let cost = |task: usize| 1 + task as u64 * 7 % 5;
    clock.advance(Nanos::SECOND);
    for task in 0..300 {
        tasks.start(task, limiter.try_acquire(cost(task), Duration::MAX));
    }
    while let Some(due) = clock.next_wake() {
        assert!(limiter.check().is_err(), "no check passes the queue");
        clock.set(due);
        tasks.settle();
    }
    tasks.run();
    assert_eq!(tasks.order(), (0..300).collect::<Vec<_>>());
    let granted = tasks.done.iter();
    let granted = granted.map(|(task, at, _)| (*at, cost(*task)));
    let granted: Vec<_> = granted.collect();
    limiter.show(|limit| within_bound(limit, &granted));
}

#[test]
fn every_algorithm_can_be_waited_for() {
    let quota: ratekeeper::core::Quota = "20/1s".parse().unwrap();
    check_waiters(bucket("20/1s", 5));
    check_waiters(Gcra::leaky_queue(quota, Permits::new(10)).unwrap());
    check_waiters(Window::fixed(quota, Nanos::ZERO).unwrap());
    check_waiters(Window::two_window(quota, Nanos::ZERO).unwrap());
    check_waiters(QuotaReset::new(quota).unwrap());
    check_waiters(Log::sliding(quota).unwrap());
    check_waiters(Hybrid::quota_linear(quota).unwrap());
    check_waiters(Exponential::new(quota).unwrap());
    check_waiters(
        WarmUp::warming_up(20.0, Nanos::SECOND)
            .unwrap()
            .with_largest(Permits::new(5)),
    );
}

#[test]
fn the_timeout_is_checked_before_waiting_and_kept_while_waiting() {
    let (limiter, clock) = limiter(Gcra::spacing(Nanos::SECOND).unwrap());
    let mut tasks = Tasks::new(&clock, 1);
    for (task, patience) in [0, 1_000, 1_999, 2_000, 2_999, 9_000]
        .into_iter()
        .enumerate()
    {
        tasks.start(
            task,
            limiter.try_acquire(1, Duration::from_millis(patience)),
        );
    }
    // Waiters that could not be served in time were refused at once, and hold up no other.
    assert_eq!(tasks.order(), [0, 2, 4]);
    assert_eq!(tasks.done[1].2, Ok(None));
    // Two debts made behind the line's back: the second's patience ends at 2 s.
    tasks.drop_task(1);
    tasks.settle();
    assert_eq!(limiter.waiting(), 2);
    while let Some(due) = clock.next_wake() {
        clock.set(due);
        tasks.settle();
    }
    assert_eq!(tasks.order(), [0, 2, 4, 3, 5]);
    assert_eq!(tasks.done[3].1, Time::ZERO + Nanos::SECOND);
}

#[test]
fn the_timeout_ends_a_wait_that_was_not_known_in_advance() {
    let quota = "1/1s".parse().unwrap();
    let (limiter, clock) = limiter(QuotaReset::new(quota).unwrap());
    let mut tasks = Tasks::new(&clock, 1);
    tasks.start(0, limiter.try_acquire(1, Duration::MAX));
    tasks.start(1, limiter.try_acquire(1, Duration::MAX));
    tasks.start(2, limiter.try_acquire(1, Duration::from_millis(1_500)));
    while let Some(due) = clock.next_wake() {
        clock.set(due);
        tasks.settle();
    }
    assert_eq!(tasks.order(), [0, 1, 2]);
    // First in line at 1 s, it sees that 2 s is too late.
    assert_eq!(tasks.done[2], (2, Time::ZERO + millis(1_000), Ok(None)));
}

type Act = fn(&Limiter<Gcra, Clocked>, Grant);

#[test]
fn a_new_limit_a_refund_and_a_reset_wake_the_first_waiter() {
    let acts: [(&str, Act); 3] = [
        ("limit", |limiter, _| {
            limiter.set_limit(bucket("1000/1s", 1));
        }),
        ("refund", Limiter::refund),
        ("reset", |limiter, _| limiter.reset()),
    ];
    for (what, act) in acts {
        let (limiter, clock) = limiter(bucket("1/1h", 2));
        let grant = limiter.check().unwrap();
        let mut tasks = Tasks::new(&clock, 1);
        for task in 0..2 {
            tasks.start(task, limiter.try_acquire(1, Duration::MAX));
        }
        clock.advance(Nanos::from_secs(3_599));
        act(&limiter, grant);
        tasks.settle();
        if what == "limit" {
            tasks.run(); // the debt is kept, and less is saved up
            assert!(clock.now() < Time::ZERO + Nanos::from_secs(7_201));
        }
        assert_eq!(tasks.order(), [0, 1], "{what}");
    }
}

#[test]
fn waits_that_cannot_succeed_fail_at_once() {
    let (limiter, clock) = limiter(bucket("1/1s", 5));
    let limiter = limiter.with_most_waiting(1);
    let [cost, capacity] = [6, 5];
    let error = limiter.acquire_n_blocking(cost).unwrap_err();
    assert_eq!(error, WaitError::TooLarge { cost, capacity });
    assert_eq!(
        error.to_string(),
        "`6` permits exceed the capacity of 5; hint: acquire them in parts, or raise the burst"
    );
    let credits = Balance::new(4, 9).unwrap();
    let prepaid = Limiter::with_clock(credits, Arc::clone(&clock));
    assert_eq!(prepaid.acquire_n_blocking(4), Ok(Duration::ZERO));
    let error = prepaid.acquire_blocking().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`1` permits exceed the credits left, which no wait refills; \
         hint: grant credits, at most 9"
    );
    let mut tasks = Tasks::new(&clock, 1);
    tasks.start(0, limiter.try_acquire(capacity, Duration::MAX));
    tasks.start(1, limiter.try_acquire(1, Duration::MAX));
    tasks.start(2, limiter.try_acquire(1, Duration::MAX));
    assert_eq!(tasks.done[1].2, Err(WaitError::TooManyWaiting { most: 1 }));
    tasks.run();
}

/// Of uber-go/ratelimit: an executor that was busy served all that had become due, at one instant.
#[test]
fn no_waiter_is_served_before_its_moment() {
    let quota = |quota: &str| quota.parse::<ratekeeper::core::Quota>().unwrap();
    let late = |limit: AnyAlgorithm| {
        let (limiter, clock) = limiter(limit);
        let mut tasks = Tasks::new(&clock, 1);
        let mut served = vec![usize::from(limiter.check().is_ok())];
        for task in 0..50 {
            tasks.start(task, limiter.try_acquire(1, Duration::MAX));
        }
        for _ in 0..3 {
            clock.advance(millis(20));
            let before = tasks.done.len();
            tasks.settle();
            served.push(tasks.done.len() - before);
            let instant = limiter.show(|limit| limit.bound(Nanos::from_nanos(1)));
            assert!(served[served.len() - 1] as u64 <= instant, "{served:?}");
        }
        served
    };
    let spacing = Gcra::spacing(millis(1)).unwrap();
    assert_eq!(late(spacing.into()), [1, 1, 1, 1]);
    let queue = Gcra::leaky_queue(quota("1000/1s"), 100).unwrap();
    assert_eq!(late(queue.into()), [1, 1, 1, 1]);
    assert_eq!(late(bucket("1000/1s", 3).into()), [1, 3, 3, 3]);
    let log = Log::sliding(quota("2/10ms")).unwrap();
    assert_eq!(late(log.into()), [1, 2, 2, 2]);
    let fixed = Window::fixed(quota("2/10ms"), Nanos::ZERO).unwrap();
    assert_eq!(late(fixed.into()), [1, 2, 2, 2]);
}

/// A burst holds what becomes free while a timer is late.
#[test]
fn late_timers_do_not_slow_a_limit_with_a_burst() {
    let (limiter, clock) = limiter(bucket("100000/1s", 100));
    let mut tasks = Tasks::new(&clock, 1);
    for task in 0..1_100 {
        tasks.start(task, limiter.try_acquire(1, Duration::MAX));
    }
    for late in 1..=10_u32 {
        clock.set(Time::ZERO + millis(late.into())); // a timer of one millisecond
        tasks.settle();
        assert_eq!(tasks.done.len(), 100 + late as usize * 100);
    }
}

#[test]
fn reservations_wait_on_their_own_and_can_be_cancelled_from_the_end() {
    let (limiter, clock) = limiter(bucket("1/1s", 1).with_patience(Nanos::from_secs(10)));
    let reserve = || limiter.reserve(1, Duration::from_secs(5));
    let [first, second, third] = [reserve(), reserve(), reserve()];
    let due = [&first, &second, &third].map(|it| it.due().unwrap().since(Time::ZERO));
    assert_eq!(due, [Nanos::ZERO, millis(1_000), millis(2_000)]);
    assert!(
        !limiter.cancel(second),
        "a reservation before another cannot be cancelled"
    );
    assert!(limiter.cancel(third));
    assert_eq!(reserve().wait(), Some(Duration::from_secs(2)));
    let six = limiter.reserve(6, Duration::from_secs(5));
    assert_eq!(six.wait(), None);
    assert!(!limiter.cancel(six));
    // While a waiter is in line, no reservation is made.
    let mut tasks = Tasks::new(&clock, 1);
    tasks.start(0, limiter.try_acquire(1, Duration::MAX));
    let behind = reserve();
    let retry_after = millis(4_000);
    assert_eq!(behind.decision().verdict, Verdict::Deny { retry_after });
    tasks.run();
}

/// Issues of llm-proxy and express-rate-limit: permits given back late came back a second time.
#[test]
fn permits_that_time_has_paid_for_do_not_come_back_a_second_time() {
    let (limiter, clock) = limiter(bucket("10/60s", 10));
    let passes = || (0..99).filter(|_| limiter.check().is_ok()).count();
    let take = |cost| limiter.check_n(cost).unwrap();
    let paid = take(10);
    clock.set(Time::ZERO + Nanos::from_secs(60));
    let half = take(10);
    limiter.settle(paid.used(0));
    assert_eq!(passes(), 0, "time has paid the first ten back");
    clock.set(Time::ZERO + Nanos::from_secs(90));
    let _ = take(5);
    limiter.refund(half);
    assert_eq!(passes(), 5, "the other five are paid for");
    // Charges that were given back pay for those after them.
    clock.set(Time::ZERO + Nanos::from_secs(600));
    let [first, second] = [take(5), take(5)];
    limiter.refund(first);
    clock.advance(Nanos::from_secs(30));
    let _ = take(10);
    limiter.refund(second);
    assert_eq!(passes(), 0, "the second was paid for in 30 s");
    // After a reset, and at another limiter, nothing comes back.
    let before = {
        clock.advance(Nanos::from_secs(60));
        take(10)
    };
    limiter.reset();
    let _ = take(10);
    limiter.refund(before);
    assert_eq!(passes(), 0);
    let (other, _clock) = self::limiter(bucket("10/60s", 10));
    limiter.settle(other.check_n(10).unwrap().used(0));
    assert_eq!(passes(), 0, "a settlement of another limiter");
}

#[test]
fn an_estimate_is_settled_with_the_actual_use() {
    // 10 a second, burst 10, debts of a minute. Taken, used; then the wait for one permit.
    for (taken, used, wait) in [
        (10, 10, Some(100)),
        (10, 9, None),
        (10, 0, None),
        (4, 9, None),
        (4, 10, Some(100)),
        (4, 13, Some(400)),
        (10, 600, Some(59_100)),
        (10, 610, Some(60_100)),
        (10, 611, Some(60_100)), // debt beyond a minute is forgiven
        (10, u64::MAX, Some(60_100)),
    ] {
        let (limiter, clock) = limiter(bucket("10/1s", 10).with_patience(Nanos::from_secs(60)));
        limiter.settle(limiter.check_n(taken).unwrap().used(used));
        let retry_after = limiter.peek_n(1).verdict.retry_after();
        assert_eq!(retry_after, wait.map(millis), "{taken:?}, {used:?}");
        // The debt is paid by time, to the nanosecond.
        let Some(wait) = retry_after else { continue };
        clock.advance(Nanos::from_nanos(wait.as_nanos() - 1));
        assert!(limiter.check().is_err(), "{taken:?}, {used:?}");
        clock.advance(Nanos::from_nanos(1));
        assert!(limiter.check().is_ok(), "{taken:?}, {used:?}");
    }
}

/// A token budget of a day: 1,000 at once and 1,000 a day after that, however far each call
/// goes over its estimate.
#[test]
fn a_settlement_forgives_no_debt() {
    let clock = Clocked::default();
    let limits: [Box<dyn Fn() -> u64>; 2] = [
        {
            let quota = Limiter::per("1000/24h").unwrap().show(|gcra| *gcra);
            let limiter = Limiter::with_clock(quota, Arc::clone(&clock));
            Box::new(move || {
                let taken = 1;
                let used = 500;
                let Ok(grant) = limiter.check_n(taken) else {
                    return 0;
                };
                limiter.settle(grant.used(used));
                used
            })
        },
        {
            let words = "{ limit = \"1000/24h\", algorithm = \"token-bucket\" }";
            let limiter = Limiter::parse_with_clock(words, Arc::clone(&clock)).unwrap();
            Box::new(move || {
                let taken = 1;
                let used = 500;
                let Ok(grant) = limiter.check_n(taken) else {
                    return 0;
                };
                limiter.try_settle(grant.used(used)).unwrap();
                used
            })
        },
    ];
    for ask in limits {
        clock.set(Time::ZERO);
        let mut used = 0;
        for _minute in 0..10 * 24 * 60 {
            used += ask();
            clock.advance(Nanos::from_secs(60));
        }
        // The last call may go over by what it used.
        assert!((10_500..11_500).contains(&used), "{used}");
    }
}

#[test]
fn permits_that_a_settlement_returns_wake_the_first_waiter() {
    let (limiter, clock) = limiter(bucket("10/1s", 10));
    let grant = limiter.check_n(10).unwrap();
    let nothing = limiter.check_n(0).unwrap();
    let mut tasks = Tasks::new(&clock, 1);
    tasks.start(0, limiter.try_acquire(5, Duration::MAX));
    tasks.settle();
    assert!(tasks.order().is_empty(), "too few permits remain");
    limiter.settle(grant.used(2));
    tasks.settle();
    assert_eq!(
        tasks.order(),
        [0],
        "the first waiter is served without a wait"
    );
    // A debt makes the first wait longer than announced.
    tasks.start(1, limiter.try_acquire(4, Duration::MAX));
    limiter.settle(nothing.used(2));
    tasks.run();
    assert_eq!(tasks.done[1].1, Time::ZERO + millis(300));
}

#[test]
fn used_permits_are_carried_to_a_limit_that_counts_differently() {
    let (limiter, clock) = limiter(Window::fixed("10/1s".parse().unwrap(), Nanos::ZERO).unwrap());
    let _ = limiter.check_n(8);
    limiter.set_limit(Window::fixed("20/7s".parse().unwrap(), Nanos::ZERO).unwrap());
    assert_eq!(limiter.peek().remaining, Permits::new(12));
    limiter.set_limit(Window::fixed("5/1m".parse().unwrap(), Nanos::ZERO).unwrap());
    assert_eq!(limiter.peek().remaining, Permits::ZERO);
    clock.sleep(Nanos::from_secs(60));
    assert_eq!(limiter.peek().remaining, Permits::new(5));
}

#[test]
fn thirty_two_threads_never_exceed_the_bound() {
    const THREADS: usize = 32;
    const EACH: usize = 200;
    let limit = bucket("50000/1s", 100);
    let limiter = Limiter::with_clock(limit, SystemClock::new());
    let start = limiter.clock().now();
    let mut granted: Vec<Time> = std::thread::scope(|scope| {
        let work = || -> Vec<Time> {
            let ask = |number: usize| {
                // Some only ask; some give up early.
                let asked = number.is_multiple_of(5) && limiter.check().is_ok();
                let tried = || {
                    limiter
                        .try_acquire_blocking(1, Duration::from_millis(2))
                        .unwrap()
                };
                if !asked && (!number.is_multiple_of(3) || tried().is_none()) {
                    limiter.acquire_blocking().unwrap();
                }
                limiter.clock().now()
            };
            (0..EACH).map(ask).collect()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    granted.sort_unstable();
    assert_eq!(granted.len(), THREADS * EACH, "every call is granted");
    assert_eq!(limiter.waiting(), 0);
    let step_back = Nanos::from_micros(10); // of the processor's counter, between threads
    for (before, at) in granted.iter().enumerate() {
        let span = at.since(start) + step_back;
        assert!(
            (before as u64) < limit.bound(span),
            "{before} granted in {span:?}"
        );
    }
}

#[test]
fn an_empty_bucket_stays_empty_while_its_limit_changes_under_threads() {
    let limits =
        ["1000/24h", "1000/168h", "1000/720h", "1000/100h"].map(|quota| quota.parse().unwrap());
    let limiter = Limiter::token_bucket(limits[0]).unwrap();
    assert!(limiter.check_n(1_000).is_ok());
    let over = std::sync::atomic::AtomicBool::new(false);
    let admitted: usize = std::thread::scope(|scope| {
        let ask = || {
            let mut admitted = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                admitted += usize::from(limiter.check().is_ok());
            }
            admitted
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        for limit in limits.into_iter().cycle().take(2_000) {
            limiter.set_quota(limit).unwrap();
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(admitted, 0, "a permit takes at least 86 seconds");
}
