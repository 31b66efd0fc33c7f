//! The service itself: the statuses of descriptors.

use std::fmt::Write as _;

use ratekeeper_core::Nanos;
use ratekeeper_server::Door;
use ratekeeper_wire::rate_limit_descriptor::{Entry, RateLimitOverride};
use ratekeeper_wire::rate_limit_response::rate_limit::Unit;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus};
use ratekeeper_wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit};

use super::client::{Client, SHOULD_RATE_LIMIT};
use super::json::http;
use super::{Fixture, run};

pub(crate) const POLICY: &str = r#"
version = 1
[[limit]]
name  = "per-user"
match = { domain = "edge" }
key   = ["descriptor:user"]
limit = "3/1h"
algorithm = "fixed-window"
"#;

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: (*key).into(),
        value: (*value).into(),
    };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..Default::default()
    }
}

pub(crate) fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "edge".into(),
        descriptors,
        hits_addend: 0,
    }
}

/// Returns a request of that user.
pub(crate) fn user(name: &str) -> RateLimitRequest {
    request(vec![descriptor(&[("user", name)])])
}

/// Returns the answer to a call that is well formed.
async fn ask(client: &mut Client, request: &RateLimitRequest) -> RateLimitResponse {
    client.call(SHOULD_RATE_LIMIT, request).await.read()
}

/// `OK 3/HOUR per-user, 2 left, 3600 s`
fn shown(status: &DescriptorStatus) -> String {
    let mut text = status.code().as_str_name().to_owned();
    if let Some(limit) = &status.current_limit {
        let unit = match limit.unit() {
            Unit::Unknown => "-",
            unit => unit.as_str_name(),
        };
        let units = limit
            .unit_multiplier
            .map_or(String::new(), |units| format!("{units} "));
        let _ = write!(
            text,
            " {}/{units}{unit} {}",
            limit.requests_per_unit, limit.name
        );
        let _ = write!(text, ", {} left", status.limit_remaining);
    }
    if let Some(reset) = &status.duration_until_reset {
        assert_eq!(reset.nanos, 0, "the reset has whole seconds");
        let _ = write!(text, ", {} s", reset.seconds);
    }
    text
}

/// Returns the answer to a call: the overall code, then each status.
async fn summary(client: &mut Client, request: &RateLimitRequest) -> Vec<String> {
    let response = ask(client, request).await;
    let overall = response.overall_code().as_str_name().to_owned();
    let statuses = response.statuses.iter().map(shown);
    [overall].into_iter().chain(statuses).collect()
}

/// Sends requests to a service of `policy`, in turn.
fn check(policy: &str, asked: &[(RateLimitRequest, &[&str])]) {
    let fixture = Fixture::new(policy);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for (number, (request, expected)) in asked.iter().enumerate() {
            let summary = summary(&mut client, request).await;
            assert_eq!(summary, *expected, "call {number} of\n{policy}");
        }
    });
}

const PLANS: &str = r#"
version = 1
[[limit]]
name  = "pro"
match = { domain = "edge", descriptor.plan = "pro" }
key   = ["descriptor:user"]
limit = "5/10m"
algorithm = "fixed-window"

[[limit]]
name  = "all"
match = { domain = "edge", descriptor.generic_key = "all" }
key   = ["all"]
limit = "2/1m"
algorithm = "fixed-window"

[[limit]]
name  = "fast"
match = { domain = "edge" }
key   = ["descriptor:fast"]
limit = "3/100ms"
algorithm = "fixed-window"

[[limit]]
name  = "monthly"
match = { domain = "edge" }
key   = ["descriptor:monthly"]
limit = "9/30d"
algorithm = "fixed-window"

[[limit]]
name  = "bucket"
match = { domain = "edge" }
key   = ["descriptor:bucket"]
bucket = { size = 1, refill = "1/20s" }
"#;

fn pro(user: &str) -> RateLimitDescriptor {
    descriptor(&[("plan", "pro"), ("user", user)])
}

fn all() -> RateLimitDescriptor {
    descriptor(&[("generic_key", "all")])
}

