//! Fields: the parts of a response beside the statuses, derived from them.
//!
//! ```text
//!   statuses --> limits, the tightest first --> RateLimit-Policy, RateLimit     (ietf)
//!                                           --> RateLimit-Limit, -Remaining, -Reset
//!                                           --> problem document, dynamic metadata
//! ```
//!
//! Sources: draft-ietf-httpapi-ratelimit-headers-11 (2026) and -03 (2022); RFC 9457 (2023);
//! strings of fields are those of RFC 9651 (2024), section 3.3.3.

use std::cmp::Reverse;
use std::fmt::Write as _;

use prost_types::value::Kind;
use prost_types::{ListValue, Value};
use ratekeeper::headers::names;
use ratekeeper::problem::{PROBLEM_JSON, QUOTA_EXCEEDED};
use ratekeeper_policy::EnvoyHeaderNames;
use ratekeeper_wire::HeaderValue;
use ratekeeper_wire::rate_limit_response::rate_limit::Unit;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use serde_json::json;

/// Default status of a refusal by Envoy.
const TOO_MANY_REQUESTS: u16 = 429;

/// One limit of an answer, as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LimitFields {
    over: bool,
    name: String,
    quota: u32,
    /// In seconds.
    window: Option<u64>,
    left: u32,
    /// In seconds.
    reset: u64,
}

impl LimitFields {
    /// Returns `None` for a descriptor without a limit that has a number.
    fn of(status: &DescriptorStatus) -> Option<Self> {
        let limit = status.current_limit.as_ref()?;
        let reset = status.duration_until_reset.as_ref();
        let reset = reset.and_then(|reset| u64::try_from(reset.seconds).ok());
        Some(Self {
            over: status.code() == Code::OverLimit,
            name: name(limit),
            quota: limit.requests_per_unit,
            window: seconds(limit.unit())
                .map(|unit| unit * u64::from(limit.unit_multiplier.unwrap_or(1))),
            left: status.limit_remaining,
            reset: reset.unwrap_or(0),
        })
    }
}

/// Returns the limits of an answer: those that are over first, then by the longest wait, then by
/// the lowest remaining quota.
fn limits(statuses: &[DescriptorStatus]) -> Vec<LimitFields> {
    let mut limits: Vec<_> = statuses.iter().filter_map(LimitFields::of).collect();
    limits.sort_by_key(|told| {
        let wait = if told.over { told.reset } else { 0 };
        (Reverse(told.over), Reverse(wait), told.left)
    });
    limits
}

/// Returns the limit's own name, or `3-per-hour`, `5-per-10-minute`.
pub(super) fn name(limit: &RateLimit) -> String {
    if !limit.name.is_empty() {
        return limit.name.clone();
    }
    let unit = limit.unit().as_str_name().to_ascii_lowercase();
    match limit.unit_multiplier {
        Some(units) => format!("{}-per-{units}-{unit}", limit.requests_per_unit),
        None => format!("{}-per-{unit}", limit.requests_per_unit),
    }
}

fn seconds(unit: Unit) -> Option<u64> {
    Some(match unit {
        Unit::Unknown => return None,
        Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 3_600,
        Unit::Day => 86_400,
        Unit::Week => 7 * 86_400,
        Unit::Month => 30 * 86_400,
        Unit::Year => 365 * 86_400,
    })
}

/// `RateLimit-Policy` and `RateLimit`.
pub(super) fn ietf(statuses: &[DescriptorStatus]) -> Vec<HeaderValue> {
    let limits = limits(statuses);
    if limits.is_empty() {
        return Vec::new();
    }
    let (mut policy, mut state) = (String::new(), String::new());
    for (index, told) in limits.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let name = quoted(&told.name);
        // Writing to a text cannot fail.
        let _ = write!(policy, "{comma}{name};q={}", told.quota);
        if let Some(window) = told.window {
            let _ = write!(policy, ";w={window}");
        }
        let _ = write!(state, "{comma}{name};r={};t={}", told.left, told.reset);
    }
    vec![
        header(names::RATELIMIT_POLICY, policy),
        header(names::RATELIMIT, state),
    ]
}

/// A field each for limit, remaining and reset of the tightest limit.
pub(super) fn draft_03(
    statuses: &[DescriptorStatus],
    names: &EnvoyHeaderNames,
) -> Vec<HeaderValue> {
    let limits = limits(statuses);
    let Some(told) = limits.first() else {
        return Vec::new();
    };
    vec![
        header(&names.limit, told.quota.to_string()),
        header(&names.remaining, told.left.to_string()),
        header(&names.reset, told.reset.to_string()),
    ]
}

