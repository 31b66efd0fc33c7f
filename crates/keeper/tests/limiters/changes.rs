//! Changes of the numbers of a limit while it is used.

use std::time::Duration;

use ratekeeper::core::{Gcra, Quota};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{KeyedLimiter, Limiter, ManualClock, Refused};

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
