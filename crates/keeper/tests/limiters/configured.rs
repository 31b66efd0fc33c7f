//! Limiters by every algorithm that can be configured: one row each, every call on each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::core::{
    Algorithm as _, AnyAlgorithm, Call, Gcra, Nanos, Origin, Permits, Unsupported, Verdict,
};
use ratekeeper::policy::config::{Context, parse_limit};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{Clock, KeyedLimiter, Limiter, ManualClock, WaitError};

use crate::tasks::{Clocked, Tasks};

/// Abilities of an algorithm beside deciding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Can {
    Refund,
    Reserve,
    Both,
}
use Can::{Both, Refund, Reserve};

/// Words, and their abilities; each holds four permits at once.
const ROWS: [(&str, Can); 17] = [
    ("4/1s", Both),
    ("{ limit = \"4/1s\", algorithm = \"fixed-window\" }", Refund),
    ("{ limit = \"4/1s\", algorithm = \"quota-reset\" }", Refund),
    (
        "{ limit = \"4/1s\", algorithm = \"sliding-window-counter\" }",
        Refund,
    ),
    ("{ limit = \"4/1s\", algorithm = \"sub-buckets\" }", Refund),
    (
        "{ limit = \"4/1s\", algorithm = { name = \"sub-buckets\", edge = \"weighted\" } }",
        Refund,
    ),
    (
        "{ limit = \"4/1s\", algorithm = \"sliding-window-log\" }",
        Refund,
    ),
    (
        "{ limit = \"4/1s\", algorithm = \"sliding-window-log\", count_denied = true }",
        Refund,
    ),
    ("{ limit = \"4/1s\", algorithm = \"hybrid\" }", Refund),
    ("{ limit = \"4/1s\", algorithm = \"exponential\" }", Refund),
    (
        "{ limit = \"4/1s\", algorithm = \"smooth-bursty\" }",
        Reserve,
    ),
    (
        "{ limit = \"4/1s\", warmup = { period = \"2s\" } }",
        Reserve,
    ),
    ("{ limit = \"4/day\", timezone = \"UTC\" }", Refund),
    ("bucket = { size = 4, refill = \"4/1s\" }", Both),
    (
        "bucket = { size = 4, refill = \"4/1s\", step = true }",
        Refund,
    ),
    (
        "{ bucket = { size = 1, refill = \"4/1s\" }, queue = { max = 3, max_wait = \"9s\" } }",
        Both,
    ),
    ("concurrency = { max = 4, lease = \"1s\" }", Refund),
];

/// A number of the calendar, so that windows of a day are cut as they are in the world.
fn origin() -> Origin {
    Origin::from_unix_nanos(1_700_000_000_000_000_000)
}

/// The same calls on one limit and on one key of many.
trait Calls {
    fn decide(&self, cost: u64) -> Verdict;
    fn peek(&self) -> (Verdict, Permits);
    fn acquire(&self) -> Result<Nanos, WaitError>;
    fn try_acquire(&self, patience: Nanos) -> Option<Nanos>;
    /// Takes a permit and gives it back; returns false if that is unsupported.
    fn refund(&self) -> bool;
    fn reserve(&self, max_wait: Nanos) -> Result<Option<Nanos>, Unsupported>;
    /// Takes permits and settles them; returns false if that is unsupported.
    fn settle(&self, taken: u64, used: u64) -> bool;
    fn reset(&self);
    fn set(&self, words: &str);
    fn clock(&self) -> &ManualClock;
}

