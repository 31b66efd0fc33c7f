//! Recorded decisions, replayed: the founding documents' algorithms in their corrected
//! reading, their worked examples, and Guava's limiters to the bit.
//!
//! ```text
//!   traces/*.jsonl   one sequence a line: parameters, and rows of (t, cost, allowed, state)
//!   a row            decide at t; what was allowed and what remains must be as recorded
//! ```
//!
//! Each test prints how many operations it compared and fails if that is not the number in
//! its file: nothing is skipped by accident. Readings "as printed" are left out where they
//! are the documents' mistakes; `seed_traps.rs` shows that we do not make them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod guava;

use std::fmt::Debug;

use ratekeeper_core::{
    Algorithm, Decision, Denials, Edge, Gcra, Hybrid, HybridState, Interval, IntervalState, Log,
    LogState, Nanos, Permits, Quota, QuotaReset, SubBuckets, Tat, Time, Window, WindowState,
};
use serde_json::Value;

/// The lines of a file.
fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not a count"))
}

fn permits(value: &Value) -> Permits {
    Permits::new(number(value))
}

#[expect(
    clippy::print_stdout,
    reason = "the number of compared operations is printed for people to read"
)]
fn compared(file: &str, operations: usize, expected: usize) {
    println!("{file}: {operations} operations compared");
    assert_eq!(operations, expected, "{file}");
}

/// The nanoseconds of a line's unit.
fn unit(line: &Value) -> u64 {
    match line["clock"].as_str() {
        Some("s") => 1_000_000_000,
        Some("ms") => 1_000_000,
        None if !line["params"]["interval_ms"].is_null() => 1_000_000,
        other => panic!("unknown clock unit {other:?}"),
    }
}

/// `limit` per `window` of a line or of its parameters.
fn quota(of: &Value, unit: u64) -> Quota {
    let window = [&of["window_ms"], &of["window_s"]];
    let window = window.into_iter().find(|window| !window.is_null()).unwrap();
    let limit = [&of["limit"], &of["quota"]];
    let limit = limit.into_iter().find(|limit| !limit.is_null()).unwrap();
    Quota::new(permits(limit), Nanos::from_nanos(number(window) * unit)).unwrap()
}

fn interval(of: &Value, start: u64) -> Interval {
    Interval::on_grid(
        permits(&of["max_amount"]),
        permits(&of["refill_amount"]),
        Nanos::from_millis(number(&of["refill_time_ms"])),
        Nanos::from_millis(start),
    )
    .unwrap()
}

/// Replays the rows of `line`; `left` reads the remaining permits after a row.
fn rows<A: Algorithm + Debug>(
    algorithm: &A,
    line: &Value,
    left: impl Fn(&[Value]) -> Option<u64>,
) -> usize {
    let unit = unit(line);
    let mut state = A::State::default();
    let rows = line["rows"].as_array().unwrap();
    // Some begin in 2017; whole weeks less, every grid of theirs is where it was.
    let week = 7 * 86_400_000_000_000 / unit;
    let origin = number(&rows[0][0]) / week * week;
    for row in rows {
        let row = row.as_array().unwrap();
        let now = Time::from_nanos((number(&row[0]) - origin) * unit);
        let decision = algorithm.decide(&mut state, now, permits(&row[1]));
        let context = || format!("{} at {row:?}\n{algorithm:?}\n{state:?}", line["id"]);
        assert_eq!(decision.verdict.allows(), row[2] == 1, "{}", context());
        if let Some(left) = left(row) {
            assert_eq!(decision.remaining.get(), left, "{}", context());
        }
    }
    rows.len()
}

/// Decides `events` from `state` on, against the recorded answers.
fn events<A: Algorithm + Debug>(
    algorithm: &A,
    mut state: A::State,
    line: &Value,
    allowed: &Value,
) -> usize {
    let unit = unit(line);
    let events = line["events"].as_array().unwrap();
    for (event, allowed) in events.iter().zip(allowed.as_array().unwrap()) {
        let now = Time::from_nanos(number(&event[0]) * unit);
        let decision = algorithm.decide(&mut state, now, permits(&event[1]));
        assert_eq!(
            decision.verdict.allows(),
            *allowed == 1,
            "{} at {event}: {decision:?}\n{algorithm:?}",
            line["id"]
        );
    }
    events.len()
}

