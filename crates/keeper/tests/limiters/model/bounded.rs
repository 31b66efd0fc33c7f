//! Bounded: whatever tasks ask and wait, in any order, no span admits more than the limit.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use proptest::prelude::*;
use ratekeeper::core::{Algorithm as _, AnyAlgorithm, Nanos, Time};
use ratekeeper::{Clock as _, Limiter, ManualClock};

use super::{advance, lives, millis, nth};
use crate::cases::cases;
use crate::tasks::{Clocked, Tasks};

const WORDS: [&str; 17] = [
    "4/1s",
    "{ limit = \"4/1s\", algorithm = \"fixed-window\" }",
    "{ limit = \"4/1s\", algorithm = \"quota-reset\" }",
    "{ limit = \"4/1s\", algorithm = \"token-bucket\" }",
    "bucket = { size = 1, refill = \"4/1s\" }",
    "{ limit = \"1/365d\", algorithm = \"token-bucket\" }",
    "{ limit = \"1000000000/1s\", algorithm = \"token-bucket\" }",
    "{ limit = \"4/1s\", algorithm = \"sub-buckets\" }",
    "{ limit = \"4/1s\", algorithm = { name = \"sub-buckets\", edge = \"weighted\" } }",
    "{ limit = \"4/1s\", algorithm = \"sliding-window-log\" }",
    "{ limit = \"4/1s\", algorithm = \"hybrid\" }",
    "{ limit = \"4/1s\", algorithm = \"exponential\" }",
    "spacing = \"1ms\"",
    "{ limit = \"4/10ms\", algorithm = \"sliding-window-log\" }",
    "{ limit = \"4/10ms\", algorithm = \"sub-buckets\" }",
    "bucket = { size = 4, refill = \"4/1s\", step = true }",
    "{ bucket = { size = 1, refill = \"4/1s\" }, queue = { max = 3, max_wait = \"9s\" } }",
];

#[derive(Clone, Copy, Debug)]
enum Verb {
    Check(u32),
    Acquire(u32, Option<u32>),
    GiveUp(usize),
    Wait(u32),
    StepBack(u32),
    /// The executor is busy for so many microseconds: timers are late.
    Busy(u32),
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        4 => (1_u32..5).prop_map(Verb::Check),
        6 => (1_u32..5, prop::option::of(0_u32..4_000))
            .prop_map(|(cost, patience)| Verb::Acquire(cost, patience)),
        2 => any::<usize>().prop_map(Verb::GiveUp),
        6 => (0_u32..1_500).prop_map(Verb::Wait),
        1 => (0_u32..700).prop_map(Verb::StepBack),
        4 => (0_u32..20_000).prop_map(Verb::Busy),
    ]
}

fn live(words: &str, start: u64, verbs: &[Verb]) {
    let clock = Clocked::default();
    clock.set(Time::from_nanos(start));
    let limit = Limiter::parse(words).unwrap().show(AnyAlgorithm::clone);
    let limiter = Limiter::with_clock(limit.clone(), Arc::clone(&clock));
    let mut tasks = Tasks::new(&clock, usize::MAX);
    let mut costs = Vec::new();
    // The clock may step back, time does not.
    let (mut stepped_back, mut admitted, mut done) = (Nanos::ZERO, Vec::new(), 0);
    for &verb in verbs {
        match verb {
            Verb::Check(cost) => {
                if limiter.check_n(cost.into()).is_ok() {
                    admitted.push((clock.now() + stepped_back, cost));
                }
            }
            Verb::Acquire(cost, patience) => {
                let patience = patience.map_or(Nanos::MAX, millis);
                tasks.start(
                    costs.len(),
                    limiter.try_acquire(cost.into(), patience.into()),
                );
                costs.push(cost);
            }
            Verb::GiveUp(which) => {
                if let Some(task) = nth(&tasks, which) {
                    tasks.drop_task(task);
                }
            }
            Verb::Wait(span) => {
                let until = clock.now() + millis(span);
                advance(&mut tasks, &clock, until);
            }
            Verb::Busy(span) => clock.advance(Nanos::from_micros(span.into())),
            Verb::StepBack(span) => {
                let before = clock.now();
                clock.set(before - millis(span));
                stepped_back = stepped_back + before.since(clock.now());
            }
        }
        tasks.settle();
        for (task, at, waited) in &tasks.done[done..] {
            if let Ok(Some(_)) = waited {
                admitted.push((*at + stepped_back, costs[*task]));
            }
        }
        done = tasks.done.len();
    }
    for (first, (start, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for (at, cost) in &admitted[first..] {
            sum += u64::from(*cost);
            let span = at.since(*start) + Nanos::from_nanos(1);
            let bound = limit.bound(span);
            assert!(
                sum <= bound,
                "{sum} granted in {span:?}, bound {bound}: {words}"
            );
        }
    }
}

proptest! {
    #![proptest_config(lives(cases(300, 10_000)))]

    #[test]
    fn no_span_admits_more_than_the_bound(
        words in prop::sample::select(&WORDS[..]),
        start in prop_oneof![
            3 => 0_u64..2_000_000_000,
            1 => Just((u64::MAX >> 6) - 2_000_000_000), // near the end of GCRA's time
        ],
        verbs in prop::collection::vec(verb(), 1..60),
    ) {
        live(words, start, &verbs);
    }
}

/// Where no later moment is left, one poll ends all the same.
#[test]
fn a_wait_at_the_end_of_time_does_not_spin() {
    for words in WORDS {
        for back in [0, 1, 1_000_000_000] {
            let limit = Limiter::parse(words).unwrap().show(AnyAlgorithm::clone);
            let clock = ManualClock::default();
            clock.set(Time::from_nanos(u64::MAX - back));
            let limiter = Limiter::with_clock(limit, clock);
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..10 {
                let mut waiting = pin!(limiter.acquire());
                if waiting.as_mut().poll(&mut context).is_pending() {
                    limiter.clock().advance(Nanos::MAX);
                    let _ = waiting.poll(&mut context);
                }
            }
            assert_eq!(limiter.waiting(), 0, "{words}");
        }
    }
}
