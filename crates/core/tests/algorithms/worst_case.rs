//! The exact worst case of every algorithm except exponential and post-paid ones, by dynamic
//! programming over all reachable states, against the table of the guide and against `bound`.
//!
//! ```text
//!   reach: fresh --any costs, 2P + w ticks--> every state there can be at tick t
//!   sweep: most[s] = most admitted since t that ends in state s, tick by tick to t + 4P
//!          worst(W) = max over t in one window, s, of most[s] after W ticks
//! ```
//!
//! A tick is 1 ns. A change of a worst case or of a bound fails here.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use ratekeeper_core::{
    Algorithm, Calendar, CalendarWindow, Denials, Edge, Gcra, Hybrid, Interval, Log, Nanos, Origin,
    Permits, Quota, QuotaReset, SubBuckets, Time, Window,
};

use crate::cases::cases;

/// Each state, with the maximum number of permits admitted on a way to it.
type Most<S> = HashMap<S, u64, FixedState>;

/// The moments and the costs of a search.
#[derive(Clone, Copy, Debug)]
struct Steps {
    /// In nanoseconds.
    tick: u64,
    /// Every cost is tried if it is 1; otherwise the multiples of it, one permit, and one less
    /// than all.
    unit: u64,
}

impl Steps {
    const EVERY: Self = Self { tick: 1, unit: 1 };

    fn costs(self, capacity: u64) -> Vec<u64> {
        let multiples = (0..=capacity / self.unit).map(|times| times * self.unit);
        let others = [1, capacity - 1, capacity];
        let others = others.into_iter().filter(|_| self.unit > 1);
        multiples.chain(others).collect()
    }

    /// The shortest half-open span that holds `ticks` ticks.
    fn span_of(self, ticks: u64) -> Nanos {
        Nanos::from_nanos((ticks - 1) * self.tick + 1)
    }
}

/// Maximum number of permits admitted in any half-open span of 1, 2, .. `spans` ticks.
///
/// Every behaviour of the algorithm repeats after `period` ticks.
fn worst<A>(algorithm: &A, period: u64, spans: u64) -> Vec<u64>
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    // From the second period on, every state occurs that ever will: none remembers more.
    worst_from(algorithm, Steps::EVERY, 2 * period..3 * period, spans)
}

/// As [`worst`], of spans that start at one of the `starts`.
fn worst_from<A>(algorithm: &A, steps: Steps, starts: Range<u64>, spans: u64) -> Vec<u64>
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    let costs = steps.costs(algorithm.capacity().get());
    // One tick: every cost that is allowed, from every state.
    let tick = |states: &Most<A::State>, now: u64| {
        let mut after: Most<A::State> = HashMap::default();
        for (state, &most) in states {
            for &cost in &costs {
                let mut next = state.clone();
                let at = Time::from_nanos(now * steps.tick);
                let decision = algorithm.decide(&mut next, at, Permits::new(cost));
                let admitted = if decision.verdict.allows() { cost } else { 0 };
                let best = after.entry(next).or_default();
                *best = (*best).max(most + admitted);
            }
        }
        after
    };
    let mut worst = vec![0; usize::try_from(spans).unwrap()];
    let mut reached = Most::default();
    reached.insert(A::State::default(), 0);
    for start in 0..starts.end {
        if start >= starts.start {
            let mut states: Most<A::State> =
                reached.keys().map(|state| (state.clone(), 0)).collect();
            for (now, worst) in (start..).zip(&mut worst) {
                states = tick(&states, now);
                *worst = (*worst).max(*states.values().max().unwrap());
            }
        }
        reached = tick(&reached, start);
        for most in reached.values_mut() {
            *most = 0;
        }
    }
    worst
}

/// The relation of `bound` to the worst case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bound {
    /// Equal in every span.
    Exact,
    /// Equal in spans up to one period, and never below.
    ExactWithinPeriod,
    /// Never below.
    Holds,
}

