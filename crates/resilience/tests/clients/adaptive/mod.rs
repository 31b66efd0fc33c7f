//! Adaptive concurrency in front of a known server: a number of workers, a queue, and virtual
//! time.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod server;

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use ratekeeper_core::{Nanos, Time};
use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Aimd, Bounds, Error, Gradient, Law, Sample, SplitMix,
    Vegas,
};

use server::{Demand, Play};

fn secs(secs: u64) -> Time {
    Time::ZERO + Nanos::from_secs(secs)
}

fn gradient() -> Law {
    Law::Gradient(Gradient::default())
}

fn vegas() -> Law {
    Law::Vegas(Vegas::default())
}

fn aimd() -> Law {
    Law::Aimd(Aimd::default())
}

/// Capacity of a server that takes 10 ms for a piece of work.
fn can_do(workers: u64, secs: u64) -> u64 {
    workers * 100 * secs
}

#[test]
fn the_limit_converges_near_the_capacity_of_the_server() {
    // Law, workers, windows of 100 ms until it has; then the limit's range, in percent of
    // the workers.
    let rows = [
        (gradient(), 10, 20, 120..=250),
        (gradient(), 50, 100, 120..=200),
        (gradient(), 100, 200, 120..=190),
        (vegas(), 10, 20, 100..=200),
        (vegas(), 50, 20, 100..=140),
        (vegas(), 100, 30, 100..=130),
    ];
    for (law, workers, windows, range) in rows {
        let mut play = Play::new(law, workers);
        let settled = Time::ZERO + Nanos::from_millis(100 * windows);
        play.until(settled, Demand::Endless);
        let seen = play.until(settled + Nanos::from_secs(10), Demand::Endless);
        let percent = |limit: u32| u64::from(limit) * 100 / workers as u64;
        let limits = percent(seen.least)..=percent(seen.most);
        assert!(
            range.contains(limits.start()) && range.contains(limits.end()),
            "{law:?}, {workers} workers: {limits:?} %"
        );
        let share = seen.done * 100 / can_do(workers as u64, 10);
        assert!(
            share >= 97,
            "{law:?}: {share} % of the capacity of {workers} workers"
        );
    }
}

#[test]
fn work_without_priority_leaves_the_last_part_and_raises_the_limit_alone() {
    for percent in [1, 20, 33, 50] {
        let bounds = Bounds {
            least: 1,
            most: 100,
            initial: 1,
        };
        let settings = AdaptiveSettings {
            bounds,
            ..AdaptiveSettings::default()
        };
        let limit = AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap();
        // Windows of 100 ms, each with ten rounds of as much work as is permitted.
        for round in 0..3_000 {
            let now = Time::ZERO + Nanos::from_millis(10 * round);
            let usual = || limit.try_acquire_leaving(percent, now);
            let work: Vec<_> = std::iter::from_fn(usual).collect();
            let (used, most) = (limit.in_flight(), limit.limit());
            assert_eq!(used, most - most * percent / 100);
            let first: Vec<_> = std::iter::from_fn(|| limit.try_acquire(now)).collect();
            assert_eq!(limit.in_flight(), most, "priority uses the rest");
            drop(first);
            for permit in work {
                permit.success(now + Nanos::from_millis(9));
            }
        }
        assert!(limit.limit() > 90, "{percent}%: {}", limit.limit());
    }
}

#[test]
fn it_follows_when_half_the_workers_go_and_come_back() {
    for (law, windows) in [(gradient(), 60), (vegas(), 60)] {
        let mut play = Play::new(law, 100);
        let span = Nanos::from_millis(100 * windows);
        play.until(secs(60), Demand::Endless);
        for (workers, most) in [(50, 120), (100, 200), (50, 120)] {
            play.server.workers = workers;
            play.until(play.now + span, Demand::Endless);
            let from = play.now;
            let seen = play.until(from + Nanos::from_secs(5), Demand::Endless);
            assert!(
                seen.least as usize >= workers * 9 / 10,
                "{law:?}: {seen:?} of {workers}"
            );
            assert!(seen.most <= most, "{law:?}: {seen:?} of {workers}");
            let share = seen.done * 100 / can_do(workers as u64, 5);
            assert!(
                share >= 95,
                "{law:?}: {share} % of the capacity of {workers} workers"
            );
        }
    }
}