macro_rules! calls {
    ($limiter:ty, ($($key:expr)?)) => {
        impl Calls for $limiter {
            fn decide(&self, cost: u64) -> Verdict {
                self$(.key($key))?.decide(cost).verdict
            }
            fn peek(&self) -> (Verdict, Permits) {
                let decision = self$(.key($key))?.peek();
                (decision.verdict, decision.remaining)
            }
            fn acquire(&self) -> Result<Nanos, WaitError> {
                self$(.key($key))?.acquire_blocking().map(Nanos::from)
            }
            fn try_acquire(&self, patience: Nanos) -> Option<Nanos> {
                let limit = self$(.key($key))?;
                limit.try_acquire_blocking(1, patience.into()).unwrap().map(Nanos::from)
            }
            fn refund(&self) -> bool {
                let limit = self$(.key($key))?;
                let refused = limit.try_refund(limit.check().unwrap()).err();
                assert!(refused.is_none_or(|refused| refused.call == Call::Refund));
                refused.is_none()
            }
            fn reserve(&self, max_wait: Nanos) -> Result<Option<Nanos>, Unsupported> {
                let reserved = self$(.key($key))?.try_reserve(1, max_wait.into());
                reserved.map(|reserved| reserved.wait().map(Nanos::from))
            }
            fn settle(&self, taken: u64, used: u64) -> bool {
                let limit = self$(.key($key))?;
                limit.try_settle(limit.check_n(taken).unwrap().used(used)).is_ok()
            }
            fn reset(&self) {
                let _ = self$(.key($key))?.reset();
            }
            fn set(&self, words: &str) {
                self.set_limit_text(words).unwrap();
            }
            fn clock(&self) -> &ManualClock {
                <$limiter>::clock(self)
            }
        }
    };
}
calls!(Limiter<AnyAlgorithm, ManualClock>, ());
calls!(KeyedLimiter<AnyAlgorithm, ManualClock>, ("ann"));

/// A limiter of each kind.
fn limiters(text: &str) -> [Box<dyn Calls>; 2] {
    let clock = || ManualClock::at(origin());
    let one = Limiter::parse_with_clock(text, clock()).unwrap();
    let limit = one.show(AnyAlgorithm::clone);
    let keyed = KeyedLimiter::with_clock(limit, MemoryConfig::default(), clock());
    [Box::new(one), Box::new(keyed)]
}

/// Takes single permits until there are none; returns their number, and the wait for the next.
fn spend(limiter: &dyn Calls) -> (u32, Nanos) {
    for taken in 0..100 {
        if let Verdict::Deny { retry_after } = limiter.decide(1) {
            return (taken, retry_after);
        }
    }
    panic!("no request was denied");
}

#[test]
fn check_returns_the_exact_wait_and_reset_erases_the_state() {
    for (text, _) in ROWS {
        for limiter in limiters(text) {
            let four = if text.contains("warm") || text.contains("smooth") {
                1
            } else {
                4
            };
            limiter.clock().advance(Nanos::from_secs(10));
            let fresh = limiter.peek();
            assert_eq!(fresh.0, Verdict::Allow, "{text}");
            let (taken, wait) = spend(&*limiter);
            assert!(taken >= four, "{taken}: {text}");
            if !text.contains("count_denied") {
                let almost = wait.saturating_sub(Nanos::from_nanos(1));
                limiter.clock().advance(almost);
                assert!(!limiter.decide(1).allows(), "{text}");
                limiter.clock().advance(Nanos::from_nanos(1));
                assert!(limiter.decide(1).allows(), "{text}");
            }
            limiter.reset();
            assert_eq!(limiter.peek(), fresh, "{text}");
            let never = limiter.decide(1_000);
            assert_eq!(never, Verdict::DenyForever, "{text}");
        }
    }
}

#[test]
fn acquire_waits_and_try_acquire_keeps_to_its_timeout() {
    for (text, _) in ROWS {
        for limiter in limiters(text) {
            let (_, wait) = spend(&*limiter);
            let short = wait.saturating_sub(Nanos::from_nanos(1));
            let begun = limiter.clock().now();
            assert_eq!(limiter.try_acquire(short), None, "{text}");
            let asked = limiter.clock().now();
            // A permit at work may be returned at any moment; a refill comes at its time.
            let spent_waiting = if text.contains("concurrency") {
                short
            } else {
                Nanos::ZERO
            };
            assert_eq!(asked, begun + spent_waiting, "{text}");
            let waited = limiter.acquire().unwrap();
            assert_eq!(limiter.clock().now(), asked + waited, "{text}");
            // A place in a queue is there after `wait`, and its turn comes later.
            let due = if text.contains("queue") {
                Nanos::SECOND
            } else {
                wait.saturating_sub(spent_waiting)
            };
            assert_eq!(waited, due, "{text}");
        }
    }
}

