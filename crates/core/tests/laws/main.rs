//! Every law and oracle, for every algorithm: everywhere on small parameters, along random
//! lives on large ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use proptest::prelude::*;
use ratekeeper_core::laws::{self, LifeEvent, Random};
use ratekeeper_core::oracles::Reach;
use ratekeeper_core::{
    Algorithm, Balance, BanTerms, Calendar, CalendarWindow, Concurrency, Denials, Edge,
    Exponential, Gcra, Hybrid, Interval, Log, Nanos, Origin, Permits, Quota, QuotaReset, Refund,
    Reserve, SubBuckets, Tat, Time, Window, WithBans,
};

const EDGES: [Edge; 3] = [Edge::Drop, Edge::Full, Edge::Weighted];
const DENIALS: [Denials; 2] = [Denials::Free, Denials::Counted];

fn quota(permits: u64, nanos: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(nanos)).unwrap()
}

fn nanos(nanos: u64) -> Nanos {
    Nanos::from_nanos(nanos)
}

/// Windows of unequal length, over and over, like days when the clocks change.
#[derive(Clone, Debug)]
struct Uneven {
    lengths: &'static [u64],
    unit: u64,
}

impl Calendar for Uneven {
    fn window_at(&self, now: Time) -> CalendarWindow {
        let whole = self.lengths.iter().sum::<u64>() * self.unit;
        let mut start = now.as_nanos() / whole * whole;
        for length in self.lengths.iter().cycle() {
            let end = start.saturating_add(length * self.unit);
            if now.as_nanos() < end || end == u64::MAX {
                let (start, end) = (Time::from_nanos(start), Time::from_nanos(end));
                return CalendarWindow { start, end };
            }
            start = end;
        }
        unreachable!("the lengths repeat for ever")
    }
    fn name(&self) -> &'static str {
        "uneven"
    }
    fn shortest(&self) -> Nanos {
        nanos(self.lengths.iter().min().unwrap() * self.unit)
    }
    fn on_clock(&self, _origin: Origin) -> Arc<dyn Calendar> {
        Arc::new(self.clone())
    }
}

/// Interval buckets of a third of the quota each third of its span, on a grid first.
fn intervals(quota: Quota) -> Vec<Interval> {
    let (most, third) = (quota.permits(), nanos(quota.per().as_nanos().div_ceil(3)));
    let refill = Permits::new(most.get().div_ceil(3));
    let on_grid = Interval::on_grid(most, refill, third, nanos(1));
    let from_first = Interval::from_first(most, refill, third);
    [on_grid, from_first].into_iter().flatten().collect()
}

fn explore<A>(algorithm: &A, denials: Denials, horizon: u64, span: u64)
where
    A: Refund + Debug,
    A::State: Hash + Eq,
{
    let states = laws::explore(algorithm, denials, horizon, Reach::Every { span });
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
            explore(&gcra, denials, 10, 60);
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
                explore(&window.with_denials(denials), denials, 3 * per, 8 * per + 8);
            }
        }
        for lengths in [&[3, 5, 4][..], &[1, 2], &[6]] {
            let calendar = Arc::new(Uneven { lengths, unit: 1 });
            let window = Window::calendar(Permits::new(3), calendar).unwrap();
            explore(&window.with_denials(denials), denials, 13, 30);
        }
    }
}

#[test]
fn quota_resets_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per) in [(1, 1), (1, 4), (3, 4), (2, 5), (4, 3)] {
            let limit = QuotaReset::new(quota(permits, per)).unwrap();
            explore(&limit.with_denials(denials), denials, 3 * per, 8 * per + 8);
        }
    }
}

