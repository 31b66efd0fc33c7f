//! Guards of permits on loan: given back once, in time, to the first in line.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use ratekeeper::core::{Concurrency, Nanos, Permits};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{KeyedLimiter, Limiter, ManualClock, OwnedPermits, Refused, WaitError};

const LEASE: Nanos = Nanos::from_secs(60);

type Clocked = Arc<ManualClock>;
type One = Arc<Limiter<Concurrency, Clocked>>;
type Keyed = Arc<KeyedLimiter<Concurrency, Clocked>>;

fn jobs(permits: u64) -> Concurrency {
    Concurrency::new(Permits::new(permits), LEASE).unwrap()
}

fn limiters(permits: u64) -> (One, Keyed, Clocked) {
    let clock = Clocked::default();
    let memory = MemoryConfig::default();
    let keyed = KeyedLimiter::with_clock(jobs(permits), memory, Arc::clone(&clock));
    let one = Limiter::with_clock(jobs(permits), Arc::clone(&clock));
    (Arc::new(one), Arc::new(keyed), clock)
}

/// Free permits of both; they are alike.
fn free(one: &One, keyed: &Keyed) -> u64 {
    let [one, key] = [one.peek(), keyed.key("ann").peek()].map(|it| it.remaining.get());
    assert_eq!(one, key);
    one
}

fn both(one: &One, keyed: &Keyed, cost: u64) -> [Result<OwnedPermits, Refused>; 2] {
    [one.check_owned(cost), keyed.check_owned("ann", cost)]
}

#[test]
fn a_guard_gives_its_permits_back_and_a_refusal_gives_nothing() {
    let (one, keyed, _) = limiters(5);
    let held = both(&one, &keyed, 3).map(Result::unwrap);
    assert_eq!(free(&one, &keyed), 2);
    for refused in both(&one, &keyed, 3) {
        assert!(matches!(refused, Err(Refused::Until(_))));
    }
    for cost in [6, 1 << 32, u64::MAX] {
        for refused in both(&one, &keyed, cost) {
            assert_eq!(refused.unwrap_err(), Refused::Never, "{cost}");
        }
        let capacity = 5;
        let never = WaitError::TooLarge { cost, capacity };
        assert_eq!(one.acquire_owned_blocking(cost).unwrap_err(), never);
        assert_eq!(
            keyed.acquire_owned_blocking("ann", cost).unwrap_err(),
            never
        );
    }
    assert_eq!(free(&one, &keyed), 2);
    drop(held);
    assert_eq!(free(&one, &keyed), 5);
}

#[test]
fn a_panic_gives_the_permits_back() {
    let (one, keyed, _) = limiters(1);
    let work = || {
        let _held = both(&one, &keyed, 1).map(Result::unwrap);
        panic!("the work failed");
    };
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    assert_eq!(free(&one, &keyed), 1);
}

#[test]
fn a_lease_that_has_ended_is_not_given_back() {
    let (one, keyed, clock) = limiters(1);
    let late = both(&one, &keyed, 1).map(Result::unwrap);
    clock.advance(LEASE);
    assert!(late.iter().all(|permits| !permits.renew()));
    let next = both(&one, &keyed, 1).map(Result::unwrap);
    drop(late);
    assert_eq!(free(&one, &keyed), 0, "the permit of the next holder stays");
    clock.advance(Nanos::from_secs(59));
    assert!(next.iter().all(OwnedPermits::renew));
    clock.advance(Nanos::from_secs(59));
    assert_eq!(free(&one, &keyed), 0, "renewed");
    drop(next);
    assert_eq!(free(&one, &keyed), 1);
}

#[test]
fn the_first_in_line_receives_what_a_guard_gives_back() {
    let (one, keyed, _) = limiters(1);
    let mut context = Context::from_waker(Waker::noop());
    let held = both(&one, &keyed, 1).map(Result::unwrap);
    let mut first = (
        pin!(one.acquire_owned(1)),
        pin!(keyed.acquire_owned("ann", 1)),
    );
    {
        // One that gives up while it waits has taken nothing.
        let mut second = pin!(one.acquire_owned(1));
        assert!(first.0.as_mut().poll(&mut context).is_pending());
        assert!(first.1.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert_eq!((one.waiting(), keyed.key("ann").waiting()), (2, 1));
    }
    drop(held);
    for refused in both(&one, &keyed, 1) {
        assert!(refused.is_err(), "no check passes the line");
    }
    let Poll::Ready(Ok(one_permit)) = first.0.poll(&mut context) else {
        panic!("it is first");
    };
    let Poll::Ready(Ok(key_permit)) = first.1.poll(&mut context) else {
        panic!("it is first");
    };
    assert_eq!(free(&one, &keyed), 0);
    drop((one_permit, key_permit));
    assert_eq!((free(&one, &keyed), one.waiting()), (1, 0));
}

#[test]
fn threads_that_wait_are_woken_and_never_too_many_at_work() {
    const MOST: usize = 3;
    let limiter = Arc::new(Limiter::new(jobs(3)));
    let (at_work, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let permit = limiter.acquire_owned_blocking(1).unwrap();
                    assert!(at_work.fetch_add(1, Ordering::SeqCst) < MOST);
                    thread::yield_now();
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(
        (done.into_inner(), limiter.peek().remaining.get()),
        (800, 3)
    );
}

/// Guards can be kept in a struct and sent to a task.
#[test]
fn guards_have_one_plain_type() {
    struct Job(#[expect(dead_code, reason = "held until the job is dropped")] OwnedPermits);
    let limiter = Arc::new(Limiter::with_clock(jobs(1), ManualClock::default()));
    let job = Job(limiter.check_owned(1).unwrap());
    thread::spawn(move || drop(job)).join().unwrap();
    assert!(limiter.check_owned(1).is_ok());
}
