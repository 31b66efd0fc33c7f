//! Answer: the decisions of the limits, in Envoy's words.
//!
//! Envoy makes the fields of a client's response from the statuses: `x-ratelimit-*`, if its
//! filter is set so, and `retry-after`, the longest reset of the descriptors that are over. So a
//! refusal's reset is the wait that helps, not the time until the whole limit is free again.

use prost_types::{Duration, Struct};
use ratekeeper::{Answer, Answers, Outcome};
use ratekeeper_core::{Mode, Nanos, Verdict};
use ratekeeper_policy::{EnvoyBody, EnvoyHeaders, HeaderStyle};
use ratekeeper_wire::RateLimitResponse;
use ratekeeper_wire::rate_limit_response::rate_limit::Unit;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus, RateLimit};

use super::fields::{self, draft_03, header};

/// Names, for the application, the limits in shadow mode that would have refused.
const SHADOW: &str = "x-ratekeeper-shadow";

/// Units of a limit, the longest that fits first.
const UNITS: [(u64, Unit); 7] = [
    (365 * 86_400, Unit::Year),
    (30 * 86_400, Unit::Month),
    (7 * 86_400, Unit::Week),
    (86_400, Unit::Day),
    (3_600, Unit::Hour),
    (60, Unit::Minute),
    (1, Unit::Second),
];

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
    let fields = &mut response.response_headers_to_add;
    match settings.headers {
        EnvoyHeaders::Off => {}
        EnvoyHeaders::Ietf => whole.put_limit_fields(HeaderStyle::Ietf, |name, value| {
            fields.push(header(name, value.to_owned()));
        }),
        EnvoyHeaders::Draft03 => {
            fields.extend(draft_03(&response.statuses, &settings.header_names));
        }
    }
    if settings.body == EnvoyBody::Limit
        && let Some(body) = whole.body()
    {
        let content_type = header("content-type", body.content_type.to_owned());
        response.response_headers_to_add.push(content_type);
        response.raw_body = body.content.into_bytes();
    }
    let shadow = whole
        .shadow_denials()
        .map(|denial| header(SHADOW, name(&denial)));
    response.request_headers_to_add.extend(shadow);
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
    let tightest = shown.reduce(|tightest, next| {
        if next.is_tighter_than(&tightest) {
            next
        } else {
            tightest
        }
    });
    let mut status = DescriptorStatus {
        code: code(answers.refuses(index)).into(),
        ..DescriptorStatus::default()
    };
    if let Some(outcome) = tightest {
        status.current_limit = Some(limit(&outcome));
        status.limit_remaining = outcome.decision.remaining.get();
        let reset = match outcome.decision.verdict {
            Verdict::Deny { retry_after } => retry_after,
            _ => outcome.decision.reset_after,
        };
        status.duration_until_reset = Some(Duration {
            seconds: i64::try_from(reset.as_secs_ceil()).unwrap_or(i64::MAX),
            nanos: 0,
        });
    }
    status
}

pub(super) const fn code(over: bool) -> Code {
    if over { Code::OverLimit } else { Code::Ok }
}

/// Returns a limit in Envoy's units; the unit is `Unknown` if no unit fits its window.
fn limit(outcome: &Outcome<'_>) -> RateLimit {
    let (quota, window) = outcome.quota_per_window();
    let fits = |seconds: u64| {
        let fitting = UNITS.iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
        fitting.map(|(unit, name)| (*name, seconds / unit))
    };
    let (unit, units) = window.and_then(fits).unwrap_or((Unit::Unknown, 1));
    RateLimit {
        name: name(outcome),
        requests_per_unit: u32::try_from(quota).unwrap_or(u32::MAX),
        unit: unit.into(),
        unit_multiplier: u32::try_from(units).ok().filter(|units| *units > 1),
    }
}

fn name(outcome: &Outcome<'_>) -> String {
    outcome.rule.limit.name.to_string()
}

fn metadata(whole: &Answer) -> Struct {
    let refused = whole.refused_by().map(|refused| {
        let wait = refused.decision.verdict.retry_after();
        (name(&refused), wait.map(Nanos::as_secs_ceil))
    });
    let shadow = whole.shadow_denials().map(|denial| name(&denial));
    Struct {
        fields: fields::metadata(whole.allowed(), refused, shadow).collect(),
    }
}
