//! Facts that hold behind every proxy.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::harness::proxy::Kind;
use crate::harness::visitor::{Answer, Visitor};
use crate::harness::{Stage, clock};

const PATIENCE: Duration = Duration::from_secs(60);

/// Tests each fact behind each proxy: `every_proxy::nginx::burst_then_pace`.
macro_rules! behind_every_proxy {
    ($($fact:ident)*) => {
        mod nginx {
            $(#[test] fn $fact() { super::$fact(super::Kind::Nginx); })*
        }
        mod caddy {
            $(#[test] fn $fact() { super::$fact(super::Kind::Caddy); })*
        }
        mod haproxy {
            $(#[test] fn $fact() { super::$fact(super::Kind::Haproxy); })*
        }
    };
}

behind_every_proxy! {
    burst_then_pace
    a_long_run_keeps_the_pace
    users_are_isolated
    addresses_are_isolated
    forwarded_addresses_of_a_visitor_are_not_believed
    a_visitor_cannot_say_what_the_request_is
    a_visitor_cannot_say_how_to_answer
    parallel_requests_admit_exactly_the_limit
    method_and_path_are_the_original_ones
    other_spellings_of_a_path_are_the_same_path
    a_request_has_the_highest_of_its_prices
    allowed_answers_tell_the_limit
    a_request_no_limit_matches_passes_untold
    a_queue_lets_requests_leave_at_the_pace_of_the_limit
    limits_in_shadow_mode_are_told_to_the_application
}

fn burst_then_pace(kind: Kind) {
    // One permit in two seconds, so that Retry-After has something to say.
    let limits = r#"
        [[limit]]
        name   = "burst"
        key    = ["ip"]
        bucket = { size = 5, refill = "1/2s" }
    "#;
    let Some(stage) = Stage::open(kind, limits) else {
        return;
    };
    let visitor = Visitor::at(2);
    let get = || visitor.get(stage.address(), "/");

    let begun = clock::now();
    let until_refused = || {
        let mut passed = 0;
        loop {
            let answer = get();
            if answer.status != 200 {
                return (passed, answer);
            }
            passed += 1;
        }
    };
    let (burst, denied) = until_refused();
    assert_denied(&denied, "burst");
    let wait = denied.retry_after().expect("a refusal states the wait");
    assert!((1..=2).contains(&wait.as_secs()), "{wait:?}");

    clock::wait(wait);
    let (more, denied) = until_refused();
    assert_denied(&denied, "burst");
    assert!(burst >= 5 && more >= 1, "{burst}, {more} after the wait");
    // On a machine so slow that further permits came back meanwhile, more is correct.
    let most = 5 + usize::try_from(begun.elapsed().as_secs() / 2).expect("seconds, not years");
    assert!(burst + more <= most, "{burst} and {more}, at most {most}");
    assert_eq!(stage.upstream.total(), burst + more);
}

fn a_long_run_keeps_the_pace(kind: Kind) {
    let limits = r#"
        [[limit]]
        name   = "pace"
        key    = ["ip"]
        bucket = { size = 5, refill = "10/1s" }
    "#;
    let Some(stage) = Stage::open(kind, limits) else {
        return;
    };
    let visitor = Visitor::at(2);

    let start = clock::now();
    let mut passed = 0_u32;
    let mut denied = 0_u32;
    // A visitor that never stops asking gets the pace.
    while passed < 20 {
        assert!(start.elapsed() < PATIENCE, "{passed} passed");
        match visitor.get(stage.address(), "/").status {
            200 => passed += 1,
            429 => denied += 1,
            status => panic!("status {status}"),
        }
    }
    let most = 5 + u32::try_from(start.elapsed().as_millis() / 100).expect("seconds, not years");
    assert!(passed <= most, "{passed} passed, at most {most} may");
    // On a machine so slow that it asks less often than it may, none is refused.
    let asked_faster = start.elapsed() < Duration::from_millis(100) * passed;
    assert!(denied > 0 || !asked_faster, "{passed} passed, none refused");
}

fn users_are_isolated(kind: Kind) {
    let limits = r#"
        [[limit]]
        name   = "per-user"
        key    = ["header:x-user-id"]
        bucket = { size = 3, refill = "3/1h" }
    "#;
    let Some(stage) = Stage::open(kind, limits) else {
        return;
    };
    let [one, two] = ["u1", "u2"].map(|user| Visitor::at(2).with("X-User-Id", user));
    for _ in 0..3 {
        assert_eq!(one.get(stage.address(), "/").status, 200);
    }
    assert_denied(&one.get(stage.address(), "/"), "per-user");
    assert_eq!(two.get(stage.address(), "/").status, 200);
}

fn addresses_are_isolated(kind: Kind) {
    let Some(stage) = Stage::open(kind, THREE_PER_ADDRESS) else {
        return;
    };
    let [one, two] = [2, 3].map(Visitor::at);
    for _ in 0..3 {
        assert_eq!(one.get(stage.address(), "/").status, 200);
    }
    assert_denied(&one.get(stage.address(), "/"), "per-address");
    assert_eq!(two.get(stage.address(), "/").status, 200);
}

fn forwarded_addresses_of_a_visitor_are_not_believed(kind: Kind) {
    let Some(stage) = Stage::open(kind, THREE_PER_ADDRESS) else {
        return;
    };
    let spoofs = [
        "203.0.113.1",
        "203.0.113.2",
        "203.0.113.3, 203.0.113.4",
        "203.0.113.5, 127.0.0.1",
        "127.0.0.1",
        "2001:db8::1",
        "[2001:db8::2]:4711",
        "for=203.0.113.6",
        "unknown",
        "203.0.113.7,,",
        ",",
        "203.0.113.8, nonsense",
        "",
    ];
    for (sent, spoof) in spoofs.iter().enumerate() {
        let visitor = Visitor::at(2).with("X-Forwarded-For", spoof);
        let status = visitor.get(stage.address(), "/").status;
        assert_eq!(
            status,
            if sent < 3 { 200 } else { 429 },
            "request {sent}, claiming {spoof:?}"
        );
    }
    // Two lines are one list.
    let visitor = Visitor::at(2)
        .with("X-Forwarded-For", "203.0.113.9")
        .with("X-Forwarded-For", "203.0.113.10");
    assert_denied(&visitor.get(stage.address(), "/"), "per-address");
    for other in [
        "X-Real-IP",
        "Forwarded",
        "CF-Connecting-IP",
        "X-Client-IP",
        "True-Client-IP",
    ] {
        let visitor = Visitor::at(2).with(other, "203.0.113.11");
        assert_denied(&visitor.get(stage.address(), "/"), "per-address");
    }
    // Nor can one visitor spend the permits of another.
    assert_eq!(Visitor::at(3).get(stage.address(), "/").status, 200);
}

fn a_visitor_cannot_say_what_the_request_is(kind: Kind) {
    let limits = r#"
        [[limit]]
        name   = "login"
        match  = { method = "POST", path = "/login", host = "app.example" }
        key    = ["all"]
        bucket = { size = 1, refill = "1/1h" }
    "#;
    let Some(stage) = Stage::open(kind, limits) else {
        return;
    };
    assert_eq!(Visitor::at(2).post(stage.address(), "/login").status, 200);
    let claims = [
        ("X-Original-Method", "GET"),
        ("X-Original-URI", "/free"),
        ("X-Original-URL", "http://app.example/free"),
        ("X-Original-Host", "free.example"),
        ("X-Forwarded-Method", "GET"),
        ("X-Forwarded-Uri", "/free"),
        ("X-Forwarded-Host", "free.example"),
        ("X-Envoy-Original-Path", "/free"),
        ("X-Rewrite-URL", "/free"),
        ("X-HTTP-Method-Override", "GET"),
    ];
    for (name, value) in claims {
        let answer = Visitor::at(2)
            .with(name, value)
            .post(stage.address(), "/login");
        assert_eq!(answer.status, 429, "{name}: {value}");
    }
}

fn a_visitor_cannot_say_how_to_answer(kind: Kind) {
    let Some(stage) = Stage::open(kind, THREE_PER_ADDRESS) else {
        return;
    };
    let targets = [
        "/?deny=200",
        "/?status=200&deny=200",
        "/?body=none&cost=0",
        "/?limits=none",
    ];
    for (sent, target) in targets.iter().enumerate() {
        let status = Visitor::at(2).get(stage.address(), target).status;
        assert_eq!(status, if sent < 3 { 200 } else { 429 }, "{target}");
    }
}

fn parallel_requests_admit_exactly_the_limit(kind: Kind) {
    let limits = r#"
        [[limit]]
        name   = "ten"
        key    = ["ip"]
        bucket = { size = 10, refill = "10/1h" }
    "#;
    let Some(stage) = Stage::open(kind, limits) else {
        return;
    };
    let start = Barrier::new(40);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let visitors: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    Visitor::at(2).get(stage.address(), "/").status
                })
            })
            .collect();
        visitors
            .into_iter()
            .map(|visitor| visitor.join().expect("an answer"))
            .collect()
    });
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let denied = statuses.iter().filter(|status| **status == 429).count();
    let metrics = Visitor::at(1).get(stage.service.admin(), "/metrics").body;
    let decided = metrics.lines().filter(|line| line.contains("\"ten\""));
    let decided: Vec<_> = decided.collect();
    assert_eq!((passed, denied), (10, 30), "{statuses:?} {decided:#?}");
    assert_eq!(stage.upstream.total(), 10);
    let asked = stage.upstream.count("GET /v1/auth");
    assert_eq!(asked, 0, "requests that reached the application");
}

