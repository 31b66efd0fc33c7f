//! Fields: the parts of a response beside the statuses.
//!
//! ```text
//!   statuses --> reports, the tightest first --> RateLimit-Policy, RateLimit     (ietf)
//!                                            --> RateLimit-Limit, -Remaining, -Reset
//!                                            --> problem document, dynamic metadata
//! ```
//!
//! Source: draft-ietf-httpapi-ratelimit-headers-03 (2022), for the fields of one number.

use prost_types::Value;
use ratekeeper::headers::{put_fields, retry_after_secs};
use ratekeeper::problem::RefusalBody;
use ratekeeper::{LimitReport, LimitReports};
use ratekeeper_core::{Decision, Nanos, Outage, Permits, Verdict};
use ratekeeper_policy::envoy::Unit;
use ratekeeper_policy::{EnvoyDoor, EnvoyHeaderNames, EnvoyHeaders, HeaderStyle, Refusal};
use ratekeeper_wire::rate_limit_response::rate_limit::Unit as WireUnit;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use ratekeeper_wire::{HeaderValue, RateLimitResponse};

/// The name and the quota of a limit, as texts.
#[derive(Default)]
pub(super) struct LimitTexts {
    pub(super) name: String,
    text: String,
}

impl LimitTexts {
    /// Returns the limit's own name, or `3-per-hour`, `5-per-10-minute`.
    pub(super) fn of(limit: &RateLimit) -> Self {
        let unit = limit.unit().as_str_name().to_ascii_lowercase();
        let text = match limit.unit_multiplier {
            Some(units) => format!("{} per {units} {unit}", limit.requests_per_unit),
            None => format!("{} per {unit}", limit.requests_per_unit),
        };
        let name = if limit.name.is_empty() {
            text.replace(' ', "-")
        } else {
            limit.name.clone()
        };
        Self { name, text }
    }
}
/// Returns the report of a status; `None` for a descriptor without a limit that has a number.
fn report<'a>(
    status: &DescriptorStatus,
    texts: &'a LimitTexts,
    refusal: &'a Refusal,
    outage: Option<Outage>,
) -> Option<LimitReport<'a>> {
    let limit = status.current_limit.as_ref()?;
    let reset = status.duration_until_reset.as_ref();
    let reset = reset.and_then(|reset| u64::try_from(reset.seconds).ok());
    let reset = Nanos::from_secs(reset.unwrap_or(0));
    let verdict = match status.code() {
        Code::OverLimit => Verdict::Deny { retry_after: reset },
        _ => Verdict::Allow,
    };
    let unit: Option<Unit> = limit.unit().as_str_name().parse().ok();
    let units = u64::from(limit.unit_multiplier.unwrap_or(1));
    Some(LimitReport {
        name: &texts.name,
        quota: Permits::new(limit.requests_per_unit.into()),
        window: unit.map(|unit| Nanos::from_secs(unit.seconds() * units)),
        more_after: Some(reset),
        is_level: false,
        text: &texts.text,
        unit: None,
        decision: Decision {
            verdict,
            remaining: Permits::new(status.limit_remaining.into()),
            reset_after: reset,
            more_after: reset,
        },
        cost: Permits::ONE,
        key_missing: false,
        outage,
        refusal,
    })
}

/// Adds the fields that show the limits to the client, as `door` says; the tightest limit first.
pub(super) fn put_headers(
    response: &mut RateLimitResponse,
    reports: &[LimitReport<'_>],
    door: &EnvoyDoor,
) {
    let fields = &mut response.response_headers_to_add;
    match door.headers {
        EnvoyHeaders::Off => {}
        EnvoyHeaders::Ietf => put_fields(reports, HeaderStyle::Ietf, |name, value| {
            fields.push(header(name, value.to_owned()));
        }),
        EnvoyHeaders::Draft03 => {
            fields.extend(draft_03(reports, &door.header_names).into_iter().flatten());
        }
    }
}

/// A field each for limit, remaining and reset of the tightest limit.
fn draft_03(reports: &[LimitReport<'_>], names: &EnvoyHeaderNames) -> Option<[HeaderValue; 3]> {
    let tightest = reports.iter().find(|report| report.is_counted())?;
    Some([
        header(&names.limit, tightest.quota.to_string()),
        header(&names.remaining, tightest.decision.remaining.to_string()),
        header(
            &names.reset,
            until_reset(&tightest.decision).as_secs_ceil().to_string(),
        ),
    ])
}

/// Returns the wait that helps after a refusal, else the time until the whole limit is free again.
pub(super) fn until_reset(decision: &Decision) -> Nanos {
    let wait = decision.verdict.retry_after();
    wait.unwrap_or(decision.reset_after)
}

/// Adds the body of a refusal.
pub(super) fn put_body(response: &mut RateLimitResponse, body: RefusalBody<'_>) {
    let content_type = header("content-type", body.content_type.to_owned());
    response.response_headers_to_add.push(content_type);
    response.raw_body = body.content.into_bytes();
}

/// Returns the texts of each status, in order.
pub(super) fn texts_of(statuses: &[DescriptorStatus]) -> Vec<LimitTexts> {
    let limits = statuses.iter().map(|status| status.current_limit.as_ref());
    limits
        .map(|limit| limit.map(LimitTexts::of).unwrap_or_default())
        .collect()
}

/// Returns the reports of statuses, the tightest first.
pub(super) fn reports_of<'a>(
    statuses: &[DescriptorStatus],
    texts: &'a [LimitTexts],
    refusal: &'a Refusal,
    outage: Option<Outage>,
) -> LimitReports<'a> {
    let both = statuses.iter().zip(texts);
    LimitReport::tightest_first(
        both.filter_map(|(status, texts)| report(status, texts, refusal, outage)),
    )
}

