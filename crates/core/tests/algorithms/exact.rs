//! The token bucket is exact at every rate: a client that keeps to the quota is never refused, no
//! rate is exceeded, decisions are those of fractions, and no clock makes a difference.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, AnyState, Concurrency, Decision, Exponential, Gcra, Hybrid, Interval,
    Log, Nanos, Permits, Quota, QuotaReset, Tat, Time, Verdict, WarmUp,
};

const SECOND: u64 = 1_000_000_000;
/// 2017, 2026 and 2090.
const UNIX: [u64; 3] = [
    1_490_868_000 * SECOND,
    1_767_225_600 * SECOND,
    3_786_912_000 * SECOND,
];

fn quota(permits: u64, nanos: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(nanos)).unwrap()
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[usize::try_from(random.below(from.len() as u64)).unwrap()]
}

/// A number of up to `bits` bits, small and large ones equally often.
fn any_size(random: &mut Random, bits: u64) -> u64 {
    let bits = 1 + random.below(bits);
    random.below(1 << bits)
}

/// Any quota of up to a million permits in up to a month; round ones more often.
fn any_quota(random: &mut Random) -> (u64, u64) {
    const PERMITS: [u64; 20] = [
        1, 2, 3, 5, 6, 7, 9, 11, 13, 30, 60, 64, 65, 100, 333, 1_001, 99_999, 123_456, 999_983,
        1_000_000,
    ];
    const SPANS: [u64; 9] = [1, 60, 7, 3_600, 86_400, 10, 1_800, 604_800, 30 * 86_400];
    let permits = match random.below(2) {
        0 => pick(random, &PERMITS),
        _ => 1 + any_size(random, 20).min(999_999),
    };
    let month = 30 * 86_400 * SECOND;
    let span = match random.below(4) {
        0 | 1 => SECOND * pick(random, &SPANS),
        2 => 1_000_000 * (1 + random.below(100_000)),
        _ => 1 + any_size(random, 51).min(month - 1),
    };
    (permits, span)
}

/// A client that takes at most the quota in any half-open span of its length, and often all.
struct Compliant {
    permits: u64,
    span: u64,
    now: u64,
    /// The moments of the last span, with the permits taken.
    taken: VecDeque<(u64, u64)>,
}

impl Compliant {
    /// The next moment, in whole `steps` of nanoseconds, and the permits taken then.
    fn next(&mut self, step: u64, random: &mut Random) -> (u64, u64) {
        let oldest = self.taken.front().map_or(0, |oldest| oldest.0 + self.span);
        let wait = match random.below(10) {
            0..3 => 0,
            3..6 => oldest.saturating_sub(self.now),
            6 => self.span,
            7 => random.below(self.span / 8 + 2),
            8 => random.below(self.span / 1_000 + 2),
            _ => random.below(3 * self.span),
        };
        self.now = (self.now + wait).next_multiple_of(step);
        while self
            .taken
            .front()
            .is_some_and(|oldest| oldest.0 + self.span <= self.now)
        {
            self.taken.pop_front();
        }
        let room = self.permits - self.taken.iter().map(|taken| taken.1).sum::<u64>();
        let cost = match random.below(4) {
            0 => 1.min(room),
            1 => random.below(room + 1),
            _ => room,
        };
        self.taken.push_back((self.now, cost));
        (self.now, cost)
    }
}

#[test]
fn a_client_that_keeps_to_the_quota_is_never_refused() {
    let mut random = Random::new(12);
    for case in 0..4_000 {
        let (permits, span) = any_quota(&mut random);
        let Ok(gcra) = Gcra::token_bucket(quota(permits, span)) else {
            assert!(permits > 64 * span, "{permits}/{span}ns");
            continue;
        };
        let step = pick(&mut random, &[1, 1_000, 1_000_000, SECOND]);
        let start = pick(&mut random, &[0, UNIX[0], UNIX[2]]) + random.below(1 << 40);
        let mut client = Compliant {
            permits,
            span,
            now: start,
            taken: VecDeque::new(),
        };
        let mut tat = Tat::default();
        for request in 0..200 {
            let (now, cost) = client.next(step, &mut random);
            let decision = gcra.decide(&mut tat, Time::from_nanos(now), Permits::new(cost));
            assert_eq!(
                decision.verdict,
                Verdict::Allow,
                "case {case}: {permits}/{span}ns, request {request}, cost {cost} at {now}"
            );
        }
    }
}

#[test]
fn no_rate_is_exceeded_in_the_long_run() {
    let mut random = Random::new(13);
    for case in 0..2_000 {
        let (permits, span) = any_quota(&mut random);
        let Ok(gcra) = Gcra::token_bucket(quota(permits, span)) else {
            continue;
        };
        let step = pick(&mut random, &[1, 1_000, 1_000_000, SECOND]);
        let (mut tat, mut now, mut taken) = (Tat::default(), 0, 0);
        for _ in 0..300 {
            // All permits there, at the very end of the wait, or soon after.
            let at = Time::from_nanos(now);
            let left = gcra.look(&tat, at, Permits::ZERO).remaining;
            let decision = gcra.decide(&mut tat, at, left);
            assert_eq!(decision.verdict, Verdict::Allow);
            taken += left.get();
            let wait = gcra
                .look(&tat, at, Permits::ONE)
                .verdict
                .retry_after()
                .unwrap();
            let late = random.below(2 * span / permits + 2) * u64::from(random.below(4) == 0);
            now = (now + wait.as_nanos() + late).next_multiple_of(step);
            let due = u128::from(permits) * u128::from(now + 1) / u128::from(span);
            assert!(
                u128::from(taken) <= u128::from(permits) + due,
                "case {case}: {permits}/{span}ns"
            );
        }
    }
}

