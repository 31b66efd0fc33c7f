//! A configured limit decides like its algorithm, in any sequence of calls.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;

use ratekeeper_core::laws::{self, LifeEvent};
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, AnyState, Balance, Call, Concurrency, Denials, Edge, Exponential,
    Gcra, Hybrid, Interval, LeaseId, Lend, Log, Nanos, Permits, Quota, QuotaReset, SubBuckets,
    Time, Verdict, WarmUp, Window,
};

fn quota() -> Quota {
    "20/1s".parse().unwrap()
}

/// The calls of the algorithm itself, of those that only some have.
type Refund<A> = Option<fn(&A, &mut <A as Algorithm>::State, Time, Permits)>;
type Reserve<A> =
    Option<fn(&A, &mut <A as Algorithm>::State, Time, Permits, Nanos) -> ratekeeper_core::Decision>;

/// One row: the algorithm by itself and as a configured limit, through one life.
fn check<A>(algorithm: &A, refund: Refund<A>, reserve: Reserve<A>)
where
    A: Algorithm + Clone + Debug + Into<AnyAlgorithm>,
{
    let any: AnyAlgorithm = algorithm.clone().into();
    let (name, most) = (any.name(), algorithm.capacity());
    assert_eq!(Algorithm::capacity(&any), most, "{name}");
    assert_eq!(
        Algorithm::bound(&any, Nanos::SECOND),
        algorithm.bound(Nanos::SECOND)
    );
    assert_eq!(any.heap_bytes(), algorithm.heap_bytes(), "{name}");
    assert_eq!(
        any.supports(Call::Refund).is_ok(),
        refund.is_some(),
        "{name}"
    );
    assert_eq!(
        any.supports(Call::Reserve).is_ok(),
        reserve.is_some(),
        "{name}"
    );
    for seed in 0..8_u8 {
        let (mut own, mut state) = (A::State::default(), AnyState::default());
        let mut now = Time::ZERO + Nanos::from_secs(100);
        for (step, event) in laws::random_life(seed.into(), 300, Nanos::SECOND, most)
            .iter()
            .enumerate()
        {
            let context = || format!("{name}, seed {seed}, step {step}: {event:?}");
            match *event {
                LifeEvent::Wait(span) => now = now + span,
                LifeEvent::StepBack(span) => now = now - span,
                LifeEvent::Spend(cost) => {
                    let looked = any.look(&state, now, cost);
                    assert_eq!(looked, algorithm.look(&own, now, cost), "{}", context());
                    if step % 4 == 3 {
                        let took = algorithm.take(&mut own, now, cost);
                        assert_eq!(any.take(&mut state, now, cost), took, "{}", context());
                        assert_eq!(took, looked.verdict == Verdict::Allow, "{}", context());
                        continue;
                    }
                    let (decided, expected) = match (step % 3, reserve) {
                        (0, Some(reserve)) => (
                            any.try_reserve(&mut state, now, cost, Nanos::SECOND)
                                .unwrap(),
                            reserve(algorithm, &mut own, now, cost, Nanos::SECOND),
                        ),
                        (1, _) => {
                            let lend = Lend::To(LeaseId::from_bytes([seed; 16]));
                            let expected = algorithm.lend(&mut own, now, cost, lend);
                            (any.lend(&mut state, now, cost, lend), expected)
                        }
                        _ => {
                            let expected = algorithm.decide(&mut own, now, cost);
                            (any.decide(&mut state, now, cost), expected)
                        }
                    };
                    assert_eq!(decided, expected, "{}", context());
                }
                LifeEvent::Refund(cost) => {
                    if let Some(refund) = refund {
                        refund(algorithm, &mut own, now, cost);
                        any.try_refund(&mut state, now, cost).unwrap();
                    } else {
                        let before = state.clone();
                        let refused = any.try_refund(&mut state, now, cost).unwrap_err();
                        assert_eq!((refused.algorithm, refused.call), (name, Call::Refund));
                        assert_eq!(state, before, "{}", context());
                    }
                }
            }
            assert_eq!(
                any.expires_at(&state, now),
                algorithm.expires_at(&own, now),
                "{}",
                context()
            );
            let total = Permits::new(7);
            let least = algorithm.at_least(&own, now, total);
            assert_eq!(any.at_least(&state, now, total), least, "{}", context());
        }
        // A floor and a key that comes back from it.
        let (floor, any_floor) = (own.clone(), state.clone());
        let (mut own, mut state) = (A::State::default(), AnyState::default());
        let one = Permits::ONE;
        let _ = (
            algorithm.decide(&mut own, now, one),
            any.decide(&mut state, now, one),
        );
        algorithm.stricter(&mut own, &floor);
        any.stricter(&mut state, &any_floor);
        let used = algorithm.usage(&own, now);
        assert_eq!(any.usage(&state, now), used, "{name}");
        let own = algorithm.state_with_usage(used, now);
        let state = any.state_with_usage(used, now);
        assert_eq!(
            any.look(&state, now, one),
            algorithm.look(&own, now, one),
            "{name}"
        );
    }
}

