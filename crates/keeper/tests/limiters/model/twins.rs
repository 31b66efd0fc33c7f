//! Twins: one limit and one key of many, in lockstep, by every algorithm.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use ratekeeper::core::{Algorithm, AnyAlgorithm, Nanos, Time};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{Clock as _, KeyedLimiter, Limiter};

use super::{advance, lives, millis, nth};
use crate::cases::cases;
use crate::tasks::{Clocked, Tasks};

/// Limits of few permits in little time; each line keeps the states of some of the others.
const WORDS: [&str; 20] = [
    "4/1s",
    "6/1s",
    "{ limit = \"4/1s\", algorithm = \"fixed-window\" }",
    "{ limit = \"9/1s\", algorithm = \"fixed-window\" }",
    "{ limit = \"4/1s\", algorithm = \"quota-reset\" }",
    "{ limit = \"4/1s\", algorithm = \"token-bucket\" }",
    "{ limit = \"3/7s\", algorithm = \"token-bucket\" }",
    "bucket = { size = 8, refill = \"4/1s\" }",
    "{ limit = \"4/1s\", algorithm = \"sub-buckets\" }",
    "{ limit = \"4/1s\", algorithm = { name = \"sub-buckets\", edge = \"weighted\" } }",
    "{ limit = \"4/1s\", algorithm = \"sliding-window-log\" }",
    "{ limit = \"2/1s\", algorithm = \"sliding-window-log\" }",
    "{ limit = \"4/1s\", algorithm = \"sliding-window-log\", count_denied = true }",
    "{ limit = \"4/1s\", algorithm = \"hybrid\" }",
    "{ limit = \"4/1s\", algorithm = \"exponential\" }",
    "{ limit = \"4/1s\", algorithm = \"smooth-bursty\" }",
    "{ limit = \"4/1s\", warmup = { period = \"2s\" } }",
    "bucket = { size = 4, refill = \"4/1s\", step = true }",
    "{ bucket = { size = 1, refill = \"4/1s\" }, queue = { max = 3, max_wait = \"9s\" } }",
    "concurrency = { max = 4, lease = \"1s\" }",
];

/// An operation on a limiter.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Check(u64),
    Acquire { cost: u64, patience_ms: Option<u32> },
    Until { cost: u64, deadline_ms: u32 },
    GiveUp(usize),
    Reserve { cost: u64, longest_ms: u32 },
    Cancel(usize),
    Refund(u64),
    Settle { taken: u64, used: u64 },
    Reset,
    Set(usize),
    Wait(u32),
    StepBack(u32),
}

fn verb() -> impl Strategy<Value = Verb> {
    let huge = || prop::sample::select(vec![u64::from(u32::MAX), 1 << 32, u64::MAX]);
    let cost = move || prop_oneof![8 => 0_u64..5, 1 => Just(9), 1 => huge()];
    prop_oneof![
        4 => cost().prop_map(Verb::Check),
        6 => (cost(), prop::option::of(0_u32..4_000))
            .prop_map(|(cost, patience_ms)| Verb::Acquire { cost, patience_ms }),
        2 => (cost(), 0_u32..9_000)
            .prop_map(|(cost, deadline_ms)| Verb::Until { cost, deadline_ms }),
        2 => any::<usize>().prop_map(Verb::GiveUp),
        1 => (cost(), 0_u32..3_000)
            .prop_map(|(cost, longest_ms)| Verb::Reserve { cost, longest_ms }),
        1 => any::<usize>().prop_map(Verb::Cancel),
        1 => cost().prop_map(Verb::Refund),
        1 => (0_u64..5, prop_oneof![9 => 0_u64..9, 1 => huge()]).prop_map(|(taken, used)| Verb::Settle { taken, used }),
        1 => Just(Verb::Reset),
        1 => (0..WORDS.len()).prop_map(Verb::Set),
        6 => (0_u32..1_500).prop_map(Verb::Wait),
        1 => (0_u32..500).prop_map(Verb::StepBack),
    ]
}

