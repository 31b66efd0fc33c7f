//! Pairs of states: the stricter of two, and one with less history.

use std::fmt::Debug;
use std::sync::Arc;

use ratekeeper_core::laws::{self, Random};
use ratekeeper_core::oracles::Reach;
use ratekeeper_core::{
    Algorithm, Balance, Concurrency, Edge, Exponential, Gcra, Hybrid, Log, Permits, QuotaReset,
    SubBuckets, Time, Window, WithBans,
};

use crate::{DENIALS, EDGES, Uneven, ban_terms, intervals, nanos, quota};

#[test]
fn the_stricter_of_two_states_is_as_strict_as_both() {
    let calendar = Arc::new(Uneven {
        lengths: &[3, 5, 4],
        unit: 1,
    });
    for seed in 0..200 {
        let quota = quota(3, 4);
        stricter(&Gcra::token_bucket(quota).unwrap(), seed);
        stricter(&Gcra::leaky_queue(quota, Permits::new(3)).unwrap(), seed);
        stricter(&Window::fixed(quota, nanos(1)).unwrap(), seed);
        stricter(&Window::two_window(quota, nanos(1)).unwrap(), seed);
        stricter(&QuotaReset::new(quota).unwrap(), seed);
        let most = Permits::new(9);
        stricter(&Balance::new(most, most).unwrap(), seed);
        for interval in intervals(quota) {
            stricter(&interval, seed);
        }
        stricter(&Log::sliding(quota).unwrap(), seed);
        let bucket = Gcra::token_bucket(quota).unwrap();
        stricter(&WithBans::new(bucket, ban_terms(2, 6, 3, 5)).unwrap(), seed);
        stricter(&Hybrid::quota_linear(quota).unwrap(), seed);
        stricter(&Exponential::new(quota).unwrap(), seed);
        for denials in DENIALS {
            let limit = Concurrency::new(quota.permits(), quota.per()).unwrap();
            stricter(&limit.with_denials(denials), seed);
        }
        stricter(
            &Window::calendar(Permits::new(3), calendar.clone()).unwrap(),
            seed,
        );
        for edge in EDGES {
            stricter(
                &SubBuckets::sub_buckets(quota, 3, edge, nanos(0)).unwrap(),
                seed,
            );
        }
    }
}

/// Two keys live side by side; at every moment their stricter state is held against both.
fn stricter<A: Algorithm + Debug>(algorithm: &A, seed: u64) {
    let mut random = Random::new(seed);
    let mut states = [A::State::default(), A::State::default()];
    for now in (0..40).map(Time::from_nanos) {
        for state in &mut states {
            if random.below(2) == 0 {
                let cost = Permits::new(random.below(4));
                let _ = algorithm.decide(state, now, cost);
            }
        }
        let [a, b] = &states;
        laws::stricter_is_stricter(algorithm, a, b, now, Reach::Every { span: 20 });
        laws::stricter_is_stricter(algorithm, b, a, now, Reach::Every { span: 20 });
        laws::stricter_is_stricter(algorithm, a, a, now, Reach::Every { span: 20 });
    }
}

#[test]
fn less_history_never_denies_more() {
    // O8, second half: leave out one of the admitted requests. Not so for quota reset, where the
    // request left out may have opened the window.
    let calendar = Arc::new(Uneven {
        lengths: &[3, 5, 4],
        unit: 1,
    });
    for seed in 0..500 {
        let quota = quota(3, 7);
        less_history(&Gcra::token_bucket(quota).unwrap(), seed);
        less_history(&Gcra::leaky_queue(quota, Permits::new(3)).unwrap(), seed);
        less_history(&Window::fixed(quota, nanos(1)).unwrap(), seed);
        less_history(&Window::two_window(quota, nanos(1)).unwrap(), seed);
        less_history(&intervals(quota)[0], seed);
        less_history(&Log::sliding(quota).unwrap(), seed);
        less_history(&Exponential::new(quota).unwrap(), seed);
        less_history(
            &Concurrency::new(quota.permits(), quota.per()).unwrap(),
            seed,
        );
        less_history(
            &Window::calendar(Permits::new(3), calendar.clone()).unwrap(),
            seed,
        );
        for (count, edge) in [
            (1, Edge::Full),
            (3, Edge::Drop),
            (3, Edge::Full),
            (2, Edge::Weighted),
        ] {
            less_history(
                &SubBuckets::sub_buckets(quota, count, edge, nanos(0)).unwrap(),
                seed,
            );
        }
    }
}

fn less_history<A: Algorithm + Debug>(algorithm: &A, seed: u64) {
    let mut random = Random::new(seed);
    let mut state = A::State::default();
    let mut admitted = Vec::new();
    for now in (0..30).map(Time::from_nanos) {
        for _ in 0..random.below(3) {
            let cost = Permits::new(1 + random.below(3));
            if algorithm.decide(&mut state, now, cost).verdict.allows() {
                admitted.push((now, cost));
            }
        }
    }
    for left_out in 0..admitted.len() {
        let mut less = A::State::default();
        for (index, &(now, cost)) in admitted.iter().enumerate() {
            if index != left_out {
                let decision = algorithm.decide(&mut less, now, cost);
                assert!(
                    decision.verdict.allows(),
                    "{cost:?} at {now:?} without {left_out}"
                );
            }
        }
        for now in (29..60).map(Time::from_nanos) {
            let remaining = |state| algorithm.look(state, now, Permits::ZERO).remaining;
            assert!(
                remaining(&less) >= remaining(&state),
                "at {now:?} without {left_out}"
            );
        }
    }
}
