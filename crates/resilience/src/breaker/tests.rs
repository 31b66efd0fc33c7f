//! What a breaker does, in time that is a number.

use super::*;
use proptest::prelude::*;

fn secs(secs: u64) -> Time {
    Time::ZERO + Nanos::from_secs(secs)
}

fn breaker() -> Breaker {
    Breaker::new(BreakerSettings::default(), SplitMix::new(1)).unwrap()
}

fn report(breaker: &Breaker, now: Time, successes: u32, failures: u32) {
    for _ in 0..successes {
        breaker.try_pass(now).unwrap().success(now);
    }
    for _ in 0..failures {
        match breaker.try_pass(now) {
            Ok(permit) => permit.failure(now),
            Err(_) => return,
        }
    }
}

/// Opens a breaker at `now`, and returns until when.
fn open(breaker: &Breaker, now: Time) -> Time {
    report(breaker, now, 0, 20);
    breaker.try_pass(now).unwrap_err().until
}

/// Lets a whole recovery succeed at `now`.
fn recover(breaker: &Breaker, now: Time) {
    for _ in 0..1 + 2 + 4 {
        breaker.try_pass(now).unwrap().success(now);
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[test]
fn half_of_twenty_opens() {
    for (successes, failures, opens) in [
        (0, 19, false),
        (0, 20, true),
        (10, 9, false),
        (10, 10, true),
        (11, 10, false),
        (1_000, 999, false),
        (1_000, 1_000, true),
    ] {
        let breaker = breaker();
        report(&breaker, secs(1), successes, failures);
        let opened = breaker.state() != BreakerState::Closed;
        assert_eq!(opened, opens, "{successes} and {failures}");
        assert_eq!(breaker.opened_total(), u64::from(opens));
    }
}

#[test]
fn failures_are_forgotten_after_the_window() {
    let breaker = breaker();
    report(&breaker, secs(0), 0, 19);
    report(&breaker, secs(10), 0, 1);
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[test]
fn probes_come_one_then_two_then_four() {
    let breaker = breaker();
    let now = open(&breaker, secs(1));
    assert!(breaker.try_pass(now - Nanos::from_nanos(1)).is_err());
    for round in [1, 2, 4] {
        let probes: Vec<_> = (0..round).map(|_| breaker.try_pass(now).unwrap()).collect();
        let refused = breaker.try_pass(now).unwrap_err();
        assert_eq!(refused.until, now + Nanos::from_secs(10));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        for probe in probes {
            probe.success(now);
        }
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    report(&breaker, now, 0, 19);
    assert_eq!(
        breaker.state(),
        BreakerState::Closed,
        "the count begins anew"
    );
}

#[test]
fn a_failed_probe_opens_for_longer() {
    let breaker = breaker();
    let mut now = secs(0);
    open(&breaker, now);
    for longest in [5, 10, 20, 40, 60, 60, 60] {
        let BreakerState::Open { until } = breaker.state() else {
            panic!("not open");
        };
        let open_for = until.since(now);
        let longest = Nanos::from_secs(longest);
        let shortest = Nanos::from_nanos(longest.as_nanos() / 5 * 4);
        assert!((shortest..=longest).contains(&open_for), "{open_for:?}");
        now = until;
        breaker.try_pass(now).unwrap().failure(now);
    }
}

#[test]
fn a_fleet_that_was_cut_off_together_returns_over_a_second() {
    let spans: Vec<_> = (0..1_000)
        .map(|seed| {
            let breaker = Breaker::new(BreakerSettings::default(), SplitMix::new(seed)).unwrap();
            open(&breaker, secs(0)).since(Time::ZERO).as_millis_ceil()
        })
        .collect();
    for tenth in 0..10 {
        let from = 4_000 + 100 * tenth;
        let within = spans
            .iter()
            .filter(|&&span| span > from && span <= from + 100);
        // 100, with a standard deviation of 9.5.
        assert!((60..140).contains(&within.count()), "{from} ms");
    }
}

#[test]
fn a_relapse_goes_on_where_it_was_and_health_is_rewarded() {
    for (healthy_secs, longest_secs) in [(0, 10), (9, 10), (10, 5), (100, 5)] {
        let breaker = breaker();
        let closed_at = open(&breaker, secs(0));
        recover(&breaker, closed_at);
        let now = closed_at + Nanos::from_secs(healthy_secs);
        let open_for = open(&breaker, now).since(now);
        let longest = Nanos::from_secs(longest_secs);
        assert!(open_for <= longest, "{healthy_secs}: {open_for:?}");
        let shortest = Nanos::from_nanos(longest.as_nanos() / 5 * 4);
        assert!(open_for >= shortest, "{healthy_secs}: {open_for:?}");
    }
}

#[test]
fn a_dropped_probe_makes_room_and_a_lost_one_is_given_up() {
    let breaker = breaker();
    let now = open(&breaker, secs(0));
    drop(breaker.try_pass(now).unwrap());
    let lost = breaker.try_pass(now).unwrap();
    let given_up = breaker.try_pass(now).unwrap_err().until;
    let until = breaker.try_pass(given_up).unwrap_err().until;
    assert_eq!(breaker.state(), BreakerState::Open { until });
    lost.success(given_up); // too late
    assert_eq!(breaker.state(), BreakerState::Open { until });
}

#[test]
fn a_clock_set_back_neither_locks_out_nor_holds_a_lost_probe() {
    let breaker = breaker();
    open(&breaker, secs(3_600));
    std::mem::forget(
        breaker
            .try_pass(secs(5))
            .expect("no wait is longer than an hour"),
    );
    assert!(breaker.try_pass(secs(14)).is_err(), "a probe is under way");
    // Set back again: a lost probe cannot be recognised. It opens, for 10 s at most.
    let until = breaker.try_pass(secs(1)).unwrap_err().until;
    assert_eq!(breaker.state(), BreakerState::Open { until });
    assert!(until <= secs(11), "{until:?}");
    recover(&breaker, until);
}

/// A thread that reads its clock before another begins a probe may get the lock after it.
#[test]
fn a_reading_from_before_a_probe_does_not_end_it() {
    let breaker = breaker();
    let until = open(&breaker, secs(0));
    let later = until + Nanos::from_nanos(1);
    let probe = breaker.try_pass(later).unwrap();
    assert!(breaker.try_pass(until).is_err(), "one is under way");
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    probe.success(later);
    breaker.try_pass(until).unwrap().success(until);
    assert_eq!(breaker.opened_total(), 1);
}

#[test]
fn a_probe_that_panics_makes_room() {
    let breaker = breaker();
    let now = open(&breaker, secs(0));
    let panics = std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            let _probe = breaker.try_pass(now).unwrap();
            std::panic::resume_unwind(Box::new("no report"));
        });
        probe.join().is_err()
    });
    assert!(panics);
    recover(&breaker, now);
}

