//! Envoy asks the grpc door: the results for its visitors, by kind of descriptor.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::clock;
use crate::harness::envoy::{EnvoyStage, GrpcRefusal, Setup, WhenDown, guide_block};
use crate::harness::service::{Service, policy};
use crate::harness::visitor::{Answer, Visitor};

/// Enough on a busy machine for events without a stated time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a limit of `domain = "edge"` for descriptors of one entry each.
fn by(entry: &str, quota: &str) -> String {
    format!(
        r#"
        [[limit]]
        name  = "by-{}"
        match = {{ domain = "edge" }}
        key   = ["descriptor:{entry}"]
        limit = "{quota}"
        algorithm = "quota-reset"
        "#,
        entry.replace('_', "-")
    )
}

fn generic(value: &str, quota: &str) -> String {
    format!(
        r#"
        [[limit]]
        name  = "{value}"
        match = {{ domain = "edge", descriptor.generic_key = "{value}" }}
        key   = ["all"]
        limit = "{quota}"
        algorithm = "quota-reset"
        "#
    )
}

const OUTCOMES: &str = include_str!("../../../../docs/guide/outcomes.md");

fn user(name: &str) -> Visitor {
    Visitor::at(2).with("x-user", name)
}

/// Returns the statuses of `count` visits.
fn visits(stage: &EnvoyStage, visitor: &Visitor, target: &str, count: usize) -> Vec<u16> {
    let status = |_| visitor.get(stage.address(), target).status;
    (0..count).map(status).collect()
}

#[test]
fn every_kind_of_descriptor_is_limited() {
    let limits = [
        by("user", "2/1h"),
        by("remote_address", "2/1h"),
        by("masked_remote_address", "2/1h"),
        by("query", "2/1h"),
        generic("everybody", "2/1h"),
        generic("several", "3/1h"),
        r#"
        [[limit]]
        name  = "pro"
        match = { domain = "edge", descriptor.plan = "pro" }
        key   = ["descriptor:user"]
        limit = "2/1h"
        algorithm = "quota-reset"
        "#
        .to_owned(),
    ];
    let Some(stage) = EnvoyStage::open(&limits.concat()) else {
        return;
    };
    let pro = |name| user(name).with("x-plan", "pro");
    let [two, three] = [2, 3].map(Visitor::at);
    for (case, visitor, target, expected) in [
        ("by header", user("ada"), "/header", &[200, 200, 429][..]),
        ("another value", user("bob"), "/header", &[200]),
        ("no header: not asked", Visitor::at(2), "/header", &[200; 4]),
        ("by address", two.clone(), "/address", &[200, 200, 429]),
        ("another address", three.clone(), "/address", &[200]),
        (
            "by masked address",
            two.clone(),
            "/masked",
            &[200, 200, 429],
        ),
        ("the same block", three, "/masked", &[429]),
        ("another block", Visitor::at(4), "/masked", &[200]),
        ("generic key", two.clone(), "/generic", &[200, 200, 429]),
        ("nested", pro("eve"), "/nested", &[200, 200, 429]),
        ("nested, another user", pro("joe"), "/nested", &[200]),
        (
            "nested, another plan",
            user("eve").with("x-plan", "free"),
            "/nested",
            &[200; 4],
        ),
        ("query", two.clone(), "/query?q=a", &[200, 200, 429]),
        ("another query", two, "/query?q=b", &[200]),
        (
            "several: by user",
            user("tom"),
            "/several",
            &[200, 200, 429],
        ),
        (
            "several: a refusal took nothing from all",
            user("kim"),
            "/several",
            &[200, 429],
        ),
    ] {
        let got = visits(&stage, &visitor, target, expected.len());
        assert_eq!(got, expected, "{case}");
    }
}