#[test]
fn a_limit_counts_down_and_is_over() {
    check(
        POLICY,
        &[
            (user("ada"), &["OK", "OK 3/HOUR per-user, 2 left, 3600 s"]),
            (user("ada"), &["OK", "OK 3/HOUR per-user, 1 left, 3600 s"]),
            (user("ada"), &["OK", "OK 3/HOUR per-user, 0 left, 3600 s"]),
            (
                user("ada"),
                &["OVER_LIMIT", "OVER_LIMIT 3/HOUR per-user, 0 left, 3600 s"],
            ),
            (user("bob"), &["OK", "OK 3/HOUR per-user, 2 left, 3600 s"]),
        ],
    );
}

#[test]
fn several_descriptors_pass_together_or_not_at_all() {
    let both = || request(vec![pro("ada"), all()]);
    check(
        PLANS,
        &[
            (
                both(),
                &[
                    "OK",
                    "OK 5/10 MINUTE pro, 4 left, 600 s",
                    "OK 2/MINUTE all, 1 left, 60 s",
                ],
            ),
            (
                both(),
                &[
                    "OK",
                    "OK 5/10 MINUTE pro, 3 left, 600 s",
                    "OK 2/MINUTE all, 0 left, 60 s",
                ],
            ),
            (
                both(),
                &[
                    "OVER_LIMIT",
                    "OK 5/10 MINUTE pro, 3 left, 600 s",
                    "OVER_LIMIT 2/MINUTE all, 0 left, 60 s",
                ],
            ),
            (
                request(vec![pro("ada")]),
                &["OK", "OK 5/10 MINUTE pro, 2 left, 600 s"],
            ),
        ],
    );
}

#[test]
fn windows_are_reported_in_units_that_envoy_knows() {
    let one = |key: &str| request(vec![descriptor(&[(key, "x")])]);
    check(
        PLANS,
        &[
            (one("fast"), &["OK", "OK 30/SECOND fast, 2 left, 1 s"]),
            (
                one("monthly"),
                &["OK", "OK 9/MONTH monthly, 8 left, 518400 s"],
            ),
            (
                one("bucket"),
                &["OK", "OK 1/20 SECOND bucket, 0 left, 20 s"],
            ),
            (
                one("bucket"),
                &["OVER_LIMIT", "OVER_LIMIT 1/20 SECOND bucket, 0 left, 20 s"],
            ),
            (one("other"), &["OK", "OK"]),
        ],
    );
}

#[test]
fn costs_looks_and_refunds_are_applied() {
    let cost = |hits: u64| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "ada")])
    };
    let back = |hits: u64| RateLimitDescriptor {
        is_negative_hits: true,
        ..cost(hits)
    };
    let of_request = RateLimitRequest {
        hits_addend: 2,
        ..user("bob")
    };
    check(
        POLICY,
        &[
            (
                request(vec![cost(2)]),
                &["OK", "OK 3/HOUR per-user, 1 left, 3600 s"],
            ),
            (
                request(vec![cost(0)]),
                &["OK", "OK 3/HOUR per-user, 1 left, 3600 s"],
            ),
            (
                request(vec![cost(2)]),
                &["OVER_LIMIT", "OVER_LIMIT 3/HOUR per-user, 1 left, 3600 s"],
            ),
            (
                request(vec![back(1)]),
                &["OK", "OK 3/HOUR per-user, 2 left, 3600 s"],
            ),
            (
                request(vec![cost(2)]),
                &["OK", "OK 3/HOUR per-user, 0 left, 3600 s"],
            ),
            (of_request, &["OK", "OK 3/HOUR per-user, 1 left, 3600 s"]),
            (
                request(vec![cost(u64::MAX)]),
                // Waiting does not help.
                &["OVER_LIMIT", "OVER_LIMIT 3/HOUR per-user, 0 left"],
            ),
        ],
    );
}

