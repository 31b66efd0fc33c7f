//! The minimum share served to a client that keeps to its limit, against an exhaustive search
//! over all such clients.
//!
//! ```text
//!   a client: at most N requests in any P ticks, any of them at any tick
//!   search:   owed[state, what was sent in the last P ticks]
//!               = the least of  of x served - share x sent  on any way there
//!   holds:    it never falls below zero
//!   reached:  N at once each P, at the worst moments, is served no more in the long run
//! ```
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::hash::Hash;

use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Denials, Edge, Exponential, Gcra, Hybrid, Interval, Log, Nanos,
    Permits, Quota, QuotaReset, Share, SubBuckets, Time, WarmUp, Window,
};

fn quota(permits: u64, ticks: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(ticks)).unwrap()
}

/// Returns true if a client that keeps to `kept` is always served at least `share` of its
/// requests.
fn holds<A>(algorithm: &A, kept: Quota, share: Share, ticks: u64) -> bool
where
    A: Algorithm,
    A::State: Hash + Eq,
{
    let most = kept.permits().get();
    let span = usize::try_from(kept.per().as_nanos()).unwrap();
    let (served_weight, sent_weight) = (share.of().cast_signed(), share.served().cast_signed());
    // State, and the numbers sent in the last span less a tick, oldest first.
    let mut owed: HashMap<(A::State, Vec<u64>), i64> = HashMap::new();
    owed.insert((A::State::default(), vec![0; span - 1]), 0);
    for tick in 0..ticks {
        let mut after = HashMap::new();
        for ((state, sent), least) in owed {
            let before: u64 = sent.iter().sum();
            let (mut state, mut least) = (state, least);
            for now in 0..=most - before {
                if now > 0 {
                    let time = Time::from_nanos(tick);
                    let decision = algorithm.decide(&mut state, time, Permits::ONE);
                    let served = i64::from(decision.verdict.allows());
                    least += served * served_weight - sent_weight;
                }
                if least < 0 {
                    return false;
                }
                let mut next = sent.clone();
                next.push(now);
                next.remove(0);
                let best = after.entry((state.clone(), next)).or_insert(least);
                *best = least.min(*best);
            }
        }
        owed = after;
    }
    true
}

/// The share served of `permits` at once at each of these moments, over and over.
fn served<A: Algorithm>(algorithm: &A, kept: Quota, moments: &[u64], period: u64) -> Share {
    let mut state = A::State::default();
    let (mut served, mut sent) = (0, 0);
    for round in 0..940 {
        for moment in moments {
            let now = Time::from_nanos(round * period + moment);
            for _ in 0..kept.permits().get() {
                let allows = algorithm
                    .decide(&mut state, now, Permits::ONE)
                    .verdict
                    .allows();
                let counts = u64::from(round >= 100);
                served += counts * u64::from(allows);
                sent += counts;
            }
        }
    }
    Share::new(served, sent)
}

/// The returned share holds for every client, and one client is served no more.
fn exact<A>(algorithm: &A, kept: Quota, ticks: u64, moments: &[u64], period: u64) -> Share
where
    A: Algorithm + Clone + Into<AnyAlgorithm>,
    A::State: Hash + Eq,
{
    let share = algorithm.clone().into().least_served(kept);
    assert!(holds(algorithm, kept, share, ticks), "{kept}: {share:?}");
    assert_eq!(served(algorithm, kept, moments, period), share, "{kept}");
    share
}

const NUMBERS: [(u64, u64); 6] = [(1, 4), (2, 4), (2, 6), (3, 3), (3, 6), (4, 4)];

