//! Quantities: the algorithms that numbers and words of a limit compile to.

use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Concurrency, Denials, Edge, Exponential, Gcra, Hybrid, Interval, Log,
    Nanos, Origin, Permits, QuotaReset, SubBuckets, Time, Verdict, WarmUp, Window,
};

use super::{one, policy_at, quota};

#[test]
fn numbers_become_algorithms() {
    let zero = Nanos::ZERO;
    let counted = Denials::Counted;
    let sub_buckets = |text: &str, count, edge| {
        AnyAlgorithm::from(SubBuckets::sub_buckets(quota(text), count, edge, zero).unwrap())
    };
    let bucket = quota("10/1s").with_burst(Permits::new(20)).unwrap();
    let rows: Vec<(&str, AnyAlgorithm)> = vec![
        (
            "limit = \"5/1m\"",
            Gcra::token_bucket(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"sliding-window-counter\"",
            Window::two_window(quota("5/1m"), zero).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"fixed-window\"",
            Window::fixed(quota("5/1m"), zero).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"quota-reset\"",
            QuotaReset::new(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"token-bucket\"",
            Gcra::token_bucket(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"token-bucket\"",
            Gcra::token_bucket(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"sub-buckets\"",
            sub_buckets("5/1m", 6, Edge::Full),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = { name = \"sub-buckets\", count = 10, edge = \"drop\" }",
            sub_buckets("5/1m", 10, Edge::Drop),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = { name = \"sub-buckets\", edge = \"weighted\" }",
            sub_buckets("5/1m", 6, Edge::Weighted),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = { name = \"fixed-window\" }\ncount_denied = true",
            Window::fixed(quota("5/1m"), zero)
                .unwrap()
                .with_denials(counted)
                .into(),
        ),
        (
            "bucket = { size = 20, refill = \"10/1s\" }",
            Gcra::token_bucket(bucket).unwrap().into(),
        ),
        (
            "bucket = { size = 20, refill = \"10/1s\", start = \"full\", step = false }\ncount_denied = true",
            Gcra::token_bucket(bucket)
                .unwrap()
                .with_denials(counted)
                .into(),
        ),
        (
            "spacing = \"200ms\"",
            Gcra::spacing(Nanos::from_millis(200)).unwrap().into(),
        ),
    ];
    for (lines, algorithm) in rows {
        assert_eq!(one(lines).rules[0].limit.algorithm, algorithm, "{lines}");
    }
}

#[test]
fn permits_on_loan_become_a_limit() {
    let at_once =
        |permits, secs| Concurrency::new(Permits::new(permits), Nanos::from_secs(secs)).unwrap();
    for (lines, limit) in [
        ("concurrency = 50", at_once(50, 60)),
        ("concurrency = { max = 50 }", at_once(50, 60)),
        ("concurrency = { max = 1, lease = \"5m\" }", at_once(1, 300)),
        (
            "concurrency = { max = 10_000, lease = \"1s\" }\ncount_denied = true",
            at_once(10_000, 1).with_denials(Denials::Counted),
        ),
    ] {
        let policy = one(lines);
        let rule = &policy.rules[0];
        assert_eq!(rule.limit.algorithm.concurrency(), Some(&limit), "{lines}");
        assert_eq!((rule.quota, rule.window), (limit.capacity(), None));
        assert_eq!(rule.text, format!("{} at once", limit.capacity()));
    }
}

#[test]
fn queues_steps_logs_and_curves_become_algorithms() {
    let counted = Denials::Counted;
    let bucket = quota("10/1s").with_burst(Permits::new(20)).unwrap();
    let rows: Vec<(&str, AnyAlgorithm)> = vec![
        (
            "limit = \"5/1m\"\nalgorithm = \"leaky-bucket\"",
            Gcra::leaky_queue(quota("5/1m"), Permits::ZERO)
                .unwrap()
                .into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"token-bucket\"\nqueue = { max = 3 }",
            Gcra::new(quota("5/1m"), Permits::new(3)).unwrap().into(),
        ),
        (
            "bucket = { size = 20, refill = \"10/1s\" }\nqueue = { max = 100, order = \"fifo\" }",
            Gcra::new(bucket, Permits::new(100)).unwrap().into(),
        ),
        (
            "spacing = \"200ms\"\nqueue = { max = 9 }\ncount_denied = true",
            Gcra::leaky_queue(quota("1/200ms"), Permits::new(9))
                .unwrap()
                .with_denials(counted)
                .into(),
        ),
        (
            "bucket = { size = 10, refill = \"1/1h\", step = true }",
            Interval::from_first(Permits::new(10), Permits::ONE, Nanos::from_secs(3_600))
                .unwrap()
                .into(),
        ),
        (
            "bucket = { size = 10, refill = \"1/1h\", step = \"first\" }",
            Interval::from_first(Permits::new(10), Permits::ONE, Nanos::from_secs(3_600))
                .unwrap()
                .into(),
        ),
        (
            "bucket = { size = 10, refill = \"2/1h\", step = \"clock\" }",
            Interval::on_grid(
                Permits::new(10),
                Permits::new(2),
                Nanos::from_secs(3_600),
                Nanos::ZERO,
            )
            .unwrap()
            .into(),
        ),
        (
            "limit = \"2/1s\"\nalgorithm = \"sliding-window-log\"",
            Log::sliding(quota("2/1s")).unwrap().into(),
        ),
        (
            "limit = \"5/1s\"\nalgorithm = { name = \"sliding-window-log\", min_gap = \"200ms\" }\ncount_denied = true",
            Log::sliding(quota("5/1s"))
                .and_then(|log| log.with_gap(Nanos::from_millis(200)))
                .unwrap()
                .with_denials(counted)
                .into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"hybrid\"",
            Hybrid::quota_linear(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = { name = \"exponential\" }",
            Exponential::new(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"exponential\"\ncount_denied = true",
            Exponential::new(quota("5/1m"))
                .unwrap()
                .with_denials(counted)
                .into(),
        ),
    ];
    for (lines, algorithm) in rows {
        assert_eq!(one(lines).rules[0].limit.algorithm, algorithm, "{lines}");
    }
}

#[test]
fn both_limiters_of_guava_can_be_written() {
    let ten = Nanos::from_secs(10);
    let rows: [(&str, WarmUp, u32); 5] = [
        (
            "limit = \"100/1s\"\nwarmup = { period = \"10s\" }",
            WarmUp::warming_up(100.0, ten).unwrap(),
            100,
        ),
        (
            "limit = \"100/1s\"\nwarmup = { period = \"10s\", cold_factor = 5 }",
            WarmUp::with_cold_factor(100.0, ten, 5.0).unwrap(),
            100,
        ),
        (
            "limit = \"30/1m\"\nwarmup = { period = \"10s\" }\ncost = 3",
            WarmUp::warming_up(0.5, ten).unwrap(),
            30,
        ),
        (
            "limit = \"5/1s\"\nalgorithm = \"smooth-bursty\"",
            WarmUp::bursty(5.0, 1.0).unwrap(),
            5,
        ),
        (
            "limit = \"5/1s\"\nalgorithm = { name = \"smooth-bursty\", save_up = \"3s\" }",
            WarmUp::bursty(5.0, 3.0).unwrap(),
            5,
        ),
    ];
    for (lines, limiter, largest) in rows {
        let limiter = limiter.with_largest(u64::from(largest));
        let rule = &one(lines).rules[0];
        assert_eq!(rule.limit.algorithm, limiter.into(), "{lines}");
        assert_eq!(rule.quota, Permits::new(largest.into()), "{lines}");
    }
}

/// Returns the verdicts for one key at these milliseconds, one permit each: `0` for "now", `300`
/// for "in 300 ms", `-` for "no".
fn verdicts(lines: &str, moments: &[u64]) -> String {
    fn all<A: Algorithm>(algorithm: &A, moments: &[u64]) -> String {
        let mut state = A::State::default();
        let one = |at: &u64| {
            let now = Time::ZERO + Nanos::from_millis(*at);
            match algorithm.decide(&mut state, now, Permits::ONE).verdict {
                Verdict::Allow => "0".to_owned(),
                Verdict::AllowAfter(wait) => wait.as_millis_ceil().to_string(),
                _ => "-".to_owned(),
            }
        };
        moments.iter().map(one).collect::<Vec<_>>().join(" ")
    }
    match &one(lines).rules[0].limit.algorithm {
        AnyAlgorithm::Gcra(gcra) => all(gcra, moments),
        AnyAlgorithm::Interval(interval) => all(interval, moments),
        AnyAlgorithm::Log(log) => all(log, moments),
        AnyAlgorithm::Hybrid(hybrid) => all(hybrid, moments),
        AnyAlgorithm::Exponential(counter) => all(counter, moments),
        AnyAlgorithm::WarmUp(limiter) => all(limiter, moments),
        other => panic!("{other:?}"),
    }
}

#[test]
fn queues_make_requests_wait() {
    let at_once = [0; 8];
    for (lines, moments, expected) in [
        (
            "bucket = { size = 2, refill = \"10/1s\" }",
            &at_once[..],
            "0 0 - - - - - -",
        ),
        (
            "bucket = { size = 2, refill = \"10/1s\" }\nqueue = { max = 3 }",
            &at_once,
            "0 0 100 200 300 - - -",
        ),
        (
            "bucket = { size = 2, refill = \"10/1s\" }\nqueue = { max = 100, max_wait = \"499ms\" }",
            &at_once,
            "0 0 100 200 300 400 - -",
        ),
        (
            "bucket = { size = 2, refill = \"10/1s\" }\nqueue = { max = 100, max_wait = \"500ms\" }",
            &at_once,
            "0 0 100 200 300 400 500 -",
        ),
        (
            "limit = \"3/300ms\"\nqueue = { max = 2 }",
            &[0, 0, 0, 0, 0, 0, 100, 100],
            "0 0 0 100 200 - 200 -",
        ),
        (
            "spacing = \"200ms\"\nqueue = { max = 2, max_wait = \"2s\" }",
            &[0, 0, 0, 0, 150, 250, 1_000, 1_000],
            "0 200 400 - - 350 0 200",
        ),
    ] {
        assert_eq!(verdicts(lines, moments), expected, "{lines}");
    }
}

#[test]
fn steps_logs_and_curves_admit_as_documented() {
    for (lines, moments, expected) in [
        // Two come back every 300 ms from the first, none in between.
        (
            "bucket = { size = 3, refill = \"2/300ms\", step = true }",
            &[0, 0, 0, 0, 299, 300, 300, 300][..],
            "0 0 0 - - 0 0 -",
        ),
        // On the clock: taken at 250 ms, refilled at 300 ms.
        (
            "bucket = { size = 3, refill = \"2/300ms\", step = \"clock\" }",
            &[250, 250, 250, 250, 299, 300, 300, 300, 600],
            "0 0 0 - - 0 0 - 0",
        ),
        (
            "bucket = { size = 3, refill = \"2/300ms\" }",
            &[0, 0, 0, 0, 299, 300, 300, 300],
            "0 0 0 - 0 0 - -",
        ),
        // A third request within any second is refused.
        (
            "limit = \"2/1s\"\nalgorithm = \"sliding-window-log\"",
            &[0, 600, 999, 1_000, 1_599, 1_600],
            "0 0 - 0 - 0",
        ),
        (
            "limit = \"2/1s\"\nalgorithm = \"sliding-window-log\"\ncount_denied = true",
            &[0, 600, 999, 1_000, 1_599, 2_600],
            "0 0 - - - 0",
        ),
        (
            "limit = \"2/1s\"\nalgorithm = { name = \"sliding-window-log\", min_gap = \"200ms\" }",
            &[0, 199, 200, 999, 1_000, 1_199, 1_200],
            "0 - 0 - 0 - 0",
        ),
        // A whole quota at once, then one at a time.
        (
            "limit = \"4/400ms\"\nalgorithm = \"hybrid\"",
            &[0, 0, 0, 0, 0, 400, 499, 500, 500],
            "0 0 0 0 - 0 - 0 -",
        ),
        // ln 2 = 0.693 periods let one of two fade.
        (
            "limit = \"2/1s\"\nalgorithm = \"exponential\"",
            &[0, 0, 0, 693, 694, 694],
            "0 0 - - 0 -",
        ),
        // Cold, the second waits for the price of the first, 1,375 ms; later ones for 1,125,
        // 875, 625, and warm for 500.
        (
            "limit = \"2/1s\"\nwarmup = { period = \"4s\" }",
            &[0, 1_374, 1_375, 2_499, 2_500, 3_375, 4_000, 4_499, 4_500],
            "0 - 0 - 0 0 0 - 0",
        ),
        // Two are saved up, and one is paid for by the next.
        (
            "limit = \"2/1s\"\nalgorithm = \"smooth-bursty\"",
            &[0, 0, 0, 0, 499, 500, 999, 1_000],
            "0 0 0 - - 0 - 0",
        ),
    ] {
        assert_eq!(verdicts(lines, moments), expected, "{lines}");
    }
}

#[test]
fn names_of_algorithms_explain_them() {
    for (lines, name) in [
        (
            "limit = \"5/1m\"\nalgorithm = \"sliding-window-log\"",
            "sliding window log",
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"sliding-window-log\"\ncount_denied = true",
            "strict sliding window log",
        ),
        ("limit = \"5/1m\"\nalgorithm = \"hybrid\"", "hybrid"),
        (
            "limit = \"5/1m\"\nalgorithm = \"exponential\"",
            "exponential",
        ),
        (
            "bucket = { size = 5, refill = \"1/1m\", step = true }",
            "interval bucket",
        ),
        ("spacing = \"1s\"\nqueue = { max = 9 }", "leaky bucket"),
        ("limit = \"5/1m\"\nwarmup = { period = \"1m\" }", "warm-up"),
        (
            "limit = \"5/1m\"\nalgorithm = \"smooth-bursty\"",
            "smooth bursty",
        ),
    ] {
        assert_eq!(one(lines).rules[0].limit.algorithm.name(), name, "{lines}");
    }
}

#[test]
fn quota_window_and_text_are_those_of_the_limit() {
    let day = 86_400;
    for (lines, permits, seconds, text) in [
        ("limit = \"100/1m\"", 100, Some(60), "100/1m"),
        ("limit = \"20/24h\"", 20, Some(day), "20/24h"),
        ("limit = \"20/hour\"", 20, Some(3_600), "20/hour"),
        ("limit = \"20/day\"", 20, Some(day), "20/day"),
        (
            "limit = \"20/week\"\nalgorithm = \"fixed-window\"",
            20,
            Some(7 * day),
            "20/week",
        ),
        ("limit = \"20/month\"", 20, None, "20/month"),
        ("limit = \"20/year\"", 20, None, "20/year"),
        (
            "bucket = { size = 40, refill = \"20/1s\" }",
            40,
            Some(2),
            "bucket of 40, 20/1s",
        ),
        ("spacing = \"3s\"", 1, Some(3), "1 every 3s"),
        (
            "bucket = { size = 7, refill = \"2/1h\", step = true }",
            7,
            Some(4 * 3_600),
            "bucket of 7, 2/1h in steps",
        ),
        (
            "limit = \"5/1s\"\nalgorithm = { name = \"sliding-window-log\", min_gap = \"200ms\" }",
            5,
            Some(1),
            "5/1s, 200ms apart",
        ),
        (
            "bucket = { size = 40, refill = \"20/1s\" }\nqueue = { max = 100, max_wait = \"2s\" }",
            80,
            Some(4),
            "bucket of 40, 20/1s, queue of 40",
        ),
    ] {
        let policy = one(lines);
        let rule = &policy.rules[0];
        assert_eq!(rule.quota, Permits::new(permits), "{lines}");
        assert_eq!(rule.window, seconds.map(Nanos::from_secs), "{lines}");
        assert_eq!(rule.text, text);
    }
}

#[test]
fn windows_begin_at_whole_periods_of_unix_time() {
    // The clock's zero lies 25 s into a minute: the next minute begins 35 s later.
    let origin = Origin::from_unix_nanos(Nanos::from_secs(60 * 1_000 + 25).as_nanos());
    let text = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\nalgorithm = \"fixed-window\"\n";
    let fixed = Window::fixed(quota("5/1m"), Nanos::from_secs(35)).unwrap();
    assert_eq!(
        policy_at(text, origin).rules[0].limit.algorithm,
        fixed.into()
    );
}
