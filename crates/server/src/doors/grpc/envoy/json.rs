//! Json: the same call in JSON over HTTP, for people and scripts: `POST /json`.
//!
//! Names and forms are those of JSON in proto3: lower camel case or as in the proto, 64-bit
//! numbers as text or number, units by name or number, a duration as `"37s"`. The status is
//! 200, 429 if the call is over, and 400 for every error. The body of a refusal is left out,
//! because it is for Envoy to send.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use ratekeeper::Clock;
use ratekeeper_wire::rate_limit_descriptor::{Entry, RateLimitOverride};
use ratekeeper_wire::rate_limit_response::rate_limit::Unit;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use ratekeeper_wire::{
    HeaderValue as Field, MAX_DESCRIPTORS, MAX_ENTRIES, RateLimitDescriptor, RateLimitRequest,
    RateLimitResponse, RateLimitUnit,
};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use super::decide;
use crate::context::ServiceContext;
use crate::doors::json;
use crate::observe::metrics::{Protocol, RequestResult};
use crate::serve::listener::Reply;

/// Decides the call in the body.
pub(crate) async fn serve<C: Clock>(shared: &ServiceContext<C>, body: Bytes) -> Response<Reply> {
    let answered = match read(&body) {
        Ok(request) => {
            let decided = decide(shared, &request).await;
            decided.map_err(|status| status.message)
        }
        Err(why) => Err(why),
    };
    match answered {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Ok | Code::Unknown => StatusCode::OK,
            };
            // Maps with text for keys, numbers and text: this cannot fail.
            json(
                status,
                serde_json::to_vec(&JsonAnswer::from(response)).unwrap_or_default(),
            )
        }
        Err(why) => {
            let metrics = &shared.observers.metrics;
            metrics.request(Protocol::Rls, RequestResult::Error);
            let mut response = Response::new(format!("{why}\n").into_bytes().into());
            *response.status_mut() = StatusCode::BAD_REQUEST;
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
            response
        }
    }
}

fn read(body: &[u8]) -> Result<RateLimitRequest, String> {
    let asked: JsonRequest = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if asked.descriptors.len() > MAX_DESCRIPTORS {
        return Err(format!(
            "the request has more than {MAX_DESCRIPTORS} descriptors"
        ));
    }
    if asked
        .descriptors
        .iter()
        .any(|one| one.entries.len() > MAX_ENTRIES)
    {
        return Err(format!("a descriptor has more than {MAX_ENTRIES} entries"));
    }
    Ok(asked.into())
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct JsonRequest {
    domain: String,
    descriptors: Vec<AskedDescriptor>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Whole>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct AskedDescriptor {
    entries: Vec<AskedEntry>,
    limit: Option<AskedLimit>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Whole>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: bool,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct AskedEntry {
    key: String,
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct AskedLimit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Whole>,
    unit: Option<UnitName>,
    #[serde(alias = "unit_multiplier")]
    unit_multiplier: Option<Whole>,
}

/// A whole number, as a number or as text.
#[derive(Clone, Copy)]
struct Whole(u64);

impl Whole {
    fn small(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Whole;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number that is not negative")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Whole, E> {
                let number = text.parse();
                number
                    .map(Whole)
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        json.deserialize_any(Read)
    }
}

/// A unit, by name or number.
#[derive(Clone, Copy)]
struct UnitName(RateLimitUnit);

impl<'de> Deserialize<'de> for UnitName {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = UnitName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a unit: SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<UnitName, E> {
                let unit = RateLimitUnit::from_str_name(text).map(UnitName);
                unit.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<UnitName, E> {
                let unit = i32::try_from(number).ok();
                let unit = unit.and_then(|unit| RateLimitUnit::try_from(unit).ok());
                let unit = unit.map(UnitName);
                unit.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
        }
        json.deserialize_any(Read)
    }
}

impl From<JsonRequest> for RateLimitRequest {
    fn from(asked: JsonRequest) -> Self {
        Self {
            domain: asked.domain,
            descriptors: asked.descriptors.into_iter().map(Into::into).collect(),
            hits_addend: asked.hits_addend.map_or(0, Whole::small),
        }
    }
}

impl From<AskedDescriptor> for RateLimitDescriptor {
    fn from(asked: AskedDescriptor) -> Self {
        let entry = |AskedEntry { key, value }| Entry { key, value };
        Self {
            entries: asked.entries.into_iter().map(entry).collect(),
            limit: asked.limit.map(|limit| RateLimitOverride {
                requests_per_unit: limit.requests_per_unit.map_or(0, Whole::small),
                unit: limit.unit.map_or(0, |unit| unit.0.into()),
                unit_multiplier: limit.unit_multiplier.map(Whole::small),
            }),
            hits_addend: asked.hits_addend.map(|hits| hits.0),
            is_negative_hits: asked.is_negative_hits,
        }
    }
}

/// An answer; fields that hold their default are left out, as proto3 does.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonAnswer {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<JsonStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<JsonField>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    request_headers_to_add: Vec<JsonField>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<serde_json::Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonStatus {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<JsonLimit>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonLimit {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit_multiplier: Option<u32>,
}

#[derive(Serialize)]
struct JsonField {
    key: String,
    value: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl From<RateLimitResponse> for JsonAnswer {
    fn from(response: RateLimitResponse) -> Self {
        let fields = |fields: Vec<Field>| {
            let fields = fields.into_iter();
            let fields = fields.map(|Field { key, value, .. }| JsonField { key, value });
            fields.collect()
        };
        Self {
            overall_code: response.overall_code().as_str_name(),
            statuses: response.statuses.into_iter().map(Into::into).collect(),
            response_headers_to_add: fields(response.response_headers_to_add),
            request_headers_to_add: fields(response.request_headers_to_add),
            dynamic_metadata: response.dynamic_metadata.map(object),
        }
    }
}

fn object(shown: Struct) -> serde_json::Value {
    let fields = shown.fields.into_iter();
    fields.map(|(key, shown)| (key, value(shown))).collect()
}

fn value(shown: Value) -> serde_json::Value {
    match shown.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(flag)) => flag.into(),
        Some(Kind::NumberValue(number)) => number.into(),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::StructValue(shown)) => object(shown),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(value).collect(),
    }
}