#[test]
fn a_client_that_keeps_to_a_token_bucket_or_a_window_is_served_always() {
    for (n, p) in NUMBERS {
        let (kept, zero) = (quota(n, p), Nanos::ZERO);
        let all = |share| assert_eq!(share, Share::ALL, "{kept}");
        if p.is_multiple_of(n) {
            all(exact(
                &Gcra::token_bucket(kept).unwrap(),
                kept,
                3 * p,
                &[0],
                p,
            ));
        }
        all(exact(
            &Window::fixed(kept, zero).unwrap(),
            kept,
            3 * p,
            &[0],
            p,
        ));
        all(exact(&QuotaReset::new(kept).unwrap(), kept, 3 * p, &[1], p));
        all(exact(&Log::sliding(kept).unwrap(), kept, 3 * p, &[0], p));
        let (one, whole) = (Permits::ONE, Permits::new(n));
        for refill in [one, whole] {
            let every = Nanos::from_nanos(p);
            let first = Interval::from_first(whole, refill, every).unwrap();
            let clock = Interval::on_grid(whole, refill, every, Nanos::ZERO).unwrap();
            let kept = quota(n, p * n.div_ceil(refill.get()));
            if kept.per() <= Nanos::from_nanos(12) {
                let spans = kept.per().as_nanos();
                all(exact(&first, kept, 3 * spans, &[0], spans));
                all(exact(&clock, kept, 3 * spans, &[p - 1], spans));
            }
        }
        let strict = Log::sliding(kept).unwrap().with_denials(Denials::Counted);
        all(exact(&strict, kept, 3 * p, &[0], p));
    }
    for m in [1, 2, 3] {
        let kept = quota(2, 6);
        let drop = SubBuckets::sub_buckets(kept, m, Edge::Drop, Nanos::ZERO).unwrap();
        assert_eq!(exact(&drop, kept, 18, &[0], 6), Share::ALL);
    }
}

#[test]
fn a_leaky_bucket_serves_one_of_a_burst_and_its_queue() {
    for (n, p) in [(2, 4), (2, 6), (3, 3), (3, 6), (4, 4)] {
        let kept = quota(n, p);
        for queue in 0..=n {
            let leaky = Gcra::leaky_queue(kept, Permits::new(queue)).unwrap();
            let share = exact(&leaky, kept, 3 * p, &[0], p);
            assert_eq!(share, Share::new(1 + queue, n));
        }
    }
}

#[test]
fn half_of_the_bursts_at_the_start_of_a_window_are_served() {
    for (n, p) in NUMBERS {
        let kept = quota(n, p);
        let counter = Window::two_window(kept, Nanos::ZERO).unwrap();
        assert_eq!(exact(&counter, kept, 4 * p, &[0], p), Share::new(1, 2));
    }
    for (m, edge) in [
        (1, Edge::Full),
        (2, Edge::Full),
        (3, Edge::Full),
        (1, Edge::Weighted),
        (3, Edge::Weighted),
    ] {
        let kept = quota(2, 6);
        let window = SubBuckets::sub_buckets(kept, m, edge, Nanos::ZERO).unwrap();
        assert_eq!(
            exact(&window, kept, 20, &[0], 6),
            Share::new(1, 2),
            "{m} {edge:?}"
        );
    }
    // Three parts of three ticks are more than seven: a burst a span later meets the first.
    let kept = quota(2, 7);
    let wide = SubBuckets::sub_buckets(kept, 3, Edge::Drop, Nanos::ZERO).unwrap();
    assert_eq!(exact(&wide, kept, 21, &[0, 7], 18), Share::new(1, 2));
}

#[test]
fn a_hybrid_turns_smooth_at_the_end_of_a_full_quota() {
    for (n, p) in NUMBERS {
        let kept = quota(n, p);
        let hybrid = Hybrid::quota_linear(kept).unwrap();
        let share = exact(&hybrid, kept, 3 * p, &[0], p);
        assert_eq!(share, Share::new(n + 1, 2 * n));
    }
}

