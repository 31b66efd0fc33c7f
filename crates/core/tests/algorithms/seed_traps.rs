//! The faults of the founding documents, each as a test that it is not here.
//!
//! ```text
//!   000  intervals in whole milliseconds; refills that drop the remainder; denials that are
//!        recorded; a map that is never cleaned
//!   001  one more than the limit passes, if it is counted before it is added
//!   003  no rule for a cost above 1, or for a quota of 1; a formula that forgets the cap;
//!        tokens in floats, which refuse what is due at the end of a window
//!   004  the last token is denied; a window that never ends; a bucket that never drains;
//!        second and clock resolution that undercounts, and 61 slots in 60 seconds; 2N
//!        across the edge of two windows
//! ```
//!
//! Two servers that read, compare and then write admit one too many: here the store holds a
//! lock or exchanges a word; see the tests of `ratekeeper-store` with many threads.
//!
//! ```text
//!   limit 2 a minute, strict or not        o  o  x            o
//!                                          0  1  2 ..        60 s: not 61
//! ```
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper_core::{
    Algorithm, Denials, Edge, Exponential, Gcra, Hybrid, HybridState, Interval, Log, LogState,
    Nanos, Permits, Quota, QuotaReset, QuotaResetState, SubBuckets, Tat, Time, Verdict, Window,
    WindowState,
};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// The number of `tries`, one every `gap` nanoseconds, that pass.
fn admitted<A: Algorithm>(algorithm: &A, tries: u64, gap: u64) -> u64 {
    let mut state = A::State::default();
    let passes = |attempt: &u64| {
        algorithm
            .decide(&mut state, at(attempt * gap), Permits::ONE)
            .verdict
            .allows()
    };
    (0..tries).filter(passes).count() as u64
}

#[test]
fn seed_000_intervals_are_not_whole_milliseconds() {
    // 1000 / 300 = 3 ms would admit 333 a second; 1000 / 5000 = 0 ms would admit them all.
    for (text, per_second) in [("300/1s", 300), ("5000/1s", 5_000)] {
        let burst_of_one = quota(text).with_burst(Permits::ONE).unwrap();
        let gcra = Gcra::token_bucket(burst_of_one).unwrap();
        let tries = admitted(&gcra, 1_000_000, 10_000); // ten seconds, every 10 us
        assert!(tries <= 10 * per_second + 1, "{text}: {tries}");
        assert!(tries >= 10 * per_second * 95 / 100, "{text}: {tries}");
    }
}

#[test]
fn seed_000_refills_keep_the_remainder() {
    // Asked every 0.7 of an interval, a refill that starts afresh each time loses a third.
    let gcra = Gcra::token_bucket(quota("10/1s")).unwrap();
    let passed = admitted(&gcra, 100_000, 70_000_000); // 7,000 s
    assert_eq!(
        passed,
        10 + 69_999,
        "the burst, plus one permit per 100 ms except the last"
    );
}

#[test]
fn seed_000_a_client_that_keeps_trying_gets_through() {
    let quota = quota("5/1s");
    let full = SubBuckets::sub_buckets(quota, 5, Edge::Full, Nanos::ZERO).unwrap();
    let two_window = Window::two_window(quota, Nanos::ZERO).unwrap();
    let gcra = Gcra::token_bucket(quota).unwrap();
    let log = Log::sliding(quota).unwrap();
    let hybrid = Hybrid::quota_linear(quota).unwrap();
    let exponential = Exponential::new(quota).unwrap();
    for (name, passed) in [
        ("full", admitted(&full, 60_000, 1_000_000)), // a minute, every ms
        ("two-window", admitted(&two_window, 60_000, 1_000_000)),
        ("gcra", admitted(&gcra, 60_000, 1_000_000)),
        ("log", admitted(&log, 60_000, 1_000_000)),
        ("hybrid", admitted(&hybrid, 60_000, 1_000_000)),
        ("exponential", admitted(&exponential, 60_000, 1_000_000)),
    ] {
        assert!(passed >= 4 * 50, "{name} admits {passed} a minute of 300");
    }
}

#[test]
fn seed_000_whole_refills_keep_the_remainder_too() {
    // Asked every 0.7 s, a refill of one a second that starts afresh each time never comes.
    let second = Nanos::SECOND;
    let bucket = Interval::from_first(Permits::new(10), Permits::ONE, second).unwrap();
    assert_eq!(admitted(&bucket, 10_000, 700_000_000), 10 + 6_999);
}

#[test]
fn seed_000_a_client_that_keeps_trying_is_locked_out_only_if_denials_count() {
    let strict = Log::sliding(quota("5/1s")).unwrap();
    let strict = strict.with_denials(Denials::Counted);
    assert_eq!(
        admitted(&strict, 60_000, 1_000_000),
        5,
        "only the first five are admitted"
    );
    assert_eq!(
        admitted(&strict, 300, 200_000_000),
        300,
        "a client at the rate of the limit is always admitted"
    );
}

