//! Guava's limiters, replayed in microseconds: stored permits and tickets equal to the bit.

use ratekeeper_core::laws::Random;
use ratekeeper_core::{Nanos, Permits, Reserve, Time, Verdict, WarmUp, WarmUpState};
use serde_json::Value;

use super::{compared, lines, number, permits};

/// A caller with a clock, and its limiter.
struct Caller {
    limit: WarmUp,
    state: WarmUpState,
    now_us: u64,
    sleeps: bool,
}

impl Caller {
    fn new(limit: WarmUp, now_us: u64, sleeps: bool) -> Self {
        let state = limit.start(at(now_us));
        Self {
            limit,
            state,
            now_us,
            sleeps,
        }
    }

    /// The wait; `None` if refused.
    fn ask(&mut self, permits: Permits, patience: Nanos) -> Option<u64> {
        let now = at(self.now_us);
        let decision = self.limit.reserve(&mut self.state, now, permits, patience);
        let wait = match decision.verdict {
            Verdict::Allow => 0,
            Verdict::AllowAfter(wait) => wait.as_nanos() / 1_000,
            _ => return None,
        };
        if self.sleeps {
            self.now_us += wait;
        }
        Some(wait)
    }

    fn acquire(&mut self, permits: Permits) -> u64 {
        self.ask(permits, Nanos::MAX).unwrap()
    }
}

fn at(micros: u64) -> Time {
    Time::ZERO + Nanos::from_micros(micros)
}

/// A double as recorded: infinity is a string.
fn double(value: &Value) -> f64 {
    match value.as_str() {
        Some("Infinity") => f64::INFINITY,
        Some(other) => panic!("{other}"),
        None => value.as_f64().unwrap(),
    }
}

fn same(ours: f64, theirs: &Value) -> bool {
    ours.to_bits() == double(theirs).to_bits()
}

#[test]
fn guava_agrees_to_the_bit() {
    let mut operations = 0;
    for line in lines(include_str!("scripted-sample.jsonl")) {
        let rate = double(&line["rate"]);
        let limit = match line["kind"].as_str().unwrap() {
            "bursty" => WarmUp::bursty(rate, double(&line["burst_s"])),
            _ => WarmUp::with_cold_factor(
                rate,
                Nanos::from_micros(number(&line["warmup_us"])),
                double(&line["cold_factor"]),
            ),
        };
        let start = number(&line["start_us"]);
        let sleeps = line["sleep_advances_clock"].as_bool().unwrap();
        let mut caller = Caller::new(limit.unwrap(), start, sleeps);
        for op in line["ops"].as_array().unwrap() {
            perform(&mut caller, op, &line["id"]);
            operations += 1;
        }
    }
    compared("scripted-sample.jsonl", operations, 1_488);
}

fn perform(caller: &mut Caller, op: &Value, id: &Value) {
    match op["op"].as_str().unwrap() {
        "advance" => caller.now_us += number(&op["us"]),
        "acquire" => {
            let slept = caller.acquire(permits(&op["n"]));
            assert_eq!(slept, number(&op["slept_us"]), "{id}: {op}");
        }
        "tryAcquire" => {
            let timeout = u64::try_from(op["timeout_us"].as_i64().unwrap()).unwrap_or(0);
            let slept = caller.ask(permits(&op["n"]), Nanos::from_micros(timeout));
            assert_eq!(slept.is_some(), op["ok"].as_bool().unwrap(), "{id}: {op}");
            assert_eq!(slept.unwrap_or(0), number(&op["slept_us"]), "{id}: {op}");
        }
        "setRate" => {
            let (now, rate) = (at(caller.now_us), double(&op["rate"]));
            caller.limit.set_rate(&mut caller.state, now, rate).unwrap();
        }
        "getRate" => assert!(same(caller.limit.rate(), &op["rate"]), "{id}: {op}"),
        other => panic!("{other}"),
    }
    assert_eq!(caller.now_us, number(&op["now"]), "{id}: {op}");
    let (stored, next) = (
        caller.state.permits().unwrap(),
        caller.state.next().unwrap(),
    );
    assert!(same(stored, &op["stored"]), "{id}: {op}, ours {stored}");
    assert_eq!(next, at(number(&op["next"])), "{id}: {op}");
}

#[test]
fn the_tests_of_guava_pass() {
    let mut operations = 0;
    for line in lines(include_str!("upstream_tests.jsonl")) {
        operations += match line["type"].as_str().unwrap() {
            "events" => program(&line, &line["exact_acquire_sleeps_us"]),
            "bools" => program(&line, &line["expected"]),
            _ if line["warmup_ms"].is_null() => 0, // one limiter, through all rates: below
            _ => check_the_warm_up_time_is_independent_of_portions(&line),
        };
    }
    compared("upstream_tests.jsonl", operations, 343);
}

