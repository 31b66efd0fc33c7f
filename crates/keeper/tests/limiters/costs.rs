//! Costs and reservations beyond the usual: numbers that no limit can hold, and limiters that did
//! not make the reservation.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::core::{Gcra, Nanos, Quota, Verdict};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{Clock, KeyedLimiter, Limiter, ManualClock, Refused, Reservation, WaitError};

type Clocked = Arc<ManualClock>;
type Change = fn(&Limiter<Gcra, Clocked>, Gcra);

/// The largest burst of all: nothing above it may pass by being cut to it.
const LARGEST: Quota = Quota::per_second(2_000_000_000).burst(Quota::MAX_PERMITS);
const TOO_LARGE: [u64; 3] = [Quota::MAX_PERMITS + 1, Quota::MAX_PERMITS + 2, u64::MAX];

fn bucket(quota: Quota) -> Gcra {
    Gcra::token_bucket(quota).unwrap().with_patience(Nanos::MAX)
}

fn one(quota: Quota) -> Limiter<Gcra, Clocked> {
    Limiter::with_clock(bucket(quota), Clocked::default())
}

fn keyed(quota: Quota) -> KeyedLimiter<Gcra, Clocked> {
    KeyedLimiter::with_clock(bucket(quota), MemoryConfig::default(), Clocked::default())
}

/// The same checks on one limit and on one key of many.
macro_rules! no_limit_holds {
    ($limit:expr) => {
        let limit = $limit;
        let capacity = Quota::MAX_PERMITS;
        for cost in TOO_LARGE {
            assert_eq!(limit.check_n(cost), Err(Refused::Never), "{cost}");
            assert_eq!(limit.decide(cost).verdict, Verdict::DenyForever, "{cost}");
            assert_eq!(limit.peek_n(cost).verdict, Verdict::DenyForever, "{cost}");
            let never = Err(WaitError::TooLarge { cost, capacity });
            assert_eq!(limit.acquire_n_blocking(cost), never, "{cost}");
            assert_eq!(limit.reserve(cost, Duration::MAX).wait(), None, "{cost}");
            assert_eq!(limit.peek().remaining.get(), capacity, "nothing is charged");
        }
        let all = limit.check_n(capacity).unwrap();
        assert_eq!(all.remaining(), 0);
        limit.refund(all);
        assert_eq!(
            limit.peek().remaining.get(),
            capacity,
            "no more than it holds"
        );
    };
}

#[test]
fn a_cost_that_no_limit_can_hold_is_never_granted() {
    no_limit_holds!(one(LARGEST));
    let limiter = keyed(LARGEST);
    no_limit_holds!(limiter.key("ann"));
    assert_eq!(
        one(Quota::per_hour(5)).check_n(1 << 53),
        Err(Refused::Never)
    );
    assert_eq!(
        keyed(Quota::per_hour(5)).check_n("ann", 1 << 53),
        Err(Refused::Never)
    );
}

#[test]
fn a_cost_that_no_limit_can_hold_counts_as_a_denial() {
    let words = "{ limit = \"4/1s\", algorithm = \"sliding-window-log\", count_denied = true }";
    for cost in TOO_LARGE {
        let one = Limiter::parse(words).unwrap();
        let keyed = KeyedLimiter::parse(words).unwrap();
        assert_eq!(one.check_n(cost), Err(Refused::Never));
        assert_eq!(keyed.check_n("ann", cost), Err(Refused::Never));
        assert!(
            one.check().is_err() && keyed.check("ann").is_err(),
            "{cost}"
        );
    }
}

#[test]
fn a_debt_of_many_permits_is_owed_whole() {
    // 10^9 a second, and a debt of more than 2^32 permits.
    let used = 12_000_000_000;
    let one = one(Quota::per_second(1_000_000_000));
    one.settle(one.check_n(0).unwrap().used(used));
    let keyed = keyed(Quota::per_second(1_000_000_000));
    let ann = keyed.key("ann");
    ann.settle(ann.check_n(0).unwrap().used(used));
    let wait = Refused::Until(Duration::from_nanos(11_000_000_001));
    assert_eq!(one.check(), Err(wait));
    assert_eq!(keyed.check("ann"), Err(wait));
}

#[test]
fn waits_beyond_the_clock_saturate() {
    let limit = one(Quota::per_hour(1));
    assert_eq!(
        limit.try_acquire_blocking(1, Duration::MAX),
        Ok(Some(Duration::ZERO))
    );
    let hour = Duration::from_secs(3_600);
    assert_eq!(limit.try_acquire_blocking(1, Duration::MAX), Ok(Some(hour)));
    assert_eq!(limit.reserve(1, Duration::MAX).wait(), Some(hour));
}

/// Reserves on two limiters that are alike, at the same moment.
fn twins() -> [(Limiter<Gcra, Clocked>, Reservation<Gcra>); 2] {
    [(); 2].map(|()| {
        let limiter = one(Quota::per_hour(1));
        let reservation = limiter.reserve(1, Duration::ZERO);
        (limiter, reservation)
    })
}

#[test]
fn a_reservation_is_cancelled_by_its_own_limiter_only() {
    let [(one, mine), (other, _theirs)] = twins();
    assert!(
        !other.cancel(mine),
        "the state is the same, the limiter is not"
    );
    assert!(
        one.check().is_err() && other.check().is_err(),
        "nothing is given back"
    );

    let limiters = [(); 2].map(|()| keyed(Quota::per_hour(1)));
    let [mine, theirs] = [0, 1].map(|at| limiters[at].key("ann").reserve(1, Duration::ZERO));
    assert!(!limiters[1].cancel(mine) && limiters[1].check("ann").is_err());
    assert!(limiters[1].cancel(theirs) && limiters[1].check("ann").is_ok());
}

#[test]
fn a_reservation_does_not_outlive_its_limit() {
    let same = bucket(Quota::per_hour(1));
    let changes: [Change; 2] = [
        |limiter, same| limiter.set_limit(same),
        |limiter, _| {
            limiter.reset();
            let _ = limiter.reserve(1, Duration::ZERO); // leaves the same state
        },
    ];
    for change in changes {
        let [(limiter, mine), _] = twins();
        change(&limiter, same);
        assert!(!limiter.cancel(mine));
        assert!(limiter.check().is_err(), "nothing is given back");
    }
    let limiter = keyed(Quota::per_hour(1));
    let mine = limiter.key("ann").reserve(1, Duration::ZERO);
    limiter.set_limit(same);
    assert!(!limiter.cancel(mine) && limiter.check("ann").is_err());
}

#[test]
fn reservations_wait_in_a_queue_and_move_to_a_thread() {
    let limiter = Arc::new(one(Quota::per_second(1)));
    let mut queue: Vec<_> = (0..3).map(|_| limiter.reserve(1, Duration::MAX)).collect();
    let due: Vec<_> = queue
        .iter()
        .map(|it| it.wait().unwrap().as_secs())
        .collect();
    assert_eq!(due, [0, 1, 2]);
    let (last, at) = (queue.pop().unwrap(), Arc::clone(&limiter));
    assert!(std::thread::spawn(move || at.cancel(last)).join().unwrap());
    assert_eq!(
        limiter.reserve(1, Duration::MAX).due(),
        Some(limiter.clock().now() + Nanos::from_secs(2))
    );
}
