//! Exact: a token bucket with a line before it, as a queue and a number.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use ratekeeper::core::{Gcra, Nanos, Permits, Quota, Time};
use ratekeeper::{Clock as _, Limiter};

use super::{advance, lives, nth};
use crate::cases::cases;
use crate::tasks::{Clocked, Tasks, Waited};

#[derive(Clone, Copy, Debug)]
enum Verb {
    Check(u64),
    /// Patience in milliseconds; half of one more, so that it ends when nothing else happens.
    Acquire(u64, Option<u64>),
    GiveUp(usize),
    Reserve(u64, u64),
    Refund(u64),
    Reset,
    /// Interval in milliseconds, burst.
    Set(u64, u64),
    Wait(u64),
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        4 => (0_u64..6).prop_map(Verb::Check),
        8 => (0_u64..6, prop::option::of(0_u64..3_000))
            .prop_map(|(cost, patience)| Verb::Acquire(cost, patience)),
        2 => any::<usize>().prop_map(Verb::GiveUp),
        1 => (0_u64..6, 0_u64..3_000).prop_map(|(cost, longest)| Verb::Reserve(cost, longest)),
        1 => (0_u64..6).prop_map(Verb::Refund),
        1 => Just(Verb::Reset),
        1 => (1_u64..400, 1_u64..9).prop_map(|(interval, burst)| Verb::Set(interval, burst)),
        8 => (0_u64..900).prop_map(Verb::Wait),
    ]
}

/// The promises of a bucket reach this far.
const HOUR: Nanos = Nanos::from_secs(3_600);

/// A token bucket as a number: the moment at which it is full, in 64ths of a nanosecond.
struct Bucket {
    interval: u128,
    burst: u128,
    full_at: u128,
    /// The latest promise.
    promised: u128,
}

struct Waiter {
    task: usize,
    cost: u64,
    asked: Time,
    patience: Nanos,
}

/// Expected behaviour.
struct Model {
    bucket: Bucket,
    line: VecDeque<Waiter>,
    done: Vec<(usize, Time, Waited)>,
}

fn ticks(time: Time) -> u128 {
    u128::from(time.as_nanos()) * 64
}

impl Bucket {
    fn new(interval_ms: u64, burst: u64) -> Self {
        let interval = u128::from(interval_ms) * 64_000_000;
        Self {
            interval,
            burst: interval * u128::from(burst),
            full_at: 0,
            promised: 0,
        }
    }

    /// How long until `cost` is there.
    fn wait(&self, now: Time, cost: u128) -> Nanos {
        let then = self.full_at.max(ticks(now)) + cost * self.interval;
        let wait = then.saturating_sub(ticks(now) + self.burst);
        Nanos::from_nanos(u64::try_from(wait.div_ceil(64)).unwrap())
    }

    fn charge(&mut self, now: Time, cost: u64) {
        self.full_at = self.full_at.max(ticks(now)) + u128::from(cost) * self.interval;
    }

    fn capacity(&self) -> u64 {
        u64::try_from(self.burst / self.interval).unwrap()
    }

    fn holds(&self, cost: u64) -> bool {
        u128::from(cost) * self.interval <= self.burst
    }

    fn set(&mut self, now: Time, new: &Self) {
        let debt = self.full_at.saturating_sub(ticks(now));
        let used = debt.min(self.burst);
        let promised = (debt - used).min(self.promised.saturating_sub(ticks(now)));
        let same_permits = |debt: u128| (debt * new.interval).div_ceil(self.interval);
        let rescaled =
            same_permits(used).min(new.burst) + promised + same_permits(debt - used - promised);
        let debt = if self.interval == new.interval {
            debt
        } else {
            rescaled
        };
        *self = Self {
            full_at: ticks(now) + debt,
            promised: self.promised,
            ..*new
        };
    }
}

impl Model {
    /// Serves the line as far as it can be served at `now`.
    fn serve(&mut self, now: Time) {
        while let Some(first) = self.line.front() {
            let left = first.patience.saturating_sub(now.since(first.asked));
            let wait = self.bucket.wait(now, first.cost.into());
            let waited = if wait == Nanos::ZERO {
                Some(now.since(first.asked))
            } else if !self.bucket.holds(first.cost) || wait > left {
                None
            } else {
                break;
            };
            let fits = self.bucket.holds(first.cost);
            if waited.is_some() && fits {
                self.bucket.charge(now, first.cost);
            }
            let outcome = if fits {
                Ok(waited)
            } else {
                Err(ratekeeper::WaitError::TooLarge {
                    cost: first.cost,
                    capacity: self.bucket.capacity(),
                })
            };
            self.done.push((first.task, now, outcome));
            self.line.pop_front();
        }
        // Those behind give up when their patience ends.
        let done = &mut self.done;
        let mut place = 0;
        self.line.retain(|waiter| {
            place += 1;
            let gives_up = place > 1 && now.since(waiter.asked) >= waiter.patience;
            if gives_up {
                done.push((waiter.task, now, Ok(None)));
            }
            !gives_up
        });
    }

    /// When something happens by itself.
    fn next(&self, now: Time) -> Option<Time> {
        let first = self.line.front()?;
        let due = now + self.bucket.wait(now, first.cost.into());
        let ends = self.line.iter().filter(|it| it.patience < Nanos::MAX);
        let ends = ends.map(|it| it.asked + it.patience).min();
        Some(ends.map_or(due, |end| due.min(end)))
    }

