//! The closed set: names, windows, and the time after which more may be used.

use alloc::vec;

use super::*;
use crate::{Edge, Quota, QuotaReset};

#[test]
fn the_window_is_the_period_of_the_quota_although_intervals_are_rounded_up() {
    for text in [
        "1/1s",
        "7/1s",
        "3/1m",
        "100/1m",
        "900/1h",
        "1/1d",
        "9999/1d",
        "7/250ms",
        "3/7us",
        "999983/1s",
    ] {
        let quota: Quota = text.parse().unwrap();
        let bucket = AnyAlgorithm::from(Gcra::token_bucket(quota).unwrap());
        assert_eq!(bucket.window(), Some(quota.per()), "{text}");
    }
    let quota: Quota = "12/1m".parse().unwrap();
    let phase = Nanos::ZERO;
    let step = |most, refill| Interval::from_first(most, refill, Nanos::SECOND).unwrap();
    let [five, two] = [Permits::new(5), Permits::new(2)];
    let rows: vec::Vec<(AnyAlgorithm, Option<Nanos>)> = vec![
        (
            Window::fixed(quota, phase).unwrap().into(),
            Some(quota.per()),
        ),
        (QuotaReset::new(quota).unwrap().into(), Some(quota.per())),
        (
            SubBuckets::sub_buckets(quota, 6, Edge::Full, phase)
                .unwrap()
                .into(),
            Some(quota.per()),
        ),
        (step(five, two).into(), Some(Nanos::from_secs(3))),
        (Log::sliding(quota).unwrap().into(), Some(quota.per())),
        (
            Hybrid::quota_linear(quota).unwrap().into(),
            Some(quota.per()),
        ),
        (Exponential::new(quota).unwrap().into(), None),
        (WarmUp::bursty(1.0, 1.0).unwrap().into(), None),
        (Concurrency::new(two, Nanos::SECOND).unwrap().into(), None),
    ];
    for (algorithm, expected) in rows {
        assert_eq!(algorithm.window(), expected, "{}", algorithm.name());
    }
}

#[test]
fn every_algorithm_returns_its_name() {
    let quota: Quota = "10/1m".parse().unwrap();
    let phase = Nanos::ZERO;
    let rows: vec::Vec<(AnyAlgorithm, &str)> = vec![
        (Gcra::token_bucket(quota).unwrap().into(), "token bucket"),
        (
            Gcra::leaky_queue(quota, Permits::ONE).unwrap().into(),
            "leaky bucket",
        ),
        (Window::fixed(quota, phase).unwrap().into(), "fixed window"),
        (
            Window::two_window(quota, phase).unwrap().into(),
            "sliding window counter",
        ),
        (QuotaReset::new(quota).unwrap().into(), "quota reset"),
        (
            SubBuckets::sub_buckets(quota, 6, Edge::Full, phase)
                .unwrap()
                .into(),
            "sub-buckets",
        ),
        (
            Interval::from_first(Permits::ONE, Permits::ONE, Nanos::SECOND)
                .unwrap()
                .into(),
            "interval bucket",
        ),
        (Log::sliding(quota).unwrap().into(), "sliding window log"),
        (
            Log::sliding(quota)
                .unwrap()
                .with_denials(Denials::Counted)
                .into(),
            "strict sliding window log",
        ),
        (Hybrid::quota_linear(quota).unwrap().into(), "hybrid"),
        (Exponential::new(quota).unwrap().into(), "exponential"),
        (
            WarmUp::warming_up(1.0, Nanos::SECOND).unwrap().into(),
            "warm-up",
        ),
        (WarmUp::bursty(1.0, 1.0).unwrap().into(), "smooth bursty"),
        (
            Concurrency::new(Permits::ONE, Nanos::SECOND)
                .unwrap()
                .into(),
            "concurrency",
        ),
        (
            Balance::new(Permits::ONE, Permits::ONE).unwrap().into(),
            "balance",
        ),
    ];
    for (algorithm, name) in rows {
        assert_eq!(algorithm.name(), name);
    }
}

fn millis(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// The effective window after `cost` at 1,300 ms.
fn window_of<A: Algorithm + Into<AnyAlgorithm>>(algorithm: A, cost: u64) -> Option<Nanos> {
    let now = Time::ZERO + millis(1_300);
    let decision = algorithm.decide(&mut A::State::default(), now, Permits::new(cost));
    algorithm.into().effective_window(&decision)
}

#[test]
fn effective_windows_never_promise_more_than_the_rate() {
    let quota: Quota = "10/1s".parse().unwrap();
    let gcra = Gcra::token_bucket(quota).unwrap();
    for (cost, window) in [(4, 600), (9, 100), (10, 100)] {
        assert_eq!(window_of(gcra, cost), Some(millis(window)), "cost {cost}");
    }
    assert_eq!(window_of(gcra, 11), None, "no permit is spent");
    let fixed = Window::fixed(quota, Nanos::ZERO).unwrap();
    assert_eq!(window_of(fixed.clone(), 4), Some(millis(700)));
    assert_eq!(
        window_of(fixed, 0),
        None,
        "no charge is counted, so there is no window"
    );
    let two_window = Window::two_window(quota, Nanos::ZERO).unwrap();
    assert_eq!(
        window_of(two_window, 4),
        Some(millis(700) + Nanos::from_nanos(1)),
        "less than four of the four"
    );
    assert_eq!(
        window_of(QuotaReset::new(quota).unwrap(), 4),
        Some(millis(1_000))
    );
    for (edge, after) in [(Edge::Drop, 950), (Edge::Full, 1_200)] {
        let window = SubBuckets::sub_buckets(quota, 4, edge, Nanos::ZERO).unwrap();
        assert_eq!(window_of(window, 4), Some(millis(after)), "{edge:?}");
    }
}
