//! Every schedule of two threads; `RUSTFLAGS="--cfg loom" cargo test -p
//! ratekeeper-resilience --lib schedules`.

use super::*;
use loom::sync::Arc;
use loom::thread;

fn breaker(calls_min: u32) -> Arc<Breaker> {
    let settings = BreakerSettings {
        calls_min,
        probe_rounds: 1,
        ..BreakerSettings::default()
    };
    Arc::new(Breaker::new(settings, SplitMix::new(1)).unwrap())
}

fn both(breaker: &Arc<Breaker>, act: impl Fn(&Breaker) -> bool + Copy + Send + 'static) -> u32 {
    let other = {
        let breaker = Arc::clone(breaker);
        thread::spawn(move || act(&breaker))
    };
    u32::from(act(breaker)) + u32::from(other.join().unwrap())
}

#[test]
fn two_failures_are_both_counted_and_open_once() {
    loom::model(|| {
        let breaker = breaker(2);
        both(&breaker, |breaker| {
            let permit = breaker.try_pass(Time::ZERO);
            permit.map(|permit| permit.failure(Time::ZERO)).is_ok()
        });
        assert!(matches!(breaker.state(), BreakerState::Open { .. }));
        assert_eq!(breaker.opened_total(), 1);
    });
}

#[test]
fn one_of_two_threads_gets_the_probe() {
    loom::model(|| {
        let breaker = breaker(1);
        breaker.try_pass(Time::ZERO).unwrap().failure(Time::ZERO);
        let passed = both(&breaker, |breaker| {
            let permit = breaker.try_pass(Time::ZERO + Nanos::from_secs(60));
            permit.map(std::mem::forget).is_ok()
        });
        assert_eq!(passed, 1);
    });
}

#[test]
fn a_breaker_that_closed_again_has_an_empty_window() {
    loom::model(|| {
        let breaker = breaker(2);
        for _ in 0..2 {
            breaker.try_pass(Time::ZERO).unwrap().failure(Time::ZERO);
        }
        let BreakerState::Open { until } = breaker.state() else {
            panic!("open");
        };
        let probe = breaker.try_pass(until).unwrap();
        let other = {
            let breaker = Arc::clone(&breaker);
            thread::spawn(move || {
                if let Ok(permit) = breaker.try_pass(until) {
                    permit.failure(until);
                }
            })
        };
        probe.success(until);
        other.join().unwrap();
        assert_eq!(breaker.state(), BreakerState::Closed);
    });
}
