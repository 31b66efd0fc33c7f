//! Answer: the decisions of the limits, in Envoy's words.
//!
//! Envoy makes the fields of a client's response from the statuses: `x-ratelimit-*`, if its
//! filter is set so, and `retry-after`, the longest reset of the descriptors that are over. So a
//! refusal's reset is the wait that helps, not the time until the whole limit is free again.

use prost_types::{Duration, Struct};
use ratekeeper::headers::names;
use ratekeeper::{Answer, Answers, LimitReport, Outcome};
use ratekeeper_core::{Mode, Verdict};
use ratekeeper_policy::EnvoyBody;
use ratekeeper_policy::envoy::Unit;
use ratekeeper_wire::RateLimitResponse;
use ratekeeper_wire::rate_limit_response::rate_limit::Unit as WireUnit;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use strum::VariantArray;

use super::fields::{self, header};
use crate::doors::auth::DECISION;

/// Names, for the application, the limits in shadow mode that would have refused.
const SHADOW: &str = "x-ratekeeper-shadow";

pub(super) fn response(answers: &Answers) -> RateLimitResponse {
    let whole = answers.whole();
    let settings = &whole.policy().settings.envoy;
    let mut response = RateLimitResponse {
        overall_code: code(!answers.allowed()).into(),
        statuses: (0..answers.len())
            .map(|index| status(answers, index))
            .collect(),
        ..RateLimitResponse::default()
    };
    fields::put_headers(&mut response, &whole.reports(), settings);
    if settings.body == EnvoyBody::Limit
        && let Some(body) = whole.body()
    {
        fields::put_body(&mut response, body);
    }
    let shadow = whole
        .shadow_denials()
        .map(|denial| header(SHADOW, name(&denial)));
    response.request_headers_to_add.extend(shadow);
    let soft = whole.soft_denials();
    let soft = soft.map(|denial| header(names::SOFT, name(&denial)));
    response.request_headers_to_add.extend(soft);
    let decision = whole.decision().map(ToString::to_string);
    let decision = decision.map(|id| header(DECISION, id));
    response.request_headers_to_add.extend(decision);
    if settings.metadata {
        response.dynamic_metadata = Some(metadata(whole));
    }
    response
}

/// Returns the status of one descriptor: of several limits, the tightest. Limits in shadow mode
/// promise nothing.
fn status(answers: &Answers, index: usize) -> DescriptorStatus {
    let shown = answers.outcomes(index);
    let shown = shown.filter(|outcome| outcome.mode() == Some(Mode::Enforce));
    let shown = shown.map(|outcome| outcome.report());
    let tightest = shown.reduce(|best, it| if it.is_tighter_than(&best) { it } else { best });
    let mut status = DescriptorStatus {
        code: code(answers.refuses(index)).into(),
        ..DescriptorStatus::default()
    };
    if let Some(report) = tightest {
        // Envoy makes fields of it, so it is left out if the remaining quota is not known.
        status.current_limit = Some(limit(&report)).filter(|_| report.is_counted());
        let remaining = report.decision.remaining.get();
        status.limit_remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        let reset = fields::until_reset(&report.decision);
        let can_pass = report.decision.verdict != Verdict::DenyForever;
        status.duration_until_reset = Some(Duration {
            seconds: i64::try_from(reset.as_secs_ceil()).unwrap_or(i64::MAX),
            nanos: 0,
        })
        .filter(|_| can_pass); // Envoy makes `retry-after` of it
    }
    status
}

pub(super) const fn code(over: bool) -> Code {
    if over { Code::OverLimit } else { Code::Ok }
}

/// Returns a limit in Envoy's units; the unit is `Unknown` if no unit fits its window.
fn limit(report: &LimitReport<'_>) -> RateLimit {
    let (quota, window) = report.quota_per_window();
    let fits = |seconds: u64| {
        let mut longest_first = Unit::VARIANTS.iter().copied().rev();
        let unit = longest_first.find(|unit| seconds.is_multiple_of(unit.seconds()))?;
        Some((fields::wire_unit(unit), seconds / unit.seconds()))
    };
    let (unit, units) = window.and_then(fits).unwrap_or((WireUnit::Unknown, 1));
    RateLimit {
        name: report.name.to_owned(),
        requests_per_unit: u32::try_from(quota).unwrap_or(u32::MAX),
        unit: unit.into(),
        unit_multiplier: u32::try_from(units).ok().filter(|units| *units > 1),
    }
}

fn name(outcome: &Outcome<'_>) -> String {
    outcome.rule.limit.name.to_string()
}

fn metadata(whole: &Answer) -> Struct {
    let refused_by = whole.refused_by().map(|outcome| outcome.report());
    let shadow = whole.shadow_denials().map(|denial| name(&denial));
    Struct {
        fields: fields::metadata(code(!whole.allowed()), refused_by.as_ref(), shadow).collect(),
    }
}
