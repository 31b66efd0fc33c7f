//! Interval bucket, hybrid and exponential beside naive models of themselves: a clock that
//! strikes one time after the other, a bucket in big integers, and the library's own `exp`.
use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm, Allowance, Exponential, Hybrid, Interval, Level, Missing, Nanos, Permits, Quota,
    Time,
};

/// `(now, cost)` of one random life, time going forward.
fn life(seed: u64, scale: u64, most: u64) -> Vec<(u64, u64)> {
    let mut random = Random::new(seed);
    let mut now = random.below(scale);
    let mut event = || {
        now += match random.below(4) {
            0 => 0,
            1 => random.below(2),
            2 => random.below(scale / 4 + 1),
            _ => random.below(2 * scale),
        };
        (now, random.below(most + 2))
    };
    (0..150).map(|_| event()).collect()
}

/// Decides, and says what was allowed and what remains.
fn ask<A: Algorithm>(algorithm: &A, state: &mut A::State, now: u64, cost: u64) -> (bool, u64) {
    let cost = Permits::saturating_from(cost);
    let decision = algorithm.decide(state, Time::from_nanos(now), cost);
    (decision.verdict.allows(), decision.remaining.get().into())
}

#[test]
fn interval_buckets_are_refilled_stroke_by_stroke() {
    for seed in 0..600 {
        let mut random = Random::new(seed ^ 0x1_0000);
        let (most, every) = (1 + random.below(9), 1 + random.below(30));
        let refill = 1 + random.below(most);
        let phase = random.below(every);
        let permits = Permits::saturating_from;
        let nanos = Nanos::from_nanos;
        let on_grid =
            Interval::on_grid(permits(most), permits(refill), nanos(every), nanos(phase)).unwrap();
        let from_first = Interval::from_first(permits(most), permits(refill), nanos(every));
        let from_first = from_first.unwrap();
        let (mut grid_state, mut first_state) = (Missing::default(), Missing::default());
        let (mut grid, mut first, mut origin, mut clock) = (most, most, 0, 0);
        for (now, cost) in life(seed, 2 * every, most) {
            while clock < now {
                clock += 1;
                if clock % every == phase {
                    grid = most.min(grid + refill);
                }
                if first < most && (clock - origin) % every == 0 {
                    first = most.min(first + refill);
                }
            }
            if cost > 0 && first == most && cost <= most {
                origin = now;
            }
            for tokens in [&mut grid, &mut first] {
                *tokens -= if cost <= *tokens { cost } else { 0 };
            }
            let (_, left) = ask(&on_grid, &mut grid_state, now, cost);
            assert_eq!(left, grid, "{cost} at {now}, {on_grid:?}");
            let (_, left) = ask(&from_first, &mut first_state, now, cost);
            assert_eq!(left, first, "{cost} at {now}, {from_first:?}");
        }
    }
}

/// The hybrid as its inventor describes it, a token being `per` units.
#[derive(Debug)]
struct Bucket {
    smooth: bool,
    units: i128,
    at: i128,
}

#[test]
fn hybrids_keep_their_bucket_exactly() {
    for seed in 0..600 {
        let mut random = Random::new(seed ^ 0x2_0000);
        let permits = 1 + random.below(9);
        let per = 1 + (random.next() >> (20 + random.below(44)));
        let quota = Quota::new(Permits::saturating_from(permits), Nanos::from_nanos(per));
        let hybrid = Hybrid::quota_linear(quota.unwrap()).unwrap();
        let (n, p) = (i128::from(permits), i128::from(per));
        let mut state = Allowance::default();
        let mut bucket: Option<Bucket> = None;
        for (now, cost) in life(seed, per, permits) {
            let (t, price) = (i128::from(now), i128::from(cost) * p);
            let (allowed, left) = ask(&hybrid, &mut state, now, cost);
            let b = bucket.get_or_insert(Bucket {
                smooth: false,
                units: n * p,
                at: t,
            });
            if b.smooth {
                b.units += (t - b.at) * n;
                b.at = t;
            }
            let reset = if b.smooth {
                b.units >= n * p
            } else {
                t >= b.at + p
            };
            if reset {
                *b = Bucket {
                    smooth: false,
                    units: n * p,
                    at: t,
                };
            }
            let fits = price <= b.units.max(0);
            assert_eq!(allowed, fits, "{cost} at {now}, {hybrid:?} {b:?} {state:?}");
            if fits && cost > 0 && !b.smooth && price == b.units {
                *b = Bucket {
                    smooth: true,
                    units: p - (b.at + p - t) * n,
                    at: t,
                };
            } else if fits {
                b.units -= price;
            }
            let whole = u64::try_from(b.units.max(0) / p).unwrap();
            assert_eq!(left, whole, "{cost} at {now}, {hybrid:?} {b:?} {state:?}");
            if !b.smooth && b.units == n * p {
                bucket = None; // a window opens with what it takes
            }
        }
    }
}

#[test]
fn exponential_levels_fade_as_the_library_says() {
    for seed in 0..600 {
        let mut random = Random::new(seed ^ 0x3_0000);
        let permits = 1 + random.below(40);
        let per = 1_000 + (random.next() >> (20 + random.below(30)));
        let quota = Quota::new(Permits::saturating_from(permits), Nanos::from_nanos(per));
        let limit = Exponential::new(quota.unwrap()).unwrap();
        let mut state = Level::default();
        let (mut level, mut at) = (0.0_f64, 0);
        let seconds = |nanos| Nanos::from_nanos(nanos).as_secs_f64();
        let float = |count: u64| f64::from(u32::try_from(count).unwrap());
        for (now, cost) in life(seed, per, permits) {
            let faded = level * (-seconds(now - at) / seconds(per)).exp();
            let (allowed, left) = ask(&limit, &mut state, now, cost);
            let after = faded + if allowed { float(cost) } else { 0.0 };
            // Never more than in truth, and less only by rounding; 1/1024 is forgotten.
            let room = float(permits) - after;
            assert!(
                float(left) <= room + 1.0 / 1_000.0,
                "{left} of {room}, {limit:?}"
            );
            assert!(
                float(left) >= (room - 1e-6).floor(),
                "{left} of {room}, {limit:?}"
            );
            if allowed && cost > 0 {
                (level, at) = (after, now);
            }
        }
    }
}