#[test]
fn seed_000_idle_states_expire() {
    let quota = quota("5/1s");
    let mut tat = Tat::default();
    let gcra = Gcra::token_bucket(quota).unwrap();
    let _ = gcra.decide(&mut tat, at(0), Permits::new(5));
    assert_eq!(gcra.expires_at(&tat, at(0)), at(1_000_000_000));
    let mut state = WindowState::default();
    let window = Window::two_window(quota, Nanos::ZERO).unwrap();
    let _ = window.decide(&mut state, at(0), Permits::new(5));
    assert_eq!(window.expires_at(&state, at(0)), at(2_000_000_000));
}

#[test]
fn seed_001_exactly_the_limit_is_admitted() {
    let log = Log::sliding(quota("7/1s")).unwrap();
    assert_eq!(admitted(&log, 100, 1_000), 7);
    assert_eq!(admitted(&log.with_denials(Denials::Counted), 100, 1_000), 7);
}

#[test]
fn seed_003_a_full_bucket_is_capped() {
    // Twice too fast, 10 are saved up: q x a / (a - 1) = 20 would pass; the last is refused,
    // since the first found the bucket full and refilled nothing.
    let bucket = Gcra::token_bucket(quota("10/10s")).unwrap();
    let half = |attempt: u64| at(attempt * 500_000_000);
    let mut tat = Tat::default();
    let mut tries = (0..).take_while(|&attempt| {
        let decision = bucket.decide(&mut tat, half(attempt), Permits::ONE);
        decision.verdict.allows()
    });
    assert_eq!(tries.by_ref().count(), 19);
}

#[test]
fn seed_003_a_permit_due_at_the_end_of_the_window_is_granted() {
    // A smooth hybrid of N in P owes one at the end of its window and one each P / N: for quotas
    // where no float holds P / N, to the nanosecond.
    for permits in [3, 6, 7, 9, 11, 13, 49] {
        let per = 1_000_000_000;
        let quota = Quota::new(Permits::new(permits), Nanos::from_nanos(per)).unwrap();
        let hybrid = Hybrid::quota_linear(quota).unwrap();
        let mut state = HybridState::default();
        let _ = hybrid.decide(&mut state, at(0), Permits::new(permits));
        for due in 0..(10 * permits) {
            let due = per + (due * per).div_ceil(permits);
            let mut ask = |now| hybrid.decide(&mut state, at(now), Permits::ONE).verdict;
            let retry_after = Nanos::from_nanos(1);
            assert_eq!(ask(due - 1), Verdict::Deny { retry_after }, "{permits}");
            assert_eq!(ask(due), Verdict::Allow, "{permits}");
        }
    }
}

#[test]
fn seed_003_a_hybrid_of_one_turns_smooth() {
    let hybrid = Hybrid::quota_linear(quota("1/1s")).unwrap();
    assert_eq!(
        admitted(&hybrid, 100, 100_000_000),
        10,
        "one request per second is admitted"
    );
    let mut state = HybridState::default();
    let mut ask = |now, cost| {
        hybrid
            .decide(&mut state, at(now), Permits::new(cost))
            .verdict
    };
    assert_eq!(ask(0, 2), Verdict::DenyForever);
    assert_eq!(ask(0, 1), Verdict::Allow);
    let retry_after = Nanos::from_nanos(1);
    assert_eq!(ask(999_999_999, 1), Verdict::Deny { retry_after });
    assert_eq!(ask(1_000_000_000, 1), Verdict::Allow);
}

#[test]
fn seed_003_any_cost_and_a_quota_of_one_are_decided_correctly() {
    let quota_reset = QuotaReset::new(quota("5/1s")).unwrap();
    let mut state = QuotaResetState::default();
    for (now, cost, verdict) in [
        (0, 4, Verdict::Allow),
        (
            1,
            2,
            Verdict::Deny {
                retry_after: Nanos::from_nanos(999_999_999),
            },
        ),
        (2, 1, Verdict::Allow),
        (3, 6, Verdict::DenyForever),
        (1_000_000_000, 5, Verdict::Allow),
    ] {
        let decision = quota_reset.decide(&mut state, at(now), Permits::new(cost));
        assert_eq!(decision.verdict, verdict, "cost {cost} at {now}");
    }
    let one = quota("1/1s");
    assert_eq!(
        admitted(&Gcra::token_bucket(one).unwrap(), 100, 100_000_000),
        10
    );
    assert_eq!(
        admitted(&Window::fixed(one, Nanos::ZERO).unwrap(), 100, 100_000_000),
        10
    );
    assert_eq!(
        admitted(&QuotaReset::new(one).unwrap(), 100, 100_000_000),
        10
    );
}