#[test]
fn balances_keep_the_laws_everywhere() {
    for (start, max) in [(1, 1), (3, 3), (2, 5), (0, 2)] {
        let balance = Balance::new(Permits::new(start), Permits::new(max)).unwrap();
        let reach = Reach::Every { span: 6 };
        let states = laws::explore(&balance, Denials::Free, 3, reach);
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
                let window =
                    SubBuckets::sub_buckets(quota(permits, per), count, edge, nanos(phase));
                explore(
                    &window.unwrap().with_denials(denials),
                    denials,
                    2 * per,
                    5 * per,
                );
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
            explore(&interval, Denials::Free, 3 * every, 8 * every + 8);
        }
    }
}

#[test]
fn logs_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per) in [(1, 1), (1, 4), (2, 3), (3, 4)] {
            let log = Log::sliding(quota(permits, per)).unwrap();
            explore(&log.with_denials(denials), denials, per + 1, 3 * per + 3);
        }
    }
}

#[test]
fn hybrids_keep_the_laws_everywhere() {
    for (permits, per) in [(1, 1), (1, 4), (2, 3), (3, 4), (3, 7), (4, 2)] {
        let hybrid = Hybrid::quota_linear(quota(permits, per)).unwrap();
        let reach = Reach::Every { span: 4 * per };
        let states = laws::explore_modes(&hybrid, Denials::Free, 3 * per, reach);
        assert!(states > 1, "no more than one state was reached: {hybrid:?}");
    }
}

#[test]
fn exponentials_keep_the_laws_everywhere() {
    for denials in DENIALS {
        for (permits, per) in [(1, 1), (1, 3), (2, 2), (3, 2)] {
            let exponential = Exponential::new(quota(permits, per)).unwrap();
            let reach = Reach::Every { span: 14 * per };
            let exponential = exponential.with_denials(denials);
            let states = laws::explore_charges(&exponential, denials, 4, reach);
            assert!(
                states > 1,
                "no more than one state was reached: {exponential:?}"
            );
        }
    }
}

#[test]
fn loans_keep_the_laws_everywhere() {
    for (permits, lease) in [(1, 1), (1, 4), (2, 3), (3, 4), (2, 5)] {
        let limit = Concurrency::new(Permits::new(permits), nanos(lease)).unwrap();
        let reach = Reach::Every { span: 3 * lease };
        let states = laws::explore_loans(&limit, Denials::Free, lease + 2, reach);
        assert!(states > 1, "no more than one state was reached: {limit:?}");
    }
}

fn ban_terms(after: u64, within: u64, first: u64, longest: u64) -> BanTerms {
    BanTerms {
        strikes: quota(after, within),
        first: nanos(first),
        growth_thousandths: 1_500,
        longest: nanos(longest),
    }
}

#[test]
fn bans_keep_the_laws_everywhere() {
    for terms in [ban_terms(1, 3, 2, 3), ban_terms(2, 2, 1, 1)] {
        let bucket = Gcra::token_bucket(quota(2, 3)).unwrap();
        let bucket = WithBans::new(bucket, terms).unwrap();
        explore(&bucket, Denials::Free, 4, 30);
        let window = Window::fixed(quota(2, 3), nanos(1)).unwrap();
        let window = WithBans::new(window, terms).unwrap();
        explore(&window, Denials::Free, 4, 30);
    }
}

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

#[test]
fn every_algorithm_keeps_the_laws_through_long_lives() {
    // Spans of seconds and hours: the clock's slack, and products beyond 64 bits.
    for seed in 0..6 {
        let mut random = Random::new(seed);
        for (permits, per) in [
            (10, 1_000_000_000),
            (1000, 3_600_000_000_000),
            (3, 25_000_000_000),
            (10_000_000_000, 86_400_000_000_000),
            (1 << 42, 2_592_000_000_000_000),
            (Quota::MAX_PERMITS, 2_592_000_000_000_000),
        ] {
            let quota = quota(permits, per);
            for denials in DENIALS {
                let start = Time::from_nanos(per + random.below(1 << 57));
                let events = laws::random_life(seed, 200, nanos(per), Permits::new(permits));
                for_each_algorithm(quota, denials, start, &events);
            }
        }
    }
}