#[test]
fn it_learns_that_work_takes_twice_as_long() {
    for law in [gradient(), vegas()] {
        let mut play = Play::new(law, 50);
        play.until(secs(30), Demand::Endless);
        play.server.service = Nanos::from_millis(20);
        // It looks like a queue until it is measured at half the limit, 30 s later at most.
        play.until(secs(30 + 31 + 15), Demand::Endless);
        let seen = play.until(secs(86), Demand::Endless);
        assert!(seen.least >= 45 && seen.most <= 110, "{law:?}: {seen:?}");
        let share = seen.done * 100 / (can_do(50, 10) / 2);
        assert!(share >= 95, "{law:?}: {share} %");
    }
}

#[test]
fn under_constant_load_it_neither_drifts_nor_collapses() {
    for (law, range) in [(gradient(), 32..=42), (vegas(), 20..=30)] {
        let mut play = Play::new(law, 20);
        play.until(secs(60), Demand::Endless);
        // Half an hour, measured 60 times, at half the limit for two windows each.
        let (mut least, mut most) = (u32::MAX, 0);
        let mut done = 0;
        for minute in 1..30 {
            let seen = play.until(secs(60 * (minute + 1)), Demand::Endless);
            (least, most) = (least.min(seen.least), most.max(seen.most));
            done += seen.done;
        }
        assert!(
            range.contains(&least) && range.contains(&most),
            "{law:?}: {least} to {most} for 20 workers"
        );
        let share = done * 1_000 / can_do(20, 29 * 60);
        assert!(share >= 985, "{law:?}: {share} in a thousand");
    }
}

#[test]
fn a_limit_that_is_not_used_stays() {
    for law in [gradient(), vegas(), aimd()] {
        let mut play = Play::new(law, 50);
        let seen = play.until(secs(600), Demand::AtOnce(8));
        assert!(seen.least >= 10 && seen.most == 20, "{law:?}: {seen:?}");
        assert_eq!(play.limit.limit(), 20, "{law:?}");
    }
    // A limit that was used once, and is not any more, stays too.
    let mut play = Play::new(aimd(), 50);
    play.until(secs(5), Demand::Endless);
    play.until(secs(6), Demand::AtOnce(2)); // the window in which it ended
    let before = play.limit.limit();
    play.until(secs(60), Demand::AtOnce(2));
    assert!(before > 60 && play.limit.limit() == before, "{before}");
}

#[test]
fn aimd_is_a_saw_below_the_capacity_of_the_server() {
    let mut play = Play::new(aimd(), 50);
    play.server.queue = 30;
    play.until(secs(30), Demand::Endless);
    let seen = play.until(secs(90), Demand::Endless);
    assert!(seen.least >= 71 && seen.most <= 82, "{seen:?}");
    assert!(
        seen.dropped > 0 && seen.dropped * 100 < seen.done * 3,
        "{seen:?}"
    );
    assert!(seen.done >= can_do(50, 60) * 99 / 100, "{seen:?}");
}

#[test]
fn it_comes_back_after_an_outage() {
    for law in [gradient(), vegas(), aimd()] {
        let mut play = Play::new(law, 50);
        play.server.queue = 30;
        play.until(secs(30), Demand::Endless);
        // For a minute all is refused.
        (play.server.workers, play.server.queue) = (0, 0);
        let seen = play.until(secs(90), Demand::Endless);
        assert!(seen.done == 0 && seen.dropped > 10_000, "{law:?}: {seen:?}");
        assert!(play.limit.limit() < 10, "{law:?}: {}", play.limit.limit());
        (play.server.workers, play.server.queue) = (50, 30);
        play.until(play.now + Nanos::from_secs(15), Demand::Endless);
        let from = play.now;
        let seen = play.until(from + Nanos::from_secs(10), Demand::Endless);
        let share = seen.done * 100 / can_do(50, 10);
        assert!(share >= 95, "{law:?}: {share} %, {seen:?}");
    }
}