fn limit(words: &str) -> AnyAlgorithm {
    Limiter::parse(words).unwrap().show(AnyAlgorithm::clone)
}

#[expect(clippy::too_many_lines, reason = "one arm per verb")]
fn live(first: usize, verbs: &[Verb]) {
    let clock = Clocked::default();
    clock.advance(Nanos::from_secs(100));
    let first = limit(WORDS[first]);
    let one = Limiter::with_clock(first.clone(), Arc::clone(&clock));
    let keyed = KeyedLimiter::with_clock(first, MemoryConfig::default(), Arc::clone(&clock));
    let mut tasks = Tasks::new(&clock, usize::MAX);
    let mut started = 0..;
    let mut start = || started.next().unwrap();
    let mut reserved = Vec::new();
    let mut held = None;
    let mut done = 0;
    for (at, &verb) in verbs.iter().enumerate() {
        let context = || format!("verb {at}: {verb:?} at {:?}", clock.now());
        match verb {
            Verb::Check(cost) => {
                let would = one.peek_n(cost);
                let waiting = one.waiting();
                assert_eq!(would, keyed.key("ann").peek_n(cost), "{}", context());
                let decision = one.decide(cost);
                assert_eq!(decision, keyed.key("ann").decide(cost), "{}", context());
                if waiting == 0 {
                    assert_eq!(decision.verdict, would.verdict, "{}", context());
                } else if cost > 0 {
                    assert!(
                        !decision.verdict.allows(),
                        "a check passed the queue, {}",
                        context()
                    );
                }
            }
            Verb::Acquire { cost, patience_ms } => {
                let patience = patience_ms.map_or(Duration::MAX, |span| millis(span).into());
                let task = start();
                tasks.start(2 * task, one.try_acquire(cost, patience));
                tasks.start(2 * task + 1, keyed.key("ann").try_acquire(cost, patience));
            }
            Verb::Until { cost, deadline_ms } => {
                let deadline = clock.now() - Nanos::SECOND + millis(deadline_ms);
                let task = start();
                tasks.start(2 * task, one.try_acquire_until(cost, deadline));
                tasks.start(
                    2 * task + 1,
                    keyed.key("ann").try_acquire_until(cost, deadline),
                );
            }
            Verb::GiveUp(which) => {
                if let Some(task) = nth(&tasks, which) {
                    tasks.drop_task(task & !1);
                    tasks.drop_task(task | 1);
                }
            }
            Verb::Reserve { cost, longest_ms } => {
                let longest = millis(longest_ms).into();
                let mine = one.try_reserve(cost, longest);
                let keys = keyed.key("ann").try_reserve(cost, longest);
                let decisions = (
                    mine.as_ref().map(|it| (it.decision(), it.due())),
                    keys.as_ref().map(|it| (it.decision(), it.due())),
                );
                assert_eq!(decisions.0, decisions.1, "{}", context());
                // A cost of zero cannot show if it was given back.
                if let (Ok(mine), Ok(keys), 1..) = (mine, keys, cost) {
                    reserved.push((mine, keys));
                }
            }
            Verb::Cancel(which) => {
                if !reserved.is_empty() {
                    let (mine, keys) = reserved.swap_remove(which % reserved.len());
                    let mine = one.try_cancel(mine);
                    assert_eq!(mine, keyed.try_cancel(keys), "{}", context());
                }
            }
            Verb::Refund(cost) => {
                // Now, or one that is held since the last time. (Limits of keys do not know what
                // was given back in between, so no other is.)
                let taken = || one.check_n(cost).ok().zip(keyed.check_n("ann", cost).ok());
                match held.take().or_else(taken) {
                    Some(pair) if cost % 2 == 0 => held = Some(pair),
                    Some((mine, keys)) => {
                        assert_eq!(one.try_refund(mine), keyed.key("ann").try_refund(keys));
                    }
                    None => {}
                }
                let most = one.show(Algorithm::capacity);
                assert!(one.peek().remaining <= most, "{}", context());
            }
            Verb::Settle { taken, used } => {
                held = None;
                let pair = one
                    .check_n(taken)
                    .ok()
                    .zip(keyed.check_n("ann", taken).ok());
                if let Some((mine, keys)) = pair {
                    let mine = one.try_settle(mine.used(used));
                    let keys = keyed.key("ann").try_settle(keys.used(used));
                    assert_eq!(mine, keys, "{}", context());
                }
            }
            Verb::Reset => {
                held = None;
                one.reset();
                let _ = keyed.key("ann").reset();
                reserved.clear(); // what was promised is forgotten
            }
            Verb::Set(to) => {
                one.set_limit_text(WORDS[to]).unwrap();
                keyed.set_limit_text(WORDS[to]).unwrap();
                let _ = keyed.key("ann").peek(); // states of keys are converted when they are met
                for (mine, keys) in reserved.drain(..) {
                    // Whatever has happened since, its state says nothing about it.
                    assert_ne!(one.try_cancel(mine), Ok(true), "{}", context());
                    assert_ne!(keyed.try_cancel(keys), Ok(true), "{}", context());
                }
            }
            Verb::Wait(span) => advance(&mut tasks, &clock, clock.now() + millis(span)),
            // A lease that has ended may be forgotten, and does not begin anew.
            Verb::StepBack(_) if one.show(|limit| limit.concurrency().is_some()) => {}
            Verb::StepBack(span) => clock.set(clock.now() - millis(span)),
        }
        tasks.settle();
        assert_eq!(
            one.peek(),
            one.peek(),
            "a look changed the state, {}",
            context()
        );
        assert_eq!(one.peek(), keyed.key("ann").peek(), "{}", context());
        assert_eq!(one.waiting(), keyed.key("ann").waiting(), "{}", context());
        assert_eq!(tasks.running.len(), 2 * one.waiting(), "{}", context());
        same_stories(&tasks, &mut done, &context);
    }
    // No waiter starves: a cost denied now is allowed at some time, or never.
    for _ in 0..10_000 {
        let Some(due) = clock.next_wake() else { break };
        clock.set(due.max(clock.now()));
        tasks.settle();
    }
    assert_eq!(
        (tasks.running.len(), one.waiting()),
        (0, 0),
        "a waiter starves"
    );
    same_stories(&tasks, &mut done, &|| "at the end".to_owned());
    let mut order = tasks.order();
    order.sort_unstable();
    order.dedup();
    assert_eq!(order.len(), tasks.done.len(), "a waiter is done twice");
}