/// Returns true if a life, and the state after it, ends before time does (584 years after the
/// clock's zero). GCRA and windows are defined at the end of time; the others are not: there, no
/// charge ever expires.
fn ends_before_time(start: Time, events: &[LifeEvent], per: Nanos) -> bool {
    let waits = events.iter().map(|event| match event {
        LifeEvent::Wait(span) => *span,
        _ => Nanos::ZERO,
    });
    let spans = waits.chain([per; 64]); // an exponential forgets after some forty
    start + spans.fold(Nanos::ZERO, |sum, span| sum + span) < Time::MAX
}

fn live_with_bans(quota: Quota, start: Time, events: &[LifeEvent]) {
    let half = quota.per().as_nanos() / 2 + 1;
    let terms = ban_terms(3, quota.per().as_nanos(), half, half.saturating_mul(3));
    if let Ok(gcra) = Gcra::token_bucket(quota)
        && let Ok(bans) = WithBans::new(gcra, terms)
    {
        laws::live(&bans, Denials::Free, start, events, Reach::Edges);
    }
}

fn for_each_algorithm(quota: Quota, denials: Denials, start: Time, events: &[LifeEvent]) {
    let phase = nanos(quota.per().as_nanos() / 3);
    if let Ok(gcra) = Gcra::token_bucket(quota) {
        laws::live(
            &gcra.with_denials(denials),
            denials,
            start,
            events,
            Reach::Edges,
        );
    }
    live_with_bans(quota, start, events);
    if let Ok(queue) = Gcra::leaky_queue(quota, Permits::new(quota.permits().get() / 2)) {
        laws::live(
            &queue.with_denials(denials),
            denials,
            start,
            events,
            Reach::Edges,
        );
    }
    let windows = [
        Window::fixed(quota, phase),
        Window::two_window(quota, phase),
    ];
    let in_time = ends_before_time(start, events, quota.per());
    if in_time
        && quota.permits().get() <= 1_000
        && let Ok(log) = Log::sliding(quota)
    {
        laws::live(
            &log.with_denials(denials),
            denials,
            start,
            events,
            Reach::Edges,
        );
    }
    if in_time && let Ok(hybrid) = Hybrid::quota_linear(quota) {
        laws::live_modes(&hybrid, Denials::Free, start, events, Reach::Edges);
    }
    if in_time && let Ok(exponential) = Exponential::new(quota) {
        let exponential = exponential.with_denials(denials);
        laws::live_charges(&exponential, denials, start, events, Reach::Edges);
    }
    if in_time && let Ok(limit) = Concurrency::new(quota.permits(), quota.per()) {
        let limit = limit.with_denials(denials);
        laws::live_loans(&limit, denials, start, events, Reach::Edges);
    }
    for interval in intervals(quota).into_iter().filter(|_| in_time) {
        laws::live(&interval, Denials::Free, start, events, Reach::Edges);
    }
    if let Ok(balance) = Balance::new(quota.permits(), quota.permits()) {
        laws::live(&balance, Denials::Free, start, events, Reach::Edges);
    }
    if let Ok(reset) = QuotaReset::new(quota) {
        laws::live(
            &reset.with_denials(denials),
            denials,
            start,
            events,
            Reach::Edges,
        );
    }
    for window in windows.into_iter().flatten() {
        laws::live(
            &window.with_denials(denials),
            denials,
            start,
            events,
            Reach::Edges,
        );
    }
    let unit = quota.per().as_nanos() / 24 + 1;
    let calendar = Arc::new(Uneven {
        lengths: &[24, 23, 25],
        unit,
    });
    if let Ok(window) = Window::calendar(quota.permits(), calendar) {
        laws::live(
            &window.with_denials(denials),
            denials,
            start,
            events,
            Reach::Edges,
        );
    }
    for edge in EDGES {
        for count in [1, 7, 60] {
            if let Ok(window) = SubBuckets::sub_buckets(quota, count, edge, phase) {
                laws::live(
                    &window.with_denials(denials),
                    denials,
                    start,
                    events,
                    Reach::Edges,
                );
            }
        }
    }
}