    fn acquire(&mut self, task: usize, now: Time, cost: u64, patience: Nanos) {
        if self.line.is_empty() && self.bucket.wait(now, cost.into()) == Nanos::ZERO {
            self.bucket.charge(now, cost);
            return self.done.push((task, now, Ok(Some(Nanos::ZERO))));
        }
        if !self.bucket.holds(cost) {
            let error = ratekeeper::WaitError::TooLarge {
                cost,
                capacity: self.bucket.capacity(),
            };
            return self.done.push((task, now, Err(error)));
        }
        let before: u128 = self.line.iter().map(|it| u128::from(it.cost)).sum();
        if self.bucket.wait(now, before + u128::from(cost)) > patience {
            return self.done.push((task, now, Ok(None)));
        }
        let asked = now;
        self.line.push_back(Waiter {
            task,
            cost,
            asked,
            patience,
        });
        self.serve(now);
    }
}

fn limit(interval_ms: u64, burst: u64) -> Gcra {
    let quota = Quota::new(Permits::ONE, Nanos::from_millis(interval_ms)).unwrap();
    let quota = quota.with_burst(Permits::new(burst)).unwrap();
    Gcra::token_bucket(quota).unwrap().with_patience(HOUR)
}

fn live(first: (u64, u64), verbs: &[Verb]) {
    let clock = Clocked::default();
    clock.advance(Nanos::from_secs(10));
    let limiter = Limiter::with_clock(limit(first.0, first.1), Arc::clone(&clock));
    let mut model = Model {
        bucket: Bucket::new(first.0, first.1),
        line: VecDeque::new(),
        done: Vec::new(),
    };
    let mut tasks = Tasks::new(&clock, usize::MAX);
    let mut started = 0;
    for (at, &verb) in verbs.iter().enumerate() {
        let now = clock.now();
        let context = || format!("verb {at}: {verb:?} at {now:?}");
        match verb {
            Verb::Check(cost) => {
                let allowed = limiter.check_n(cost).is_ok();
                let free = cost == 0 || model.line.is_empty();
                let wait = model.bucket.wait(now, cost.into());
                let expected = free && (wait == Nanos::ZERO);
                assert_eq!(allowed, expected, "{}", context());
                if allowed {
                    model.bucket.charge(now, cost);
                }
            }
            Verb::Acquire(cost, patience) => {
                let half = Nanos::from_micros(500);
                let patience = patience.map_or(Nanos::MAX, |span| Nanos::from_millis(span) + half);
                tasks.start(started, limiter.try_acquire(cost, patience.into()));
                model.acquire(started, now, cost, patience);
                started += 1;
            }
            Verb::GiveUp(which) => {
                if let Some(task) = nth(&tasks, which) {
                    tasks.drop_task(task);
                    model.line.retain(|waiter| waiter.task != task);
                }
            }
            Verb::Reserve(cost, longest) => {
                let longest = Nanos::from_millis(longest);
                let wait = limiter.reserve(cost, longest.into()).wait();
                let mut expected = Some(model.bucket.wait(now, cost.into()));
                expected = expected.filter(|wait| *wait <= longest);
                let behind = !model.line.is_empty(); // nobody reserves; nothing is only looked at
                expected = expected.filter(|wait| !behind || (cost, *wait) == (0, Nanos::ZERO));
                assert_eq!(wait.map(Nanos::from), expected, "{}", context());
                if let Some(wait) = wait {
                    let bucket = &mut model.bucket;
                    bucket.promised = bucket.promised.max(ticks(now + wait.into()));
                    model.bucket.charge(now, cost);
                }
            }
            Verb::Refund(cost) => {
                // At once: it leaves no trace.
                if let Ok(grant) = limiter.check_n(cost) {
                    limiter.refund(grant);
                }
            }
            Verb::Reset => {
                limiter.reset();
                model.bucket.full_at = 0;
            }
            Verb::Set(interval, burst) => {
                limiter.set_limit(limit(interval, burst));
                model.bucket.set(now, &Bucket::new(interval, burst));
            }
            Verb::Wait(span) => {
                let until = now + Nanos::from_millis(span);
                advance(&mut tasks, &clock, until);
                model.serve(now);
                let mut then = now;
                while let Some(next) = model.next(then).filter(|next| *next <= until) {
                    then = next;
                    model.serve(then);
                }
            }
        }
        tasks.settle();
        model.serve(clock.now());
        assert_eq!(tasks.done, model.done, "{}", context());
        assert_eq!(limiter.waiting(), model.line.len(), "{}", context());
    }
    let mut then = clock.now();
    while let Some(next) = model.next(then) {
        then = next;
        model.serve(then);
    }
    tasks.run();
    assert_eq!(tasks.done, model.done);
}

proptest! {
    #![proptest_config(lives(cases(300, 10_000)))]

    #[test]
    fn a_token_bucket_behaves_like_a_queue_and_a_number(
        interval in 1_u64..400,
        burst in 1_u64..6,
        verbs in prop::collection::vec(verb(), 1..60),
    ) {
        live((interval, burst), &verbs);
    }
}
