//! The cores beside naive models of themselves: big integers, lists of every event, waits
//! found by trying one nanosecond after the other; and beside one another, where theory
//! says that two algorithms are one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::cases::cases;
use crate::seeds::seeds;
use proptest::prelude::*;
use ratekeeper_core::laws::{self, LifeEvent};
use ratekeeper_core::{
    Algorithm, Decision, Denials, Edge, Gcra, Nanos, Permits, Quota, QuotaReset, Refund, Reserve,
    SubBuckets, Tat, Time, Verdict, Window,
};

fn quota(permits: u64, nanos: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_nanos(nanos)).unwrap()
}

fn decision(verdict: Verdict, remaining: u64, [reset, more]: [u64; 2]) -> Decision {
    let remaining = Permits::new(remaining);
    Decision {
        verdict,
        remaining,
        reset_after: Nanos::from_nanos(reset),
        more_after: Nanos::from_nanos(more),
    }
}

/// The moments and costs of a life; steps back and refunds as they come.
fn replay(
    events: &[LifeEvent],
    start: u64,
    mut spend: impl FnMut(Time, Permits),
    mut refund: impl FnMut(Time, Permits),
) {
    let mut now = Time::from_nanos(start);
    for event in events {
        match *event {
            LifeEvent::Wait(span) => now = now + span,
            LifeEvent::StepBack(span) => now = now - span,
            LifeEvent::Spend(cost) => spend(now, cost),
            LifeEvent::Refund(cost) => refund(now, cost),
        }
    }
}

/// GCRA in integers that cannot overflow, of a clock that never ends: `units` of them in `nanos`.
#[derive(Clone, Debug)]
struct BigGcra {
    units: i128,
    nanos: i128,
    interval: i128,
    burst: i128,
    queue: i128,
    /// The larger of quota and burst.
    most: i128,
    counted: bool,
    /// In units since the clock's zero, if it was ever charged.
    tat: Option<i128>,
}

impl BigGcra {
    const SLACK: i128 = 10_000_000_000 * 64;

    /// See the table in `gcra/grid.rs`.
    fn new(quota: Quota, queue: u64, counted: bool) -> Self {
        let [mut n, mut p] = [quota.permits().get().into(), quota.per().as_nanos().into()];
        let common = gcd(n, p);
        (n, p) = (n / common, p / common);
        let parts = 1_000 * n / gcd(1_000 * n, p);
        let (units, nanos) = match () {
            () if 64 % n == 0 => (64, 1),
            () if n < 64 => (n, 1),
            () if parts <= 64_000 => (64_000 / parts * parts, 1_000),
            () => (64 * p / n * n, p),
        };
        assert_eq!(units * p % (n * nanos), 0, "a whole number");
        let interval = units * p / (n * nanos);
        Self {
            units,
            nanos,
            interval,
            burst: i128::from(quota.burst_size().get()) * interval,
            queue: i128::from(queue) * interval,
            most: (i128::from(quota.permits().max(quota.burst_size()).get()) * interval)
                .min((1 << 55) * units / nanos), // 1.1 years
            counted,
            tat: None,
        }
    }

    /// The unit that a moment lies in.
    fn unit_at(&self, now: Time) -> i128 {
        i128::from(now.as_nanos()) * self.units / self.nanos
    }

    /// The time from `now` on until a unit begins.
    fn until(&self, unit: i128, now: Time) -> u64 {
        let begins = (unit * self.nanos + self.units - 1) / self.units;
        u64::try_from((begins - i128::from(now.as_nanos())).max(0)).unwrap()
    }

