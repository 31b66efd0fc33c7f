//! The same service in JSON, and the counters of both.

use bytes::Bytes;
use prost::Message;
use ratekeeper_server::Door;
use ratekeeper_wire::MAX_REQUEST_BYTES;

use super::client::{Client, SHOULD_RATE_LIMIT, framed};
use super::rls::{POLICY, user};
use super::{Fixture, run};

/// Returns status and body of an answer to `request`, over HTTP/1.1.
pub(crate) fn http(address: std::net::SocketAddr, head: &str, body: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[test]
fn the_service_answers_json_calls_too() {
    let fixture = Fixture::new(POLICY);
    let address = fixture
        .service
        .address(ratekeeper_server::Door::Http)
        .unwrap();
    let ask = |body: &str| http(address, "POST /json", body);
    let ada =
        r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ada"}]}]}"#;
    let passes = |left: &str| {
        format!(
            r#"{{"overallCode":"OK","statuses":[{{"code":"OK","currentLimit":{{"requestsPerUnit":3,"unit":"HOUR","name":"per-user"}}{left},"durationUntilReset":"3600s"}}]}}"#
        )
    };
    assert_eq!(ask(ada), (200, passes(r#","limitRemaining":2"#)));
    assert_eq!(ask(ada), (200, passes(r#","limitRemaining":1"#)));
    assert_eq!(ask(ada), (200, passes("")));
    let over = passes("").replace("\"OK\"", "\"OVER_LIMIT\"");
    assert_eq!(ask(ada), (429, over));
    for (body, message) in [
        ("{}", "rate limit domain must not be empty\n"),
        (
            r#"{"domain": "edge"}"#,
            "rate limit descriptor list must not be empty\n",
        ),
        ("{", "EOF while parsing an object at line 1 column 1\n"),
    ] {
        assert_eq!(ask(body), (400, message.to_owned()));
    }
    assert_eq!(http(address, "GET /healthcheck", ""), (200, "OK".into()));
}

#[test]
fn an_answer_in_json_has_the_id_to_report_results_by() {
    let fixture = Fixture::new(&format!("{POLICY}count = {{ status = [401] }}\n"));
    let address = fixture.service.address(Door::Http).unwrap();
    let ada =
        r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ada"}]}]}"#;
    let ask = || {
        let (status, body) = http(address, "POST /json", ada);
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        let fields = answer["requestHeadersToAdd"].as_array().cloned();
        let ids = fields.into_iter().flatten();
        let mut ids = ids.filter(|field| field["key"] == "x-ratekeeper-decision");
        let id = ids
            .next()
            .map(|field| field["value"].as_str().unwrap().to_owned());
        (status, id)
    };
    let (_, first) = ask();
    let first = first.expect("a report corrects the limit");
    for _ in 0..2 {
        assert!(ask().1.is_some_and(|id| id != first));
    }
    assert_eq!(ask(), (429, None), "a refusal has no id");
    let report = format!(r#"{{"decision": "{first}", "status": 200}}"#);
    let (status, body) = http(address, "POST /v1/report", &report);
    assert_eq!(status, 200, "{body}");
    assert_eq!(ask().0, 200, "the report gave a charge back");
}

#[test]
fn calls_that_fail_before_they_are_read_are_counted() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let whole = framed(&user("ada").encode_to_vec());
        let cut = whole.slice(..whole.len() - 1);
        for (fields, bytes, code) in [
            (&[][..], cut, 3),
            (&[], Bytes::new(), 3),
            (&[("grpc-timeout", "0m")], whole.clone(), 4),
            (&[], framed(&vec![0; MAX_REQUEST_BYTES + 1]), 8),
        ] {
            let answer = client.raw(SHOULD_RATE_LIMIT, fields, bytes).await;
            assert_eq!(answer.code, code, "{answer:?}");
        }
        // The deadline comes while the message is on its way.
        let fields = [("x-envoy-expected-rq-timeout-ms", "1")];
        let mut call = client.begin(SHOULD_RATE_LIMIT, &fields).await;
        call.send.send_data(whole.slice(..3), false).unwrap();
        assert_eq!(call.answer().await.code, 4);
    });
    let admin = fixture.service.address(Door::Admin).unwrap();
    let (_, metrics) = http(admin, "GET /metrics", "");
    let errors = r#"ratekeeper_requests_total{protocol="rls",result="error"} 5"#;
    assert!(metrics.contains(errors), "{metrics}");
}

#[test]
fn calls_are_counted_by_protocol_and_limit() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for _ in 0..4 {
            client.call(SHOULD_RATE_LIMIT, &user("ada")).await;
        }
        client.raw(SHOULD_RATE_LIMIT, &[], framed(b"\xff")).await;
    });
    let admin = fixture
        .service
        .address(ratekeeper_server::Door::Admin)
        .unwrap();
    let (_, metrics) = http(admin, "GET /metrics", "");
    for series in [
        r#"ratekeeper_requests_total{protocol="rls",result="allowed"} 3"#,
        r#"ratekeeper_requests_total{protocol="rls",result="denied"} 1"#,
        r#"ratekeeper_requests_total{protocol="rls",result="error"} 1"#,
        r#"ratekeeper_requests_total{protocol="http",result="allowed"} 0"#,
        r#"ratekeeper_decisions_total{limit="per-user",outcome="denied",mode="enforce"} 1"#,
        r#"ratekeeper_near_limit_total{limit="per-user"} 1"#,
        r#"ratekeeper_decision_duration_seconds_count{protocol="rls",path="local"} 4"#,
    ] {
        assert!(metrics.contains(series), "{series}\n{metrics}");
    }
}
