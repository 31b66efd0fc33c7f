//! Every law along the life of a key: random ones of parameters of any size.

use std::fmt::Debug;
use std::sync::Arc;

use proptest::prelude::*;
use ratekeeper_core::laws::{self, LifeEvent, Random, Refunds};
use ratekeeper_core::oracles::Reach;
use ratekeeper_core::{
    Algorithm, Balance, Concurrency, Denials, Exponential, Gcra, Hybrid, Log, Nanos, Permits,
    Quota, QuotaReset, Refund, Reserve, SubBuckets, Tat, Time, Verdict, Window, WithBans,
};

use crate::cases::cases;
use crate::{DENIALS, EDGES, Uneven, ban_terms, intervals, nanos, quota};

#[test]
fn every_algorithm_keeps_the_laws_through_long_lives() {
    // Spans of seconds and hours: the clock's slack, and products beyond 64 bits.
    for seed in 0..cases(1, 6) {
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
                let events = &events;
                check_every_algorithm(quota, denials, Life { start, events });
            }
        }
    }
}

/// A life of a key, from `start` on.
#[derive(Clone, Copy)]
struct Life<'a> {
    start: Time,
    events: &'a [LifeEvent],
}

impl Life<'_> {
    /// Returns true if the life, and the state after it, ends before time does (584 years after
    /// the clock's zero). GCRA and windows are defined at the end of time; the others are not:
    /// there, no charge ever expires.
    fn ends_before_time(self, per: Nanos) -> bool {
        let waits = self.events.iter().map(|event| match event {
            LifeEvent::Wait(span) => *span,
            _ => Nanos::ZERO,
        });
        let spans = waits.chain([per; 64]); // an exponential forgets after some forty
        self.start + spans.fold(Nanos::ZERO, |sum, span| sum + span) < Time::MAX
    }

    /// Replays the life under each of `limits`. The list is empty if the quota exceeds their bounds.
    fn check<A: Refund + Debug>(self, limits: impl IntoIterator<Item = A>) {
        self.check_with(limits, &Refunds::exact());
    }

    fn check_with<A: Algorithm + Debug>(
        self,
        limits: impl IntoIterator<Item = A>,
        refunds: &Refunds<A>,
    ) {
        for limit in limits {
            laws::live(&limit, refunds, self.start, self.events, Reach::Edges);
        }
    }
}

fn check_every_algorithm(quota: Quota, denials: Denials, life: Life<'_>) {
    let (permits, per) = (quota.permits(), quota.per());
    let phase = nanos(per.as_nanos() / 3);
    let buckets = [
        Gcra::token_bucket(quota),
        Gcra::leaky_queue(quota, Permits::new(permits.get() / 2)),
    ];
    life.check(
        buckets
            .into_iter()
            .flatten()
            .map(|it| it.with_denials(denials)),
    );
    let half = per.as_nanos() / 2 + 1;
    let terms = ban_terms(3, per.as_nanos(), half, half.saturating_mul(3));
    let bucket = Gcra::token_bucket(quota).ok();
    life.check(bucket.and_then(|bucket| WithBans::new(bucket, terms).ok()));
    life.check(Balance::new(permits, permits));
    life.check(QuotaReset::new(quota).map(|it| it.with_denials(denials)));
    let windows = [
        Window::fixed(quota, phase),
        Window::two_window(quota, phase),
    ];
    life.check(
        windows
            .into_iter()
            .flatten()
            .map(|it| it.with_denials(denials)),
    );
    let calendar = Arc::new(Uneven {
        lengths: &[24, 23, 25],
        unit: per.as_nanos() / 24 + 1,
    });
    life.check(Window::calendar(permits, calendar).map(|it| it.with_denials(denials)));
    for edge in EDGES {
        for count in [1, 7, 60] {
            let window = SubBuckets::sub_buckets(quota, count, edge, phase);
            life.check(window.map(|it| it.with_denials(denials)));
        }
    }
    if !life.ends_before_time(per) {
        return;
    }
    life.check(intervals(quota));
    if permits.get() <= 1_000 {
        life.check(Log::sliding(quota).map(|it| it.with_denials(denials)));
    }
    life.check_with(Hybrid::quota_linear(quota), &Refunds::of_modes());
    let exponential = Exponential::new(quota).map(|it| it.with_denials(denials));
    life.check_with(exponential, &Refunds::none());
    let loans = Concurrency::new(permits, per).map(|it| it.with_denials(denials));
    life.check_with(loans, &Refunds::of_loans());
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
    #![proptest_config(ProptestConfig::with_cases(cases(50, 150)))]

    /// From one permit to the largest quota, from a nanosecond to 584 years, from the clock's zero to
    /// its end.
    #[test]
    fn every_algorithm_keeps_the_laws_at_any_size((quota, denials, start, events) in any_case()) {
        check_every_algorithm(quota, denials, Life { start, events: &events });
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
                Verdict::Allow => 0,
                Verdict::AllowAfter(wait) => wait.as_nanos(),
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
