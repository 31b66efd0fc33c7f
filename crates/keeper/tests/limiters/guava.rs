//! Guava's recorded traces, through the public limiter on a virtual clock.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper::core::{Nanos, Origin, Time, WarmUp};
use ratekeeper::{Block, Clock, ManualClock, SmoothRateLimiter};
use serde_json::Value;

/// A clock that adds up the time slept, and moves by it or does not.
#[derive(Default)]
struct Traced {
    clock: ManualClock,
    slept: AtomicU64,
    stands: bool,
}

impl Clock for Traced {
    fn now(&self) -> Time {
        self.clock.now()
    }
    fn origin(&self) -> Origin {
        self.clock.origin()
    }
}

impl Block for Traced {
    fn sleep(&self, span: Nanos) {
        self.slept
            .fetch_add(span.as_nanos() / 1_000, Ordering::Relaxed);
        if !self.stands {
            self.clock.advance(span);
        }
    }
    fn park(&self, _longest: Option<Nanos>) {
        unreachable!("a smooth limiter sleeps and never parks");
    }
}

struct Caller {
    limiter: SmoothRateLimiter<Arc<Traced>>,
    clock: Arc<Traced>,
}

impl Caller {
    fn new(limit: WarmUp, start_us: u64, sleeps: bool) -> Self {
        let clock = Traced {
            stands: !sleeps,
            ..Traced::default()
        };
        clock.clock.advance(Nanos::from_micros(start_us));
        let clock = Arc::new(clock);
        Self {
            limiter: SmoothRateLimiter::with_clock(limit, Arc::clone(&clock)),
            clock,
        }
    }

    /// Microseconds slept since this was last asked.
    fn slept(&self) -> u64 {
        self.clock.slept.swap(0, Ordering::Relaxed)
    }

    fn advance(&self, micros: u64) {
        self.clock.clock.advance(Nanos::from_micros(micros));
    }
}

fn double(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| match value.as_str() {
        Some("Infinity") => f64::INFINITY,
        _ => panic!("{value} is not a double"),
    })
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not a count"))
}

fn timeout(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0)) // below zero is none
}

#[test]
fn scripted_situations_agree_to_the_microsecond() {
    let mut operations = 0;
    for line in include_str!("../../../core/tests/algorithms/traces/scripted-sample.jsonl").lines()
    {
        let line: Value = serde_json::from_str(line).unwrap();
        let rate = double(&line["rate"]);
        let limit = match line["kind"].as_str().unwrap() {
            "bursty" => WarmUp::bursty(rate, double(&line["burst_s"])),
            _ => WarmUp::with_cold_factor(
                rate,
                Nanos::from_micros(number(&line["warmup_us"])),
                double(&line["cold_factor"]),
            ),
        };
        let sleeps = line["sleep_advances_clock"].as_bool().unwrap();
        let caller = Caller::new(limit.unwrap(), number(&line["start_us"]), sleeps);
        for op in line["ops"].as_array().unwrap() {
            perform(&caller, op);
            operations += 1;
        }
    }
    assert_eq!(operations, 1_488);
}

fn perform(caller: &Caller, op: &Value) {
    let limiter = &caller.limiter;
    match op["op"].as_str().unwrap() {
        "advance" => caller.advance(number(&op["us"])),
        "acquire" => {
            let slept = limiter.acquire(number(&op["n"])).as_micros();
            let slept = u64::try_from(slept).unwrap();
            assert_eq!(slept, number(&op["slept_us"]), "{op}");
            assert_eq!(caller.slept(), slept, "{op}");
        }
        "tryAcquire" => {
            let timeout = timeout(op["timeout_us"].as_i64().unwrap());
            let ok = limiter.try_acquire(number(&op["n"]), timeout);
            assert_eq!(ok, op["ok"].as_bool().unwrap(), "{op}");
            assert_eq!(caller.slept(), number(&op["slept_us"]), "{op}");
        }
        "setRate" => limiter.set_rate(double(&op["rate"])).unwrap(),
        "getRate" => assert_eq!(
            limiter.rate().to_bits(),
            double(&op["rate"]).to_bits(),
            "{op}"
        ),
        other => panic!("{other}"),
    }
    let now_us = caller.clock.now().as_nanos() / 1_000;
    assert_eq!(now_us, number(&op["now"]), "{op}");
}

#[test]
fn the_test_programs_of_guava_agree() {
    let mut answers = 0;
    for line in include_str!("../../../core/tests/algorithms/traces/upstream_tests.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let expected = match line["type"].as_str().unwrap() {
            "events" => &line["exact_acquire_sleeps_us"],
            "bools" => &line["expected"],
            _ => continue, // totals of random portions: see the core's own test
        };
        let expected: Vec<u64> = match expected {
            Value::String(text) => text.split(' ').map(|bit| bit.parse().unwrap()).collect(),
            list => list.as_array().unwrap().iter().map(number).collect(),
        };
        assert_eq!(program(&line), expected, "{line}");
        answers += expected.len();
    }
    assert_eq!(answers, 193); // 343 with the 15 totals, ten times each
}

/// Runs a program of acquires, tries, sleeps and changes of rate.
fn program(line: &Value) -> Vec<u64> {
    let rate = |text: &str| match text {
        "inf" => f64::INFINITY,
        "min" => f64::from_bits(1),
        text => text.parse().unwrap(),
    };
    let config: Vec<&str> = line["config"].as_str().unwrap().split(' ').collect();
    let limit = match config[..] {
        ["b", text] => WarmUp::bursty(rate(text), 1.0),
        ["w", text, warm_up, cold] => WarmUp::with_cold_factor(
            rate(text),
            Nanos::from_millis(warm_up.parse().unwrap()),
            cold.parse().unwrap(),
        ),
        _ => panic!("{config:?}"),
    };
    let caller = Caller::new(limit.unwrap(), 0, true);
    let mut answers = Vec::new();
    for step in line["program"].as_str().unwrap().split(' ') {
        let (step, times) = step.split_once('*').unwrap_or((step, "1"));
        let (what, argument) = step.split_at(1);
        for _ in 0..times.parse::<u32>().unwrap() {
            match what {
                "a" => {
                    let slept = caller.limiter.acquire(argument.parse().unwrap());
                    answers.push(u64::try_from(slept.as_micros()).unwrap());
                }
                "u" | "c" => caller.advance(argument.parse::<u64>().unwrap() * 1_000),
                "r" => caller.limiter.set_rate(rate(argument)).unwrap(),
                "t" => {
                    let (permits, micros) = argument.split_once(':').unwrap();
                    let permits = permits.parse().unwrap();
                    let timeout = timeout(micros.parse().unwrap());
                    answers.push(u64::from(caller.limiter.try_acquire(permits, timeout)));
                }
                other => panic!("{other}"),
            }
        }
    }
    answers
}