/// How many of `tries`, `gap` apart, are admitted.
fn admitted<A: Algorithm>(algorithm: &A, tries: u64, gap: Nanos) -> u64 {
    let mut state = A::State::default();
    let moments = (0..tries).map(|at| Time::from_nanos(at * gap.as_nanos()));
    let admitted = moments.filter(|&now| {
        let decision = algorithm.decide(&mut state, now, Permits::ONE);
        decision.verdict.allows()
    });
    admitted.count() as u64
}

#[test]
fn classic_algorithms_decide_as_recorded() {
    let mut operations = 0;
    for line in lines(include_str!("traces/classic_sample.jsonl")) {
        let quota = quota(&line, 1_000_000);
        let limit = quota.permits().get();
        let name = line["algorithm"].as_str().unwrap();
        operations += match (name, line["variant"].as_str().unwrap()) {
            ("LeakyBucket", "corrected") => {
                let spaced = Gcra::leaky_queue(quota, Permits::ZERO).unwrap();
                rows(&spaced, &line, |_| None)
            }
            ("TokenBucket", "as_printed") => {
                // The thread that refills: whole refills, in step with its creation.
                let start = Nanos::from_millis(number(&line["start"]));
                let every = quota.per();
                let bucket = Interval::on_grid(quota.burst_size(), quota.permits(), every, start);
                rows(&bucket.unwrap(), &line, |row| Some(number(&row[3])))
            }
            ("TokenBucketLazyRefill", "corrected") => {
                let bucket = Gcra::token_bucket(quota).unwrap();
                rows(&bucket, &line, |row| Some(number(&row[3]) / 1_000))
            }
            ("FixedWindowCounter", "corrected") => {
                let fixed = Window::fixed(quota, Nanos::ZERO).unwrap();
                rows(&fixed, &line, |row| Some(limit - number(&row[3])))
            }
            ("SlidingWindowLog", "corrected") => {
                let log = Log::sliding(quota).unwrap();
                rows(&log, &line, |row| Some(limit - number(&row[3])))
            }
            ("SlidingWindowLog", "as_printed") => {
                // It logs refused requests: our strict log, which does so by request.
                let strict = Log::sliding(quota).unwrap().with_denials(Denials::Counted);
                rows(&strict, &line, |_| None)
            }
            ("SlidingWindow", "corrected_lt") => {
                let counter = Window::two_window(quota, Nanos::ZERO).unwrap();
                rows(&counter, &line, |_| None)
            }
            // Mistakes, and the reading that counts the request itself.
            (_, "as_printed" | "corrected_strict") => 0,
            other => panic!("{other:?}"),
        };
    }
    compared("classic_sample.jsonl", operations, 14 * 160);
}

#[test]
fn interval_buckets_decide_as_recorded() {
    let mut operations = 0;
    for line in lines(include_str!("traces/interval_bucket_sample.jsonl")) {
        if line["variant"] == "corrected" {
            let bucket = interval(&line, number(&line["start"]));
            operations += rows(&bucket, &line, |row| Some(number(&row[3])));
        }
    }
    compared("interval_bucket_sample.jsonl", operations, 4 * 160);
}

#[test]
fn hybrids_and_their_relatives_decide_as_recorded() {
    let (mut operations, mut runs) = (0, 0);
    for line in lines(include_str!("traces/hybrid_sample.jsonl")) {
        let quota = quota(&line, 1_000_000);
        let window = i64::try_from(number(&line["window_ms"])).unwrap();
        // Smooth, the bucket may be below zero; nothing remains then.
        let whole = |row: &[Value]| u64::try_from(row[3].as_i64().unwrap().max(0) / window).ok();
        let hybrid = Hybrid::quota_linear(quota).unwrap();
        let reset = QuotaReset::new(quota).unwrap();
        let linear = Gcra::token_bucket(quota).unwrap();
        if line["variant"] == "exact" {
            operations += match line["algorithm"].as_str().unwrap() {
                "HybridQuotaLinear" => rows(&hybrid, &line, whole),
                "QuotaReset" => rows(&reset, &line, |_| None),
                "LinearTokenBucket" => rows(&linear, &line, whole),
                other => panic!("{other}"),
            };
            continue;
        }
        runs += match line["algorithm"].as_str().unwrap() {
            "HybridQuotaLinear" => constant_rate(&hybrid, &line),
            "QuotaReset" => constant_rate(&reset, &line),
            "LinearTokenBucket" => constant_rate(&linear, &line),
            other => panic!("{other}"),
        };
    }
    compared("hybrid_sample.jsonl", operations, 12 * 200);
    compared(
        "hybrid_sample.jsonl, constant rate",
        runs,
        3 * (50 + 80 + 160 + 400),
    );
}

