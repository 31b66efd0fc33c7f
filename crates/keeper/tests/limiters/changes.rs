//! Changes of the numbers of a limit while it is used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use ratekeeper::core::{AnyAlgorithm, BanTerms, Banning, Gcra, Nanos, Permits, Quota};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{KeyedLimiter, Limiter, Limits, ManualClock, NamedLimit, Refused, at_once};

/// A bucket owes what its callers have used, however it was made.
#[test]
fn every_token_bucket_keeps_its_overruns() {
    let bucket = || Gcra::token_bucket("1000/24h".parse().unwrap()).unwrap();
    let memory = MemoryConfig::default;
    let changed = KeyedLimiter::with_clock(
        Gcra::token_bucket("1/24h".parse().unwrap()).unwrap(),
        memory(),
        ManualClock::default(),
    );
    changed.set_limit(bucket());
    let keyed = KeyedLimiter::with_clock(bucket(), memory(), ManualClock::default());
    for limiter in [keyed, changed] {
        let grant = limiter.check("a").unwrap();
        limiter.key("a").settle(grant.used(100_000));
        let refused = limiter.check("a").unwrap_err();
        let wait = Duration::from_millis(99_001 * 86_400);
        assert_eq!(refused, Refused::Until(wait));
    }
    let limiter = Limiter::with_clock(bucket(), ManualClock::default());
    let grant = limiter.check().unwrap();
    limiter.settle(grant.used(100_000));
    limiter.set_limit(Gcra::token_bucket("2000/24h".parse().unwrap()).unwrap());
    let wait = Duration::from_millis(98_001 * 43_200);
    assert_eq!(
        limiter.check(),
        Err(Refused::Until(wait)),
        "the debt stays the same permits"
    );
}

#[test]
fn a_burst_that_falls_and_rises_gives_nothing_back() {
    let quota = |burst| Quota::per_day(1_000).burst(burst);
    let limiter = Limiter::with_clock(
        Gcra::token_bucket(quota(1_000)).unwrap(),
        ManualClock::default(),
    );
    assert!(limiter.check_n(1_000).is_ok());
    for burst in [500, 1_000, 1, 1_000] {
        limiter.set_quota(quota(burst)).unwrap();
        assert!(limiter.check().is_err());
    }
}

/// A grant knows when its own numbers would have paid it, not when others will.
#[test]
fn nothing_comes_back_of_what_other_numbers_charged() {
    let bucket = |text: &str| Gcra::token_bucket(text.parse().unwrap()).unwrap();
    let one = Limiter::with_clock(bucket("10/1h"), ManualClock::default());
    let memory = MemoryConfig::default();
    let keyed = KeyedLimiter::with_clock(bucket("10/1h"), memory, ManualClock::default());
    let grants = (one.check_n(4).unwrap(), keyed.check_n("a", 4).unwrap());
    let late = (one.check_n(2).unwrap(), keyed.check_n("a", 2).unwrap());
    one.set_limit(bucket("10/1m"));
    keyed.set_limit(bucket("10/1m"));
    let left = || {
        let keyed = keyed.key("a").peek().remaining;
        (one.peek().remaining.get(), keyed.get())
    };
    assert_eq!(left(), (4, 4));
    one.refund(grants.0);
    keyed.key("a").refund(grants.1);
    assert_eq!(left(), (4, 4));
    one.settle(late.0.used(5));
    keyed.key("a").settle(late.1.used(5));
    assert_eq!(left(), (1, 1), "the excess is charged all the same");
}

fn ten_in_ten_seconds() -> KeyedLimiter<Gcra, ManualClock> {
    let bucket = Gcra::token_bucket(Quota::per_second(1).burst(10)).expect("a quota");
    KeyedLimiter::with_clock(bucket, MemoryConfig::default(), ManualClock::default())
}

