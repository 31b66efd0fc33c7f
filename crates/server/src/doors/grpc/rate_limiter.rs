//! Rate limiter: the check API in messages of our own, for programs that speak gRPC only.
//!
//! ```text
//!   CheckRequest  --> Check      --> check::decide   --> Answer --> CheckResponse
//!   ReportRequest --> ReportBody --> report::correct --> word   --> ReportResponse
//! ```
//!
//! The same functions as for `POST /v1/check` and `POST /v1/report` decide, with the same bounds and
//! the same messages of errors.

use bytes::Bytes;
use ratekeeper::{Answer, Clock, Outcome};
use ratekeeper_core::Nanos;
use ratekeeper_wire::rate_limiter::check_request::descriptor::Entry;
use ratekeeper_wire::rate_limiter::check_request::{Descriptor, Request};
use ratekeeper_wire::rate_limiter::check_response::Limit;
use ratekeeper_wire::rate_limiter::{CheckRequest, CheckResponse, ReportRequest, ReportResponse};
use ratekeeper_wire::{read_check, read_report};
use serde::de::value::Error;

use super::refusal::{refused, unread};
use crate::context::ServiceContext;
use crate::doors::answer::{
    ShownVerdict, key_values, mode, reset_after_ms, shown_mode, whole_millis,
};
use crate::doors::problem::{Problem, WRONG_VALUE};
use crate::doors::request::{self, Check, DescriptorEntry, DescriptorField, ReportBody};
use crate::doors::values::{
    BoundedList, Costs, JsonObject, PairsOf, address_in, countable, decision_in, named, put_cost,
    status_in,
};
use crate::doors::{check, report};
use crate::grpc::GrpcStatus;
use crate::metrics::Protocol;

/// `Check`; the caller counts failures.
pub(super) async fn check<C: Clock>(
    shared: &ServiceContext<C>,
    message: Bytes,
) -> Result<CheckResponse, GrpcStatus> {
    let message = read_check(&message).map_err(|refusal| unread(&refusal))?;
    let asked = asked(&message).map_err(|problem| refused(&problem))?;
    let decided = check::decide(shared, Protocol::Rls, &asked).await;
    let answer = decided.map_err(|problem| refused(&problem))?;
    Ok(response(&answer))
}

/// `Report`; the caller counts failures.
pub(super) async fn report<C: Clock>(
    shared: &ServiceContext<C>,
    message: Bytes,
) -> Result<ReportResponse, GrpcStatus> {
    let message = read_report(&message).map_err(|refusal| unread(&refusal))?;
    let result = reported(&message).map_err(|problem| refused(&problem))?;
    let corrected = report::correct(shared, &result).await;
    let done = corrected.map_err(|problem| refused(&problem))?;
    Ok(ReportResponse { done: done.into() })
}

fn asked(message: &CheckRequest) -> Result<Check<'_>, Problem> {
    let attributes = PairsOf::Attributes.collect(&message.attributes);
    let descriptor = message.descriptor.as_ref().map(descriptor).transpose()?;
    let limits = message.limits.iter().map(|name| name.as_str().into());
    let limits = at("limits", BoundedList::collect(limits))?;
    let check = Check {
        request: JsonObject(request(message.request.as_ref())?),
        attributes: at("attributes", attributes)?,
        descriptor: descriptor.map(JsonObject),
        cost: at("cost", message.cost.map(countable).transpose())?,
        limits: Some(limits).filter(|BoundedList(names)| !names.is_empty()),
    };
    check.refuse_contradictions()?;
    Ok(check)
}

fn request(message: Option<&Request>) -> Result<request::CheckRequest<'_>, Problem> {
    let Some(message) = message else {
        return Ok(request::CheckRequest::default());
    };
    let ip = Some(&*message.ip).filter(|ip| !ip.is_empty());
    let headers = PairsOf::Headers.collect(&message.headers);
    Ok(request::CheckRequest {
        method: message.method.as_str().into(),
        path: message.path.as_str().into(),
        host: message.host.as_str().into(),
        ip: at("request.ip", ip.map(address_in).transpose())?,
        query: message.query.as_str().into(),
        headers: at("request.headers", headers)?,
    })
}

fn descriptor(message: &Descriptor) -> Result<DescriptorField<'_>, Problem> {
    for (index, entry) in message.entries.iter().enumerate() {
        at(
            &format!("descriptor.entries[{index}].key"),
            named(&entry.key),
        )?;
    }
    let entries = message.entries.iter().map(|Entry { key, value }| {
        JsonObject(DescriptorEntry {
            key: key.as_str().into(),
            value: value.as_str().into(),
        })
    });
    Ok(DescriptorField {
        domain: message.domain.as_str().into(),
        entries: at("descriptor.entries", BoundedList::collect(entries))?,
    })
}

fn reported(message: &ReportRequest) -> Result<ReportBody<'_>, Problem> {
    let mut costs = Costs::new();
    for (limit, cost) in &message.costs {
        at("costs", put_cost(&mut costs, limit.as_str().into(), *cost))?;
    }
    Ok(ReportBody {
        decision: at("decision", decision_in(&message.decision))?,
        status: at("status", message.status.map(status_in).transpose())?,
        outcome: message.outcome.as_deref().map(Into::into),
        cost: at("cost", message.cost.map(countable).transpose())?,
        costs,
    })
}

/// Names the field at which reading a message failed. Long values are not quoted, because clients
/// drop an answer whose `grpc-message` is longer than their bound of header fields.
fn at<T>(field: &str, read: Result<T, Error>) -> Result<T, Problem> {
    read.map_err(|error| {
        let detail = format!("`{field}`: {}", request::bounded(&error));
        Problem::new(WRONG_VALUE, detail)
    })
}

fn response(answer: &Answer) -> CheckResponse {
    let refused_by = answer.refused_by();
    let decision = answer.decision();
    CheckResponse {
        allowed: answer.allowed(),
        limit: refused_by.as_ref().map(name).unwrap_or_default(),
        retry_after_ms: answer.retry_after().map(Nanos::as_millis_ceil),
        banned: refused_by.is_some_and(|outcome| outcome.decision.verdict.is_ban()),
        decision: decision.map(ToString::to_string).unwrap_or_default(),
        expires_in_ms: decision.map_or(0, |decision| whole_millis(decision.within())),
        limits: answer.outcomes().map(|outcome| limit(&outcome)).collect(),
    }
}

fn limit(outcome: &Outcome<'_>) -> Limit {
    let verdict = ShownVerdict::of(outcome);
    let covered_by = outcome.covered_by.map(|rule| rule.limit.name.to_string());
    let key = key_values(outcome).map(|(part, value)| {
        let value = String::from_utf8_lossy(value);
        part.map_or_else(|| value.to_string(), |part| format!("{part}={value}"))
    });
    Limit {
        name: name(outcome),
        mode: mode(shown_mode(outcome)).into(),
        verdict: verdict.word.into(),
        covered_by: covered_by.unwrap_or_default(),
        quota: outcome.quota().get(),
        remaining: outcome.remaining().get(),
        retry_after_ms: verdict.retry_after_ms,
        banned: outcome.decision.verdict.is_ban(),
        delay_ms: verdict.delay_ms,
        reset_after_ms: reset_after_ms(outcome),
        key: key.collect(),
    }
}

fn name(outcome: &Outcome<'_>) -> String {
    outcome.rule.limit.name.to_string()
}