/// A client that asks at a constant rate: the decisions, as runs of equal ones.
fn constant_rate<A: Algorithm + Debug>(algorithm: &A, line: &Value) -> usize {
    let step = number(&line["step_ms"]) * 1_000_000;
    let mut state = A::State::default();
    let mut at = 0;
    for run in line["decisions_rle"].as_array().unwrap() {
        for _ in 0..number(&run[1]) {
            let now = Time::from_nanos(at * step);
            let decision = algorithm.decide(&mut state, now, Permits::ONE);
            assert_eq!(
                decision.verdict.allows(),
                run[0] == 1,
                "{} at {at}",
                line["id"]
            );
            at += 1;
        }
    }
    assert_eq!(at, number(&line["requests"]));
    usize::try_from(at).unwrap()
}

#[test]
fn worked_examples_hold() {
    let (mut operations, mut examples) = (0, 0);
    for line in lines(include_str!("traces/worked_examples.jsonl")) {
        let done = worked_example(&line);
        examples += usize::from(done > 0);
        operations += done;
    }
    // The others are claims about arithmetic, keys and races, or Guava's: see there.
    compared("worked_examples.jsonl", operations, 320);
    assert_eq!(examples, 79);
}

/// How many operations of an example were compared.
fn worked_example(line: &Value) -> usize {
    let params = &line["params"];
    let expected = |reading: &str| &line[reading]["allowed"];
    let name = line["algorithm"].as_str().unwrap();
    if line["events"].is_array() {
        let fresh = WindowState::default;
        return match name {
            "IntervalRefillBucket" => {
                let bucket = interval(params, number(&params["start"]));
                let state = IntervalState::default();
                events(&bucket, state, line, expected("corrected"))
            }
            "RollingLog" => {
                let quota = Quota::new(
                    permits(&params["max"]),
                    Nanos::from_millis(number(&params["interval_ms"])),
                );
                let log = Log::sliding(quota.unwrap()).unwrap();
                let strict = log.with_denials(Denials::Counted);
                events(&strict, LogState::default(), line, expected("real_package"))
            }
            _ => {
                let quota = quota(params, unit(line));
                let fixed = Window::fixed(quota, Nanos::ZERO).unwrap();
                let log = Log::sliding(quota);
                match name {
                    "FixedWindowCounter" | "RedisFixedWindow" => {
                        events(&fixed, fresh(), line, expected("as_printed"))
                    }
                    "RedisTokenCounter" => events(&fixed, fresh(), line, expected("corrected")),
                    "SlidingLog" | "SlidingWindowLog" => events(
                        &log.unwrap(),
                        LogState::default(),
                        line,
                        expected("corrected"),
                    ),
                    "policy" => {
                        events(&fixed, fresh(), line, expected("fixed_window"))
                            + events(
                                &log.unwrap(),
                                LogState::default(),
                                line,
                                expected("sliding_log"),
                            )
                    }
                    "HybridQuotaLinear" => {
                        let hybrid = Hybrid::quota_linear(quota).unwrap();
                        events(&hybrid, HybridState::default(), line, expected("exact"))
                    }
                    "RedisListLeakyBucket" => {
                        let queue = Gcra::leaky_queue(quota, quota.permits()).unwrap();
                        events(&queue, Tat::default(), line, expected("corrected"))
                    }
                    "SlidingWindow" => {
                        let counter = Window::two_window(quota, Nanos::ZERO).unwrap();
                        let state = set_up(&counter, line);
                        events(&counter, state, line, expected("corrected_lt"))
                    }
                    "SubBucketWindow3" => {
                        let count = u32::try_from(number(&params["sub_buckets"])).unwrap();
                        let window = SubBuckets::sub_buckets(quota, count, Edge::Drop, Nanos::ZERO);
                        let window = window.unwrap();
                        let state = set_up(&window, line);
                        events(&window, state, line, expected("as_described"))
                    }
                    other => panic!("{other}"),
                }
            }
        };
    }
    match name {
        "SlidingWindowDirect" => direct(line),
        "LeakyBucket" => {
            let quota = Quota::new(permits(&params["limit"]), Nanos::SECOND).unwrap();
            let spaced = Gcra::leaky_queue(quota, Permits::ZERO).unwrap();
            let accepted = admitted(&spaced, 3_000, Nanos::from_millis(1));
            assert_eq!(accepted, number(&line["corrected"]["accepted"]), "{line}");
            1
        }
        "TokenBucketLazyRefill" => {
            let quota = Quota::new(permits(&params["limit"]), Nanos::SECOND).unwrap();
            let gap = Nanos::from_millis(number(&params["gap_ms"]));
            let bucket = Gcra::token_bucket(quota).unwrap();
            let accepted = admitted(&bucket, number(&params["requests"]), gap);
            assert_eq!(accepted, number(&line["corrected"]["accepted"]), "{line}");
            1
        }
        "LinearTokenBucket" => linear(line),
        "SlidingWindowLog" => persistent(&Log::sliding(quota(params, 1_000_000)).unwrap(), line),
        "FixedWindowCounter" => {
            let fixed = Window::fixed(quota(params, 1_000_000), Nanos::ZERO);
            persistent(&fixed.unwrap(), line)
        }
        "SlidingWindow" => {
            let counter = Window::two_window(quota(params, 1_000_000), Nanos::ZERO);
            persistent(&counter.unwrap(), line)
        }
        _ => 0,
    }
}