impl From<DescriptorStatus> for JsonStatus {
    fn from(status: DescriptorStatus) -> Self {
        let reset = status.duration_until_reset;
        Self {
            code: status.code().as_str_name(),
            current_limit: status.current_limit.map(Into::into),
            limit_remaining: status.limit_remaining,
            duration_until_reset: reset.map(|reset| format!("{}s", reset.seconds)),
        }
    }
}

impl From<RateLimit> for JsonLimit {
    fn from(limit: RateLimit) -> Self {
        let unit: Unit = limit.unit();
        Self {
            name: limit.name,
            requests_per_unit: limit.requests_per_unit,
            unit: unit.as_str_name(),
            unit_multiplier: limit.unit_multiplier,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read() {
        let camel = r#"{"domain": "d", "hitsAddend": 2, "descriptors": [{"entries":
            [{"key": "k", "value": "v"}], "hitsAddend": "0", "isNegativeHits": true,
            "limit": {"requestsPerUnit": 5, "unit": "MINUTE", "unitMultiplier": 10}}]}"#;
        let snake = r#"{"domain": "d", "hits_addend": "2", "descriptors": [{"entries":
            [{"key": "k", "value": "v"}], "hits_addend": 0, "is_negative_hits": true,
            "limit": {"requests_per_unit": 5, "unit": 2, "unit_multiplier": 10}}]}"#;
        let request = read(camel.as_bytes()).unwrap();
        assert_eq!(read(snake.as_bytes()).unwrap(), request);
        let descriptor = &request.descriptors[0];
        assert_eq!((request.hits_addend, descriptor.hits_addend), (2, Some(0)));
        assert!(descriptor.is_negative_hits);
        let limit = descriptor.limit.as_ref().unwrap();
        assert_eq!(limit.unit(), RateLimitUnit::Minute);
        assert_eq!(
            (limit.requests_per_unit, limit.unit_multiplier),
            (5, Some(10))
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (body, why) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("{\"domain\": 1}", "invalid type: integer `1`"),
            ("{\"domian\": \"d\"}", "unknown field `domian`"),
            ("{\"hitsAddend\": -1}", "invalid type: integer `-1`"),
            (
                "{\"descriptors\": [{\"limit\": {\"unit\": \"WEEK\"}}]}",
                "invalid value: string \"WEEK\", expected a unit",
            ),
        ] {
            let error = read(body.as_bytes()).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        let many = format!(
            "{{\"descriptors\": [{}{{}}]}}",
            "{},".repeat(MAX_DESCRIPTORS)
        );
        assert!(
            read(many.as_bytes())
                .unwrap_err()
                .contains("more than 100 descriptors")
        );
    }
}
