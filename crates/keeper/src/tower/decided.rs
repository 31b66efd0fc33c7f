//! Decided: a request under the limits of a policy, for a front end that renders responses itself.
//!
//! ```text
//!   decide --> answer --allowed--> forward the request --> report(result) --> end of the body
//!         \--> guard: held until then; dropped, it gives back the permits
//!                \--refused--> refusal(answer)
//! ```

use http::request::Parts;
use http::{HeaderMap, Response};
use ratekeeper_policy::{Facts, Report};

use super::denial::{Denial, DeniedBy};
use super::facts::facts;
use super::grpc;
use super::hold::RequestHold;
use super::pass::FieldsToSend;
use super::policy::Reporter;
use super::settle;
use crate::Answer;

/// The decision about a request; made by [`ByPolicy::decide`](super::ByPolicy::decide).
#[derive(Debug)]
pub struct Decided {
    /// The decisions of the limits.
    pub answer: Answer,
    /// The permits of the request, and the charges that its result corrects.
    pub guard: RequestGuard,
}

/// The permits of a request, to be kept until the end of its response. Dropped, it gives them back,
/// however the request ends.
#[derive(Debug)]
pub struct RequestGuard {
    pub(super) hold: Option<RequestHold>,
    pub(super) reporter: Option<Reporter>,
}

impl RequestGuard {
    /// Corrects the charges by the result of the request, once: further calls do nothing. Without a
    /// call the charges stay.
    pub fn report(&mut self, report: Report) {
        self.report_response(report, &HeaderMap::new());
    }

    /// Like [`report`](Self::report), with the actual costs that the fields of the response state, by
    /// the `settle` of each limit. Returns the number of charges that keep their estimate, because
    /// the response lacks the field or has no amount there.
    pub fn report_response(&mut self, report: Report, fields: &HeaderMap) -> usize {
        let receive = self.reporter.take();
        receive.map_or(0, |Reporter(receive)| receive(report, fields))
    }
}

/// Returns the facts of a request without those of its client: method, host, path and query.
pub fn target(parts: &Parts) -> Facts<'_> {
    facts(parts, None, &[], &[], None)
}

/// Returns the response to a refused request with these header fields, as the layer sends it: a
/// problem document, or the form of gRPC.
pub fn refusal(answer: &Answer, request: &HeaderMap) -> Response<Vec<u8>> {
    let denial = Denial(DeniedBy::Policy(Box::new(answer.clone())));
    let fields = FieldsToSend::by(answer);
    settle::refusal(&denial, fields, grpc::content_type(request))
}
