//! Stories: the decisions of each window, moment by moment.

use super::*;
use crate::Verdict;
use crate::algorithm::Refund as _;

const SECOND: u64 = 1_000_000_000;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// One row of a story: at `now` ms, `cost`: the wait in ms if denied, and `remaining`.
type Row = (u64, u64, Option<u64>, u64);

fn check<C: Counters>(limit: &Window<C>, rows: &[Row]) {
    let mut state = WindowState::default();
    for &(now, cost, wait, remaining) in rows {
        let now = Time::ZERO + Nanos::from_millis(now);
        let looked = limit.look(&state, now, Permits::new(cost));
        let before = state.clone();
        let decision = limit.decide(&mut state, now, Permits::new(cost));
        assert_eq!(decision, looked, "look at {now:?}");
        let verdict = match wait {
            None => Verdict::Allow,
            Some(wait) => Verdict::Deny {
                retry_after: Nanos::from_millis(wait),
            },
        };
        assert_eq!(decision.verdict, verdict, "cost {cost} at {now:?}");
        assert_eq!(
            decision.remaining.get(),
            remaining,
            "cost {cost} at {now:?}"
        );
        if wait.is_some() {
            assert_eq!(state, before, "a denial writes nothing");
        }
    }
}

#[test]
fn fixed_windows_start_afresh() {
    let limit = Window::fixed(quota("10/1s"), Nanos::ZERO).unwrap();
    check(
        &limit,
        &[
            (900, 9, None, 1),
            (900, 2, Some(100), 1),
            (900, 1, None, 0),
            (1_000, 10, None, 0),
        ],
    );
}

#[test]
fn two_windows_share_the_edge() {
    let limit = Window::two_window(quota("10/1s"), Nanos::ZERO).unwrap();
    let mut state = WindowState::default();
    for (now, cost, wait, remaining) in [
        (900, 10, None, 0),
        (1_000, 1, Some(1), 0),          // all of the ten are still in sight
        (1_050, 1, None, 0),             // nine and a half of them: the half is for free
        (1_050, 1, Some(50_000_001), 0), // until less than nine are
        (1_500, 5, Some(1), 4),          // five of them, and one
        (1_501, 5, None, 0),
        (1_999, 10, Some(834_333_334), 4), // until less than one of the six is in sight
    ] {
        let now = Time::ZERO + Nanos::from_millis(now);
        let decision = limit.decide(&mut state, now, Permits::new(cost));
        let waits = decision.verdict.retry_after().map(Nanos::as_nanos);
        assert_eq!(waits, wait, "cost {cost} at {now:?}");
        assert_eq!(
            decision.remaining.get(),
            remaining,
            "cost {cost} at {now:?}"
        );
    }
}

#[test]
fn a_caller_at_the_rate_gets_the_rate() {
    // One a minute, asked for each second of an hour: half of them passed when the estimate
    // counted the request itself.
    for (permits, passed) in [(1, 60), (2, 120), (5, 300)] {
        let quota = Quota::new(Permits::new(permits), Nanos::from_secs(60)).unwrap();
        let limit = Window::two_window(quota, Nanos::ZERO).unwrap();
        let mut state = WindowState::default();
        let passes = |second: &u64| {
            let now = Time::from_nanos(second * SECOND);
            limit.decide(&mut state, now, Permits::ONE).verdict.allows()
        };
        assert_eq!(
            (0..3_600).filter(passes).count(),
            passed,
            "{permits} a minute"
        );
    }
}

#[test]
fn full_sub_buckets_hold_the_limit_in_any_span() {
    let limit = SubBuckets::sub_buckets(quota("10/1s"), 4, Edge::Full, Nanos::ZERO).unwrap();
    check(
        &limit,
        &[
            (249, 6, None, 4),
            (250, 4, None, 0),
            (1_249, 1, Some(1), 0),
            (1_250, 6, None, 0),
            (1_250, 7, Some(1_250), 0),
        ],
    );
}

#[test]
fn a_clock_that_steps_back_waits_longer_by_the_step() {
    let limit = Window::fixed(quota("10/1s"), Nanos::ZERO).unwrap();
    check(
        &limit,
        &[
            (1_000, 10, None, 0),
            (500, 1, Some(1_500), 0),
            (1_999, 1, Some(1), 0),
        ],
    );
}

#[test]
fn costs_above_the_quota_are_denied_for_ever() {
    let limit = Window::fixed(quota("10/1s"), Nanos::ZERO).unwrap();
    let mut state = WindowState::default();
    let decision = limit.decide(&mut state, Time::ZERO, Permits::new(11));
    assert_eq!(decision.verdict, Verdict::DenyForever);
    assert_eq!(
        (decision.remaining, state),
        (Permits::new(10), WindowState::default())
    );
}