/// The calls of the algorithm, by its traits.
macro_rules! row {
    ($algorithm:expr) => {
        check(&$algorithm, None, None)
    };
    ($algorithm:expr, refunds) => {
        check(
            &$algorithm,
            Some(|a, s, now, cost| ratekeeper_core::Refund::refund(a, s, now, cost)),
            None,
        )
    };
    ($algorithm:expr, reserves) => {
        check(
            &$algorithm,
            None,
            Some(|a, s, now, cost, wait| ratekeeper_core::Reserve::reserve(a, s, now, cost, wait)),
        )
    };
    ($algorithm:expr, both) => {
        check(
            &$algorithm,
            Some(|a, s, now, cost| ratekeeper_core::Refund::refund(a, s, now, cost)),
            Some(|a, s, now, cost, wait| ratekeeper_core::Reserve::reserve(a, s, now, cost, wait)),
        )
    };
}

#[test]
fn every_algorithm_decides_alike_when_used_directly_and_when_configured() {
    let (quota, phase) = (quota(), Nanos::ZERO);
    let bucket = Gcra::token_bucket(quota).unwrap();
    row!(bucket, both);
    row!(
        bucket
            .with_patience(Nanos::SECOND)
            .with_denials(Denials::Counted),
        both
    );
    row!(Gcra::leaky_queue(quota, Permits::new(5)).unwrap(), both);
    row!(Gcra::spacing(Nanos::from_millis(50)).unwrap(), both);
    row!(Window::fixed(quota, phase).unwrap(), refunds);
    row!(Window::two_window(quota, phase).unwrap(), refunds);
    row!(QuotaReset::new(quota).unwrap(), refunds);
    row!(
        Balance::new(quota.permits(), Permits::new(99)).unwrap(),
        refunds
    );
    for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
        row!(
            SubBuckets::sub_buckets(quota, 6, edge, phase).unwrap(),
            refunds
        );
    }
    let most = Permits::new(20);
    row!(
        Interval::from_first(most, Permits::new(5), Nanos::SECOND).unwrap(),
        refunds
    );
    row!(Log::sliding(quota).unwrap(), refunds);
    row!(
        Log::sliding(quota).unwrap().with_denials(Denials::Counted),
        refunds
    );
    row!(Hybrid::quota_linear(quota).unwrap(), refunds);
    row!(Exponential::new(quota).unwrap(), refunds);
    row!(
        WarmUp::warming_up(20.0, Nanos::SECOND)
            .unwrap()
            .with_largest(most),
        reserves
    );
    row!(
        WarmUp::bursty(20.0, 1.0).unwrap().with_largest(most),
        reserves
    );
    row!(Concurrency::new(most, Nanos::SECOND).unwrap(), refunds);
}

#[test]
fn a_state_without_charges_equals_that_of_an_unknown_key() {
    let gcra = AnyAlgorithm::from(Gcra::token_bucket(quota()).unwrap());
    let log = AnyAlgorithm::from(Log::sliding(quota()).unwrap());
    let (mut by_gcra, mut by_log) = (AnyState::default(), AnyState::default());
    let _ = gcra.decide(&mut by_gcra, Time::ZERO, Permits::ZERO);
    let _ = log.decide(&mut by_log, Time::ZERO, Permits::ZERO);
    assert!(by_gcra == by_log && by_log == AnyState::Fresh);
    let _ = log.decide(&mut by_log, Time::ZERO, Permits::ONE);
    assert!(by_gcra != by_log && by_log != AnyState::Fresh);
}

#[test]
fn the_state_of_another_algorithm_is_ignored_and_never_kept() {
    let gcra = AnyAlgorithm::from(Gcra::token_bucket(quota()).unwrap());
    let log = AnyAlgorithm::from(Log::sliding(quota()).unwrap());
    assert!(!gcra.keeps_state_of(&log) && gcra.keeps_state_of(&gcra));
    let mut state = AnyState::default();
    let _ = log.decide(&mut state, Time::ZERO, Permits::new(20));
    assert_eq!(
        gcra.look(&state, Time::ZERO, Permits::ZERO).remaining,
        Permits::new(20)
    );
    assert_eq!(gcra.expires_at(&state, Time::ZERO), Time::ZERO);
}