#[test]
fn costs_come_from_headers_and_from_each_descriptor() {
    let limits = [
        by("spender", "10/1h"),
        generic("each", "5/10m"),
        by("user", "9/1h"),
    ];
    let Some(stage) = EnvoyStage::open(&limits.concat()) else {
        return;
    };
    let spend = |name, cost: &str| {
        let visitor = user(name).with("x-cost", cost);
        visitor.get(stage.address(), "/cost")
    };
    for (cost, status, left) in [
        ("7", 200, "3"),
        ("4", 429, "3"),
        ("0", 200, "3"),
        ("3", 200, "0"),
    ] {
        let answer = spend("ada", cost);
        let remaining = answer.header("x-ratelimit-remaining");
        assert_eq!(
            (answer.status, remaining),
            (status, Some(left)),
            "cost {cost}"
        );
    }
    assert_eq!(
        user("ada")
            .get(stage.address(), "/cost")
            .header("x-ratelimit-limit"),
        None,
        "without its cost header a request is not asked about: Envoy's choice"
    );
    let each = user("joe").get(stage.address(), "/each");
    let told = each.header("x-ratelimit-limit").unwrap_or_default();
    assert!(
        told.contains("5;w=600;name=\"each\""),
        "ten units of a minute: {told}"
    );
    let statuses = visits(&stage, &user("bob"), "/each", 3);
    assert_eq!(statuses, [200, 429, 429], "2 of 5 for all, 3 of 10 for bob");

    let answer = user("eve").get(stage.address(), "/override");
    let told = answer.header("x-ratelimit-limit");
    assert_eq!(
        told,
        Some("2, 2;w=60;name=\"by-user\""),
        "2 a minute, as Envoy requests"
    );
    assert_eq!(visits(&stage, &user("eve"), "/override", 2), [200, 429]);
    assert_eq!(
        visits(&stage, &user("eve"), "/header", 1),
        [200],
        "an override has a counter of its own"
    );
}

#[test]
fn tokens_are_looked_at_first_and_charged_when_known() {
    let limit = r#"
        [[limit]]
        name  = "tokens"
        match = { domain = "edge" }
        key   = ["descriptor:tokens"]
        limit = "100/1h"
        algorithm = "quota-reset"
        count_denied = true
    "#;
    let Some(stage) = EnvoyStage::open(limit) else {
        return;
    };
    let ask = |tokens: &str| {
        user("ada")
            .with("x-tokens", tokens)
            .get(stage.address(), "/tokens")
    };
    let left = |wanted: &str| {
        let seen = clock::poll("charge after the answer", PATIENCE, || {
            let answer = ask("0");
            let left = answer.header("x-ratelimit-remaining")?.to_owned();
            (left == wanted).then_some(answer.status)
        });
        seen.unwrap_or_else(|error| panic!("{error}: {wanted} left"))
    };
    assert_eq!(ask("60").status, 200);
    assert_eq!(left("40"), 200);
    assert_eq!(ask("90").status, 200, "40 are left: it may begin");
    assert_eq!(
        left("0"),
        429,
        "the charge exceeds the limit, so no further request passes"
    );
}

/// The route and the limit are those of the guide.
#[test]
fn failed_logins_are_counted_and_others_given_back() {
    let limit = guide_block("toml", 0).replace("version = 1\n", "");
    let Some(stage) = EnvoyStage::open(&limit.replace("5/1m", "5/24h")) else {
        return;
    };
    let login = |place, status: &str| {
        let visitor = Visitor::at(place).with("x-status", status);
        visitor.get(stage.address(), "/login").status
    };
    let left = |place| {
        let look = format!(
            r#"{{"domain": "edge", "descriptors": [{{"hitsAddend": "0", "entries": [
                {{"key": "generic_key", "value": "login"}},
                {{"key": "remote_address", "value": "127.0.0.{place}"}}]}}]}}"#
        );
        let told = Visitor::at(1).post_json(stage.service.http(), "/json", &look);
        let told: Value = serde_json::from_str(&told.body).expect("JSON");
        told["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0)
    };
    let becomes = |place, wanted: u64| {
        let seen = clock::poll("correction after the answer", PATIENCE, || {
            (left(place) == wanted).then_some(())
        });
        seen.unwrap_or_else(|error| panic!("{error}: {wanted}, not {}", left(place)));
    };
    for status in ["200", "302", "404", "500", "200", "200"] {
        assert_eq!(login(2, status).to_string(), status);
        becomes(2, 5);
    }
    for (status, after) in [("401", 4), ("403", 3), ("200", 3), ("401", 2), ("401", 1)] {
        assert_eq!(login(2, status).to_string(), status);
        becomes(2, after);
    }
    assert_eq!(
        [login(2, "401"), login(2, "200"), login(2, "401")],
        [401, 429, 429]
    );
    assert_eq!(login(3, "200"), 200, "another address");
    becomes(3, 5); // Envoy has made the calls for the refused requests too.
    assert_eq!(
        (left(2), login(2, "200")),
        (0, 429),
        "refusals give nothing back"
    );

    for attempt in 1..=5 {
        let mut stream = Visitor::at(4)
            .connect(stage.address())
            .expect("Envoy listens");
        let head = "POST /login HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("Envoy reads");
        becomes(4, 5 - attempt);
    }
    assert_eq!(login(4, "200"), 429, "clients that hang up stay charged");
}