/// Two clients of one server that takes a hundred at once: the larger share loses more.
#[test]
fn aimd_shares_fairly() {
    let bounds = Bounds {
        least: 1,
        most: 1_000,
        initial: 90,
    };
    let mut levels = [90, 10].map(|initial| aimd().start(Bounds { initial, ..bounds }, 0));
    for _ in 0..1_000 {
        let limits = levels.map(|level| level.limit());
        let dropped = u32::from(limits[0] + limits[1] > 100);
        levels = levels.map(|level| {
            let took = Nanos::from_millis(10);
            let sample = Sample {
                mean: took,
                p90: took,
                slowest: took,
                in_flight: level.limit(),
                dropped,
            };
            aimd().next(bounds, level, &sample)
        });
    }
    let [more, less] = levels.map(|level| level.limit());
    assert!(
        more.abs_diff(less) <= 1 && more + less > 80,
        "{more} and {less}"
    );
}

#[test]
fn a_clock_set_back_does_not_hold_the_limit() {
    let settings = AdaptiveSettings {
        law: aimd(),
        ..AdaptiveSettings::default()
    };
    let limit = AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap();
    let windows = |from: Time, count: u64| {
        for number in 0..count {
            let began = from + Nanos::from_millis(100 * number);
            let permits: Vec<_> = (0..15).map(|_| limit.try_acquire(began).unwrap()).collect();
            for permit in permits {
                permit.success(began + Nanos::from_millis(99));
            }
        }
    };
    windows(secs(3_600), 4);
    let before = limit.limit();
    windows(secs(0), 7);
    let after = limit.limit();
    assert!(before > 20 && after >= before + 4, "{before}, then {after}");
}

#[test]
fn work_that_began_under_an_older_limit_moves_it_once() {
    let bounds = Bounds {
        least: 1,
        most: 100,
        initial: 100,
    };
    let settings = AdaptiveSettings {
        law: aimd(),
        bounds,
        ..AdaptiveSettings::default()
    };
    let limit = AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap();
    let permits: Vec<_> = (0..100)
        .map(|_| limit.try_acquire(Time::ZERO).unwrap())
        .collect();
    for permit in permits {
        permit.dropped(secs(1)); // a herd that times out together
    }
    assert_eq!(limit.limit(), 90, "one step back, not ten");
}

#[test]
fn a_permit_dropped_without_a_report_changes_nothing() {
    let limit = AdaptiveConcurrency::new(AdaptiveSettings::default(), SplitMix::new(1)).unwrap();
    for second in 0..100 {
        drop(limit.try_acquire(secs(second)).unwrap());
        limit.try_acquire(secs(second)).unwrap().ignored();
    }
    assert_eq!((limit.limit(), limit.in_flight()), (20, 0));
}

#[test]
fn settings_outside_their_bounds_are_refused() {
    let usual = AdaptiveSettings::default();
    let bounds = |least, initial, most| AdaptiveSettings {
        bounds: Bounds {
            least,
            most,
            initial,
        },
        ..usual
    };
    let law = |law| AdaptiveSettings { law, ..usual };
    let steep = Aimd {
        back_off_percent: 100,
        ..Aimd::default()
    };
    let crossed = Vegas { alpha: 7, beta: 6 };
    let tight = Gradient {
        tolerance_percent: 99,
        ..Gradient::default()
    };
    let rows = [
        (bounds(0, 1, 1), Error::Bounds),
        (bounds(2, 1, 3), Error::Bounds),
        (bounds(1, 3, 2), Error::Bounds),
        (bounds(1, 1, 1_000_001), Error::Bounds),
        (law(Law::Aimd(steep)), Error::Law),
        (law(Law::Vegas(crossed)), Error::Law),
        (law(Law::Gradient(tight)), Error::Law),
        (
            AdaptiveSettings {
                window: Duration::ZERO,
                ..usual
            },
            Error::Window,
        ),
        (
            AdaptiveSettings {
                least_samples: 0,
                ..usual
            },
            Error::Window,
        ),
        (
            AdaptiveSettings {
                least_samples: 513,
                ..usual
            },
            Error::Window,
        ),
    ];
    for (settings, error) in rows {
        let refused = AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap_err();
        assert_eq!(refused, error, "{settings:?}");
    }
}

