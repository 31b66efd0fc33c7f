//! Fields of answers beside the statuses, under files of Envoy's reference service.

use ratekeeper_server::Door;
use ratekeeper_wire::{HeaderValue, RateLimitResponse};
use serde_json::{Value, json};

use super::client::{Client, SHOULD_RATE_LIMIT};
use super::json::http;
use super::rls::{descriptor, request, user};
use super::{Fixture, run};

const OVER_LIMIT: i32 = ratekeeper_wire::rate_limit_response::Code::OverLimit as i32;

const LIMITS: &str = "
domain: edge
descriptors:
- key: user
  rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// Returns the second answer to one user, which is a refusal, under these lines of `[envoy]`.
fn refusal(lines: &str) -> RateLimitResponse {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("limits.yaml"), LIMITS).unwrap();
    let policy = format!("version = 1\n[envoy]\nconfig = \"limits.yaml\"\n{lines}");
    let fixture = Fixture::in_directory(&policy, directory);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        client.call(SHOULD_RATE_LIMIT, &user("ada")).await;
        client.call(SHOULD_RATE_LIMIT, &user("ada")).await.read()
    })
}

fn lines(fields: &[HeaderValue]) -> Vec<String> {
    let line = |field: &HeaderValue| format!("{}: {}", field.key, field.value);
    fields.iter().map(line).collect()
}

#[test]
fn fields_are_sent_if_configured() {
    for (settings, expected) in [
        ("", &[][..]),
        (
            "headers = \"ietf\"",
            &[
                "ratelimit-policy: \"1-per-hour\";q=1;w=3600",
                "ratelimit: \"1-per-hour\";r=0;t=3600",
            ],
        ),
        (
            "headers = \"draft-03\"",
            &[
                "RateLimit-Limit: 1",
                "RateLimit-Remaining: 0",
                "RateLimit-Reset: 3600",
            ],
        ),
        (
            "headers = \"draft-03\"\nheader_names = { limit = \"X-Limit\", reset = \"x-reset\" }",
            &["x-limit: 1", "RateLimit-Remaining: 0", "x-reset: 3600"],
        ),
    ] {
        let response = refusal(settings);
        assert_eq!(
            lines(&response.response_headers_to_add),
            expected,
            "{settings}"
        );
        assert!(response.raw_body.is_empty() && response.dynamic_metadata.is_none());
    }
}

#[test]
fn a_body_is_sent_if_configured() {
    let response = refusal("body = \"limit\"");
    assert_eq!(
        lines(&response.response_headers_to_add),
        ["content-type: application/problem+json"]
    );
    let body: Value = serde_json::from_slice(&response.raw_body).unwrap();
    assert_eq!(
        body,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too many requests",
            "status": 429,
            "detail": "Limit 1-per-hour allows 1 per hour. Try again in 3600 s.",
            "violated-policies": ["1-per-hour"],
            "retry_after": 3600,
        })
    );
}

#[test]
fn metadata_is_sent_if_configured() {
    for (settings, names) in [
        (
            "metadata = true",
            &["allowed", "limit", "retry_after_s", "shadow_denied"][..],
        ),
        ("dynamic_metadata = true", &["descriptors", "domain"]),
        (
            "metadata = true\nshadow_mode = true\ndynamic_metadata = true",
            &["allowed", "descriptors", "domain", "shadow_denied"],
        ),
    ] {
        let fields = refusal(settings).dynamic_metadata.unwrap().fields;
        assert!(fields.keys().eq(names), "{settings}: {fields:?}");
    }
}

#[test]
fn calls_without_a_limit_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("limits.yaml"), LIMITS).unwrap();
    let policy = "version = 1\n[envoy]\nconfig = \"limits.yaml\"";
    let fixture = Fixture::in_directory(policy, directory);
    let other = || descriptor(&[("path", "/new")]);
    let mut back = other();
    back.is_negative_hits = true;
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for descriptors in [
            vec![descriptor(&[("user", "ada")])],
            vec![other()],
            vec![other(), descriptor(&[("user", "ada")])],
            vec![back],
        ] {
            client.call(SHOULD_RATE_LIMIT, &request(descriptors)).await;
        }
    });
    let admin = fixture.service.address(Door::Admin).unwrap();
    let (_, metrics) = http(admin, "GET /metrics", "");
    for series in [
        r#"ratekeeper_unlimited_requests_total{protocol="rls"} 1"#,
        r#"ratekeeper_requests_total{protocol="rls",result="allowed"} 3"#,
    ] {
        assert!(metrics.contains(series), "{series}\n{metrics}");
    }
}