#[test]
fn the_application_receives_the_id_of_the_decision() {
    let limit = by("user", "1/24h") + "count = { status = [401] }\n";
    let Some(stage) = EnvoyStage::open(&limit) else {
        return;
    };
    let forging = user("ada").with("x-ratekeeper-decision", "forged");
    let passes = forging.get(stage.address(), "/header");
    let fields = passes.body.lines().filter_map(|line| line.split_once(": "));
    let ids = fields.filter(|(name, _)| *name == "x-ratekeeper-decision");
    let ids: Vec<_> = ids.map(|(_, id)| id).collect();
    let [id] = ids[..] else {
        panic!("the application receives one id, not that of the visitor: {ids:?}");
    };
    assert_ne!(id, "forged");
    let filter = OUTCOMES.split("```yaml\n").nth(1).unwrap_or_default();
    let filter = filter.split("```").next().unwrap_or_default();
    let setup = include_str!("harness/envoy.yaml").replace("\n          ", "\n");
    assert!(filter.contains("remove: x-ratekeeper-decision") && setup.contains(filter));
    assert_eq!(
        passes.header("x-ratekeeper-decision"),
        None,
        "the visitor has no id"
    );
    assert_eq!(visits(&stage, &user("ada"), "/header", 1), [429]);
    let report = format!(r#"{{"decision": "{id}", "status": 200}}"#);
    let told = Visitor::at(1).post_json(stage.service.http(), "/v1/report", &report);
    assert_eq!(told.status, 200, "{}", told.body);
    assert_eq!(visits(&stage, &user("ada"), "/header", 2), [200, 429]);
}

#[test]
fn permits_in_flight_come_back_when_streams_end() {
    let limit = r#"
        [[limit]]
        name  = "in-flight"
        match = { domain = "edge" }
        key   = ["descriptor:in_flight"]
        concurrency = { max = 2, lease = "1h" }
        count_denied = true
    "#;
    let Some(stage) = EnvoyStage::open(limit) else {
        return;
    };
    // A request that waits for the rest of its body is in flight.
    let begin = || {
        let mut stream = user("ada").connect(stage.address()).expect("Envoy listens");
        let head = "POST /in-flight HTTP/1.1\r\nhost: h\r\nx-user: ada\r\ncontent-length: 1\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("Envoy reads");
        stream
    };
    let end = |mut stream: TcpStream| {
        stream.write_all(b"x").expect("Envoy reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer comes");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    let status = || user("ada").get(stage.address(), "/in-flight").status;
    let becomes = |wanted: u16| {
        let seen = clock::poll("change of the free permits", PATIENCE, || {
            (status() == wanted).then_some(())
        });
        seen.unwrap_or_else(|error| panic!("{error}: {wanted}"));
    };
    for round in 0..3 {
        let (first, second) = (begin(), begin());
        becomes(429);
        assert_eq!(
            visits(&stage, &user("bob"), "/in-flight", 3),
            [200; 3],
            "round {round}"
        );
        end(first);
        becomes(200);
        end(second);
        becomes(200);
    }
    // No permit is lost, however many requests were refused: both are free.
    let (first, second) = (begin(), begin());
    becomes(429);
    end(first);
    end(second);
}

#[test]
fn clients_receive_their_limits_in_headers() {
    let limits = format!(
        "[envoy]\nheaders = \"ietf\"\nbody = \"limit\"\n{}",
        by("user", "1/1h")
    );
    let Some(stage) = EnvoyStage::open(&limits) else {
        return;
    };
    let passes = user("ada").get(stage.address(), "/header");
    let shows = |answer: &Answer, name: &str| answer.header(name).unwrap_or("").to_owned();
    assert_eq!(passes.status, 200);
    assert_eq!(
        shows(&passes, "x-ratelimit-limit"),
        "1, 1;w=3600;name=\"by-user\""
    );
    assert_eq!(shows(&passes, "x-ratelimit-remaining"), "0");
    assert_eq!(shows(&passes, "ratelimit-policy"), "\"by-user\";q=1;w=3600");
    assert!(shows(&passes, "ratelimit").starts_with("\"by-user\";r=0;t="));

    let over = user("ada").get(stage.address(), "/header");
    assert_eq!(over.status, 429);
    assert_eq!(shows(&over, "x-envoy-ratelimited"), "true");
    let reset: u64 = shows(&over, "x-ratelimit-reset").parse().expect("seconds");
    let wait = over.retry_after().expect("a wait").as_secs();
    assert!(
        (1..=3_600).contains(&wait) && reset == wait,
        "{reset} {wait}"
    );
    assert_eq!(shows(&over, "content-type"), "application/problem+json");
    assert!(
        over.body.contains("\"violated-policies\":[\"by-user\"]"),
        "{}",
        over.body
    );
}

#[test]
fn grpc_callers_are_refused_with_a_grpc_status() {
    for (grpc_refusal, code) in [
        (GrpcRefusal::Unavailable, "14"),
        (GrpcRefusal::ResourceExhausted, "8"),
    ] {
        let setup = Setup {
            grpc_refusal,
            ..Setup::default()
        };
        let Some(stage) = EnvoyStage::open_with(&by("user", "1/24h"), setup) else {
            return;
        };
        assert_eq!(visits(&stage, &user("ada"), "/header", 1), [200]);
        let grpc = user("ada").with("content-type", "application/grpc");
        let over = grpc.post(stage.address(), "/header");
        let told = (over.status, over.header("grpc-status"));
        assert_eq!(told, (200, Some(code)), "{grpc_refusal:?}");
        assert_eq!(
            stage.upstream.total(),
            1,
            "the application saw nothing of it"
        );
    }
}

/// Windows of a year: no edge of one comes while the test runs, but for one moment a year.
const REFERENCE: &str = "
domain: edge
descriptors:
- key: plan
  value: pro
  descriptors:
  - key: user
    rate_limit: { name: pro-user, unit: year, requests_per_unit: 2 }
- key: plan
  descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1 }
";

#[test]
fn files_of_the_reference_service_limit_nested_descriptors() {
    let setup = Setup {
        reference: Some(REFERENCE),
        ..Setup::default()
    };
    let policy = "[envoy]\nconfig = \"limits\"\nheaders = \"ietf\"\n";
    let Some(stage) = EnvoyStage::open_with(policy, setup) else {
        return;
    };
    let visit = |name, plan| {
        user(name)
            .with("x-plan", plan)
            .get(stage.address(), "/nested")
    };
    for (status, left) in [(200, "1"), (200, "0"), (429, "0")] {
        let answer = visit("ada", "pro");
        assert_eq!(answer.status, status);
        let told = answer.header("x-ratelimit-limit");
        assert_eq!(told, Some("2, 2;w=31536000;name=\"pro-user\""));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left));
        let reset = answer.header("x-ratelimit-reset");
        let reset: u64 = reset.expect("a reset").parse().expect("seconds");
        assert!((1..=31_536_000).contains(&reset), "{reset}");
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some("\"pro-user\";q=2;w=31536000"));
        if status == 429 {
            assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
            let wait = answer.retry_after().expect("a wait").as_secs();
            assert_eq!(wait, reset);
        }
    }
    assert_eq!(visit("eve", "pro").status, 200, "another user");
    let free = [visit("ada", "free").status, visit("ada", "free").status];
    assert_eq!(free, [200, 429], "another plan: the key without a value");
    let none = user("ada").get(stage.address(), "/header");
    assert_eq!((none.status, none.header("x-ratelimit-limit")), (200, None));
}