#[test]
fn a_gap_admits_one_of_the_requests_within_it() {
    for (n, gap, share, period) in [
        (3, 1, Share::new(1, 3), 4),
        (3, 4, Share::new(1, 3), 4),
        (3, 5, Share::new(1, 6), 8),
        (1, 4, Share::ALL, 4),
        (1, 9, Share::new(1, 3), 12),
    ] {
        let kept = quota(n, 4);
        let log = Log::sliding(kept).unwrap();
        let log = log.with_gap(Nanos::from_nanos(gap)).unwrap();
        let moments: Vec<u64> = (0..period).step_by(4).collect();
        assert_eq!(
            exact(&log, kept, 14, &moments, period),
            share,
            "{n}, gap {gap}"
        );
    }
}

#[test]
fn an_exponential_counter_serves_the_permits_that_have_decayed() {
    for (n, p) in [(1, 2), (2, 4), (3, 3), (4, 4)] {
        let kept = quota(n, p);
        let counter = Exponential::new(kept).unwrap();
        let share = AnyAlgorithm::from(counter).least_served(kept);
        assert!(holds(&counter, kept, share, 3 * p), "{kept}: {share:?}");
    }
    // The long run of bursts comes within one permit of the returned share.
    for n in [1, 2, 3, 5, 10, 100, 1_000] {
        let kept = quota(n, 60_000_000_000);
        let counter = Exponential::new(kept).unwrap();
        let share = AnyAlgorithm::from(counter).least_served(kept);
        let period = kept.per().as_nanos();
        let long_run = served(&counter, kept, &[0], period);
        let claimed = u128::from(share.served()) * u128::from(n) * u128::from(long_run.of());
        let reached = u128::from(long_run.served()) * u128::from(share.of()) * u128::from(n);
        let permit = u128::from(share.of()) * u128::from(long_run.of());
        assert!(
            claimed <= reached && reached <= claimed + permit,
            "{n}: {share:?} {long_run:?}"
        );
        assert!(n > 1 || share == long_run, "{long_run:?}");
    }
}

/// Guava's two count in microseconds: bursts from cold, and bursts each span.
#[test]
fn post_paid_limits_serve_their_saved_permits_and_one_more() {
    let second = Nanos::SECOND.as_nanos();
    let kept = quota(10, second);
    for (seconds, share) in [
        (1.0, Share::ALL),
        (0.9, Share::ALL),
        (0.5, Share::new(6, 10)),
        (0.0, Share::new(1, 10)),
    ] {
        let bursty = WarmUp::bursty(10.0, seconds).unwrap();
        assert_eq!(
            AnyAlgorithm::from(bursty).least_served(kept),
            share,
            "{seconds}"
        );
        assert_eq!(served(&bursty, kept, &[0], second), share, "{seconds}");
    }
    let warming = WarmUp::warming_up(10.0, Nanos::from_secs(10)).unwrap();
    assert_eq!(
        AnyAlgorithm::from(warming).least_served(kept),
        Share::new(1, 10)
    );
    assert_eq!(served(&warming, kept, &[0], second), Share::new(1, 10));
    // One a second, three times dearer when cold: each long rest costs two requests of three.
    let (kept, warming) = (
        quota(1, second),
        WarmUp::warming_up(1.0, Nanos::from_secs(10)).unwrap(),
    );
    assert_eq!(
        AnyAlgorithm::from(warming).least_served(kept),
        Share::new(1, 3)
    );
    let rest = 3_600 * second;
    assert_eq!(
        served(&warming, kept, &[0, second, 2 * second], rest),
        Share::new(1, 3)
    );
}

#[test]
fn no_share_is_certain_if_refused_requests_count() {
    let kept = quota(4, 4);
    let sliding = Window::two_window(kept, Nanos::ZERO).unwrap();
    let sliding = sliding.with_denials(Denials::Counted);
    assert_eq!(exact(&sliding, kept, 12, &[0], 4), Share::NONE);
    let fixed = Window::fixed(kept, Nanos::ZERO).unwrap();
    let fixed = fixed.with_denials(Denials::Counted);
    assert_eq!(exact(&fixed, kept, 12, &[0], 4), Share::ALL);
}