/// `{"allowed": false, "limit": "per-user", "retry_after_s": 37, "shadow_denied": []}`, where
/// `refused_by` is the limit that refuses.
pub(super) fn metadata(
    overall: Code,
    refused_by: Option<&LimitReport<'_>>,
    shadow_denied: impl Iterator<Item = String>,
) -> impl Iterator<Item = (String, Value)> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a wait of 2^53 s exceeds any real wait"
    )]
    let number = |wait: u64| Value::from(wait as f64);
    let wait = refused_by.and_then(|limit| limit.decision.verdict.retry_after());
    let shadow: Vec<_> = shadow_denied.map(Value::from).collect();
    let fields = [
        ("allowed", Some((overall == Code::Ok).into())),
        ("limit", refused_by.map(|limit| limit.name.into())),
        (
            "retry_after_s",
            wait.map(|wait| number(retry_after_secs(wait))),
        ),
        ("shadow_denied", Some(shadow.into())),
    ];
    let fields = fields.into_iter();
    fields.filter_map(|(key, value)| Some((key.to_owned(), value?)))
}

pub(super) const fn wire_unit(unit: Unit) -> WireUnit {
    match unit {
        Unit::Second => WireUnit::Second,
        Unit::Minute => WireUnit::Minute,
        Unit::Hour => WireUnit::Hour,
        Unit::Day => WireUnit::Day,
        Unit::Week => WireUnit::Week,
        Unit::Month => WireUnit::Month,
        Unit::Year => WireUnit::Year,
    }
}

pub(super) fn header(key: &str, value: String) -> HeaderValue {
    HeaderValue {
        key: key.to_owned(),
        value,
        raw_value: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Duration;
    use ratekeeper_wire::rate_limit_response::rate_limit;

    use super::*;

    /// A limit of as many an hour.
    fn status(name: &str, over: bool, quota: u32, left: u32, reset: i64) -> DescriptorStatus {
        DescriptorStatus {
            code: if over { Code::OverLimit } else { Code::Ok }.into(),
            current_limit: Some(RateLimit {
                name: name.to_owned(),
                requests_per_unit: quota,
                unit: rate_limit::Unit::Hour.into(),
                unit_multiplier: None,
            }),
            limit_remaining: left,
            duration_until_reset: Some(Duration {
                seconds: reset,
                nanos: 0,
            }),
            quota: None,
        }
    }

    fn lines(fields: &[HeaderValue]) -> Vec<String> {
        let line = |field: &HeaderValue| format!("{}: {}", field.key, field.value);
        fields.iter().map(line).collect()
    }

    /// Returns the fields of a response with these statuses.
    fn shown(statuses: &[DescriptorStatus], headers: EnvoyHeaders) -> Vec<String> {
        let refusal = Refusal::default();
        let texts = texts_of(statuses);
        let reports = reports_of(statuses, &texts, &refusal, None);
        let door = EnvoyDoor {
            headers,
            ..EnvoyDoor::default()
        };
        let mut response = RateLimitResponse::default();
        put_headers(&mut response, &reports, &door);
        lines(&response.response_headers_to_add)
    }

    #[test]
    fn the_tightest_limit_leads() {
        let statuses = [
            DescriptorStatus::default(),
            status("", false, 9, 2, 40),
            status("a \"b\" \u{e9}", true, 3, 0, 30),
            status("long", true, 5, 0, 50),
        ];
        assert_eq!(
            shown(&statuses, EnvoyHeaders::Ietf),
            [
                "ratelimit-policy: \"long\";q=5;w=3600, \"a \\\"b\\\" ?\";q=3;w=3600, \"9-per-hour\";q=9;w=3600",
                "ratelimit: \"long\";r=0;t=50, \"a \\\"b\\\" ?\";r=0;t=30, \"9-per-hour\";r=2;t=40",
            ]
        );
        assert_eq!(
            shown(&statuses, EnvoyHeaders::Draft03),
            [
                "RateLimit-Limit: 5",
                "RateLimit-Remaining: 0",
                "RateLimit-Reset: 50"
            ]
        );
    }

    #[test]
    fn a_response_without_a_limit_has_no_fields() {
        let none = [DescriptorStatus::default()];
        for headers in [EnvoyHeaders::Ietf, EnvoyHeaders::Draft03] {
            assert!(shown(&none, headers).is_empty());
        }
    }
}