fn limits_with_bucket(
    quota: &str,
) -> (
    Limits<MemoryStore, ManualClock>,
    NamedLimit<MemoryStore, ManualClock>,
) {
    let store = MemoryStore::new(MemoryConfig::default());
    let limits = Limits::new(store, ManualClock::default());
    let bucket = limits.token_bucket("bucket", quota.parse().expect("a quota"));
    (limits, bucket.expect("a new name"))
}

/// Returns how many single permits pass at once.
fn passes(mut ask: impl FnMut() -> bool) -> usize {
    (0..100).take_while(|_| ask()).count()
}

/// A bucket is full sooner after a first grant came back: then time has paid the second.
#[test]
fn a_key_that_was_full_again_gets_nothing_back_of_several_grants() {
    let limiter = ten_in_ten_seconds();
    let ann = limiter.key("ann");
    let (first, second) = (ann.check_n(5).unwrap(), ann.check_n(5).unwrap());
    ann.refund(first);
    limiter.clock().advance(Nanos::from_secs(5));
    assert!(ann.check_n(10).is_ok());
    ann.refund(second);
    assert_eq!(passes(|| ann.check().is_ok()), 0);

    let (limits, bucket) = limits_with_bucket("10/10s");
    let take = |permits| at_once(bucket.check_n("ann", permits)).unwrap();
    let (first, second) = (take(5), take(5));
    at_once(limits.refund(first)).unwrap();
    limits.clock().advance(Nanos::from_secs(5));
    let _all = take(10);
    at_once(limits.refund(second)).unwrap();
    assert_eq!(passes(|| at_once(bucket.check("ann")).is_ok()), 0);
}

/// So is one behind a type that can be any algorithm, and one with a ban.
#[test]
fn every_kind_of_bucket_gets_nothing_back_of_several_grants_and_owes_overruns() {
    let bucket = AnyAlgorithm::from(Gcra::token_bucket("10/10s".parse().unwrap()).unwrap());
    let terms = BanTerms {
        strikes: "100/1h".parse().unwrap(),
        first: Nanos::SECOND,
        growth_thousandths: 1_000,
        longest: Nanos::SECOND,
    };
    let banning = Banning::new(bucket.clone(), terms).unwrap();
    for limit in [bucket, banning.into()] {
        let one = Limiter::with_clock(limit.clone(), ManualClock::default());
        let (first, second) = (one.check_n(5).unwrap(), one.check_n(5).unwrap());
        one.try_refund(first).unwrap();
        one.clock().advance(Nanos::from_secs(5));
        assert!(one.check_n(10).is_ok());
        one.try_refund(second).unwrap();
        assert_eq!(one.peek().remaining, Permits::ZERO, "{limit:?}");

        let memory = MemoryConfig::default();
        let keyed = KeyedLimiter::with_clock(limit.clone(), memory, ManualClock::default());
        let ann = keyed.key("ann");
        let (first, second) = (ann.check_n(5).unwrap(), ann.check_n(5).unwrap());
        ann.try_refund(first).unwrap();
        keyed.clock().advance(Nanos::from_secs(5));
        assert!(ann.check_n(10).is_ok());
        ann.try_refund(second).unwrap();
        assert_eq!(ann.peek().remaining, Permits::ZERO, "{limit:?}");

        // And owes what it has used.
        let bob = keyed.key("bob");
        bob.try_settle(bob.check().unwrap().used(100)).unwrap();
        let wait = Duration::from_secs(91);
        assert_eq!(bob.check(), Err(Refused::Until(wait)), "{limit:?}");
    }
}

#[test]
fn nothing_comes_back_of_what_was_taken_before_a_reset() {
    let limiter = ten_in_ten_seconds();
    let ann = limiter.key("ann");
    let before = ann.check_n(10).unwrap();
    ann.reset();
    let after = ann.check_n(10).unwrap();
    ann.refund(before);
    assert_eq!(passes(|| ann.check().is_ok()), 0);
    ann.refund(after);
    assert_eq!(
        passes(|| ann.check().is_ok()),
        10,
        "charged after the reset"
    );

    // Resets are counted without an end.
    let limiter = Limiter::with_clock(
        Gcra::token_bucket("10/24h".parse().unwrap()).unwrap(),
        ManualClock::default(),
    );
    let before = limiter.check_n(10).unwrap();
    (0..2_048).for_each(|_| limiter.reset());
    let _all = limiter.check_n(10).unwrap();
    limiter.refund(before);
    assert_eq!(passes(|| limiter.check().is_ok()), 0);
}