/// A number of any size: as many small as large ones.
fn any_size(most: u64) -> impl Strategy<Value = u64> {
    (0..64_u32, any::<u64>()).prop_map(move |(bits, random)| (random >> bits).clamp(1, most))
}

fn any_life(per: u64, permits: u64) -> impl Strategy<Value = Vec<LifeEvent>> {
    /// Beyond this step back a debt may be cut, and bounds are the clock's own.
    const STEP: u64 = 10_000_000_000;
    let wait = prop_oneof![
        Just(0),
        Just(1),
        any_size(per),
        Just(per - 1),
        Just(per),
        any_size(per.saturating_mul(4)),
        any_size(u64::MAX),
    ];
    let cost = prop_oneof![
        4 => Just(1),
        2 => any_size(permits),
        1 => Just(permits),
        1 => any_size(u64::MAX),
    ];
    let cost = cost.prop_map(Permits::new).boxed();
    let event = prop_oneof![
        4 => wait.prop_map(|span| LifeEvent::Wait(nanos(span))),
        1 => any_size(STEP).prop_map(|span| LifeEvent::StepBack(nanos(span))),
        8 => cost.clone().prop_map(LifeEvent::Spend),
        1 => cost.prop_map(LifeEvent::Refund),
    ];
    proptest::collection::vec(event, 1..20)
}

fn any_case() -> impl Strategy<Value = (Quota, Denials, Time, Vec<LifeEvent>)> {
    (
        any_size(Quota::MAX_PERMITS),
        any_size(u64::MAX),
        any_size(u64::MAX),
        any::<bool>(),
    )
        .prop_flat_map(|(permits, per, start, counted)| {
            let quota = quota(permits, per);
            let denials = DENIALS[usize::from(counted)];
            any_life(per, permits)
                .prop_map(move |events| (quota, denials, Time::from_nanos(start), events))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// From one permit to the largest quota, from a nanosecond to 584 years, from the clock's zero to
    /// its end.
    #[test]
    fn every_algorithm_keeps_the_laws_at_any_size((quota, denials, start, events) in any_case()) {
        for_each_algorithm(quota, denials, start, &events);
    }

    /// Callers that wait and callers that do not share one debt, and no clock makes it shorter.
    #[test]
    fn reservations_and_decisions_stay_within_one_bound(
        steps in proptest::collection::vec((0_u64..400, 0_u64..3, 1_u64..4, 0_u64..900), 1..80)
    ) {
        let gcra = Gcra::token_bucket(quota(3, 300)).unwrap().with_patience(nanos(700));
        let mut tat = Tat::default();
        let mut clock = 1_000;
        let mut leaving = Vec::new();
        for (wait, late, cost, patience) in steps {
            clock += wait;
            let now = Time::from_nanos(clock - 300 * late);
            let cost = Permits::new(cost);
            let decision = if patience < 300 {
                gcra.decide(&mut tat, now, cost)
            } else {
                gcra.reserve(&mut tat, now, cost, nanos(patience))
            };
            let wait = match decision.verdict {
                ratekeeper_core::Verdict::Allow => 0,
                ratekeeper_core::Verdict::AllowAfter(wait) => wait.as_nanos(),
                _ => continue,
            };
            prop_assert!(wait <= patience.min(700));
            leaving.push((now + nanos(wait), cost));
        }
        leaving.sort();
        let plain = Gcra::token_bucket(quota(3, 300)).unwrap();
        for from in 0..leaving.len() {
            let mut sum = 0;
            for &(to, cost) in &leaving[from..] {
                sum += cost.get();
                // A late reader of the clock leaves by its own clock: two late steps early.
                let span = to.since(leaving[from].0) + nanos(1 + 600);
                prop_assert!(sum <= plain.bound(span), "{leaving:?}");
            }
        }
    }
}
