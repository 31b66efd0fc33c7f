//! The faults of the founding documents, each as a test that it is not here.
//!
//! ```text
//!   000  intervals in whole milliseconds; refills that drop the remainder; denials that are
//!        recorded; a map that is never cleaned
//!   003  no rule for a cost above 1, or for a quota of 1
//!   004  the last token is denied; a window that never ends; a bucket that never drains;
//!        second and clock resolution that undercounts; 2N across the edge of two windows
//! ```
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use ratekeeper_core::{
    Algorithm, Edge, Gcra, Nanos, Permits, Quota, SubBuckets, Tat, Time, Verdict, Window,
    WindowState,
};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// The most there is: how many of `tries`, one every `gap` nanoseconds, pass.
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
        "the burst, and one for every 100 ms but the last"
    );
}

#[test]
fn seed_000_a_client_that_keeps_trying_gets_through() {
    let quota = quota("5/1s");
    let full = SubBuckets::sub_buckets(quota, 5, Edge::Full, Nanos::ZERO).unwrap();
    let two_window = Window::two_window(quota, Nanos::ZERO).unwrap();
    let gcra = Gcra::token_bucket(quota).unwrap();
    for (name, passed) in [
        ("full", admitted(&full, 60_000, 1_000_000)), // a minute, every ms
        ("two-window", admitted(&two_window, 60_000, 1_000_000)),
        ("gcra", admitted(&gcra, 60_000, 1_000_000)),
    ] {
        assert!(passed >= 4 * 50, "{name} admits {passed} a minute of 300");
    }
}

#[test]
fn seed_000_what_is_idle_can_be_forgotten() {
    let quota = quota("5/1s");
    let mut tat = Tat::default();
    let gcra = Gcra::token_bucket(quota).unwrap();
    let _ = gcra.decide(&mut tat, at(0), Permits::new(5));
    assert_eq!(gcra.expires_at(&tat), at(1_000_000_000));
    let mut state = WindowState::default();
    let window = Window::two_window(quota, Nanos::ZERO).unwrap();
    let _ = window.decide(&mut state, at(0), Permits::new(5));
    assert_eq!(window.expires_at(&state), at(2_000_000_000));
}

#[test]
fn seed_003_any_cost_and_a_quota_of_one() {
    let quota_reset = Window::quota_reset(quota("5/1s")).unwrap();
    let mut state = WindowState::default();
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
        admitted(&Window::quota_reset(one).unwrap(), 100, 100_000_000),
        10
    );
}

#[test]
fn seed_004_the_last_token_is_a_token() {
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
    assert_eq!(admitted(&Window::quota_reset(quota).unwrap(), 20, 0), 7);
    for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
        let window = SubBuckets::sub_buckets(quota, 6, edge, Nanos::ZERO).unwrap();
        assert_eq!(admitted(&window, 20, 0), 7, "{edge:?}");
    }
}

#[test]
fn seed_004_a_window_ends_and_the_next_is_whole() {
    let quota_reset = Window::quota_reset(quota("7/1s")).unwrap();
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
    assert_eq!(fill(200_000_000), 2, "two have left");
    assert_eq!(fill(10_000_000_000), 5, "all have left");
}

#[test]
fn seed_004_events_of_one_moment_all_count() {
    // A set of time stamps holds a moment once; a second is many moments.
    let window = SubBuckets::sub_buckets(quota("5/1s"), 4, Edge::Full, Nanos::ZERO).unwrap();
    assert_eq!(admitted(&window, 100, 0), 5);
    assert_eq!(admitted(&window, 100, 1), 5);
}

#[test]
fn seed_004_across_the_edge_of_two_windows() {
    let quota = quota("10/1s");
    let sub_buckets = |edge| SubBuckets::sub_buckets(quota, 4, edge, Nanos::ZERO).unwrap();
    let fixed = Window::fixed(quota, Nanos::ZERO).unwrap();
    assert_eq!(across_the_edge(&fixed), 20, "as documented");
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
