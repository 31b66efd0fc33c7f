//! Every law in every state that small parameters can reach.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use ratekeeper_core::laws::{self, Refunds};
use ratekeeper_core::oracles::Reach;
use ratekeeper_core::{
    Algorithm, Balance, Concurrency, Exponential, Gcra, Hybrid, Interval, Log, Permits, QuotaReset,
    Refund, SubBuckets, Window, WithBans,
};

use crate::{DENIALS, EDGES, Uneven, ban_terms, nanos, quota};

fn explore<A>(algorithm: &A, horizon: u64, span: u64)
where
    A: Refund + Debug,
    A::State: Hash + Eq,
{
    explore_with(algorithm, &Refunds::exact(), horizon, span);
}

fn explore_with<A>(algorithm: &A, refunds: &Refunds<A>, horizon: u64, span: u64)
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    let states = laws::explore(algorithm, refunds, horizon, Reach::Every { span });
    assert!(
        states > 1,
        "no more than one state was reached: {algorithm:?}"
    );
}

#[test]
fn gcra_keeps_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per, burst, queue) in [
            (1, 1, 1, 0),
            (1, 5, 1, 0),
            (3, 6, 3, 0),
            (3, 7, 3, 0), // 2.34375 ns each
            (2, 3, 4, 0),
            (3, 2, 3, 0), // less than a nanosecond each
            (2, 6, 1, 2),
            (3, 8, 2, 2),
        ] {
            let quota = quota(permits, per).with_burst(Permits::new(burst)).unwrap();
            let gcra = Gcra::new(quota, Permits::new(queue))
                .unwrap()
                .with_denials(denials);
            explore(&gcra, 10, 60);
        }
    }
}

#[test]
fn windows_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per, phase) in [(1, 1, 0), (1, 4, 0), (3, 4, 3), (2, 5, 2), (4, 3, 0)] {
            let quota = quota(permits, per);
            let fixed = Window::fixed(quota, nanos(phase)).unwrap();
            let two_window = Window::two_window(quota, nanos(phase)).unwrap();
            for window in [fixed, two_window] {
                explore(&window.with_denials(denials), 3 * per, 8 * per + 8);
            }
        }
        for lengths in [&[3, 5, 4][..], &[1, 2], &[6]] {
            let calendar = Arc::new(Uneven { lengths, unit: 1 });
            let window = Window::calendar(Permits::new(3), calendar).unwrap();
            explore(&window.with_denials(denials), 13, 30);
        }
    }
}

#[test]
fn quota_resets_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per) in [(1, 1), (1, 4), (3, 4), (2, 5), (4, 3)] {
            let limit = QuotaReset::new(quota(permits, per)).unwrap();
            explore(&limit.with_denials(denials), 3 * per, 8 * per + 8);
        }
    }
}

#[test]
fn balances_keep_the_laws_everywhere() {
    for (start, max) in [(1, 1), (3, 3), (2, 5), (0, 2)] {
        let balance = Balance::new(Permits::new(start), Permits::new(max)).unwrap();
        let reach = Reach::Every { span: 6 };
        let states = laws::explore(&balance, &Refunds::exact(), 3, reach);
        assert_eq!(states, 1 + usize::try_from(start).unwrap(), "{balance:?}");
    }
}

#[test]
fn sub_buckets_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for edge in EDGES {
            for (permits, per, count, phase) in
                [(3, 4, 1, 0), (2, 6, 2, 1), (2, 5, 2, 0), (2, 6, 3, 0)]
            {
                let quota = quota(permits, per);
                let window = SubBuckets::sub_buckets(quota, count, edge, nanos(phase)).unwrap();
                explore(&window.with_denials(denials), 2 * per, 5 * per);
            }
        }
    }
}

#[test]
fn intervals_keep_the_laws_everywhere() {
    for (most, refill, every, phase) in [(1, 1, 1, 0), (3, 1, 2, 1), (3, 2, 3, 2), (4, 4, 5, 0)] {
        let (most, refill) = (Permits::new(most), Permits::new(refill));
        let on_grid = Interval::on_grid(most, refill, nanos(every), nanos(phase)).unwrap();
        let from_first = Interval::from_first(most, refill, nanos(every)).unwrap();
        for interval in [on_grid, from_first] {
            explore(&interval, 3 * every, 8 * every + 8);
        }
    }
}

#[test]
fn logs_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per) in [(1, 1), (1, 4), (2, 3), (3, 4)] {
            let log = Log::sliding(quota(permits, per)).unwrap();
            explore(&log.with_denials(denials), per + 1, 3 * per + 3);
        }
    }
}

#[test]
fn hybrids_keep_the_laws_everywhere() {
    for (permits, per) in [(1, 1), (1, 4), (2, 3), (3, 4), (3, 7), (4, 2)] {
        let hybrid = Hybrid::quota_linear(quota(permits, per)).unwrap();
        explore_with(&hybrid, &Refunds::of_modes(), 3 * per, 4 * per);
    }
}

#[test]
fn exponentials_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per) in [(1, 1), (1, 3), (2, 2), (3, 2)] {
            let exponential = Exponential::new(quota(permits, per)).unwrap();
            let exponential = exponential.with_denials(denials);
            explore_with(&exponential, &Refunds::none(), 4, 14 * per);
        }
    }
}

#[test]
fn loans_keep_the_laws_everywhere() {
    for (permits, lease) in [(1, 1), (1, 4), (2, 3), (3, 4), (2, 5)] {
        let limit = Concurrency::new(Permits::new(permits), nanos(lease)).unwrap();
        explore_with(&limit, &Refunds::of_loans(), lease + 2, 3 * lease);
    }
}

#[test]
fn bans_keep_the_laws_everywhere() {
    for terms in [ban_terms(1, 3, 2, 3), ban_terms(2, 2, 1, 1)] {
        let bucket = Gcra::token_bucket(quota(2, 3)).unwrap();
        let bucket = WithBans::new(bucket, terms).unwrap();
        explore(&bucket, 4, 30);
        let window = Window::fixed(quota(2, 3), nanos(1)).unwrap();
        let window = WithBans::new(window, terms).unwrap();
        explore(&window, 4, 30);
    }
}