#[test]
fn refund_and_reserve_work_or_return_unsupported() {
    for (text, can) in ROWS {
        for limiter in limiters(text) {
            let (_, left) = limiter.peek();
            assert_eq!(limiter.refund(), matches!(can, Refund | Both), "{text}");
            if matches!(can, Refund | Both) {
                assert_eq!(limiter.peek().1, left, "{text}");
            }
            limiter.reset();
            let minute = Nanos::from_secs(60);
            let reserved = limiter.reserve(minute);
            assert_eq!(reserved.is_ok(), matches!(can, Reserve | Both), "{text}");
            if reserved.is_ok() {
                assert_eq!(reserved, Ok(Some(Nanos::ZERO)), "{text}");
                let mut last = Nanos::ZERO;
                for _ in 0..3 {
                    let wait = limiter.reserve(minute).unwrap().unwrap();
                    assert!(wait >= last, "{text}");
                    last = wait;
                }
            }
        }
    }
}

#[test]
fn used_permits_are_carried_from_any_algorithm_to_any_other() {
    for (from, _) in ROWS {
        for (to, _) in ROWS {
            // Algorithms paid afterwards, or in a calendar, hold other numbers at once.
            if [from, to]
                .iter()
                .any(|text| text.contains("warm") || text.contains("smooth"))
            {
                continue;
            }
            for limiter in limiters(from) {
                assert!(limiter.decide(3).allows(), "{from}");
                limiter.set(to);
                let (_, left) = limiter.peek();
                assert!(
                    left <= Permits::ONE,
                    "{left} remain after the change from {from} to {to}"
                );
                limiter.reset();
                let (_, all) = limiter.peek();
                assert_eq!(all, Permits::new(4), "{to}");
            }
        }
    }
}

#[test]
fn tasks_wait_in_order_under_every_algorithm() {
    for (text, _) in ROWS {
        let clock = Clocked::default();
        let context = Context::from(Origin::UNIX);
        let limit = parse_limit(text, context).unwrap();
        let one = Limiter::with_clock(limit.clone(), Arc::clone(&clock));
        let memory = MemoryConfig::default();
        let keyed = KeyedLimiter::with_clock(limit, memory, Arc::clone(&clock));
        let mut tasks = Tasks::new(&clock, 2);
        for task in 0..20 {
            tasks.start(2 * task, one.try_acquire(1, Duration::MAX));
            let of_key = keyed.key("ann").try_acquire(1, Duration::MAX);
            tasks.start(2 * task + 1, of_key);
        }
        for gives_up in [30, 31, 38, 39] {
            tasks.drop_task(gives_up);
        }
        tasks.run();
        let mut order = tasks.order();
        order.retain(|task| task % 2 == 0);
        let stayed: Vec<_> = (0..19)
            .filter(|task| *task != 15)
            .map(|task| 2 * task)
            .collect();
        assert_eq!(order, stayed, "{text}");
        let story = |parity: usize| -> Vec<_> {
            let done = tasks.done.iter().filter(|(task, ..)| task % 2 == parity);
            done.map(|(task, at, waited)| (task / 2, *at, *waited))
                .collect()
        };
        assert_eq!(
            story(0),
            story(1),
            "the limiter and the key are served alike: {text}"
        );
    }
}

#[test]
fn settle_works_where_refund_and_reserve_do_or_returns_unsupported() {
    for (text, can) in ROWS {
        for limiter in limiters(text) {
            let four = 4;
            let settled = limiter.settle(four, 1);
            assert_eq!(settled, can == Both, "{text}");
            if !settled {
                let before = limiter.peek();
                assert!(!limiter.settle(0, four), "{text}");
                assert_eq!(
                    limiter.peek(),
                    before,
                    "an unsupported settlement changes no state: {text}"
                );
                continue;
            }
            assert_eq!(limiter.peek().1, Permits::new(3), "{text}");
            // Seven are owed beyond the four that it holds: four a second.
            limiter.settle(0, 10);
            let denied = limiter.decide(1);
            assert_eq!(denied.retry_after(), Some(Nanos::from_secs(2)), "{text}");
        }
    }
}