#[test]
fn a_service_that_is_down_lets_pass_or_refuses() {
    for (when_down, down) in [(WhenDown::LetPass, 200), (WhenDown::Refuse, 500)] {
        let setup = Setup {
            when_down,
            ..Setup::default()
        };
        let Some(mut stage) = EnvoyStage::open_with(&by("user", "1/1h"), setup) else {
            return;
        };
        assert_eq!(visits(&stage, &user("ada"), "/header", 2), [200, 429]);
        let grpc = stage.service.grpc();
        stage.service.process.crash();
        assert_eq!(
            visits(&stage, &user("ada"), "/header", 3),
            [down; 3],
            "{when_down:?}"
        );
        let policy = stage.dir().join("policy.toml");
        stage.service = Service::start_grpc_at(stage.dir(), &policy, grpc);
        let limited = clock::poll("limit after the outage", PATIENCE, || {
            (visits(&stage, &user("ada"), "/header", 1) == [429]).then_some(())
        });
        limited.unwrap_or_else(|error| panic!("{when_down:?}: {error}"));
    }
}

#[test]
fn reloads_under_traffic_lose_nothing() {
    let Some(stage) = EnvoyStage::open(&by("user", "50/24h")) else {
        return;
    };
    let (stop, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = || {
        while !stop.load(Ordering::Relaxed) {
            match user("ada").get(stage.address(), "/header").status {
                200 => passed.fetch_add(1, Ordering::Relaxed),
                429 => 0,
                status => panic!("status {status}"),
            };
        }
    };
    thread::scope(|scope| {
        let load: Vec<_> = (0..4).map(|_| scope.spawn(load)).collect();
        let change = || {
            for quota in [52, 54, 56, 60] {
                let text = policy(&by("user", &format!("{quota}/24h")));
                std::fs::write(stage.dir().join("policy.toml"), text).expect("writable");
                let told = clock::poll("reload", PATIENCE, || {
                    let told = user("eve").get(stage.address(), "/header");
                    let first = told
                        .header("x-ratelimit-limit")?
                        .split(',')
                        .next()?
                        .to_owned();
                    (first == quota.to_string()).then_some(())
                });
                told.unwrap_or_else(|error| panic!("{error} of {quota}"));
            }
            let done = clock::poll("last request that passes", PATIENCE, || {
                (passed.load(Ordering::Relaxed) >= 60).then_some(())
            });
            done.unwrap_or_else(|error| panic!("{error}"));
        };
        let changed = scope.spawn(change).join();
        stop.store(true, Ordering::Relaxed);
        for load in load {
            load.join().expect("whole answers");
        }
        changed.expect("every change was seen");
    });
    assert_eq!(
        passed.into_inner(),
        60,
        "counts were kept through every reload"
    );
}

#[test]
fn forty_at_once_are_counted_exactly() {
    let Some(stage) = EnvoyStage::open(&by("user", "25/24h")) else {
        return;
    };
    let statuses: Vec<u16> = thread::scope(|scope| {
        let visit = || user("ada").get(stage.address(), "/header").status;
        let visits: Vec<_> = (0..40).map(|_| scope.spawn(visit)).collect();
        let visits = visits.into_iter();
        visits
            .map(|visit| visit.join().expect("a whole answer"))
            .collect()
    });
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!((passed, refused), (25, 15));
    assert_eq!(stage.upstream.total(), 25);
}
