//! Json: the same call in JSON over HTTP, for people and scripts: `POST /json`.
//!
//! Names and forms are those of JSON in proto3: lower camel case or as in the proto, 64-bit
//! numbers as text or number, units by name or number, a duration as `"37s"`. The status is
//! 200, 429 if the call is over, and 400 for every error. The body of a refusal is left out,
//! because it is for Envoy to send.

use bytes::Bytes;
use http::{Response, StatusCode};
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use ratekeeper_wire::rate_limit_response::Code;
use ratekeeper_wire::{RateLimitRequest, RateLimitResponse, read_request};

use super::decide;
use crate::context::ServiceContext;
use crate::doors::grpc::PROTOS;
use crate::doors::{json, text};
use crate::observe::metrics::{Protocol, RequestResult};
use crate::serve::listener::Reply;

/// Decides the call in the body.
pub(crate) async fn serve(shared: &ServiceContext, body: Bytes) -> Response<Reply> {
    let answered = match read(&body) {
        Ok(request) => {
            let decided = decide(shared, &request).await;
            decided.map_err(|status| status.message)
        }
        Err(why) => Err(why),
    };
    match answered.and_then(written) {
        Ok(response) => response,
        Err(why) => {
            shared.count_request(Protocol::Rls, RequestResult::Error);
            text(StatusCode::BAD_REQUEST, format!("{why}\n"))
        }
    }
}

fn read(body: &[u8]) -> Result<RateLimitRequest, String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let request = DynamicMessage::deserialize(form("RateLimitRequest"), &mut json)
        .and_then(|request| json.end().map(|()| request));
    let request = request.map_err(|error| error.to_string())?;
    read_request(&request.encode_to_vec()).map_err(|refusal| refusal.to_string())
}

fn written(mut response: RateLimitResponse) -> Result<Response<Reply>, String> {
    let status = match response.overall_code() {
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Ok | Code::Unknown => StatusCode::OK,
    };
    response.raw_body.clear();
    let mut shown = DynamicMessage::new(form("RateLimitResponse"));
    let copied = shown.transcode_from(&response);
    copied.map_err(|error| error.to_string())?;
    let shown = serde_json::to_vec(&shown).map_err(|error| error.to_string())?;
    Ok(json(status, shown))
}

/// Returns the form of a message of Envoy's rate limit service.
fn form(name: &str) -> MessageDescriptor {
    let message = PROTOS.get_message_by_name(&format!("envoy.service.ratelimit.v3.{name}"));
    message.expect("the protos of the service have it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_wire::{MAX_DESCRIPTORS, RateLimitUnit};

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
            ("{\"domian\": \"d\"}", "unrecognized field name 'domian'"),
            ("{\"hitsAddend\": -1}", "out of range integral type"),
            (
                "{\"descriptors\": [{\"limit\": {\"unit\": \"WEEK\"}}]}",
                "unrecognized enum value 'WEEK'",
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
