//! Twins: two services with one policy and one clock, asked by gRPC and by HTTP, and compared.

use std::net::SocketAddr;

use ratekeeper_core::Nanos;
use ratekeeper_server::Door;
use ratekeeper_wire::rate_limiter::check_request::descriptor::Entry;
use ratekeeper_wire::rate_limiter::check_response::Limit;
use ratekeeper_wire::rate_limiter::{CheckRequest, CheckResponse, ReportRequest, ReportResponse};
use serde_json::{Map, Value, json};

use super::super::Fixture;
use super::super::client::Client;
use super::super::json::http;
use super::{CHECK, REPORT};

/// Returns the body of the same call over HTTP.
pub(super) fn check_body(check: &CheckRequest) -> Value {
    let mut body = Map::new();
    if let Some(it) = &check.request {
        let mut request = json!({
            "method": it.method, "path": it.path, "host": it.host, "query": it.query,
            "headers": it.headers,
        });
        if !it.ip.is_empty() {
            request["ip"] = json!(it.ip);
        }
        body.insert("request".into(), request);
    }
    if let Some(it) = &check.descriptor {
        let entry = |Entry { key, value }: &Entry| json!({ "key": key, "value": value });
        let entries: Vec<_> = it.entries.iter().map(entry).collect();
        let descriptor = json!({ "domain": it.domain, "entries": entries });
        body.insert("descriptor".into(), descriptor);
    }
    body.insert("attributes".into(), json!(check.attributes));
    body.insert("cost".into(), json!(check.cost));
    if !check.limits.is_empty() {
        body.insert("limits".into(), json!(check.limits));
    }
    body.into()
}

pub(super) fn report_body(report: &ReportRequest) -> Value {
    json!({
        "decision": report.decision, "status": report.status, "outcome": report.outcome,
        "cost": report.cost, "costs": report.costs,
    })
}

/// Returns the answer of a check as the body that HTTP has.
pub(super) fn answer_body(answer: &CheckResponse) -> Value {
    let mut body = Map::from_iter([("allowed".into(), json!(answer.allowed))]);
    let mut put = |name: &str, value: Value| body.insert(name.into(), value);
    if !answer.allowed {
        put("limit", json!(answer.limit));
    }
    if let Some(wait) = answer.retry_after_ms {
        put("retry_after_ms", json!(wait));
    }
    if answer.banned {
        put("banned", json!(true));
    }
    if !answer.decision.is_empty() {
        put("decision", json!(answer.decision));
        put("expires_in_ms", json!(answer.expires_in_ms));
    }
    let limits: Vec<_> = answer.limits.iter().map(limit_body).collect();
    put("limits", json!(limits));
    body.into()
}

pub(super) fn limit_body(limit: &Limit) -> Value {
    let mut body = json!({
        "name": limit.name, "mode": limit.mode, "verdict": limit.verdict, "quota": limit.quota,
        "remaining": limit.remaining, "reset_after_ms": limit.reset_after_ms, "key": limit.key,
    });
    if !limit.covered_by.is_empty() {
        body["covered_by"] = json!(limit.covered_by);
    }
    if let Some(wait) = limit.retry_after_ms {
        body["retry_after_ms"] = json!(wait);
    }
    if limit.banned {
        body["banned"] = json!(true);
    }
    if let Some(delay) = limit.delay_ms {
        body["delay_ms"] = json!(delay);
    }
    body
}

/// Posts to the HTTP listener; returns the status and the body.
pub(super) fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let (status, body) = http(address, &format!("POST {path}"), &body.to_string());
    (status, serde_json::from_str(&body).unwrap())
}

/// Returns the code and the message of gRPC for a problem of HTTP.
pub(super) fn failure(status: u16, problem: &Value) -> (i32, String) {
    let code = match status {
        410 => 5,
        503 => 14,
        _ => 3,
    };
    let detail = problem["detail"].as_str().unwrap();
    // JSON has a place in the text, a message has none.
    let detail = detail.split(" at line ").next().unwrap();
    (
        code,
        format!("{}: {detail}", problem["code"].as_str().unwrap()),
    )
}

/// Two services with one policy: one is asked by gRPC, the other by HTTP.
pub(super) struct Twins<'a> {
    grpc: &'a Fixture,
    http: &'a Fixture,
    client: Client,
    /// The decisions of both, in their order.
    pub(super) decisions: Vec<(String, String)>,
}

impl<'a> Twins<'a> {
    /// Takes services that outlive the client, whose connection would keep them from ending.
    pub(super) async fn of([grpc, http]: &'a [Fixture; 2]) -> Self {
        Self {
            grpc,
            http,
            client: Client::connect(grpc.grpc()).await,
            decisions: vec![("unknown".into(), "unknown".into())],
        }
    }

    pub(super) fn door(&self) -> SocketAddr {
        self.http.service.address(Door::Http).unwrap()
    }

    pub(super) fn pass(&self, seconds: u64) {
        for fixture in [self.grpc, self.http] {
            fixture.clock.advance(Nanos::from_secs(seconds));
        }
    }

    /// Asks both; returns the verdict of the first limit, or the failure.
    pub(super) async fn check(&mut self, check: &CheckRequest) -> String {
        let answer = self.client.call(CHECK, check).await;
        let (status, mut body) = post(self.door(), "/v1/check", &check_body(check));
        if answer.code != 0 {
            assert_eq!(
                (answer.code, answer.message.clone()),
                failure(status, &body)
            );
            return answer.message;
        }
        let answer: CheckResponse = answer.read();
        assert_eq!(answer.allowed, status == 200, "{body}");
        if let Some(id) = body.get_mut("decision") {
            // Ids are random.
            let theirs = std::mem::replace(id, json!(answer.decision));
            let theirs = theirs.as_str().unwrap().to_owned();
            self.decisions.push((answer.decision.clone(), theirs));
        }
        assert_eq!(answer_body(&answer), body);
        let first = answer.limits.first();
        first.map_or_else(|| "none".into(), |limit| limit.verdict.clone())
    }

    /// Reports on a decision to both; returns the word, or the failure.
    pub(super) async fn report(&mut self, decision: usize, report: &ReportRequest) -> String {
        let (ours, theirs) = self.decisions[decision].clone();
        let [ours, theirs] = [ours, theirs].map(|decision| ReportRequest {
            decision,
            ..report.clone()
        });
        let answer = self.client.call(REPORT, &ours).await;
        let (status, body) = post(self.door(), "/v1/report", &report_body(&theirs));
        if answer.code != 0 {
            assert_eq!(
                (answer.code, answer.message.clone()),
                failure(status, &body)
            );
            return answer.message;
        }
        let answer: ReportResponse = answer.read();
        assert_eq!(body, json!({ "done": answer.done }));
        answer.done
    }
}