/// A state may be as a reservation left it, though another was charged in its place.
#[test]
fn a_reservation_is_not_cancelled_after_permits_came_back() {
    let bucket = Gcra::token_bucket("10/10s".parse().unwrap()).unwrap();
    let limiter = Limiter::with_clock(bucket, ManualClock::default());
    let grant = limiter.check_n(5).unwrap();
    let reserved = limiter.reserve(5, Duration::ZERO);
    limiter.refund(grant);
    limiter.clock().advance(Nanos::from_secs(5));
    assert!(limiter.check_n(5).is_ok());
    assert!(!limiter.cancel(reserved));

    let limiter = ten_in_ten_seconds();
    let ann = limiter.key("ann");
    let grant = ann.check_n(5).unwrap();
    let reserved = ann.reserve(5, Duration::ZERO);
    ann.refund(grant);
    limiter.clock().advance(Nanos::from_secs(5));
    assert!(ann.check_n(5).is_ok());
    assert!(!limiter.cancel(reserved));

    let bob = limiter.key("bob");
    let reserved = bob.reserve(10, Duration::ZERO);
    bob.reset();
    assert!(bob.check_n(10).is_ok());
    assert!(!limiter.cancel(reserved), "it was forgotten");
}

/// Usage is counted by the old numbers at the moment of the change, of all keys.
#[test]
fn keys_that_are_asked_later_have_the_usage_of_the_moment_of_the_change() {
    let limiter = ten_in_ten_seconds();
    for key in 0..200_u64 {
        assert!(limiter.check_n(key, 10).is_ok());
    }
    limiter.set_quota("10/10h".parse().unwrap()).unwrap();
    assert!(limiter.check(0_u64).is_err());
    limiter.clock().advance(Nanos::from_secs(9));
    for key in 0..200_u64 {
        assert!(limiter.check(key).is_err(), "{key}");
    }

    let (limits, bucket) = limits_with_bucket("10/1h");
    let grant = at_once(bucket.check_n("ann", 10)).unwrap();
    bucket.set_quota("10/10s".parse().unwrap()).unwrap();
    limits.clock().advance(Nanos::from_secs(10));
    let _all = at_once(bucket.check_n("ann", 10)).unwrap();
    at_once(limits.refund(grant)).unwrap();
    assert_eq!(passes(|| at_once(bucket.check("ann")).is_ok()), 0);
}

/// Charges that meet a change are charged by one of the numbers at least.
#[test]
fn no_charge_is_lost_while_the_numbers_change() {
    let quotas = ["1000/1h", "1000/1000h"].map(|text| text.parse::<Quota>().unwrap());
    for round in 0..40 {
        let clock = ManualClock::default();
        clock.advance(Nanos::from_secs(1));
        let limiter = Limiter::with_clock(Gcra::token_bucket(quotas[0]).unwrap(), clock);
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for cost in 1..=3 {
                let (limiter, passed) = (&limiter, &passed);
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        if limiter.check_n(cost).is_ok() {
                            passed.fetch_add(cost, Ordering::Relaxed);
                        }
                    }
                });
            }
            for change in 0..500 {
                limiter.set_quota(quotas[change % 2]).unwrap();
            }
        });
        assert!(passed.into_inner() <= 1_000, "round {round}");
    }
}

/// What comes back of one charge of a request does not lessen what comes back of another.
#[test]
fn all_charges_of_a_request_for_one_key_come_back() {
    let (limits, bucket) = limits_with_bucket("10/10s");
    let charges = [bucket.of("ann").cost(3), bucket.of("ann").cost(4)];
    for (seconds, left) in [(0, 10), (3, 10), (5, 10)] {
        at_once(bucket.reset("ann")).unwrap();
        let grant = at_once(limits.check(&charges)).unwrap();
        limits.clock().advance(Nanos::from_secs(seconds));
        at_once(limits.refund(grant)).unwrap();
        let remaining = at_once(bucket.peek("ann")).unwrap().remaining.get();
        assert_eq!(remaining, left, "after {seconds} s");
    }
}