/// Eight threads ask all the time; calls that pass at once are counted.
#[test]
fn threads_together_get_the_probes_promised() {
    use std::sync::atomic::{AtomicU32, Ordering};

    for _ in 0..20 {
        let breaker = breaker();
        let now = open(&breaker, secs(0));
        for round in [1, 2, 4] {
            let passed = AtomicU32::new(0);
            let asked = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        asked.wait();
                        let probes: Vec<_> = (0..8).flat_map(|_| breaker.try_pass(now)).collect();
                        asked.wait();
                        for probe in probes {
                            passed.fetch_add(1, Ordering::Relaxed);
                            probe.success(now);
                        }
                    });
                }
            });
            assert_eq!(passed.into_inner(), round);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
}

#[test]
fn late_reports_are_ignored() {
    let breaker = breaker();
    let slow: Vec<_> = (0..100)
        .map(|_| breaker.try_pass(secs(0)).unwrap())
        .collect();
    let now = open(&breaker, secs(0));
    recover(&breaker, now);
    for permit in slow {
        permit.failure(now);
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

proptest! {
    /// While a breaker is not closed, probes in flight never pass the size of the last
    /// round, and it is never open for longer than its cap.
    #[test]
    fn probes_and_times_stay_in_bounds(
        steps in prop::collection::vec((0_u8..5, 0_u64..8_000), 0..300),
        seed: u64,
    ) {
        let settings = BreakerSettings { calls_min: 2, ..BreakerSettings::default() };
        let breaker = Breaker::new(settings, SplitMix::new(seed)).unwrap();
        let (mut now, mut held) = (Time::ZERO, Vec::new());
        for (step, millis) in steps {
            now = now + Nanos::from_millis(millis);
            match (step, held.pop()) {
                (0, Some(permit)) => CallPermit::success(permit, now),
                (1, Some(permit)) => CallPermit::failure(permit, now),
                (2, permit) => drop(permit),
                (_, permit) => {
                    held.extend(permit);
                    held.extend(breaker.try_pass(now));
                }
            }
            let gate = breaker.gate();
            let probes = held.iter().filter(|permit| permit.gate == gate).count();
            match breaker.state() {
                BreakerState::Closed => {}
                BreakerState::HalfOpen => prop_assert!(probes <= 4),
                BreakerState::Open { until } => {
                    prop_assert_eq!(probes, 0);
                    prop_assert!(until.since(now) <= settings.open_cap.into());
                }
            }
        }
        // It never locks itself in: with time and success it closes.
        held.clear();
        for _ in 0..20 {
            now = now + Nanos::from(settings.open_cap);
            if let Ok(permit) = breaker.try_pass(now) {
                permit.success(now);
            }
        }
        prop_assert_eq!(breaker.state(), BreakerState::Closed);
    }
}
