//! Doors: parse, check, render. The names that a request has on the wire stay in here.

mod access;
pub(crate) mod answer;
mod auth;
pub(crate) mod body;
mod check;
mod facts;
pub(crate) mod grpc;
pub(crate) mod hold;
mod http;
mod permits;
pub(crate) mod problem;
pub(crate) mod proxy;
mod report;
pub(crate) mod request;
pub(crate) mod routes;
mod values;

use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::Full;
use ratekeeper::Answer;
use ratekeeper::headers::names;

pub use self::access::Right;
pub(crate) use self::access::{Access, Token, one_host};
pub(crate) use self::check::{refund, reset, store_down};
pub use self::http::HTTP_ROUTES;
pub(crate) use self::http::HttpDoor;
use self::problem::Problem;
use crate::serve::listener::Reply;

/// The response to a call, or the problem that it has.
pub(crate) type CallResult = Result<Response<Reply>, Problem>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    put_field(
        &mut response,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    response
}

pub(crate) fn empty(status: StatusCode) -> Response<Reply> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Sets a header field of a response.
pub(crate) fn put_field<B>(response: &mut Response<B>, name: HeaderName, value: &'static str) {
    let value = HeaderValue::from_static(value);
    response.headers_mut().insert(name, value);
}

/// Adds the header fields that describe its limits to a client.
fn put_fields(headers: &mut HeaderMap, answer: &Answer) {
    const LEGACY: &str = "x-ratelimit-";
    // Those of an application are kept: only `RateLimit` and `RateLimit-Policy` are lists.
    let mut has_own = None;
    answer.put_header_fields(|name, value| {
        let mut names = headers.keys();
        if name.starts_with(LEGACY)
            && *has_own.get_or_insert_with(|| names.any(|own| own.as_str().starts_with(LEGACY)))
        {
            return;
        }
        // Values are made of limit names and numbers; one that could not be sent is left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.append(field_name(name), value);
        }
    });
}

/// Adds the names of limits in shadow mode that would refuse.
fn put_shadow(headers: &mut HeaderMap, answer: &Answer) {
    let shadow = answer.shadow_denials().map(|it| &*it.rule.limit.name);
    let shadow: Vec<&str> = shadow.collect();
    if !shadow.is_empty()
        && let Ok(names) = HeaderValue::try_from(shadow.join(", "))
    {
        headers.insert("x-ratekeeper-shadow", names);
    }
}

/// A name of the keeper's; the usual ones are ready.
fn field_name(name: &'static str) -> HeaderName {
    const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(names::RATELIMIT_POLICY);
    const RATELIMIT: HeaderName = HeaderName::from_static(names::RATELIMIT);
    match name {
        names::RATELIMIT_POLICY => RATELIMIT_POLICY,
        names::RATELIMIT => RATELIMIT,
        names::RETRY_AFTER => header::RETRY_AFTER,
        // The names are constants of the keeper, in lower case: this cannot fail.
        other => HeaderName::from_static(other),
    }
}
