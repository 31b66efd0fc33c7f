//! Good policies: what the text says is what the policy holds.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::net::IpAddr;

use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Concurrency, Denials, Edge, Exponential, Gcra, Hybrid, Interval, Log,
    Nanos, Origin, Permits, Quota, SubBuckets, Time, Verdict, WarmUp, Window,
};
use ratekeeper_policy::config::{Colour, Context, parse, render};
use ratekeeper_policy::{
    Body, Charges, Cost, Facts, HeaderStyle, KeyPart, MissingKey, Policy, Refusal, RuleMode,
};

/// The policy of a text that must be right.
fn policy(text: &str) -> Policy {
    policy_at(text, Origin::UNIX)
}

fn policy_at(text: &str, origin: Origin) -> Policy {
    match parse(text, Context { origin }) {
        Ok(loaded) => loaded.policy,
        Err(errors) => panic!("{}", render("good.toml", text, &errors, Colour::Never)),
    }
}

/// The policy of one limit by address, `lines` in it.
fn one(lines: &str) -> Policy {
    let limit = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n";
    policy(&format!(
        "version = 1\ntimezone = \"UTC\"\n{limit}{lines}\n"
    ))
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

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
            Window::two_window(quota("5/1m"), zero).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"sliding\"",
            Window::two_window(quota("5/1m"), zero).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"fixed\"",
            Window::fixed(quota("5/1m"), zero).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"quota-reset\"",
            Window::quota_reset(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"gcra\"",
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
            "limit = \"5/1m\"\nalgorithm = { name = \"fixed\" }\ncount_denied = true",
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
            Gcra::leaky_meter(quota("5/1m")).unwrap().into(),
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"gcra\"\nqueue = { max = 3 }",
            Gcra::new(quota("5/1m"), Permits::new(3)).unwrap().into(),
        ),
        (
            "bucket = { size = 20, refill = \"10/1s\" }\nqueue = { max = 100, order = \"fifo\" }",
            Gcra::new(bucket, Permits::new(100)).unwrap().into(),
        ),
        (
            "spacing = \"200ms\"\nqueue = { max = 9 }\ncount_denied = true",
            Gcra::leaky_queue(quota("5/1s"), Permits::new(9))
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
            "limit = \"2/1s\"\nalgorithm = \"log\"",
            Log::sliding(quota("2/1s")).unwrap().into(),
        ),
        (
            "limit = \"5/1s\"\nalgorithm = { name = \"log\", min_gap = \"200ms\" }\ncount_denied = true",
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
fn guavas_two_limiters_can_be_written() {
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
        let limiter = limiter.with_largest(Permits::new(largest));
        let rule = &one(lines).rules[0];
        assert_eq!(rule.limit.algorithm, limiter.into(), "{lines}");
        assert_eq!(rule.quota, Permits::new(largest), "{lines}");
    }
}

/// What one key is told when it asks at these milliseconds, one permit each: `0` for "now",
/// `300` for "in 300 ms", `-` for "no".
fn told(lines: &str, moments: &[u64]) -> String {
    fn all<A: Algorithm>(algorithm: &A, moments: &[u64]) -> String {
        let mut state = A::State::default();
        let one = |at: &u64| {
            let now = Time::ZERO + Nanos::from_millis(*at);
            match algorithm.decide(&mut state, now, Permits::ONE).verdict {
                Verdict::Allow => "0".to_owned(),
                Verdict::AllowAfter(wait) => wait.as_millis_ceil().to_string(),
                Verdict::Deny { .. } | Verdict::DenyForever => "-".to_owned(),
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
fn queues_tell_requests_to_wait() {
    let at_once = [0; 8];
    for (lines, moments, told_so) in [
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
            "limit = \"3/300ms\"\nalgorithm = \"leaky-bucket\"\nqueue = { max = 2 }",
            &[0, 0, 0, 0, 0, 0, 100, 100],
            "0 0 0 100 200 - 200 -",
        ),
        (
            "spacing = \"200ms\"\nqueue = { max = 2, max_wait = \"2s\" }",
            &[0, 0, 0, 0, 150, 250, 1_000, 1_000],
            "0 200 400 - - 350 0 200",
        ),
    ] {
        assert_eq!(told(lines, moments), told_so, "{lines}");
    }
}

#[test]
fn whole_steps_logs_and_curves_admit_what_they_say() {
    for (lines, moments, told_so) in [
        // Two come back every 300 ms from the first, none in between.
        (
            "bucket = { size = 3, refill = \"2/300ms\", step = true }",
            &[0, 0, 0, 0, 299, 300, 300, 300][..],
            "0 0 0 - - 0 0 -",
        ),
        (
            "bucket = { size = 3, refill = \"2/300ms\" }",
            &[0, 0, 0, 0, 299, 300, 300, 300],
            "0 0 0 - 0 0 - -",
        ),
        // A third request within any second is refused.
        (
            "limit = \"2/1s\"\nalgorithm = \"log\"",
            &[0, 600, 999, 1_000, 1_599, 1_600],
            "0 0 - 0 - 0",
        ),
        (
            "limit = \"2/1s\"\nalgorithm = \"log\"\ncount_denied = true",
            &[0, 600, 999, 1_000, 1_599, 2_600],
            "0 0 - - - 0",
        ),
        (
            "limit = \"2/1s\"\nalgorithm = { name = \"log\", min_gap = \"200ms\" }",
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
        assert_eq!(told(lines, moments), told_so, "{lines}");
    }
}

#[test]
fn names_of_algorithms_explain_them() {
    for (lines, name) in [
        ("limit = \"5/1m\"\nalgorithm = \"log\"", "sliding log"),
        (
            "limit = \"5/1m\"\nalgorithm = \"log\"\ncount_denied = true",
            "strict sliding log",
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"hybrid\"",
            "hybrid quota-linear",
        ),
        (
            "limit = \"5/1m\"\nalgorithm = \"exponential\"",
            "exponential counter",
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
fn quota_window_and_text_tell_the_client() {
    let day = 86_400;
    for (lines, permits, seconds, text) in [
        ("limit = \"100/1m\"", 100, Some(60), "100/1m"),
        ("limit = \"20/24h\"", 20, Some(day), "20/24h"),
        ("limit = \"20/hour\"", 20, Some(3_600), "20/hour"),
        ("limit = \"20/day\"", 20, Some(day), "20/day"),
        (
            "limit = \"20/week\"\nalgorithm = \"fixed\"",
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
            "limit = \"5/1s\"\nalgorithm = { name = \"log\", min_gap = \"200ms\" }",
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
    let text = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\nalgorithm = \"fixed\"\n";
    let fixed = Window::fixed(quota("5/1m"), Nanos::from_secs(35)).unwrap();
    assert_eq!(
        policy_at(text, origin).rules[0].limit.algorithm,
        fixed.into()
    );
}

#[test]
fn fields_of_a_limit_reach_the_rule() {
    let text = r#"
version = 1

[defaults]
mode         = "shadow"
missing_key  = "skip"
response     = "slow"
status       = 503

[response.slow]
body   = { text = "Slow down." }
detail = "Try again in {retry_after}."

[response.quiet]
status = 430
body   = "none"

[[limit]]
name  = "usual"
key   = ["attr:user_id", "ip/24"]
limit = "5/1m"

[[limit]]
name        = "own"
key         = ["all"]
limit       = "5/1m"
mode        = "enforce"
missing_key = "use:header:X-Device"
response    = "quiet"
status      = 429
cost        = 3

[[limit]]
name = "by-attribute"
key  = ["api_key"]
cost = "attr:amount"
bucket = { size = 20, refill = "10/1s" }
missing_key = "shared"
mode = "off"
"#;
    let policy = policy(text);
    let [usual, own, third] = &policy.rules[..] else {
        panic!("three limits");
    };
    assert_eq!(
        (usual.mode, own.mode, third.mode),
        (RuleMode::Shadow, RuleMode::Enforce, RuleMode::Off)
    );
    assert_eq!((usual.line, own.line, third.line), (18, 23, 33));
    assert_eq!(
        usual.key,
        [
            KeyPart::Attribute("user_id".into()),
            KeyPart::Ip { bits: Some(24) }
        ]
    );
    assert_eq!(own.key, [], "`all` adds nothing");
    assert_eq!(usual.missing_key, MissingKey::Skip);
    assert_eq!(
        own.missing_key,
        MissingKey::Use(KeyPart::Header("x-device".into()))
    );
    assert_eq!(third.missing_key, MissingKey::Shared);
    assert_eq!(
        (&usual.cost, &own.cost),
        (&Cost::Request, &Cost::Fixed(Permits::new(3)))
    );
    assert_eq!(third.cost, Cost::Attribute("amount".into()));
    let slow = Refusal {
        status: 503,
        body: Body::Text {
            content: "Slow down.".into(),
            content_type: "text/plain; charset=utf-8".into(),
        },
        detail: Some("Try again in {retry_after}.".into()),
    };
    assert_eq!(*usual.refusal, slow);
    let quiet = Refusal {
        status: 429,
        body: Body::Empty,
        detail: None,
    };
    assert_eq!(*own.refusal, quiet);
}

#[test]
fn the_nearest_status_is_taken() {
    for (defaults, limit, status) in [
        ("", "", 429),
        ("status = 503", "", 503),
        ("status = 503", "status = 430", 430),
        ("status = 503", "response = \"plain\"", 503),
        ("status = 503", "response = \"own\"", 431),
        ("status = 503", "response = \"own\"\nstatus = 430", 430),
        ("response = \"own\"", "", 431),
        ("response = \"own\"\nstatus = 503", "", 503),
        ("response = \"own\"", "response = \"plain\"", 429),
    ] {
        let responses = "[response.own]\nstatus = 431\n[response.plain]\nbody = \"none\"";
        let key = "[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"5/1m\"";
        let text = format!("version = 1\n[defaults]\n{defaults}\n{responses}\n{key}\n{limit}\n");
        assert_eq!(policy(&text).rules[0].refusal.status, status, "{text}");
    }
}

#[test]
fn settings_reach_the_policy() {
    let text = r#"
version = 1
headers = "both"

[client_ip]
trusted_proxies = ["10.0.0.0/8", "::1", "::ffff:192.0.2.0/120"]
header          = "X-Real-IP"
ipv6_prefix     = 56

[listen]
http  = "[::1]:0"
admin = "off"
proxy = "off"

[store.memory]
budget = "64MiB"

[[limit]]
name = "all"
key = ["all"]
limit = "1/1s"
"#;
    let policy = policy(text);
    assert_eq!(policy.headers, HeaderStyle::Both);
    let proxies: Vec<_> = policy
        .client_ip
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(proxies, ["10.0.0.0/8", "::1/128", "192.0.2.0/24"]);
    assert_eq!(
        (
            policy.client_ip.header.as_str(),
            policy.client_ip.ipv6_prefix
        ),
        ("x-real-ip", 56)
    );
    assert_eq!(policy.settings.listen.http.as_deref(), Some("[::1]:0"));
    assert_eq!(policy.settings.listen.admin.as_deref(), Some("off"));
    assert_eq!(policy.settings.memory_budget, Some(64 << 20));
    assert_eq!(policy.version, 0, "counted by the keeper");

    let bare =
        self::policy("version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1s\"");
    assert_eq!(
        (bare.headers, bare.settings.memory_budget),
        (HeaderStyle::Ietf, None)
    );
    assert_eq!(
        &*bare.sha,
        "d221aebc58d57e302456c80296f9a86067af60c63917bbb391a4be2630159e23"
    );
}

#[test]
fn exemptions_reach_the_limits_they_name() {
    let text = r#"
version = 1
[[limit]]
name = "api-minute"
key = ["ip"]
limit = "60/1m"
[[limit]]
name = "api-second"
key = ["ip"]
limit = "5/1s"
[[limit]]
name = "login"
key = ["ip"]
limit = "5/1m"
match = { path = "/login" }
[[exempt]]
limits = ["api-*"]
match = { ip = ["192.0.2.0/24"], path = "/health" }
reason = "uptime probes"
[[exempt]]
limits = ["*"]
match = { header.x-internal = "yes" }
"#;
    let policy = policy(text);
    let exempt: Vec<_> = policy
        .rules
        .iter()
        .map(|rule| rule.exemptions.len())
        .collect();
    assert_eq!(exempt, [2, 2, 1]);
    assert_eq!(policy.rules[0].exemptions[0].reason, "uptime probes");
}

/// The limits that a request is charged by.
fn charged(policy: &Policy, facts: &Facts<'_>) -> Vec<String> {
    let mut charges = Charges::default();
    policy.charges(facts, &mut charges);
    charges
        .iter(policy)
        .map(|charge| charge.limit.name.to_string())
        .collect()
}

/// Policies of the founding documents, as far as this part of the language can say them.
const FOUNDING: &str = r#"
version  = 1
timezone = "UTC"

[client_ip]
trusted_proxies = ["10.0.0.0/8", "fd00::/8"]

[[limit]]   # accounts a day from an address
name  = "accounts"
match = { method = "POST", path = "/signup" }
key   = ["ip"]
limit = "20/day"

[[limit]]   # risky messages a day of a user
name     = "risky"
match    = { path = "/messages", attr.risky = "true" }
key      = ["attr:user_id"]
limit    = "1/day"
response = "review"

[[limit]]   # requests a second of a user
name      = "user-second"
key       = ["attr:user_id"]
limit     = "2/1s"
algorithm = "log"
missing_key = "skip"

[[limit]]   # log-ins of an account: one is forgiven every hour
name   = "logins"
match  = { path = "/login", method = "POST" }
key    = ["attr:username"]
bucket = { size = 10, refill = "1/1h", step = true }

[[limit]]   # everything together
name   = "total"
key    = ["all"]
bucket = { size = 2000, refill = "1000/1s" }
status = 503

[[limit]]   # a partner: bursts of 40, then shaped instead of refused
name   = "partner"
match  = { host = "partners.example.com" }
key    = ["api_key"]
bucket = { size = 40, refill = "20/1s" }
queue  = { max = 100, max_wait = "2s", order = "fifo" }
missing_key = "deny"

[[limit]]   # a key's month
name  = "month"
key   = ["api_key"]
limit = "10000/month"
missing_key = "skip"

[[limit]]   # tokens of a model, watched only
name   = "tokens"
key    = ["api_key", "attr:model"]
bucket = { size = 100000, refill = "40000/1m" }
cost   = "attr:max_tokens"
mode   = "shadow"
missing_key = "skip"

[[exempt]]
limits = ["user-*", "total"]
match  = { ip = ["192.0.2.0/24"], path = "/health" }
reason = "uptime probes"

[response.review]
detail = "This message is looked at first. Try again in {retry_after}."
"#;

#[test]
fn founding_policies_can_be_said() {
    let loaded = parse(FOUNDING, Context::default()).unwrap();
    assert_eq!(loaded.warnings, []);
    let policy = loaded.policy;
    let client = |ip: &str| ip.parse::<IpAddr>().ok();
    let key: (&str, &[u8]) = ("x-api-key", b"k1");
    let rows: [(Facts<'_>, &[&str]); 5] = [
        (
            Facts {
                method: "POST",
                path: "/signup",
                ip: client("198.51.100.7"),
                ..Facts::default()
            },
            &["accounts", "total"],
        ),
        (
            Facts {
                path: "/messages",
                attributes: &[("user_id", "u1"), ("risky", "true")],
                ..Facts::default()
            },
            &["risky", "user-second", "total"],
        ),
        (
            Facts {
                path: "/health",
                ip: client("192.0.2.9"),
                ..Facts::default()
            },
            &[],
        ),
        (
            Facts {
                path: "/",
                host: "partners.example.com",
                headers: &[key],
                ..Facts::default()
            },
            &["total", "partner", "month"],
        ),
        (
            Facts {
                path: "/",
                headers: &[key],
                attributes: &[("model", "m")],
                ..Facts::default()
            },
            &["total", "month", "tokens"],
        ),
    ];
    for (facts, limits) in rows {
        assert_eq!(charged(&policy, &facts), limits, "{facts:?}");
    }
}