fn method_and_path_are_the_original_ones(kind: Kind) {
    let Some(stage) = Stage::open(kind, ONE_LOGIN) else {
        return;
    };
    let visitor = Visitor::at(2);
    for _ in 0..3 {
        assert_eq!(visitor.get(stage.address(), "/login").status, 200);
    }
    assert_eq!(
        visitor.post(stage.address(), "/login?next=%2Fhome").status,
        200
    );
    assert_denied(&visitor.post(stage.address(), "/login"), "login");
    assert_denied(&visitor.post(stage.address(), "/login?again"), "login");
    assert_eq!(visitor.post(stage.address(), "/logout").status, 200);
    assert_eq!(visitor.get(stage.address(), "/login").status, 200);
    assert_eq!(stage.upstream.count("POST /login"), 1);
}

fn other_spellings_of_a_path_are_the_same_path(kind: Kind) {
    let Some(stage) = Stage::open(kind, ONE_LOGIN) else {
        return;
    };
    let visitor = Visitor::at(2);
    assert_eq!(visitor.post(stage.address(), "/login").status, 200);
    for target in [
        "/log%69n",
        "/%6c%6F%67in",
        "//login",
        "/./login",
        "/a/../login",
    ] {
        assert_eq!(
            visitor.post(stage.address(), target).status,
            429,
            "{target}"
        );
    }
}