#[test]
fn a_counted_cost_above_the_limit_is_recorded() {
    let limit = Window::two_window(quota("10/1s"), Nanos::ZERO).unwrap();
    let limit = limit.with_denials(Denials::Counted);
    for (cost, recorded) in [(11, 11), (20, 20), (u64::MAX, 20)] {
        let mut state = WindowState::default();
        let denied = limit.decide(&mut state, Time::ZERO, Permits::new(cost));
        assert_eq!(denied.verdict, Verdict::DenyForever);
        assert_eq!(denied.remaining, Permits::ZERO);
        let mut expected = WindowState::default();
        for _ in 0..recorded {
            let _ = limit.decide(&mut expected, Time::ZERO, Permits::ONE);
        }
        assert_eq!(state, expected, "{cost}");
    }
}

#[test]
fn counted_denials_lock_out_for_a_finite_time() {
    let limit = Window::two_window(quota("10/1s"), Nanos::ZERO).unwrap();
    let limit = limit.with_denials(Denials::Counted);
    let mut state = WindowState::default();
    for _ in 0..100 {
        let _ = limit.decide(&mut state, Time::ZERO, Permits::ONE);
    }
    assert_eq!(
        state.counts,
        [20, 0],
        "counted denials add at most one quota"
    );
    let now = Time::from_nanos(SECOND + SECOND / 2);
    assert_eq!(
        limit.look(&state, now, Permits::ZERO).remaining,
        Permits::ZERO
    );
    assert!(
        limit
            .look(&state, Time::from_nanos(2 * SECOND), Permits::new(10))
            .verdict
            .allows()
    );
}

#[test]
fn states_are_kept_while_windows_are_the_same() {
    let fixed = |text| Window::fixed(quota(text), Nanos::ZERO).unwrap();
    let two_window = Window::two_window(quota("10/1s"), Nanos::ZERO).unwrap();
    let shifted = Window::fixed(quota("10/1s"), Nanos::from_millis(1)).unwrap();
    for (new, kept) in [
        (fixed("10/1s"), true),
        (fixed("99/1s"), true),
        (two_window, true),
        (fixed("10/1s").with_denials(Denials::Counted), true),
        (fixed("10/2s"), false),
        (shifted, false),
    ] {
        assert_eq!(new.keeps_state_of(&fixed("10/1s")), kept, "{new:?}");
    }
    let sub = |count| SubBuckets::sub_buckets(quota("12/1s"), count, Edge::Full, Nanos::ZERO);
    assert!(sub(3).unwrap().keeps_state_of(&sub(3).unwrap()));
    assert!(!sub(3).unwrap().keeps_state_of(&sub(4).unwrap()));
}

#[test]
fn windows_that_cannot_be_counted_are_refused() {
    let sub =
        |text, count| SubBuckets::sub_buckets(quota(text), count, Edge::Full, Nanos::ZERO).err();
    assert_eq!(sub("10/1s", 0), Some(Error::SubBuckets));
    assert_eq!(sub("10/1s", 60), None);
    assert_eq!(sub("10/1s", 61), Some(Error::SubBuckets));
    assert_eq!(sub("10/5ns", 6), Some(Error::SubBuckets));
    let fixed = |text| Window::fixed(quota(text), Nanos::ZERO).err();
    assert_eq!(fixed("1/26000d"), None, "71 years");
    assert_eq!(fixed("1/27000d"), Some(Error::WindowTooLong), "74 years");
}

#[test]
fn a_refund_frees_the_window_it_falls_in() {
    let limit = Window::fixed(quota("10/1s"), Nanos::ZERO).unwrap();
    let mut state = WindowState::default();
    let at = |millis| Time::ZERO + Nanos::from_millis(millis);
    let _ = limit.decide(&mut state, at(500), Permits::new(6));
    limit.refund(&mut state, at(900), Permits::new(2));
    assert_eq!(
        limit.look(&state, at(900), Permits::ZERO).remaining,
        Permits::new(6)
    );
    let before = state.clone();
    limit.refund(&mut state, at(1_000), Permits::new(2));
    assert_eq!(
        state, before,
        "a refund after the end of the window is dropped"
    );
    limit.refund(&mut state, at(999), Permits::MAX);
    assert_eq!(state, WindowState::default());
}

#[test]
fn states_are_small() {
    assert_eq!(size_of::<WindowState<[u64; 2]>>(), 24);
    assert_eq!(size_of::<WindowState<Buckets>>(), 32);
}

#[test]
fn a_key_that_begins_at_a_floor_is_in_the_same_window() {
    let fixed = Window::fixed(quota("5/10s"), Nanos::ZERO).unwrap();
    let at = |seconds| Time::from_nanos(seconds * SECOND);
    let mut floor = WindowState::default();
    let _ = fixed.decide(&mut floor, at(1), Permits::new(3));
    let begun = fixed.state_with_usage(fixed.usage(&floor, at(9)), at(9));
    assert_eq!(begun, floor);
}