#[test]
fn threads_never_have_more_at_work_than_the_limit() {
    let bounds = Bounds {
        least: 3,
        most: 3,
        initial: 3,
    };
    let settings = AdaptiveSettings {
        bounds,
        ..AdaptiveSettings::default()
    };
    let limit = AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap();
    let granted: usize = std::thread::scope(|scope| {
        let work = || {
            let ask = |step: &u64| {
                let now = Time::ZERO + Nanos::from_millis(*step);
                let permit = limit.try_acquire(now);
                assert!(limit.in_flight() <= 3);
                permit
                    .map(|permit| permit.success(now + Nanos::from_millis(1)))
                    .is_some()
            };
            (0..2_000).filter(ask).count()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(granted > 0);
    assert_eq!((limit.in_flight(), limit.limit()), (0, 3));
}

fn any_law() -> impl Strategy<Value = Law> {
    prop_oneof![
        (100..=1_000_u32, 1..=100_u32, 1..=1_000_u32).prop_map(|(tolerance, smoothing, queue)| {
            Law::Gradient(Gradient {
                tolerance_percent: tolerance,
                smoothing_percent: smoothing,
                queue,
            })
        }),
        (1..=100_u32, 0..=99_u32).prop_map(|(alpha, more)| {
            Law::Vegas(Vegas {
                alpha,
                beta: (alpha + more).min(100),
            })
        }),
        (1..=99_u32, 1..=u64::MAX).prop_map(|(percent, timeout)| Law::Aimd(Aimd {
            back_off_percent: percent,
            timeout: Duration::from_nanos(timeout),
        })),
    ]
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    (1..=1_000_000_u32, 0..=100_u32, 0..=100_u32).prop_map(|(most, least, initial)| {
        let share = |of: u32, percent: u32| 1 + (of - 1) / 100 * percent;
        let least = share(most, least);
        Bounds {
            least,
            most,
            initial: least + share(most - least + 1, initial) - 1,
        }
    })
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let span = || prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..1_000_000_000_u64];
    (
        span(),
        span(),
        span(),
        any::<u32>(),
        prop_oneof![Just(0), any::<u32>()],
    )
        .prop_map(|(mean, p90, slowest, in_flight, dropped)| Sample {
            mean: Nanos::from_nanos(mean),
            p90: Nanos::from_nanos(p90),
            slowest: Nanos::from_nanos(slowest),
            in_flight,
            dropped,
        })
}

proptest! {
    /// Whatever windows show: the limit is a number within its bounds, at every step.
    #[test]
    fn the_limit_never_leaves_its_bounds(
        law in any_law(),
        bounds in any_bounds(),
        random in any::<u64>(),
        samples in proptest::collection::vec(any_sample(), 1..700),
    ) {
        let mut level = law.start(bounds, random);
        prop_assert_eq!(level.limit(), bounds.initial);
        for sample in samples {
            let again = law.next(bounds, level, &sample);
            level = law.next(bounds, level, &sample);
            prop_assert_eq!(level, again, "a pure function that never returns NaN");
            prop_assert!((bounds.least..=bounds.most).contains(&level.limit()));
        }
    }

    /// Whatever clients do: a permit is given only below the limit, and all come back.
    #[test]
    fn permits_are_given_below_the_limit_only(
        law in any_law(),
        steps in proptest::collection::vec((0..4_u8, 0..50_u64), 1..500),
    ) {
        let bounds = Bounds { least: 1, most: 50, initial: 10 };
        let settings = AdaptiveSettings { law, bounds, ..AdaptiveSettings::default() };
        let limit = AdaptiveConcurrency::new(settings, SplitMix::new(3)).unwrap();
        let mut held = VecDeque::new();
        let mut now = Time::ZERO;
        for (act, millis) in steps {
            now = now + Nanos::from_millis(millis);
            match (act, held.pop_front()) {
                (0, Some(permit)) => drop::<ratekeeper_resilience::AdaptivePermit<_>>(permit),
                (1, Some(permit)) => permit.success(now),
                (2, Some(permit)) => permit.dropped(now),
                (_, put_back) => held.extend(put_back),
            }
            let (at_work, most) = (limit.in_flight(), limit.limit());
            prop_assert_eq!(at_work as usize, held.len());
            let permit = limit.try_acquire(now);
            prop_assert_eq!(permit.is_some(), at_work < most);
            held.extend(permit);
        }
        held.clear();
        prop_assert_eq!(limit.in_flight(), 0);
    }
}
