//! Interval bucket, hybrid, exponential and warm-up beside naive models of themselves: a clock
//! that strikes one time after the other, a bucket in big integers, the library's own `exp`,
//! and the area under the line of prices.
use crate::seeds::seeds;
use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm, Exponential, ExponentialState, Hybrid, HybridState, Interval, IntervalState, Nanos,
    Permits, Quota, Reserve, Time, Verdict, WarmUp,
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

/// Decides, and returns whether it was allowed, and the remaining permits.
fn ask<A: Algorithm>(algorithm: &A, state: &mut A::State, now: u64, cost: u64) -> (bool, u64) {
    let cost = Permits::new(cost);
    let decision = algorithm.decide(state, Time::from_nanos(now), cost);
    (decision.verdict.allows(), decision.remaining.get())
}

#[test]
fn interval_buckets_are_refilled_step_by_step() {
    for seed in seeds(600) {
        let mut random = Random::new(seed ^ 0x1_0000);
        let (most, every) = (1 + random.below(9), 1 + random.below(30));
        let refill = 1 + random.below(most);
        let phase = random.below(every);
        let permits = Permits::new;
        let nanos = Nanos::from_nanos;
        let on_grid =
            Interval::on_grid(permits(most), permits(refill), nanos(every), nanos(phase)).unwrap();
        let from_first = Interval::from_first(permits(most), permits(refill), nanos(every));
        let from_first = from_first.unwrap();
        let (mut grid_state, mut first_state) =
            (IntervalState::default(), IntervalState::default());
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
    for seed in seeds(600) {
        let mut random = Random::new(seed ^ 0x2_0000);
        let permits = 1 + random.below(9);
        let per = 1 + (random.next() >> (20 + random.below(44)));
        let quota = Quota::new(Permits::new(permits), Nanos::from_nanos(per));
        let hybrid = Hybrid::quota_linear(quota.unwrap()).unwrap();
        let (n, p) = (i128::from(permits), i128::from(per));
        let mut state = HybridState::default();
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
fn exponential_levels_decay_as_the_standard_library_computes() {
    for seed in seeds(600) {
        let mut random = Random::new(seed ^ 0x3_0000);
        let permits = 1 + random.below(40);
        let per = 1_000 + (random.next() >> (20 + random.below(30)));
        let quota = Quota::new(Permits::new(permits), Nanos::from_nanos(per));
        let limit = Exponential::new(quota.unwrap()).unwrap();
        let mut state = ExponentialState::default();
        let (mut level, mut at) = (0.0_f64, 0);
        let seconds = |nanos| Nanos::from_nanos(nanos).as_secs_f64();
        let float = |count: u64| f64::from(u32::try_from(count).unwrap());
        for (now, cost) in life(seed, per, permits) {
            let faded = level * (-seconds(now - at) / seconds(per)).exp();
            let (allowed, left) = ask(&limit, &mut state, now, cost);
            let after = faded + if allowed { float(cost) } else { 0.0 };
            // Never more than the exact value, and less only by rounding; 1/1024 is forgotten.
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

/// Prices as an area, times in fractions of a microsecond: nothing is cut.
struct Uncut {
    most: f64,
    threshold: f64,
    /// The price of a permit from the store at the threshold and below; `slope` is added for each
    /// beyond.
    stored_price: f64,
    slope: f64,
    fresh_price: f64,
    cooldown: f64,
    stored: f64,
    next: f64,
}

impl Uncut {
    /// The wait of a request at `now`. The price is paid by the next request.
    fn ask(&mut self, now: f64, cost: f64) -> f64 {
        if now > self.next {
            self.stored = self
                .most
                .min(self.stored + (now - self.next) / self.cooldown);
            self.next = now;
        }
        let wait = self.next - now;
        let area = |stored: f64| {
            let dear = (stored - self.threshold).max(0.0);
            stored * self.stored_price + dear * dear * self.slope / 2.0
        };
        let taken = cost.min(self.stored);
        self.next += area(self.stored) - area(self.stored - taken);
        self.next += (cost - taken) * self.fresh_price;
        self.stored -= taken;
        wait
    }
}

#[test]
fn post_paid_limits_charge_the_area_under_the_price_line() {
    for seed in seeds(400) {
        let mut random = Random::new(seed ^ 0x4_0000);
        let whole = |number: u64| f64::from(u32::try_from(number).unwrap());
        let (rate, seconds) = (1 + random.below(5_000), 1 + random.below(20));
        let factor = 2 + random.below(6);
        let (fresh, warm_up) = (1e6 / whole(rate), whole(seconds) * 1e6);
        let warming = random.below(2) == 0;
        let (limit, mut naive) = if warming {
            let threshold = warm_up / fresh / 2.0;
            let most = threshold + 2.0 * warm_up / (fresh * (1.0 + whole(factor)));
            let naive = Uncut {
                most,
                threshold,
                stored_price: fresh,
                slope: fresh * whole(factor - 1) / (most - threshold),
                fresh_price: fresh,
                cooldown: warm_up / most,
                stored: most,
                next: 0.0,
            };
            let period = Nanos::from_secs(seconds);
            let limit = WarmUp::with_cold_factor(whole(rate), period, whole(factor));
            (limit.unwrap(), naive)
        } else {
            let naive = Uncut {
                most: whole(rate * seconds),
                threshold: f64::INFINITY,
                stored_price: 0.0,
                slope: 0.0,
                fresh_price: fresh,
                cooldown: fresh,
                stored: 0.0,
                next: 0.0,
            };
            (WarmUp::bursty(whole(rate), whole(seconds)).unwrap(), naive)
        };
        let mut state = limit.start(Time::ZERO);
        for (asked, (now, cost)) in (1..).zip(life(seed, 1_000_000, 2 * rate.min(50))) {
            if cost == 0 {
                continue;
            }
            let now_us = Time::ZERO + Nanos::from_micros(now);
            let permits = Permits::new(cost);
            let verdict = limit
                .reserve(&mut state, now_us, permits, Nanos::MAX)
                .verdict;
            let wait = match verdict {
                Verdict::AllowAfter(wait) => whole(wait.as_nanos() / 1_000),
                verdict => {
                    assert_eq!(verdict, Verdict::Allow);
                    0.0
                }
            };
            let uncut = naive.ask(whole(now), whole(cost));
            // Three microseconds are cut off each price; the cut is stored a little sooner, and a
            // stored permit costs up to `factor` times as much.
            let off = 3.0 * whole(asked) * whole(factor) + 1.0;
            assert!(
                (wait - uncut).abs() <= off,
                "{seed}: {wait} {uncut} at {now}\n{limit:?}"
            );
        }
    }
}