fn check<A>(algorithm: &A, period: u64, spans: u64, bound: Bound) -> Vec<u64>
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    let worst = worst(algorithm, period, spans);
    hold(algorithm, Steps::EVERY, &worst, period, bound);
    worst
}

/// As [`check`], for an algorithm that knows no phase: any one moment shows everything, once
/// every state has been reached, which takes `remembers` ticks.
fn check_anywhere<A>(algorithm: &A, remembers: u64, spans: u64, bound: Bound) -> Vec<u64>
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    let worst = worst_from(algorithm, Steps::EVERY, remembers..remembers + 1, spans);
    hold(algorithm, Steps::EVERY, &worst, spans, bound);
    worst
}

/// Holds `bound` against the worst case in 1, 2, .. ticks.
fn hold<A: Algorithm + Debug>(
    algorithm: &A,
    steps: Steps,
    worst: &[u64],
    period: u64,
    bound: Bound,
) {
    for (span, &most) in (1..).zip(worst) {
        let limit = algorithm.bound(steps.span_of(span));
        assert!(
            most <= limit,
            "{span} ticks: {most} admitted, bound {limit}\n{algorithm:?}"
        );
        let exact = match bound {
            Bound::Exact => true,
            Bound::ExactWithinPeriod => span <= period,
            Bound::Holds => false,
        };
        assert!(
            !exact || most == limit,
            "{span} ticks: {most}, bound {limit}\n{algorithm:?}"
        );
    }
    assert_eq!(algorithm.bound(Nanos::ZERO), 0);
}

fn quota(permits: u64, ticks: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(ticks)).unwrap()
}

fn bucket(permits: u64, ticks: u64, burst: u64) -> Gcra {
    Gcra::token_bucket(
        quota(permits, ticks)
            .with_burst(Permits::new(burst))
            .unwrap(),
    )
    .unwrap()
}

fn sub_buckets(permits: u64, ticks: u64, count: u32, edge: Edge) -> SubBuckets {
    SubBuckets::sub_buckets(quota(permits, ticks), count, edge, Nanos::ZERO).unwrap()
}

fn interval(most: u64, refill: u64, ticks: u64) -> Interval {
    let (most, refill) = (Permits::new(most), Permits::new(refill));
    Interval::on_grid(most, refill, Nanos::from_nanos(ticks), Nanos::ZERO).unwrap()
}

fn hybrid(permits: u64, ticks: u64) -> Hybrid {
    Hybrid::quota_linear(quota(permits, ticks)).unwrap()
}

