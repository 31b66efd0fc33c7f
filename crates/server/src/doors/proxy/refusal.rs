//! Refusal: our own response to a request, in the form that its client reads.
//!
//! ```text
//!   Content-Type: application/grpc        gRPC, in headers alone
//!   Accept: text/html, .., */*;q=0.8      a page
//!   Accept: text/plain                    a line of text
//!   anything else, or none                application/problem+json
//! ```
//!
//! A limit with a `response` of its own has that body in every form but gRPC's.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use ratekeeper::problem::PROBLEM_JSON;
use ratekeeper::{Answer, Outcome, tower};
use ratekeeper_core::Nanos;
use ratekeeper_policy::Body;
use smallvec::SmallVec;

use crate::doors::problem::Problem;
use crate::serve::listener::Reply;

/// The page of a refusal; status and wait are filled in.
const PAGE: &str = include_str!("refusal.html");
/// Fields that a web page of another origin may read.
const EXPOSED: &str = "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, \
    X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id";
/// Maximum number of media types of `Accept` that are looked at.
const MAX_TYPES: usize = 32;

/// Fields of a request.
pub(super) type KeptFields = SmallVec<[(HeaderName, HeaderValue); 3]>;

/// The form of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Problem,
    Page,
    Text,
}

/// Returns the response to a refused request with these header fields.
pub(super) fn of(answer: &Answer, request: &HeaderMap) -> Response<Vec<u8>> {
    let mut response = tower::refusal(answer, request);
    let wait = answer.retry_after().map(Nanos::as_secs_ceil);
    if response.headers().contains_key("grpc-status") {
        if let Some(wait) = answer.retry_after() {
            let wait = HeaderValue::from(wait.as_millis_ceil());
            response
                .headers_mut()
                .insert("grpc-retry-pushback-ms", wait);
        }
        return response;
    }
    let has_own = |limit: Outcome<'_>| limit.report().refusal.body != Body::ProblemJson;
    if answer.refused_by().is_some_and(has_own) {
        return response;
    }
    let refused_by = answer.refused_by();
    let reason = match refused_by.and_then(|limit| limit.outage) {
        Some(_) => "The service is at reduced capacity.",
        None => "Too many requests.",
    };
    put_form(&mut response, form(request), &sentence(reason, wait));
    response
}

/// Returns the response to a request that cannot be served; `request` has its header fields, or
/// those of [`kept_fields`]; `own` is the page of its status that replaces ours.
pub(super) fn of_problem(
    problem: &Problem,
    request: &HeaderMap,
    id: &str,
    own: Option<&Arc<str>>,
) -> Response<Reply> {
    let mut response = problem.response();
    if let Some(call) = tower::grpc_failure(request, problem.kind.status, &problem.detail) {
        response.headers_mut().remove(header::CONTENT_TYPE);
        let (mut parts, _) = call.into_parts();
        parts.extensions.insert(response.status()); // for the access log
        parts.headers.extend(response.into_parts().0.headers);
        return Response::from_parts(parts, Reply::default());
    }
    let title = problem.kind.title;
    let sentence = format!("This request cannot be served: {title}. Its number is {id}.");
    let form = form(request);
    put_form(&mut response, form, &sentence);
    if let (Form::Page, Some(own)) = (form, own) {
        *response.body_mut() = Reply::from(own.to_string());
    }
    response
}

/// Returns the fields of a request that decide the form of our own response to it.
pub(super) fn kept_fields(request: &HeaderMap) -> KeptFields {
    const KEPT: [HeaderName; 3] = [header::ORIGIN, header::ACCEPT, header::CONTENT_TYPE];
    let each = request.iter().filter(|(name, _)| KEPT.contains(name));
    let mut kept = KeptFields::new(); // not collected, which moves its room
    kept.extend(each.map(|(name, value)| (name.clone(), value.clone())));
    kept
}

/// Gives a response the form that its client reads; it has that of a problem.
fn put_form<B: From<Vec<u8>>>(response: &mut Response<B>, form: Form, sentence: &str) {
    let (content_type, body) = match form {
        Form::Problem => return,
        Form::Page => (
            "text/html; charset=utf-8",
            page(response.status().as_u16(), sentence),
        ),
        Form::Text => ("text/plain; charset=utf-8", format!("{sentence}\n")),
    };
    let content_type = HeaderValue::from_static(content_type);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    *response.body_mut() = B::from(body.into_bytes());
}

/// Returns true for an origin of the list.
pub(super) fn is_listed(origins: &[String], origin: Option<&HeaderValue>) -> bool {
    let is = |origin: &HeaderValue| {
        let mut origins = origins.iter();
        origins.any(|listed| listed.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    };
    origin.is_some_and(is)
}

/// Lets web pages of these origins read the response.
pub(super) fn put_cors(origins: &[String], origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    if let Some(origin) = origin
        && is_listed(origins, Some(origin))
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let credentials = HeaderValue::from_static("true");
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, credentials);
        let exposed = HeaderValue::from_static(EXPOSED);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

fn sentence(reason: &str, wait: Option<u64>) -> String {
    match wait {
        Some(1) => format!("{reason} Try again in 1 second."),
        Some(wait) => format!("{reason} Try again in {wait} seconds."),
        None => "This request cannot be served.".into(),
    }
}

fn page(status: u16, sentence: &str) -> String {
    // A number of a request may come from a proxy.
    let sentence = sentence.replace('&', "&amp;").replace('<', "&lt;");
    PAGE.replace("{status}", &status.to_string())
        .replace("{sentence}", &sentence)
}

/// Returns the form that `Accept` prefers; of equals the first (RFC 9110, section 12.5.1).
fn form(request: &HeaderMap) -> Form {
    let values = request.get_all(header::ACCEPT).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let types = texts.flat_map(|text| text.split(',')).take(MAX_TYPES);
    let mut best = (Form::Problem, 0.0);
    for media in types {
        let mut parts = media.split(';').map(str::trim);
        let form = match parts.next().unwrap_or_default() {
            "text/html" | "application/xhtml+xml" => Form::Page,
            "text/plain" | "text/*" => Form::Text,
            PROBLEM_JSON | "application/json" | "application/*" | "*/*" => Form::Problem,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
        let quality: f32 = quality.unwrap_or(1.0);
        if quality > best.1 {
            best = (form, quality);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_accept() {
        for (accept, expected) in [
            (None, Form::Problem),
            (Some("*/*"), Form::Problem),
            (Some("application/json"), Form::Problem),
            (Some("image/png"), Form::Problem),
            (
                Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
                Form::Page,
            ),
            (Some("text/plain"), Form::Text),
            (Some("text/html;q=0.5, application/json"), Form::Problem),
            (Some("text/html;q=0, text/plain;q=0.1"), Form::Text),
            (Some("text/html;q=nonsense"), Form::Page),
        ] {
            let mut request = HeaderMap::new();
            if let Some(accept) = accept {
                request.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(form(&request), expected, "{accept:?}");
        }
    }

    #[test]
    fn only_listed_origins_read_refusals() {
        let origins = ["https://app.example".to_owned()];
        for (origin, listed) in [
            ("https://App.example", true),
            ("https://evil.example", false),
        ] {
            let mut headers = HeaderMap::new();
            let origin = HeaderValue::from_static(origin);
            put_cors(&origins, Some(&origin), &mut headers);
            assert_eq!(
                headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN),
                listed
            );
            assert_eq!(
                headers.contains_key(header::ACCESS_CONTROL_EXPOSE_HEADERS),
                listed
            );
        }
    }
}