/// The state after the requests that an example starts with.
fn set_up<A: Algorithm>(algorithm: &A, line: &Value) -> A::State {
    let mut state = A::State::default();
    for at in line["params"]["setup_events"].as_array().unwrap() {
        let now = Time::from_nanos(number(at) * unit(line));
        let _ = algorithm.decide(&mut state, now, Permits::ONE);
    }
    state
}

/// A caller that tries all the time: the permits of each second.
fn persistent<A: Algorithm>(algorithm: &A, line: &Value) -> usize {
    let step = number(&line["params"]["step_ms"]);
    let mut state = A::State::default();
    let mut tries = 0..number(&line["params"]["requests"]);
    for expected in line["corrected"]["accepted_per_second"].as_array().unwrap() {
        let second = tries.by_ref().take(usize::try_from(1_000 / step).unwrap());
        let admitted = second.filter(|at| {
            let now = Time::ZERO + Nanos::from_millis(at * step);
            let decision = algorithm.decide(&mut state, now, Permits::ONE);
            decision.verdict.allows()
        });
        assert_eq!(admitted.count() as u64, number(expected), "{line}");
    }
    1
}

/// Two counters given as they are, and one question.
fn direct(line: &Value) -> usize {
    const WINDOW: Nanos = Nanos::from_secs(3_600);
    let params = &line["params"];
    let counter = |limit| {
        let quota = Quota::new(limit, WINDOW).unwrap();
        Window::two_window(quota, Nanos::ZERO).unwrap()
    };
    let mut state = WindowState::default();
    let unlimited = counter(Permits::new(Quota::MAX_PERMITS)); // the counts are given, not the requests behind them
    let begin = Time::ZERO + WINDOW;
    let mut count = |now, count: &Value| unlimited.decide(&mut state, now, permits(count));
    let _: [Decision; 2] = [
        count(Time::ZERO, &params["previous"]),
        count(begin, &params["current_before"]),
    ];
    let part =
        WINDOW.as_nanos() / number(&params["position_den"]) * number(&params["position_num"]);
    let now = begin + Nanos::from_nanos(part);
    let verdict = counter(permits(&params["limit"]))
        .decide(&mut state, now, Permits::ONE)
        .verdict;
    assert_eq!(
        verdict.allows(),
        line["rule_lt"]["allowed"][0] == 1,
        "{line}"
    );
    1
}

/// A client at `a` times the rate gets `1 + floor((q - 1) a / (a - 1))` before it is refused.
fn linear(line: &Value) -> usize {
    let quota = permits(&line["params"]["quota"]);
    // In hundredths, so that a rate 1.25 times too high is a whole number of nanoseconds.
    let abuse = line["params"]["abuse_factor"].as_f64().unwrap() * 100.0;
    let abuse = (1..=1_000_u32).find(|&hundredth| f64::from(hundredth) >= abuse);
    let abuse = u64::from(abuse.unwrap());
    let step = 3 * 1_000_000; // divided by every factor there is
    let per = Nanos::from_nanos(step * abuse * quota.get());
    let bucket = Gcra::token_bucket(Quota::new(quota, per).unwrap()).unwrap();
    let (mut tat, mut passed) = (Tat::default(), 0);
    while bucket
        .decide(
            &mut tat,
            Time::from_nanos(passed * step * 100),
            Permits::ONE,
        )
        .verdict
        .allows()
    {
        passed += 1;
    }
    let formula = 1 + (quota.get() - 1) * abuse / (abuse - 100);
    assert_eq!(passed, formula, "{line}");
    assert_eq!(
        passed,
        number(&line["numbers"]["n_capped_full_bucket_at_first_request"])
    );
    1
}