/// What a later charge gives back does not make an earlier one paid sooner.
#[test]
fn charges_that_come_back_in_any_order_come_back_whole() {
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
        let keyed = ten_in_ten_seconds();
        let bucket = Gcra::token_bucket("10/10s".parse().unwrap()).unwrap();
        let one = Limiter::with_clock(bucket, ManualClock::default());
        let (limits, named) = limits_with_bucket("10/10s");
        let ann = keyed.key("ann");
        let mut grants: Vec<_> = (0..5)
            .map(|_| {
                let shared = at_once(named.check_n("ann", 2)).unwrap();
                Some((one.check_n(2).unwrap(), ann.check_n(2).unwrap(), shared))
            })
            .collect();
        for clock in [one.clock(), keyed.clock(), limits.clock()] {
            clock.advance(Nanos::from_millis(100));
        }
        for at in order {
            let (alone, key, shared) = grants[at].take().unwrap();
            one.refund(alone);
            ann.refund(key);
            at_once(limits.refund(shared)).unwrap();
        }
        let left = at_once(named.peek("ann")).unwrap().remaining;
        let left = [one.peek().remaining, ann.peek().remaining, left];
        assert_eq!(left.map(Permits::get), [10; 3], "{order:?}");
    }
}

/// A key with many requests in flight does not run empty.
#[test]
fn charges_come_back_whole_however_many_come_back_meanwhile() {
    let quota = "3600/1h".parse().unwrap();
    let limiter = Limiter::with_clock(Gcra::token_bucket(quota).unwrap(), ManualClock::default());
    let keyed = KeyedLimiter::with_clock(
        Gcra::token_bucket(quota).unwrap(),
        MemoryConfig::default(),
        ManualClock::default(),
    );
    let ann = keyed.key("ann");
    assert!(limiter.check_n(1_800).is_ok() && ann.check_n(1_800).is_ok());
    let mut open = std::collections::VecDeque::new();
    for _ in 0..100_000 {
        for clock in [limiter.clock(), keyed.clock()] {
            clock.advance(Nanos::from_millis(1));
        }
        open.push_back((limiter.check().unwrap(), ann.check().unwrap()));
        if open.len() > 100 {
            let (one, key) = open.pop_front().unwrap();
            limiter.refund(one);
            ann.refund(key);
        }
    }
    let left = [limiter.peek().remaining, ann.peek().remaining];
    assert_eq!(left.map(Permits::get), [1_800 + 100 - 100; 2]);
}

/// However many permits come back meanwhile, a bucket that is full again gets nothing back.
#[test]
fn many_give_backs_do_not_hide_an_earlier_one() {
    let quota = "1000/1000s".parse().unwrap();
    let limiter = Limiter::with_clock(Gcra::token_bucket(quota).unwrap(), ManualClock::default());
    let (first, second) = (limiter.check_n(500).unwrap(), limiter.check_n(500).unwrap());
    limiter.clock().advance(Nanos::from_nanos(1));
    limiter.refund(first);
    for _ in 0..2_000 {
        let grant = limiter.check().unwrap();
        limiter.clock().advance(Nanos::from_nanos(1));
        limiter.refund(grant);
    }
    limiter.clock().advance(Nanos::from_secs(501));
    assert!(limiter.check_n(1_000).is_ok());
    limiter.refund(second);
    assert_eq!(limiter.peek().remaining.get(), 0);
}