/// The rows of the table for N = 6 and P = 12: in one tick, in P / 2, in P, in 4P.
#[test]
fn the_table_of_worst_cases_is_exact() {
    let row = |worst: Vec<u64>| [worst[0], worst[5], worst[11], worst[47]];
    let (n, p, zero) = (6, 12, Nanos::ZERO);
    let fixed = Window::fixed(quota(n, p), zero).unwrap();
    let quota_reset = QuotaReset::new(quota(n, p)).unwrap();
    let two_window = Window::two_window(quota(n, p), zero).unwrap();
    for (name, row, expected) in [
        (
            "gcra b=n",
            row(check(&bucket(n, p, n), 12, 48, Bound::Exact)),
            [6, 8, 11, 29],
        ),
        (
            "gcra b=1",
            row(check(&bucket(n, p, 1), 12, 48, Bound::Exact)),
            [1, 3, 6, 24],
        ),
        (
            "fixed",
            row(check(&fixed, 12, 48, Bound::Exact)),
            [6, 12, 12, 30],
        ),
        (
            "quota reset",
            row(check(&quota_reset, 12, 48, Bound::Exact)),
            [6, 11, 11, 29],
        ),
        (
            "two-window",
            row(check(&two_window, 12, 48, Bound::Exact)),
            [6, 8, 11, 29],
        ),
        (
            "m=2 drop",
            table_sub_buckets(2, Edge::Drop, Bound::Exact),
            [6, 6, 12, 30],
        ),
        (
            "m=3 drop",
            table_sub_buckets(3, Edge::Drop, Bound::Exact),
            [6, 6, 12, 30],
        ),
        (
            "m=2 weighted",
            table_sub_buckets(2, Edge::Weighted, Bound::ExactWithinPeriod),
            [6, 6, 10, 28],
        ),
        (
            "m=3 weighted",
            table_sub_buckets(3, Edge::Weighted, Bound::ExactWithinPeriod),
            [6, 6, 9, 26],
        ),
        (
            "m=2 full",
            table_sub_buckets(2, Edge::Full, Bound::Exact),
            [6, 6, 6, 18],
        ),
        (
            "m=3 full",
            table_sub_buckets(3, Edge::Full, Bound::Exact),
            [6, 6, 6, 24],
        ),
        (
            "sliding log",
            row(check_anywhere(
                &Log::sliding(quota(n, p)).unwrap(),
                12,
                48,
                Bound::Exact,
            )),
            [6, 6, 6, 24],
        ),
        (
            "interval r=m",
            row(check(&interval(n, n, p), 12, 48, Bound::Exact)),
            [6, 12, 12, 30],
        ),
        (
            "interval r=1",
            row(check(&interval(n, 1, 2), 12, 48, Bound::Exact)),
            [6, 9, 12, 30],
        ),
        (
            "hybrid",
            row(check_anywhere(&hybrid(n, p), 24, 48, Bound::Holds)),
            [6, 10, 11, 29],
        ),
    ] {
        assert_eq!(row, expected, "{name}");
    }
}

/// The bound of weighted sub-buckets is exact up to P and whenever the span ends with a whole
/// round of buckets; between, it is that of the edge that drops: not below. It is listed here
/// beside the worst case, so that neither changes unseen.
#[test]
fn weighted_sub_buckets_are_bounded_loosely_beyond_their_window() {
    let at = |spans: &[u64; 4], of: &dyn Fn(u64) -> u64| spans.map(of);
    let spans = [12, 26, 37, 48];
    for (count, worst, bounds) in [
        (2, [10, 17, 23, 28], [10, 18, 23, 28]),
        (3, [9, 17, 21, 26], [9, 18, 23, 27]),
    ] {
        let window = sub_buckets(6, 12, count, Edge::Weighted);
        let found = check(&window, 12, 48, Bound::ExactWithinPeriod);
        let most = |span: u64| found[usize::try_from(span - 1).unwrap()];
        assert_eq!(at(&spans, &most), worst, "{count}");
        let bound = |span| window.bound(Nanos::from_nanos(span));
        assert_eq!(at(&spans, &bound), bounds, "{count}");
    }
}

fn table_sub_buckets(count: u32, edge: Edge, bound: Bound) -> [u64; 4] {
    let worst = check(&sub_buckets(6, 12, count, edge), 12, 48, bound);
    [worst[0], worst[5], worst[11], worst[47]]
}