/// A bucket in fractions: `fill / span` tokens.
struct Fractions {
    permits: u128,
    span: u128,
    fill: u128,
    last: u128,
}

impl Fractions {
    fn decide(&mut self, now: u64, cost: u64) -> bool {
        let now = u128::from(now);
        let full = self.permits * self.span;
        self.fill = full.min(self.fill + (now - self.last) * self.permits);
        self.last = now;
        let price = u128::from(cost) * self.span;
        let allows = price <= self.fill;
        self.fill -= if allows { price } else { 0 };
        allows
    }
}

#[test]
fn decisions_agree_with_exact_fractions() {
    // As a log of whole seconds has them, many at once; and between.
    let quotas = [
        (3, 1),
        (7, 1),
        (11, 1),
        (6, 7),
        (333, 1),
        (60, 60),
        (1, 1),
        (9, 1),
        (64, 7),
        (1_001, 60),
    ];
    for (seed, &(permits, seconds)) in (0..).zip(quotas.iter().cycle().take(200)) {
        let mut random = Random::new(seed);
        let span = seconds * SECOND;
        let gcra = Gcra::token_bucket(quota(permits, span)).unwrap();
        let step = match permits {
            0..=64 => pick(&mut random, &[SECOND, 1_000_000, 1]),
            _ => pick(&mut random, &[SECOND, 1_000_000, 1_000]),
        };
        let start = pick(&mut random, &UNIX);
        let (mut tat, mut now) = (Tat::default(), start);
        let (permits, span) = (permits.into(), span.into());
        let mut oracle = Fractions {
            permits,
            span,
            fill: permits * span,
            last: now.into(),
        };
        for request in 0..3_000 {
            let wait = match random.below(4) {
                0 => random.below(u64::try_from(3 * span / permits).unwrap()),
                1 => random.below(u64::try_from(span / permits).unwrap() + 1),
                _ => 0,
            };
            now = (now + wait).next_multiple_of(step);
            let cost = 1 + random.below(2) * random.below(3);
            let at = Time::from_nanos(now);
            let decision = gcra.decide(&mut tat, at, Permits::new(cost));
            let exact = oracle.decide(now, cost);
            assert_eq!(
                decision.verdict.allows(),
                exact,
                "{permits}/{span}ns, request {request}, {cost} at {}",
                now - start
            );
            let left = oracle.fill / span;
            assert_eq!(u128::from(decision.remaining.get()), left);
        }
    }
}

/// The decisions of a random life, on a clock that shows `zero` when it begins.
fn life(limit: &AnyAlgorithm, zero: u64, step: u64, scale: u64, seed: u64) -> Vec<Decision> {
    let mut random = Random::new(seed);
    let (mut state, mut now) = (AnyState::default(), zero);
    let mut decisions = Vec::new();
    for _ in 0..400 {
        now = match random.below(8) {
            0 | 1 => now + random.below(scale).next_multiple_of(step),
            2 | 3 => now + random.below(scale / 50 + 2).next_multiple_of(step),
            4 => now
                .saturating_sub(random.below(scale / 4) / step * step)
                .max(zero),
            _ => now,
        };
        let cost = Permits::new(random.below(4));
        let at = Time::from_nanos(now);
        if random.below(8) == 0 {
            let _ = limit.try_refund(&mut state, at, cost);
        }
        decisions.push(limit.decide(&mut state, at, cost));
    }
    decisions
}

#[test]
fn decisions_do_not_depend_on_the_zero_of_the_clock() {
    let second = Nanos::from_nanos(SECOND);
    for seed in 0..40 {
        for (permits, step) in [
            (1, 1),
            (3, 1),
            (10, 1),
            (60, 1),
            (333, 1_000),
            (99_999, SECOND),
        ] {
            let quota = quota(permits, SECOND);
            let few = quota.with_burst(Permits::new(5)).unwrap();
            let log = self::quota(permits.min(100), SECOND);
            let (most, refill) = (Permits::new(5), Permits::new(2));
            let limits: [AnyAlgorithm; 9] = [
                Gcra::token_bucket(few).unwrap().into(),
                Gcra::leaky_queue(quota, Permits::new(3)).unwrap().into(),
                QuotaReset::new(few).unwrap().into(),
                Log::sliding(log).unwrap().into(),
                Hybrid::quota_linear(quota).unwrap().into(),
                Interval::from_first(most, refill, second).unwrap().into(),
                Exponential::new(quota).unwrap().into(),
                WarmUp::bursty(quota.permits_per_second(), 1.0)
                    .unwrap()
                    .into(),
                Concurrency::new(most, second).unwrap().into(),
            ];
            for limit in limits {
                let scale = 3 * SECOND / permits + SECOND / 50;
                let start = life(&limit, 0, step, scale, seed);
                // Ticks of GCRA begin anew after 2^58 ns; time ends after 2^64.
                let zeros = [
                    SECOND,
                    (1 << 58) / SECOND * SECOND,
                    (1 << 63) / SECOND * SECOND,
                ];
                let end = (u64::MAX - 4_000 * (scale + step)) / SECOND * SECOND;
                for zero in zeros.into_iter().chain(UNIX).chain([end]) {
                    let decisions = life(&limit, zero, step, scale, seed);
                    assert_eq!(decisions, start, "{} at {zero}, {limit:?}", limit.name());
                }
            }
        }
    }
}
