//! The eight phases of founding document 0 at 10 a second, against recorded facts: the duration of
//! each phase, and its number of refusals.
//!
//! `data/eight_phases.jsonl` holds a line for each class of the document, as printed and
//! corrected, run in virtual time.

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Denials, Gcra, Interval, Log, Nanos, Origin, Permits, Quota,
    Time, Window,
};
use ratekeeper_lab::{Bench, Report, Stop, Workload, compared, play};
use serde_json::Value;

const FACTS: &str = include_str!("data/eight_phases.jsonl");

fn quota() -> Quota {
    "10/1s".parse().expect("a quota")
}

fn run(limit: AnyAlgorithm) -> Report {
    let workload = Workload::eight_phases();
    play(&mut Bench::new(limit), &workload, None)
}

/// Returns `[duration_ms]` and `[refused]` of a class.
fn facts(algorithm: &str, variant: &str) -> (Vec<u64>, Vec<u64>) {
    let mut lines = FACTS
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let line: Value = lines
        .find(|line: &Value| line["algorithm"] == algorithm && line["variant"] == variant)
        .unwrap_or_else(|| panic!("no facts about {algorithm}, {variant}"));
    let numbers = |field: &str| {
        let list = line[field].as_array().expect("a list");
        list.iter()
            .map(|number| number.as_u64().expect("a whole number"))
            .collect()
    };
    (numbers("duration_ms"), numbers("refused"))
}

fn measured(report: &Report) -> (Vec<u64>, Vec<u64>) {
    let rows = &report.rows;
    let durations = rows.iter().map(|row| row.span().as_nanos() / 1_000_000);
    let refused = rows.iter().map(|row| row.counts.refused);
    (durations.collect(), refused.collect())
}

#[test]
fn each_class_takes_as_long_as_recorded() {
    let ten = Permits::new(10);
    let interval = Interval::on_grid(ten, ten, Nanos::SECOND, Nanos::ZERO);
    let rows: [(AnyAlgorithm, &str, &str); 6] = [
        (interval.unwrap().into(), "TokenBucket", "as_printed"),
        (
            Log::sliding(quota()).unwrap().into(),
            "SlidingWindowLog",
            "corrected",
        ),
        (
            Gcra::token_bucket(quota()).unwrap().into(),
            "TokenBucketLazyRefill",
            "corrected",
        ),
        (
            Gcra::spacing(Nanos::from_millis(100)).unwrap().into(),
            "LeakyBucket",
            "corrected",
        ),
        (
            Window::fixed(quota(), Nanos::ZERO).unwrap().into(),
            "FixedWindowCounter",
            "corrected",
        ),
        (
            Window::two_window(quota(), Nanos::ZERO).unwrap().into(),
            "SlidingWindow",
            "corrected_lt",
        ),
    ];
    for (limit, algorithm, variant) in rows {
        let report = run(limit);
        assert_eq!(measured(&report), facts(algorithm, variant), "{algorithm}");
        assert_eq!(report.total.admitted, 2_130);
        assert_eq!(report.stop, None);
    }
}

#[test]
fn every_algorithm_finishes_within_its_bound_unless_refusals_count() {
    for compared in compared::ALL {
        let limit = (compared.build)(quota(), Origin::UNIX).unwrap();
        let counts = Bench::new(limit.clone()).counts_refusals();
        let report = run(limit.clone());
        let name = compared.name;
        for span in [1, 10, 100, 999, 1_000, 1_001, 2_500, 10_000] {
            let span = Nanos::from_millis(span);
            let most = report.most_within(span).expect("one key");
            assert!(most <= limit.bound(span), "{name}: {most} in {span}");
        }
        if name == "strict sliding window log" {
            assert!(report.stop.is_some() && counts, "{name}");
            continue;
        }
        assert_eq!(
            (report.stop, report.total.admitted),
            (None, 2_130),
            "{name}"
        );
        // No slower than 8 a second in the long run, where that is what limits.
        let last = report.rows.last().unwrap().span();
        assert!(last <= Nanos::from_secs(125), "{name}: {last}");
    }
}

#[test]
fn the_strict_log_is_shut_from_the_first_second_of_phase_5() {
    let strict = Log::sliding(quota())
        .unwrap()
        .with_denials(Denials::Counted);
    let report = run(strict.into());
    let phase_5 = Time::ZERO + Nanos::from_secs(40);
    let Some(Stop::RefusalsCount { row, since }) = report.stop else {
        panic!("{:?}", report.stop);
    };
    let gave_up = report.end.since(phase_5).as_nanos() / 1_000_000;
    let line = FACTS
        .lines()
        .find(|line| line.contains("\"SlidingWindowLog\",\"variant\":\"as_printed"));
    let facts: Value = serde_json::from_str(line.expect("recorded")).expect("JSON");
    assert_eq!((row, since), (4, phase_5));
    assert_eq!(facts["gave_up_at_ms"], gave_up);
    assert_eq!(facts["refused"][4], report.rows[4].counts.refused);
}