#[test]
fn bounds_hold_for_all_small_parameters() {
    for n in 3..=cases(4, 6) {
        for p in [6, 7, 12] {
            let zero = Nanos::ZERO;
            let fixed = Window::fixed(quota(n, p), zero).unwrap();
            let two_window = Window::two_window(quota(n, p), zero).unwrap();
            let quota_reset = QuotaReset::new(quota(n, p)).unwrap();
            check(&fixed, p, 4 * p, Bound::Exact);
            // A permit in each nanosecond: its part of the last one counts for one.
            let dense = n >= p;
            check(
                &two_window,
                p,
                4 * p,
                if dense { Bound::Holds } else { Bound::Exact },
            );
            check(&quota_reset, p, 4 * p, Bound::Exact);
            if n + p < 13 {
                check_anywhere(&Log::sliding(quota(n, p)).unwrap(), p, 4 * p, Bound::Exact);
            }
            check_anywhere(&hybrid(n, p), 2 * p, 4 * p, Bound::Holds);
            for refill in 1..=n {
                check(&interval(n, refill, p), p, 4 * p, Bound::Exact);
                let most = Permits::new(n);
                let from_first =
                    Interval::from_first(most, Permits::new(refill), Nanos::from_nanos(p));
                check(&from_first.unwrap(), p, 4 * p, Bound::Holds);
            }
            // An interval of 2.3 ticks is met by a request every 3 unless there is a burst.
            let whole = p.is_multiple_of(n);
            let paced = if whole { Bound::Exact } else { Bound::Holds };
            check(&bucket(n, p, 1), p, 4 * p, paced);
            check(&bucket(n, p, n), p, 4 * p, Bound::Exact);
            for (count, edge, bound) in [
                (2, Edge::Drop, Bound::Exact),
                (2, Edge::Full, Bound::Exact),
                (2, Edge::Weighted, Bound::ExactWithinPeriod),
                (3, Edge::Full, Bound::Exact),
            ] {
                // Buckets of ceil(P / m): a period of the grid is m of them.
                let period = p.div_ceil(u64::from(count)) * u64::from(count);
                check(&sub_buckets(n, p, count, edge), period, 4 * p, bound);
            }
        }
    }
}

/// Six units of 2^39 permits in six ticks, of which a token bucket refills one in each.
#[test]
fn bounds_hold_for_large_quotas_too() {
    let steps = Steps {
        tick: 1 << 34,
        unit: 1 << 39,
    };
    let (n, p, zero) = (6 * steps.unit, 6 * steps.tick, Nanos::ZERO);
    let buckets = |edge| SubBuckets::sub_buckets(quota(n, p), 2, edge, zero).unwrap();
    large(&bucket(n, p, n), steps, Bound::Exact);
    large(&bucket(n, p, 1), steps, Bound::Holds);
    let counted = bucket(n, p, n).with_denials(Denials::Counted);
    large(&counted, steps, Bound::Holds);
    let fixed = Window::fixed(quota(n, p), zero).unwrap();
    large(&fixed, steps, Bound::Exact);
    large(&fixed.with_denials(Denials::Counted), steps, Bound::Holds);
    let two_window = Window::two_window(quota(n, p), zero).unwrap();
    large(&two_window, steps, Bound::Holds);
    large(&QuotaReset::new(quota(n, p)).unwrap(), steps, Bound::Exact);
    large(&buckets(Edge::Drop), steps, Bound::Exact);
    large(&buckets(Edge::Weighted), steps, Bound::Holds);
    large(&buckets(Edge::Full), steps, Bound::Exact);
    large(&interval(n, n, p), steps, Bound::Exact);
    large(
        &interval(n, 2 * steps.unit, 2 * steps.tick),
        steps,
        Bound::Exact,
    );
    large(&hybrid(n, p), steps, Bound::Holds);
}

/// As [`check`], for a limit of six ticks.
fn large<A>(algorithm: &A, steps: Steps, bound: Bound)
where
    A: Algorithm + Debug,
    A::State: Hash + Eq,
{
    let worst = worst_from(algorithm, steps, 12..18, 13);
    hold(algorithm, steps, &worst, 6, bound);
    assert!(worst[12] > u64::from(u32::MAX) || algorithm.capacity() == Permits::ONE);
}

#[test]
fn one_permit_cannot_be_shared() {
    for p in [1, 2, 6, 7] {
        // In windows of 1 ns it counts for one to their end.
        let two_window = Window::two_window(quota(1, p), Nanos::ZERO).unwrap();
        let bound = if p == 1 { Bound::Holds } else { Bound::Exact };
        check(&two_window, p, 4 * p, bound);
        check(
            &QuotaReset::new(quota(1, p)).unwrap(),
            p,
            4 * p,
            Bound::Exact,
        );
        check(&bucket(1, p, 1), p, 4 * p, Bound::Exact);
    }
    check(&sub_buckets(1, 6, 2, Edge::Weighted), 6, 24, Bound::Exact);
}