fn a_request_has_the_highest_of_its_prices(kind: Kind) {
    let limits = r#"
        [[limit]]
        name   = "points"
        key    = ["ip"]
        limit  = "20/1h"
        cost   = [
            { path = "/export/**", is = 10 },
            { method = "POST", is = 4 },
            { header = { x-priority = "high" }, is = 5 },
        ]
    "#;
    let Some(stage) = Stage::open(kind, limits) else {
        return;
    };
    let (visitor, high) = (Visitor::at(2), Visitor::at(2).with("X-Priority", "high"));
    assert_eq!(visitor.post(stage.address(), "/%65xport/all").status, 200); // 10
    assert_eq!(visitor.post(stage.address(), "/items").status, 200); // 4
    assert_eq!(high.get(stage.address(), "/items").status, 200); // 5
    assert_eq!(visitor.post(stage.address(), "/items").status, 429); // 4 of 1
    assert_eq!(visitor.get(stage.address(), "/items").status, 200); // 1
    assert_denied(&visitor.get(stage.address(), "/items"), "points");
}

fn allowed_answers_tell_the_limit(kind: Kind) {
    let Some(stage) = Stage::open(kind, THREE_PER_ADDRESS) else {
        return;
    };
    let answer = Visitor::at(2).get(stage.address(), "/");
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.starts_with("GET / "),
        "the application answered: {}",
        answer.body
    );
    let limit = answer.header("ratelimit").expect("one RateLimit field");
    assert!(limit.starts_with(r#""per-address";r=2"#), "{limit}");
    let policy = answer
        .header("ratelimit-policy")
        .expect("one RateLimit-Policy field");
    assert!(policy.starts_with(r#""per-address";q=3"#), "{policy}");
}

fn a_request_no_limit_matches_passes_untold(kind: Kind) {
    let Some(stage) = Stage::open(kind, ONE_LOGIN) else {
        return;
    };
    let answer = Visitor::at(2).get(stage.address(), "/other");
    assert_eq!(answer.status, 200);
    for field in ["ratelimit", "ratelimit-policy", "retry-after"] {
        assert_eq!(answer.header(field), None, "{field}");
    }
}

fn a_queue_lets_requests_leave_at_the_pace_of_the_limit(kind: Kind) {
    const INTERVAL: Duration = Duration::from_millis(700);
    let limits = r#"
        [[limit]]
        name   = "paced"
        key    = ["all"]
        bucket = { size = 1, refill = "10/7s" }
        queue  = { max = 3 }
    "#;
    let Some(stage) = Stage::open(kind, limits) else {
        return;
    };
    let (begun, together) = (clock::now(), Barrier::new(6));
    let ask = || {
        together.wait();
        Visitor::at(2).get(stage.address(), "/")
    };
    let answers: Vec<Answer> = thread::scope(|scope| {
        let asking: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        asking
            .into_iter()
            .map(|one| one.join().expect("an answer"))
            .collect()
    });
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    // One more for each interval in which a busy machine was late to ask.
    assert!(passed >= 4, "{passed}");
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_denied(answer, "paced");
    }
    let arrivals = stage.upstream.arrivals();
    assert_eq!(arrivals.len(), passed);
    for (index, arrival) in (0..).zip(&arrivals) {
        let after = arrival.duration_since(begun);
        assert!(after >= INTERVAL * index, "{index}: {after:?}");
    }
    let held = "ratekeeper_held_answers_ended_total{result=\"released\"}";
    assert!(stage.service.metric(held) >= 3.0, "the service held them");
}

/// HAProxy does not notice a visitor that leaves while its Lua asks.
#[test]
fn a_client_that_leaves_the_queue_frees_its_place() {
    for kind in [Kind::Nginx, Kind::Caddy] {
        let limits = r#"
            [[limit]]
            name   = "paced"
            key    = ["all"]
            bucket = { size = 1, refill = "1/5s" }
            queue  = { max = 2 }
        "#;
        let Some(stage) = Stage::open(kind, limits) else {
            continue;
        };
        let visitor = Visitor::at(2);
        let await_metric = |series: &str, wanted: f64| {
            let seen = clock::poll(series, Duration::from_secs(10), || {
                let value = stage.service.metric(series);
                (value.total_cmp(&wanted).is_eq()).then_some(())
            });
            seen.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        };
        assert_eq!(visitor.get(stage.address(), "/").status, 200);
        let first = visitor.begin(stage.address(), "/");
        await_metric("ratekeeper_held_answers", 1.0);
        let second = visitor.begin(stage.address(), "/");
        await_metric("ratekeeper_held_answers", 2.0);
        assert_denied(&visitor.get(stage.address(), "/"), "paced");
        drop(first);
        let left = "ratekeeper_held_answers_ended_total{result=\"left\"}";
        await_metric(left, 1.0);
        let third = visitor.begin(stage.address(), "/");
        await_metric("ratekeeper_held_answers", 2.0);
        drop((second, third));
    }
}

fn limits_in_shadow_mode_are_told_to_the_application(kind: Kind) {
    let limits = format!(
        "{THREE_PER_ADDRESS}
        [[limit]]
        name   = \"rehearsed\"
        key    = [\"all\"]
        bucket = {{ size = 1, refill = \"1/1h\" }}
        mode   = \"shadow\"
        "
    );
    let Some(stage) = Stage::open(kind, &limits) else {
        return;
    };
    let told = |answer: &Answer| {
        let body = answer.body.to_ascii_lowercase();
        let line = body
            .lines()
            .find_map(|line| line.strip_prefix("x-ratekeeper-shadow:"));
        line.map(|names| names.trim().to_owned())
    };
    let visitor = Visitor::at(2).with("X-Ratekeeper-Shadow", "forged");
    assert_eq!(told(&visitor.get(stage.address(), "/")), None);
    let second = visitor.get(stage.address(), "/");
    assert_eq!(told(&second).as_deref(), Some("rehearsed"));
    assert!(second.header("ratelimit").is_some());
}

const THREE_PER_ADDRESS: &str = r#"
    [[limit]]
    name   = "per-address"
    key    = ["ip"]
    bucket = { size = 3, refill = "3/1h" }
"#;

const ONE_LOGIN: &str = r#"
    [[limit]]
    name   = "login"
    match  = { method = "POST", path = "/login" }
    key    = ["ip"]
    bucket = { size = 1, refill = "1/1h" }
"#;

/// Asserts that a visitor sees the refusal correctly.
pub(crate) fn assert_denied(answer: &Answer, limit: &str) {
    assert_eq!(answer.status, 429, "{:?}\n{}", answer.headers, answer.body);
    let wait = answer
        .retry_after()
        .expect("one Retry-After in whole seconds");
    assert!(wait >= Duration::from_secs(1));
    let told = answer.header("ratelimit").expect("one RateLimit field");
    assert!(told.starts_with(&format!(r#""{limit}";r=0"#)), "{told}");
    assert!(
        answer.header("ratelimit-policy").is_some(),
        "one RateLimit-Policy field"
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    serde_json::from_str::<serde_json::Value>(&answer.body).expect("the body is JSON");
}