#[test]
fn a_descriptor_may_override_the_limit() {
    let with = |requests_per_unit, unit: RateLimitUnit, unit_multiplier| {
        request(vec![RateLimitDescriptor {
            limit: Some(RateLimitOverride {
                requests_per_unit,
                unit: unit.into(),
                unit_multiplier,
            }),
            ..descriptor(&[("user", "ada")])
        }])
    };
    let ten_minutes = || with(7, RateLimitUnit::Minute, Some(10));
    check(
        POLICY,
        &[
            (
                ten_minutes(),
                &["OK", "OK 7/10 MINUTE per-user, 6 left, 600 s"],
            ),
            (
                ten_minutes(),
                &["OK", "OK 7/10 MINUTE per-user, 5 left, 600 s"],
            ),
            (
                with(9, RateLimitUnit::Day, None),
                &["OK", "OK 9/DAY per-user, 8 left, 86400 s"],
            ),
            (user("ada"), &["OK", "OK 3/HOUR per-user, 2 left, 3600 s"]),
        ],
    );
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let unit = with(7, RateLimitUnit::Unknown, None);
        let answer = client.call(SHOULD_RATE_LIMIT, &unit).await;
        let message = "the `limit` of a descriptor has no unit or an unknown one";
        assert_eq!(answer.status(), (3, message));
        let none = ask(&mut client, &with(0, RateLimitUnit::Second, None)).await;
        assert_eq!(none.overall_code(), Code::OverLimit);
    });
}

#[test]
fn a_call_without_a_domain_or_descriptors_is_refused() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let no_domain = RateLimitRequest {
            domain: String::new(),
            ..user("ada")
        };
        for (request, message) in [
            (no_domain, "rate limit domain must not be empty"),
            (
                request(vec![]),
                "rate limit descriptor list must not be empty",
            ),
        ] {
            let answer = client.call(SHOULD_RATE_LIMIT, &request).await;
            assert_eq!(answer.status(), (3, message));
        }
        let elsewhere = RateLimitRequest {
            domain: "elsewhere".into(),
            ..user("ada")
        };
        assert_eq!(summary(&mut client, &elsewhere).await, ["OK", "OK"]);
    });
}

#[test]
fn headers_body_and_metadata_are_sent_if_configured() {
    let policy =
        format!("{POLICY}\n[envoy]\nheaders = \"ietf\"\nbody = \"limit\"\nmetadata = true\n");
    let fixture = Fixture::new(&policy);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let first = ask(&mut client, &user("ada")).await;
        let fields = |response: &RateLimitResponse| {
            let fields = response.response_headers_to_add.iter();
            let fields = fields.map(|field| format!("{}: {}", field.key, field.value));
            fields.collect::<Vec<_>>()
        };
        assert_eq!(
            fields(&first),
            [
                "ratelimit-policy: \"per-user\";q=3;w=3600",
                "ratelimit: \"per-user\";r=2;t=3600",
            ]
        );
        assert!(first.raw_body.is_empty());
        let all = RateLimitRequest {
            hits_addend: 2,
            ..user("ada")
        };
        ask(&mut client, &all).await;
        let over = ask(&mut client, &user("ada")).await;
        assert_eq!(over.overall_code(), Code::OverLimit);
        assert_eq!(fields(&over)[2], "content-type: application/problem+json");
        let body: serde_json::Value = serde_json::from_slice(&over.raw_body).unwrap();
        assert_eq!(body["violated-policies"][0], "per-user");
        let metadata = format!("{:?}", over.dynamic_metadata.unwrap().fields);
        for part in [
            "\"allowed\": Value { kind: Some(BoolValue(false))",
            "per-user",
            "3600.0",
        ] {
            assert!(metadata.contains(part), "{metadata}");
        }
    });
}

#[test]
fn a_shadow_denial_is_reported_to_the_application() {
    let policy = POLICY.replace("[[limit]]", "[[limit]]\nmode = \"shadow\"");
    let fixture = Fixture::new(&policy);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for _ in 0..3 {
            let passes = ask(&mut client, &user("ada")).await;
            assert!(passes.request_headers_to_add.is_empty());
        }
        let response = ask(&mut client, &user("ada")).await;
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(
            shown(&response.statuses[0]),
            "OK",
            "a limit in shadow mode sets no status fields"
        );
        let [field] = &response.request_headers_to_add[..] else {
            panic!("{response:?}");
        };
        assert_eq!(
            (&*field.key, &*field.value),
            ("x-ratekeeper-shadow", "per-user")
        );
    });
}