/// Returns content type and content of a refusal: a problem document.
pub(super) fn problem(statuses: &[DescriptorStatus]) -> Option<(HeaderValue, Vec<u8>)> {
    let limits = limits(statuses);
    let over: Vec<_> = limits.iter().filter(|told| told.over).collect();
    let first = over.first()?;
    let wait = first.reset.max(1);
    let document = json!({
        "type": QUOTA_EXCEEDED,
        "title": "Too many requests",
        "status": TOO_MANY_REQUESTS,
        "detail": format!("Limit {} is exceeded. Try again in {wait} s.", first.name),
        "violated-policies": over.iter().map(|told| &*told.name).collect::<Vec<_>>(),
        "retry_after": wait,
    });
    let content_type = header("content-type", PROBLEM_JSON.to_owned());
    Some((content_type, document.to_string().into_bytes()))
}

/// `{"allowed": false, "limit": "per-user", "retry_after_s": 37, "shadow_denied": []}`, where
/// `refused` is the limit and the wait in seconds, if waiting is of use.
pub(super) fn metadata(
    allowed: bool,
    refused: Option<(String, Option<u64>)>,
    shadow_denied: impl Iterator<Item = String>,
) -> impl Iterator<Item = (String, Value)> {
    let value = |kind| Value { kind: Some(kind) };
    let shadow = ListValue {
        values: shadow_denied
            .map(|name| value(Kind::StringValue(name)))
            .collect(),
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "a wait of 2^53 s exceeds any real wait"
    )]
    let number = |wait: u64| Kind::NumberValue(wait as f64);
    let (limit, wait) = refused.unzip();
    let fields = [
        ("allowed", Some(Kind::BoolValue(allowed))),
        ("limit", limit.map(Kind::StringValue)),
        ("retry_after_s", wait.flatten().map(number)),
        ("shadow_denied", Some(Kind::ListValue(shadow))),
    ];
    let fields = fields.into_iter();
    fields.filter_map(move |(key, kind)| Some((key.to_owned(), value(kind?))))
}

/// Returns the limit that refuses, and how many seconds to wait for it.
pub(super) fn refused(statuses: &[DescriptorStatus]) -> Option<(String, Option<u64>)> {
    let first = limits(statuses)
        .into_iter()
        .next()
        .filter(|told| told.over)?;
    Some((first.name, Some(first.reset.max(1))))
}

pub(super) fn header(key: &str, value: String) -> HeaderValue {
    HeaderValue {
        key: key.to_owned(),
        value,
        raw_value: Vec::new(),
    }
}

/// Returns a string of a field; characters that are not printable ASCII become `?`.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use prost_types::Duration;

    use super::*;

    /// A limit of as many an hour.
    fn status(name: &str, over: bool, quota: u32, left: u32, reset: i64) -> DescriptorStatus {
        DescriptorStatus {
            code: if over { Code::OverLimit } else { Code::Ok }.into(),
            current_limit: Some(RateLimit {
                name: name.to_owned(),
                requests_per_unit: quota,
                unit: Unit::Hour.into(),
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

    #[test]
    fn the_tightest_limit_leads() {
        let statuses = [
            DescriptorStatus::default(),
            status("", false, 9, 2, 40),
            status("a \"b\" \u{e9}", true, 3, 0, 30),
            status("long", true, 5, 0, 50),
        ];
        assert_eq!(
            lines(&ietf(&statuses)),
            [
                "ratelimit-policy: \"long\";q=5;w=3600, \"a \\\"b\\\" ?\";q=3;w=3600, \"9-per-hour\";q=9;w=3600",
                "ratelimit: \"long\";r=0;t=50, \"a \\\"b\\\" ?\";r=0;t=30, \"9-per-hour\";r=2;t=40",
            ]
        );
        assert_eq!(
            lines(&draft_03(&statuses, &EnvoyHeaderNames::default())),
            [
                "RateLimit-Limit: 5",
                "RateLimit-Remaining: 0",
                "RateLimit-Reset: 50"
            ]
        );
    }

    #[test]
    fn where_no_limit_applies_nothing_is_told() {
        let none = [DescriptorStatus::default()];
        assert_eq!(ietf(&none), []);
        assert_eq!(draft_03(&none, &EnvoyHeaderNames::default()), []);
        assert_eq!(problem(&none), None);
        assert_eq!(problem(&[status("x", false, 1, 1, 1)]), None);
    }
}