#[test]
fn counting_denials_admits_no_more() {
    let denials = Denials::Counted;
    let (n, p) = (3, 6);
    check(
        &bucket(n, p, n).with_denials(denials),
        p,
        4 * p,
        Bound::Holds,
    );
    let fixed = Window::fixed(quota(n, p), Nanos::ZERO).unwrap();
    check(&fixed.with_denials(denials), p, 4 * p, Bound::Holds);
    let two_window = Window::two_window(quota(n, p), Nanos::ZERO).unwrap();
    check(&two_window.with_denials(denials), p, 4 * p, Bound::Holds);
    let quota_reset = QuotaReset::new(quota(n, p)).unwrap();
    check(&quota_reset.with_denials(denials), p, 4 * p, Bound::Holds);
    let log = Log::sliding(quota(n, p)).unwrap().with_denials(denials);
    check_anywhere(&log, p, 4 * p, Bound::Holds);
    for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
        check(
            &sub_buckets(n, p, 2, edge).with_denials(denials),
            p,
            4 * p,
            Bound::Holds,
        );
    }
}

#[test]
fn a_hybrid_is_no_more_generous_than_a_quota_reset() {
    for n in 2..=6 {
        for p in [6, 7, 12] {
            let hybrid = worst_from(&hybrid(n, p), Steps::EVERY, 2 * p..2 * p + 1, 4 * p);
            let reset = worst(&QuotaReset::new(quota(n, p)).unwrap(), p, 4 * p);
            assert!(
                hybrid
                    .iter()
                    .zip(&reset)
                    .all(|(hybrid, reset)| hybrid <= reset)
            );
            assert_eq!(hybrid[1], (2 * n - 2).max(n), "within 2 ticks");
        }
    }
}

#[test]
fn a_queue_admits_its_capacity_in_addition_to_the_quota() {
    let queue = Gcra::leaky_queue(quota(6, 12), Permits::new(2)).unwrap();
    let worst = check(&queue, 12, 48, Bound::Exact);
    assert_eq!([worst[0], worst[11], worst[47]], [3, 8, 26]);
}

#[test]
fn full_sub_buckets_keep_the_limit_in_every_span() {
    for (n, p, count) in [
        (6, 12, 1),
        (6, 12, 2),
        (6, 12, 3),
        (5, 7, 2),
        (4, 9, 2),
        (3, 7, 3),
    ] {
        let window = sub_buckets(n, p, count, Edge::Full);
        let period = p.div_ceil(u64::from(count)) * u64::from(count);
        let worst = check(&window, period, p, Bound::Exact);
        assert!(worst.iter().all(|&most| most == n), "{window:?}: {worst:?}");
    }
}

/// Windows of 5, 3 and 4 ticks, over and over.
#[derive(Debug)]
struct Uneven;

impl Calendar for Uneven {
    fn window_at(&self, now: Time) -> CalendarWindow {
        let whole = now.as_nanos() / 12 * 12;
        let (start, end) = match now.as_nanos() % 12 {
            0..5 => (0, 5),
            5..8 => (5, 8),
            _ => (8, 12),
        };
        let at = |ticks| Time::from_nanos(whole + ticks);
        CalendarWindow {
            start: at(start),
            end: at(end),
        }
    }
    fn name(&self) -> &'static str {
        "uneven"
    }
    fn shortest(&self) -> Nanos {
        Nanos::from_nanos(3)
    }
    fn on_clock(&self, _origin: Origin) -> Arc<dyn Calendar> {
        Arc::new(Self)
    }
}

#[test]
fn calendars_are_bounded_by_their_shortest_window() {
    let window = Window::calendar(Permits::new(6), Arc::new(Uneven)).unwrap();
    let worst = check(&window, 12, 48, Bound::Holds);
    assert_eq!([worst[0], worst[1], worst[4]], [6, 12, 18]);
}