#[test]
fn the_application_receives_an_id_to_report_results_by() {
    let fixture = Fixture::new(&format!("{POLICY}count = {{ status = [401] }}\n"));
    let http_address = fixture.service.address(Door::Http).unwrap();
    let id = |response: &RateLimitResponse| {
        let fields = response.request_headers_to_add.iter();
        let mut ids = fields.filter(|field| field.key == "x-ratekeeper-decision");
        ids.next().map(|field| field.value.clone())
    };
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let first = ask(&mut client, &user("ada")).await;
        let first = id(&first).expect("a report corrects the limit");
        ask(&mut client, &user("ada")).await;
        let third = ask(&mut client, &user("ada")).await;
        assert!(id(&third).is_some_and(|third| third != first));
        let over = ask(&mut client, &user("ada")).await;
        assert_eq!((over.overall_code(), id(&over)), (Code::OverLimit, None));

        let report = |status: u16| {
            let body = format!(r#"{{"decision": "{first}", "status": {status}}}"#);
            http(http_address, "POST /v1/report", &body)
        };
        assert_eq!(report(200).0, 200);
        let given_back = ["OK", "OK 3/HOUR per-user, 0 left, 3600 s"];
        assert_eq!(summary(&mut client, &user("ada")).await, given_back);
        assert_eq!(report(200).0, 200, "it is repeated, and changes nothing");
        let over = ask(&mut client, &user("ada")).await;
        assert_eq!(over.overall_code(), Code::OverLimit);

        let look = with_cost(&user("eve"), 0);
        assert_eq!(id(&ask(&mut client, &look).await), None, "a look");
        let mut back = with_cost(&user("eve"), 1);
        back.descriptors[0].is_negative_hits = true;
        assert_eq!(id(&ask(&mut client, &back).await), None, "a refund");
        let elsewhere = request(vec![descriptor(&[("place", "x")])]);
        assert_eq!(id(&ask(&mut client, &elsewhere).await), None, "no limit");
    });
}

#[test]
fn a_decision_cannot_be_reported_after_its_time() {
    let fixture = Fixture::new(&format!("{POLICY}count = {{ status = [401] }}\n"));
    let http_address = fixture.service.address(Door::Http).unwrap();
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for (seconds, status) in [(119, 200), (121, 410)] {
            let answer = ask(&mut client, &user("ada")).await;
            let fields = answer.request_headers_to_add.iter();
            let mut ids = fields.filter(|field| field.key == "x-ratekeeper-decision");
            let id = &ids.next().expect("a report corrects the limit").value;
            fixture.clock.advance(Nanos::from_secs(seconds));
            let body = format!(r#"{{"decision": "{id}", "status": 200}}"#);
            let (reported, problem) = http(http_address, "POST /v1/report", &body);
            assert_eq!(reported, status, "{problem}");
            assert_eq!(problem.contains("RK0590"), status == 410, "{problem}");
        }
    });
}

/// Returns the same request with a cost of its descriptor.
fn with_cost(request: &RateLimitRequest, cost: u64) -> RateLimitRequest {
    let mut request = request.clone();
    request.descriptors[0].hits_addend = Some(cost);
    request
}

#[test]
fn a_new_window_starts_with_the_whole_quota() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for _ in 0..3 {
            ask(&mut client, &user("ada")).await;
        }
        fixture.clock.advance(Nanos::from_millis(3_599_400));
        let over = ["OVER_LIMIT", "OVER_LIMIT 3/HOUR per-user, 0 left, 1 s"];
        assert_eq!(
            summary(&mut client, &user("ada")).await,
            over,
            "0.6 s, rounded up"
        );
        fixture.clock.advance(Nanos::from_millis(600));
        let fresh = ["OK", "OK 3/HOUR per-user, 2 left, 3600 s"];
        assert_eq!(summary(&mut client, &user("ada")).await, fresh);
    });
}