/// Returns how many of six calls pass under a limit of 4 in an hour, while Redis cannot be
/// reached; or the status of the calls.
fn without_redis(envoy: &str, nodes: u32) -> Result<usize, (i32, String)> {
    let directory = tempfile::tempdir().unwrap();
    let limits = LIMITS.replace("requests_per_unit: 1", "requests_per_unit: 4");
    std::fs::write(directory.path().join("limits.yaml"), limits).unwrap();
    let policy = format!(
        "version = 1\n[envoy]\nconfig = \"limits.yaml\"\n{envoy}\n\
         [store.redis]\nurl = \"redis://127.0.0.1:1\"\nnodes = {nodes}"
    );
    let fixture = Fixture::in_directory(&policy, directory);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let mut passed = 0;
        for _ in 0..6 {
            let answer = client.call(SHOULD_RATE_LIMIT, &user("ada")).await;
            if answer.code != 0 {
                return Err((answer.code, answer.message));
            }
            let response: RateLimitResponse = answer.read();
            passed += usize::from(response.overall_code != OVER_LIMIT);
        }
        Ok(passed)
    })
}

#[test]
fn a_refusal_without_redis_does_not_say_that_a_quota_is_used() {
    for headers in ["ietf", "draft-03"] {
        let store = "on_store_error = \"deny\"\n[store.redis]\nurl = \"redis://127.0.0.1:1\"";
        let fields = format!("headers = \"{headers}\"\nbody = \"limit\"\n{store}");
        let response = refusal(&fields);
        let sent = lines(&response.response_headers_to_add);
        assert!(
            sent.iter()
                .all(|line| !line.to_lowercase().contains("remaining")
                    && !line.starts_with("ratelimit:")),
            "{sent:?}"
        );
        let body: Value = serde_json::from_slice(&response.raw_body).unwrap();
        assert_eq!(body["title"], "Temporarily reduced capacity", "{body}");
    }
}

#[test]
fn statuses_without_redis_tell_what_this_process_knows() {
    let first = |choice: &str| {
        let directory = tempfile::tempdir().unwrap();
        let limits = LIMITS.replace("requests_per_unit: 1", "requests_per_unit: 5");
        std::fs::write(directory.path().join("limits.yaml"), limits).unwrap();
        let policy = format!(
            "version = 1\n[envoy]\nconfig = \"limits.yaml\"\non_store_error = \"{choice}\"\n\
             [store.redis]\nurl = \"redis://127.0.0.1:1\"\nnodes = 2"
        );
        let fixture = Fixture::in_directory(&policy, directory);
        let answer: RateLimitResponse = run(async {
            let mut client = Client::connect(fixture.grpc()).await;
            client.call(SHOULD_RATE_LIMIT, &user("ada")).await.read()
        });
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref();
        limit.map(|limit| (limit.requests_per_unit, status.limit_remaining))
    };
    assert_eq!(first("local"), Some((5, 1)), "two of five are for this one");
    assert_eq!(first("allow"), None);
    assert_eq!(first("deny"), None);
}

#[test]
fn calls_without_redis_follow_on_store_error() {
    let unavailable = (14, "the store cannot answer".to_owned());
    for (settings, nodes, expected) in [
        ("", 1, Ok(4)),
        ("on_store_error = \"local\"", 2, Ok(2)),
        ("", 3, Ok(1)), // a third of 4, rounded down
        ("", 5, Ok(0)),
        ("on_store_error = \"allow\"", 2, Ok(6)),
        ("on_store_error = \"deny\"", 2, Ok(0)),
        ("on_store_error = \"error\"", 2, Err(unavailable)),
    ] {
        let passed = without_redis(settings, nodes);
        assert_eq!(passed, expected, "{settings} {nodes}");
    }
}