/// Whatever the rate: the used permits stay used, at most the new quota, and are refilled at the new
/// rate.
#[test]
fn used_permits_stay_used_under_another_rate() {
    let gcra = |quota: &str| format!("{{ limit = \"{quota}\", algorithm = \"token-bucket\" }}");
    for (from, taken, to, left, wait_ms) in [
        ("10/1m", 10, "10/1h", 0, 360_000), // an attack is not given a fresh burst
        ("10/1h", 10, "10/1m", 0, 6_000),   // and a raised rate does not wait for the hour
        ("10/1m", 5, "10/1h", 5, 0),
        ("10/1h", 5, "10/1m", 5, 0),
        ("10/1h", 0, "10/1m", 10, 0),
        ("10/1m", 4, "100/1h", 96, 0),
        ("100/1h", 41, "10/1m", 0, 6_000), // 31 are forgiven
        ("10/1m", 4, "100/1m", 96, 0),
        ("100/1m", 40, "10/1m", 0, 6_000),
        ("10/10h", 10, "20/10h", 10, 0),
        ("100/1h", 50, "1000/1h", 950, 0),
        ("100/1m", 100, "100/1h", 0, 36_000),
        ("1000000/1s", 1_000_000, "1/365d", 0, 365 * 86_400_000),
        ("1/365d", 1, "1000000000/1s", 999_999_999, 0),
    ] {
        for limiter in limiters(&gcra(from)) {
            assert!(limiter.decide(taken).allows());
            limiter.set(&gcra(to));
            let (_, remaining) = limiter.peek();
            assert_eq!(remaining.get(), left, "{taken} of {from}, then {to}");
            let retry_after = limiter.decide(1).retry_after();
            let wait = retry_after.map_or(0, Nanos::as_millis_ceil);
            assert_eq!(wait, wait_ms, "{taken} of {from}, then {to}");
        }
    }
}

/// Promises stay as they are, at any rate.
#[test]
fn promised_moments_stay() {
    let gcra = |quota: &str| format!("{{ limit = \"{quota}\", algorithm = \"token-bucket\" }}");
    let hour = Nanos::from_secs(3_600);
    for (from, to) in [("6/1m", "6/1h"), ("6/1h", "6/1m"), ("6/1h", "3/1h")] {
        for limiter in limiters(&gcra(from)) {
            while limiter.reserve(hour).unwrap() == Some(Nanos::ZERO) {}
            let last = limiter.reserve(hour).unwrap().unwrap();
            limiter.set(&gcra(to));
            let (apart, next) = (limiter.clock().now(), limiter.reserve(hour).unwrap());
            let interval = to.parse::<ratekeeper::core::Quota>().unwrap();
            let due = apart + last + interval.time_for(Permits::ONE);
            assert_eq!(next.map(|next| apart + next), Some(due), "{from} then {to}");
        }
    }
}

/// `N/duration` is one limit, wherever it is written.
#[test]
fn the_same_text_is_the_same_limit() {
    let context = Context::default();
    for text in ["1/24h", "2/24h", "5/24h", "100/24h", "1000/24h"] {
        let bucket = AnyAlgorithm::from(Gcra::token_bucket(text.parse().unwrap()).unwrap());
        let field = format!("limit = \"{text}\"");
        assert_eq!(parse_limit(text, context).as_ref(), Ok(&bucket), "{text}");
        assert_eq!(parse_limit(&field, context).as_ref(), Ok(&bucket), "{text}");
        let (per, parsed) = (Limiter::per(text).unwrap(), Limiter::parse(text).unwrap());
        let quota = bucket.capacity().get();
        for left in (0..quota).rev() {
            let (one, other) = (per.decide(1), parsed.decide(1));
            assert_eq!([one.verdict, other.verdict], [Verdict::Allow; 2], "{text}");
            assert_eq!(
                [one.remaining.get(), other.remaining.get()],
                [left; 2],
                "{text}"
            );
        }
        assert!(per.check().is_err() && parsed.check().is_err());
    }
}