    fn decide(&mut self, now: Time, cost: Permits) -> Decision {
        let limit = self.burst + self.queue;
        let at = self.unit_at(now);
        let deepest = if self.counted { 2 * limit } else { limit };
        let deepest = deepest.max(self.most);
        let mut tat = self.tat.unwrap_or(at);
        // Ticks are rounded up, each.
        let ahead = 64 * (tat * self.nanos - i128::from(now.as_nanos()) * self.units);
        let longest = (64 * deepest * self.nanos + self.units - 1) / self.units + Self::SLACK;
        if ahead > longest * self.units {
            tat = at + deepest;
            self.tat = Some(tat);
        }
        let price = i128::from(cost.get()) * self.interval;
        let next = tat.max(at) + price;
        let verdict = if next - at <= limit {
            if cost > Permits::ZERO {
                self.tat = Some(next);
            }
            match next - at - self.burst {
                wait if wait > 0 => {
                    Verdict::AllowAfter(Nanos::from_nanos(self.until(at + wait, now)))
                }
                _ => Verdict::Allow,
            }
        } else {
            let counted = next.min(at + 2 * limit);
            if self.counted && counted > tat.max(at) {
                self.tat = Some(counted);
            }
            let next = self.tat.unwrap_or(at).max(at) + price;
            if price <= limit {
                Verdict::Deny {
                    retry_after: Nanos::from_nanos(self.until(next - limit, now)),
                }
            } else {
                Verdict::DenyForever
            }
        };
        let tat = self.tat.unwrap_or(at).max(at);
        let remaining = u64::try_from((limit - (tat - at)).max(0) / self.interval).unwrap();
        let more = match (i128::from(remaining) + 1) * self.interval {
            larger if larger <= limit => self.until(tat + larger - limit, now),
            _ => 0,
        };
        decision(verdict, remaining, [self.until(tat, now), more])
    }