/// Nearly all of many charges that are open at once comes back, in whatever order.
#[test]
fn many_open_charges_come_back_nearly_whole() {
    let bucket = || Gcra::token_bucket("1000/1000h".parse().unwrap()).unwrap();
    let one = Limiter::with_clock(bucket(), ManualClock::default());
    let many = KeyedLimiter::with_clock(bucket(), MemoryConfig::default(), ManualClock::default());
    let mut open: Vec<_> = (0..800)
        .map(|_| (one.check().unwrap(), many.key("k").check().unwrap()))
        .collect();
    let mut number = 0;
    let mut give_back = |open: &mut Vec<_>| {
        number += 1;
        let (grant, of_key) = open.swap_remove(number * 7_919 % open.len());
        one.refund(grant);
        many.key("k").refund(of_key);
    };
    for _ in 0..1_000 {
        give_back(&mut open);
        one.clock().advance(Nanos::from_nanos(1));
        many.clock().advance(Nanos::from_nanos(1));
        open.push((one.check().unwrap(), many.key("k").check().unwrap()));
    }
    while !open.is_empty() {
        give_back(&mut open);
    }
    for left in [one.peek().remaining, many.key("k").peek().remaining] {
        assert!(left.get() >= 980, "{left}");
    }
}

/// Keys that owe nothing after a give-back take no room from those that do.
#[test]
fn give_backs_of_many_keys_do_not_hide_those_of_another() {
    let bucket = Gcra::token_bucket("10/10s".parse().unwrap()).unwrap();
    let memory = MemoryConfig {
        budget_bytes: 1 << 20,
    };
    let limiter = KeyedLimiter::with_clock(bucket, memory, ManualClock::default());
    for key in 0..5_000_u64 {
        let grant = limiter.key(&key).check().unwrap();
        limiter.key(&key).refund(grant);
    }
    let key = limiter.key(&5_000);
    let (first, second) = (key.check_n(5).unwrap(), key.check_n(5).unwrap());
    key.refund(first);
    limiter.clock().advance(Nanos::from_secs(5));
    assert!(key.check_n(10).is_ok());
    key.refund(second);
    assert_eq!(key.peek().remaining.get(), 0);
}

/// A charge, by the definition: when it was made, and the nanoseconds that it still takes.
struct ModelCharge {
    at: u64,
    takes: u64,
}

/// Returns when time has paid for all of the charges.
fn paid(charges: &[ModelCharge]) -> u64 {
    let pay = |paid: u64, charge: &ModelCharge| paid.max(charge.at) + charge.takes;
    charges.iter().fold(0, pay)
}

fn moments() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(50_000_000), 0..4_000_000_000_u64]
}

proptest! {
    /// What comes back of a charge is the part that time has not paid, had the charges before it
    /// been smaller by what came back of them.
    #[test]
    fn charges_come_back_as_far_as_time_has_not_paid(
        most in prop_oneof![Just(10), Just(1_000_u64)],
        life in proptest::collection::vec((moments(), 0..3_u8, any::<usize>()), 1..300),
    ) {
        const SECOND: u64 = 1_000_000_000;
        let quota = Quota::per_second(1).burst(most);
        let bucket = Gcra::token_bucket(quota).unwrap();
        let limiter = Limiter::with_clock(bucket, ManualClock::default());
        let (mut charges, mut open) = (Vec::new(), Vec::new());
        let mut now = 0;
        for (wait, what, which) in life {
            now += wait;
            limiter.clock().advance(Nanos::from_nanos(wait));
            if what > 0 {
                let cost = 1 + which as u64 % 5;
                if let Ok(grant) = limiter.check_n(cost) {
                    open.push((charges.len(), grant));
                    charges.push(ModelCharge { at: now, takes: cost * SECOND });
                }
            } else if !open.is_empty() {
                let (index, grant) = open.swap_remove(which % open.len());
                limiter.refund(grant);
                let unpaid = paid(&charges[..=index]).saturating_sub(now);
                let charge = &mut charges[index];
                charge.takes -= if charge.at == now { charge.takes } else { unpaid.min(charge.takes) };
            }
            let owed = limiter.peek().reset_after.as_nanos();
            let least = paid(&charges).saturating_sub(now);
            prop_assert_eq!(owed, least);
        }
    }
}
