//! Errors: the listener's own responses to requests that it cannot serve, and their counts.

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, Version, header};
use http_body_util::Either;
use ratekeeper::Answer;
use ratekeeper_gateway::{ForwardError, Malformed, UpstreamFailure};

use super::body::ProxyBody;
use super::{ProxyDoor, refusal};
use crate::doors::problem::{
    BAD_GATEWAY, BROKEN_BODY, GATEWAY_TIMEOUT, MALFORMED, Problem, ProblemKind, TOO_LARGE,
    TOO_SLOW, UPSTREAM_BUSY, WRONG_METHOD,
};
use crate::doors::{put_field, put_shadow};
use crate::observe::metrics::{Protocol, RequestFault, RequestResult};
use crate::serve::listener::Reply;

impl ProxyDoor {
    /// Returns the response to a request that limits refuse.
    pub(super) fn refusal(
        &self,
        answer: &Answer,
        parts: &Parts,
        id: &HeaderValue,
    ) -> Response<ProxyBody> {
        let refusal = refusal::of(answer, &parts.headers);
        let mut response = refusal.map(|body| Either::Left(Reply::from(body)));
        put_shadow(response.headers_mut(), answer);
        let origin = parts.headers.get(header::ORIGIN);
        self.put_own(origin, id.clone(), response.headers_mut());
        response
    }

    /// Returns the response to a request without a response of the upstream.
    pub(super) fn failed(
        &self,
        error: &ForwardError,
        request: &HeaderMap,
        id: HeaderValue,
    ) -> Response<ProxyBody> {
        let kind = match (error.failure(), error) {
            (Some(failure), _) => upstream_problem(failure),
            (None, ForwardError::UploadTimeout) => TOO_SLOW,
            (None, ForwardError::UploadTooLarge) => TOO_LARGE,
            (None, _) => BROKEN_BODY,
        };
        self.problem(Problem::new(kind, error.to_string()), request, id)
    }

    /// Refuses a malformed request. The next one may not begin where it seems to.
    pub(super) fn closing(
        &self,
        malformed: &Malformed,
        parts: &Parts,
        id: HeaderValue,
    ) -> Response<ProxyBody> {
        let kind = match malformed {
            Malformed::Connect | Malformed::Trace => WRONG_METHOD,
            _ => MALFORMED,
        };
        let problem = self.unread(Problem::new(kind, malformed.to_string()));
        let mut response = self.problem(problem, &parts.headers, id);
        if parts.version < Version::HTTP_2 {
            put_field(&mut response, header::CONNECTION, "close");
        }
        response
    }

    /// Counts a request that hyper itself has refused.
    pub(super) fn note_fault(&self, fault: RequestFault, id: Option<&HeaderValue>) {
        let process = &self.shared.observers.metrics.process;
        process.request_fault(fault, id, self.shared.now());
    }

    pub(super) fn unreadable(&self, error: &hyper::Error) {
        let fault = if error.is_parse_too_large() {
            RequestFault::HeadTooLarge
        } else {
            RequestFault::Malformed
        };
        self.shared
            .count_request(Protocol::Proxy, RequestResult::Error);
        self.note_fault(fault, None);
    }

    /// Returns the response to a request that was not served.
    pub(super) fn problem(
        &self,
        mut problem: Problem,
        request: &HeaderMap,
        id: HeaderValue,
    ) -> Response<ProxyBody> {
        if let Some(fault) = RequestFault::of(problem.kind) {
            self.note_fault(fault, Some(&id));
        }
        let shown = id.to_str().unwrap_or_default(); // visible characters
        problem.members = format!(",\"request_id\":{}", serde_json::Value::from(shown));
        let page = self.settings.error_pages.get(&problem.kind.status);
        let response = refusal::of_problem(&problem, request, shown, page);
        let mut response = response.map(Either::Left);
        self.put_own(request.get(header::ORIGIN), id, response.headers_mut());
        response
    }
}

const fn upstream_problem(failure: UpstreamFailure) -> ProblemKind {
    match failure {
        _ if failure.is_shed() => UPSTREAM_BUSY,
        _ if failure.is_timeout() => GATEWAY_TIMEOUT,
        _ => BAD_GATEWAY,
    }
}