    fn refund(&mut self, now: Time, cost: Permits) {
        let at = self.unit_at(now);
        if let Some(tat) = self.tat.filter(|&tat| tat > at) {
            self.tat = Some(at.max(tat - i128::from(cost.get()) * self.interval));
        }
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Windows as a list of all charges ever made: (number of its bucket, permits).
#[derive(Clone, Debug)]
struct NaiveWindow {
    permits: i128,
    width: i128,
    buckets: i128,
    edge: Edge,
    /// The phase of the grid; `None` for windows that open with a request.
    phase: Option<i128>,
    counted: bool,
    charges: Vec<(i128, i128)>,
}

impl NaiveWindow {
    fn new(quota: Quota, buckets: u64, edge: Edge, phase: Option<u64>, counted: bool) -> Self {
        let (per, buckets) = (i128::from(quota.per().as_nanos()), i128::from(buckets));
        Self {
            permits: i128::from(quota.permits().get()),
            width: (per + buckets - 1) / buckets,
            buckets,
            edge,
            phase: phase.map(i128::from),
            counted,
            charges: Vec::new(),
        }
    }

    /// The bucket that `now` counts in, with its first moment: never older than the newest.
    fn bucket(&self, now: i128) -> (i128, i128) {
        let newest = self.charges.iter().map(|charge| charge.0).max();
        match self.phase {
            Some(phase) => {
                let here = (now - phase).div_euclid(self.width);
                let bucket = newest.map_or(here, |newest| newest.max(here));
                (bucket, phase + bucket * self.width)
            }
            // The number of a bucket that opens with a request is its first moment.
            None => match newest {
                Some(start) if now < start + self.width => (start, start),
                _ => (now, now),
            },
        }
    }

    /// Charged `back` buckets ago.
    fn count(&self, bucket: i128, back: i128) -> i128 {
        let in_it = |charge: &&(i128, i128)| charge.0 == bucket - back;
        self.charges
            .iter()
            .filter(in_it)
            .map(|charge| charge.1)
            .sum()
    }

    fn whole(&self, bucket: i128) -> i128 {
        (0..self.buckets).map(|back| self.count(bucket, back)).sum()
    }

    /// The permits used: parts of one do not count.
    fn used(&self, now: i128) -> i128 {
        let (bucket, start) = self.bucket(now);
        let elapsed = (now - start).max(0);
        let oldest = self.count(bucket, self.buckets);
        let edge = match self.edge {
            Edge::Drop => 0,
            Edge::Full => oldest,
            Edge::Weighted => oldest * (self.width - elapsed) / self.width,
        };
        self.whole(bucket) + edge
    }

    fn fits(&self, now: i128, cost: i128) -> bool {
        self.used(now) + cost <= self.permits
    }

    /// The first moment from `now` on at which `is_so`, trying every one.
    fn first(now: i128, is_so: impl Fn(i128) -> bool) -> u64 {
        u64::try_from((0..100_000).find(|&wait| is_so(now + wait)).unwrap()).unwrap()
    }

    fn decide(&mut self, now: Time, cost: Permits) -> Decision {
        let (now, cost) = (i128::from(now.as_nanos()), i128::from(cost.get()));
        let (bucket, _) = self.bucket(now);
        let verdict = if self.fits(now, cost) {
            if cost > 0 {
                self.charges.push((bucket, cost));
            }
            Verdict::Allow
        } else {
            let room = (2 * self.permits - self.whole(bucket)).max(0);
            if self.counted && cost.min(room) > 0 {
                self.charges.push((bucket, cost.min(room)));
            }
            if cost > self.permits {
                Verdict::DenyForever
            } else {
                let wait = Self::first(now, |then| self.fits(then, cost));
                Verdict::Deny {
                    retry_after: Nanos::from_nanos(wait),
                }
            }
        };
        let room = (self.permits - self.used(now)).max(0);
        let reset = Self::first(now, |then| self.used(then) == 0);
        let more = if room < self.permits {
            Self::first(now, |then| self.fits(then, room + 1))
        } else {
            0
        };
        decision(verdict, u64::try_from(room).unwrap(), [reset, more])
    }

    fn refund(&mut self, now: Time, cost: Permits) {
        let (bucket, _) = self.bucket(i128::from(now.as_nanos()));
        let sight = self.buckets + i128::from(self.edge != Edge::Drop);
        let mut back = i128::from(cost.get());
        self.charges.sort_unstable();
        for charge in self
            .charges
            .iter_mut()
            .rev()
            .filter(|charge| bucket - charge.0 < sight)
        {
            let given = back.min(charge.1);
            charge.1 -= given;
            back -= given;
        }
        let newest = self.charges.iter().map(|charge| charge.0).max();
        let empty = |charge: &(i128, i128)| charge.1 == 0;
        // An empty state does not even remember its newest window.
        let seen = |charge: &&(i128, i128)| newest.is_some_and(|newest| newest - charge.0 < sight);
        if self.charges.iter().filter(seen).all(empty) {
            self.charges.clear();
        }
    }
}

/// Both live the same life.
fn beside<A: Refund + std::fmt::Debug>(
    algorithm: &A,
    mut naive: NaiveWindow,
    start: u64,
    events: &[LifeEvent],
) {
    let naive = std::cell::RefCell::new(&mut naive);
    let state = std::cell::RefCell::new(A::State::default());
    replay(
        events,
        start,
        |now, cost| {
            let before = state.borrow().clone();
            let decided = algorithm.decide(&mut state.borrow_mut(), now, cost);
            let model = naive.borrow_mut().decide(now, cost);
            assert_eq!(
                decided, model,
                "{cost:?} at {now:?}\n{algorithm:?}\n{before:?}\n{naive:?}"
            );
        },
        |now, cost| {
            algorithm.refund(&mut state.borrow_mut(), now, cost);
            naive.borrow_mut().refund(now, cost);
        },
    );
}

#[test]
fn windows_decide_as_a_list_of_all_events_does() {
    for seed in seeds(cases(100, 400)) {
        let per = 1 + seed % 23;
        let permits = 1 + seed % 7;
        let (quota, phase) = (quota(permits, per), seed % per);
        let events = laws::random_life(seed, 60, Nanos::from_nanos(2 * per), Permits::new(permits));
        let start = 200; // before that a clock that steps back would reach its zero
        for counted in [false, true] {
            let denials = if counted {
                Denials::Counted
            } else {
                Denials::Free
            };
            let model =
                |buckets, edge, phase| NaiveWindow::new(quota, buckets, edge, phase, counted);
            let nanos = Nanos::from_nanos(phase);
            let fixed = Window::fixed(quota, nanos).unwrap().with_denials(denials);
            beside(&fixed, model(1, Edge::Drop, Some(phase)), start, &events);
            let two = Window::two_window(quota, nanos)
                .unwrap()
                .with_denials(denials);
            beside(&two, model(1, Edge::Weighted, Some(phase)), start, &events);
            let reset = QuotaReset::new(quota).unwrap().with_denials(denials);
            beside(&reset, model(1, Edge::Drop, None), start, &events);
            for buckets in [1, 2, 3, 5] {
                for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
                    if let Ok(window) = SubBuckets::sub_buckets(quota, buckets, edge, nanos) {
                        let window = window.with_denials(denials);
                        beside(
                            &window,
                            model(buckets.into(), edge, Some(phase)),
                            start,
                            &events,
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn gcra_decides_as_big_integers_do() {
    for seed in seeds(600) {
        let mut random = laws::Random::new(seed);
        // Any size, from a nanosecond to weeks, round ones too; from any moment on.
        let per = 1 + (random.next() >> (13 + random.below(51)));
        let round = [1, 1_000, 1_000_000_000][usize::try_from(random.below(3)).unwrap()];
        let per = per.next_multiple_of(round);
        let most = Quota::MAX_PERMITS >> random.below(53);
        let permits = Permits::new(1 + random.below(most));
        let queue = Permits::new(random.below(5));
        let most = 2 * permits.get();
        let burst = Permits::new(1 + random.below(most.min(Quota::MAX_PERMITS)));
        let quota = quota(permits.get(), per).with_burst(burst).unwrap();
        let Ok(gcra) = Gcra::new(quota, queue) else {
            continue;
        };
        let unix_2090 = 3_786_912_000_000_000_000;
        // Ticks begin anew at 2^58 ns. A state of that very moment is kept a tick later, so the
        // moment must not be one of a few.
        let turn = match per {
            ..=0xffff_ffff => 1 << 40,
            _ => (1 << 58) - per - 1 - random.below(per),
        };
        let start = [0, 1 << 40, turn, unix_2090, u64::MAX - per];
        let start = start[usize::try_from(random.below(5)).unwrap()];
        let events = laws::random_life(seed, 300, Nanos::from_nanos(per), permits);
        for counted in [false, true] {
            let denials = if counted {
                Denials::Counted
            } else {
                Denials::Free
            };
            let gcra = gcra.with_denials(denials);
            let big = std::cell::RefCell::new(BigGcra::new(quota, queue.get(), counted));
            let tat = std::cell::Cell::new(Tat::default());
            replay(
                &events,
                start,
                |now, cost| {
                    let mut next = tat.get();
                    let decided = gcra.decide(&mut next, now, cost);
                    let model = big.borrow_mut().decide(now, cost);
                    assert_eq!(
                        decided, model,
                        "{cost:?} at {now:?}\n{gcra:?}\n{tat:?}\n{big:?}"
                    );
                    tat.set(next);
                },
                |now, cost| {
                    let mut next = tat.get();
                    gcra.refund(&mut next, now, cost);
                    big.borrow_mut().refund(now, cost);
                    tat.set(next);
                },
            );
        }
    }
}

/// A life of waits and costs, without steps back.
fn any_steps() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0_u64..4_000, 0_u64..9), 1..100)
}

proptest! {
    /// Tokens drip into a bucket, exactly: in fractions of `per`.
    #[test]
    fn a_token_bucket_is_gcra(steps in any_steps(), permits in 1_u64..9, burst in 1_u64..9) {
        // Spans that divide: GCRA's interval is then exact.
        let per = 840 * permits;
        let quota = quota(permits, per).with_burst(Permits::new(burst)).unwrap();
        let gcra = Gcra::token_bucket(quota).unwrap();
        let (permits, burst) = (permits, burst);
        let (mut tat, mut tokens, mut now) = (Tat::default(), burst * per, 0);
        for (wait, cost) in steps {
            now += wait;
            tokens = (tokens + wait * permits).min(burst * per);
            let price = cost * per;
            let verdict = if price <= tokens {
                tokens -= price;
                Verdict::Allow
            } else if price > burst * per {
                Verdict::DenyForever
            } else {
                let retry_after = Nanos::from_nanos((price - tokens).div_ceil(permits));
                Verdict::Deny { retry_after }
            };
            let full = (burst * per - tokens).div_ceil(permits);
            let decided = gcra.decide(&mut tat, Time::from_nanos(now), Permits::new(cost));
            let next = (tokens / per + 1) * per;
            let more = if next <= burst * per {
                (next - tokens).div_ceil(permits)
            } else {
                0
            };
            prop_assert_eq!(decided, decision(verdict, tokens / per, [full, more]));
        }
    }

    /// A level rises with each request and leaks away; a queue is a level of 1 that waits.
    #[test]
    fn a_leaky_bucket_is_gcra(steps in any_steps(), permits in 1_u64..9, size in 1_u64..9) {
        let per = 840 * permits;
        let quota = quota(permits, per).with_burst(Permits::new(size)).unwrap();
        let meter = Gcra::leaky_meter(quota).unwrap();
        let queue = Gcra::leaky_queue(quota, Permits::new(size - 1)).unwrap();
        let (mut metered, mut queued) = Default::default();
        let (mut level, mut now, interval) = (0, 0, 840);
        for (wait, cost) in steps {
            now += wait;
            level = u64::saturating_sub(level, wait);
            let height = level + cost * interval;
            let allowed = height <= size * interval;
            if allowed {
                level = height;
            }
            let (time, cost) = (Time::from_nanos(now), Permits::new(cost));
            let by_meter = meter.decide(&mut metered, time, cost);
            let by_queue = queue.decide(&mut queued, time, cost);
            prop_assert_eq!(by_meter.verdict.allows(), allowed);
            prop_assert_eq!(by_meter.reset_after.as_nanos(), level);
            prop_assert_eq!(by_queue.reset_after, by_meter.reset_after);
            prop_assert_eq!(by_queue.remaining, by_meter.remaining);
            if allowed {
                let wait = level.saturating_sub(interval);
                let expected = match wait {
                    0 => Verdict::Allow,
                    wait => Verdict::AllowAfter(Nanos::from_nanos(wait)),
                };
                prop_assert_eq!(by_queue.verdict, expected);
            } else {
                prop_assert_eq!(by_queue.verdict, by_meter.verdict);
            }
        }
    }

    /// A caller that may wait for ever receives the moment at which a token will be there.
    #[test]
    fn a_reservation_is_a_token_of_the_future(steps in any_steps(), burst in 1_u64..9) {
        let quota = quota(1, 840).with_burst(Permits::new(burst)).unwrap();
        let gcra = Gcra::token_bucket(quota).unwrap().with_patience(Nanos::from_secs(1));
        let (mut tat, mut tokens, mut now) = (Tat::default(), i64::try_from(burst).unwrap() * 840, 0);
        for (wait, cost) in steps {
            now += wait;
            tokens = (tokens + i64::try_from(wait).unwrap()).min(i64::try_from(burst).unwrap() * 840);
            tokens -= i64::try_from(cost).unwrap() * 840;
            let time = Time::from_nanos(now);
            let decided = gcra.reserve(&mut tat, time, Permits::new(cost), Nanos::MAX);
            let expected = match u64::try_from(-tokens) {
                Ok(debt) if debt > 0 => Verdict::AllowAfter(Nanos::from_nanos(debt)),
                _ => Verdict::Allow,
            };
            prop_assert_eq!(decided.verdict, expected);
        }
    }

    /// One sub-bucket is a window.
    #[test]
    fn one_sub_bucket_is_a_window(steps in any_steps(), permits in 1_u64..9, phase in 0_u64..840) {
        let (quota, phase) = (quota(permits, 840), Nanos::from_nanos(phase));
        let fixed = Window::fixed(quota, phase).unwrap();
        let two_window = Window::two_window(quota, phase).unwrap();
        let one = |edge| SubBuckets::sub_buckets(quota, 1, edge, phase).unwrap();
        let (drop, weighted) = (one(Edge::Drop), one(Edge::Weighted));
        let (mut a, mut b, mut c, mut d) = Default::default();
        let mut now = 0;
        for (wait, cost) in steps {
            now += wait;
            let (now, cost) = (Time::from_nanos(now), Permits::new(cost));
            prop_assert_eq!(fixed.decide(&mut a, now, cost), drop.decide(&mut b, now, cost));
            let whole = two_window.decide(&mut c, now, cost);
            prop_assert_eq!(whole, weighted.decide(&mut d, now, cost));
        }
    }
}