/// Runs a program of acquires, tries, sleeps and changes of rate.
fn program(line: &Value, expected: &Value) -> usize {
    let config: Vec<&str> = line["config"].as_str().unwrap().split(' ').collect();
    let rate = |text: &str| match text {
        "inf" => f64::INFINITY,
        "min" => f64::from_bits(1),
        text => text.parse().unwrap(),
    };
    let limit = match config[..] {
        ["b", text] => WarmUp::bursty(rate(text), 1.0),
        ["w", text, warm_up, cold] => WarmUp::with_cold_factor(
            rate(text),
            Nanos::from_millis(warm_up.parse().unwrap()),
            cold.parse().unwrap(),
        ),
        _ => panic!("{config:?}"),
    };
    let mut caller = Caller::new(limit.unwrap(), 0, true);
    let mut answers = Vec::new();
    for step in line["program"].as_str().unwrap().split(' ') {
        let (step, times) = step.split_once('*').unwrap_or((step, "1"));
        let (what, argument) = step.split_at(1);
        for _ in 0..times.parse::<u32>().unwrap() {
            match what {
                "a" => answers.push(caller.acquire(Permits::new(argument.parse().unwrap()))),
                "u" | "c" => caller.now_us += argument.parse::<u64>().unwrap() * 1_000,
                "r" => {
                    let now = at(caller.now_us);
                    let new = rate(argument);
                    caller.limit.set_rate(&mut caller.state, now, new).unwrap();
                }
                "t" => {
                    let (permits, timeout) = argument.split_once(':').unwrap();
                    let timeout = timeout.parse::<i64>().unwrap();
                    let patience = Nanos::from_micros(u64::try_from(timeout).unwrap_or(0));
                    let permits = Permits::new(permits.parse().unwrap());
                    answers.push(u64::from(caller.ask(permits, patience).is_some()));
                }
                other => panic!("{other}"),
            }
        }
    }
    let expected: Vec<u64> = match expected {
        Value::String(text) => text.split(' ').map(|bit| bit.parse().unwrap()).collect(),
        list => list.as_array().unwrap().iter().map(number).collect(),
    };
    assert_eq!(answers, expected, "{line}");
    answers.len()
}

/// `permits` in random portions, and then one more: the time that this takes.
fn time_of(caller: &mut Caller, mut permits: u64, random: &mut Random) -> u64 {
    let start = caller.now_us;
    while permits > 0 {
        let portion = 1 + random.below(permits);
        caller.acquire(Permits::new(portion));
        permits -= portion;
    }
    caller.acquire(Permits::ONE); // it pays for the last portion
    caller.now_us - start
}

/// The way from cold to warm takes the warm-up time, whatever the portions.
fn check_the_warm_up_time_is_independent_of_portions(line: &Value) -> usize {
    let warm_up = number(&line["warmup_ms"]);
    let limit = WarmUp::with_cold_factor(
        double(&line["rate"]),
        Nanos::from_millis(warm_up),
        double(&line["cold_factor"]),
    );
    for seed in 0..10 {
        let mut caller = Caller::new(limit.unwrap(), 0, true);
        let time = time_of(
            &mut caller,
            number(&line["permits"]),
            &mut Random::new(seed),
        );
        assert!(
            time.abs_diff(number(&line["min_total_us"])) <= 10,
            "{line}: {time}"
        );
        assert_eq!(time.div_ceil(1_000), warm_up, "{line}");
    }
    10
}

#[test]
fn at_most_one_second_of_permits_is_saved_up() {
    let mut random = Random::new(5);
    let mut caller = Caller::new(WarmUp::bursty(1.0, 1.0).unwrap(), 0, true);
    for rate in [1_000, 1, 10, 1_000_000, 10, 1] {
        caller.now_us += rate * 1_000_000; // long enough to save up anything
        let now = at(caller.now_us);
        let permits = f64::from(u32::try_from(rate).unwrap());
        caller
            .limit
            .set_rate(&mut caller.state, now, permits)
            .unwrap();
        let burst = time_of(&mut caller, rate, &mut random);
        let after = time_of(&mut caller, rate, &mut random);
        assert!(
            burst / 1_000 <= 1_000 && after / 1_000 >= 1_000,
            "{rate}: {burst}, {after}"
        );
    }
}

#[test]
fn a_hundred_permits_start_at_once_and_the_next_caller_waits() {
    let mut caller = Caller::new(WarmUp::bursty(1.0, 1.0).unwrap(), 0, true);
    assert_eq!(caller.acquire(Permits::new(100)), 0);
    assert_eq!(caller.acquire(Permits::ONE), 100_000_000);
    // Three stored, ten asked for: seven are paid for by the next.
    let mut caller = Caller::new(WarmUp::bursty(1.0, 3.0).unwrap(), 0, true);
    caller.now_us += 3_000_000;
    assert_eq!(caller.acquire(Permits::new(10)), 0);
    assert_eq!(caller.acquire(Permits::ONE), 7_000_000);
}