/// The results of both since the last time.
fn same_stories(tasks: &Tasks<'_>, done: &mut usize, context: &dyn Fn() -> String) {
    let story = |parity: usize| -> Vec<_> {
        let new = tasks.done[*done..].iter();
        new.filter(|(task, ..)| task % 2 == parity)
            .map(|(task, at, waited)| (task / 2, *at, *waited))
            .collect()
    };
    assert_eq!(story(0), story(1), "{}", context());
    let granted = |(task, _, waited): &(usize, Time, _)| {
        let waited: &crate::tasks::Waited = waited;
        matches!(waited, Ok(Some(span)) if *span > Nanos::ZERO).then_some(*task)
    };
    let order: Vec<_> = story(0).iter().filter_map(granted).collect();
    assert!(
        order.is_sorted(),
        "waiters were served out of order: {order:?}, {}",
        context()
    );
    *done = tasks.done.len();
}

proptest! {
    #![proptest_config(lives(cases(300, 10_000)))]

    #[test]
    fn a_limiter_and_one_key_of_a_keyed_limiter_behave_alike(
        first in 0..WORDS.len(),
        verbs in prop::collection::vec(verb(), 1..60),
    ) {
        live(first, &verbs);
    }
}

#[test]
fn a_cost_that_grows_starves_no_planned_waiter() {
    let acquire = Verb::Acquire {
        cost: 2,
        patience_ms: None,
    };
    let grow = Verb::Settle { taken: 0, used: 3 };
    for delay in [0, 1, 249, 250] {
        live(18, &[acquire, Verb::Wait(delay), grow]);
        live(18, &[acquire, acquire, Verb::Wait(delay), grow, grow]);
    }
}