#[test]
fn seed_004_the_last_token_can_be_spent() {
    let quota = quota("7/1s");
    assert_eq!(admitted(&Gcra::token_bucket(quota).unwrap(), 20, 0), 7);
    assert_eq!(
        admitted(&Window::fixed(quota, Nanos::ZERO).unwrap(), 20, 0),
        7
    );
    assert_eq!(
        admitted(&Window::two_window(quota, Nanos::ZERO).unwrap(), 20, 0),
        7
    );
    assert_eq!(admitted(&QuotaReset::new(quota).unwrap(), 20, 0), 7);
    for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
        let window = SubBuckets::sub_buckets(quota, 6, edge, Nanos::ZERO).unwrap();
        assert_eq!(admitted(&window, 20, 0), 7, "{edge:?}");
    }
    assert_eq!(admitted(&Log::sliding(quota).unwrap(), 20, 0), 7);
    assert_eq!(admitted(&Hybrid::quota_linear(quota).unwrap(), 20, 0), 7);
    assert_eq!(admitted(&Exponential::new(quota).unwrap(), 20, 0), 7);
    let whole = Interval::from_first(quota.permits(), Permits::ONE, quota.per()).unwrap();
    assert_eq!(admitted(&whole, 20, 0), 7);
}

#[test]
fn seed_004_a_minute_has_sixty_seconds() {
    // A place taken at 0 s is free at 60 s, not at 61 s; nor a moment before.
    let log = Log::sliding(quota("2/60s")).unwrap();
    let mut logged = LogState::default();
    let mut ask = |second: u64, more: u64| {
        let now = at(second * 1_000_000_000 + more);
        log.decide(&mut logged, now, Permits::ONE).verdict.allows()
    };
    assert!(ask(0, 0) && ask(1, 0) && !ask(2, 0));
    assert!(!ask(59, 999_999_999) && ask(60, 0));
    assert!(!ask(60, 999_999_999) && ask(61, 0) && !ask(61, 0));
}

#[test]
fn seed_004_a_window_ends_and_the_next_starts_with_the_whole_quota() {
    let quota_reset = QuotaReset::new(quota("7/1s")).unwrap();
    // Every 100 ms: 7 of each 10, window after window.
    assert_eq!(admitted(&quota_reset, 1_000, 100_000_000), 700);
}

#[test]
fn seed_004_a_leaky_bucket_drains() {
    let queue = Gcra::leaky_queue(quota("10/1s"), Permits::new(4)).unwrap();
    let mut tat = Tat::default();
    let mut fill = |now| {
        (0..10)
            .filter(|_| {
                queue
                    .decide(&mut tat, at(now), Permits::ONE)
                    .verdict
                    .allows()
            })
            .count()
    };
    assert_eq!(fill(0), 5);
    assert_eq!(fill(200_000_000), 2, "two requests have left the bucket");
    assert_eq!(fill(10_000_000_000), 5, "all requests have left the bucket");
}

#[test]
fn seed_004_all_events_of_one_moment_count() {
    // A set of time stamps holds a moment once; a second is many moments.
    let window = SubBuckets::sub_buckets(quota("5/1s"), 4, Edge::Full, Nanos::ZERO).unwrap();
    assert_eq!(admitted(&window, 100, 0), 5);
    assert_eq!(admitted(&window, 100, 1), 5);
    let log = Log::sliding(quota("5/1s")).unwrap();
    assert_eq!(admitted(&log, 100, 0), 5);
}

#[test]
fn seed_004_only_a_fixed_window_admits_twice_its_limit_across_an_edge() {
    let quota = quota("10/1s");
    let sub_buckets = |edge| SubBuckets::sub_buckets(quota, 4, edge, Nanos::ZERO).unwrap();
    let fixed = Window::fixed(quota, Nanos::ZERO).unwrap();
    assert_eq!(
        across_the_edge(&fixed),
        20,
        "a fixed window admits two quotas across the edge, as documented"
    );
    assert_eq!(
        across_the_edge(&Window::two_window(quota, Nanos::ZERO).unwrap()),
        10
    );
    assert_eq!(across_the_edge(&sub_buckets(Edge::Drop)), 10);
    assert_eq!(across_the_edge(&sub_buckets(Edge::Full)), 10);
}

/// A hundred requests in the last nanosecond of a second, a hundred in the first of the next.
fn across_the_edge<A: Algorithm>(algorithm: &A) -> usize {
    let mut state = A::State::default();
    let mut burst = |now| {
        let passes = |_: &i32| {
            algorithm
                .decide(&mut state, at(now), Permits::ONE)
                .verdict
                .allows()
        };
        (0..100).filter(passes).count()
    };
    burst(999_999_999) + burst(1_000_000_000)
}
