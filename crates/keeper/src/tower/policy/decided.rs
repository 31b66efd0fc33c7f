//! Decided: a request under the limits of a policy, for a front end that renders responses itself.
//!
//! ```text
//!   decide --> answer --allowed--> forward the request --> report(result) --> end of the body
//!         \--> guard: held until then; dropped, it gives back the permits
//!                \--refused--> refusal(answer)
//! ```

use http::{HeaderMap, HeaderValue, Response};
use ratekeeper_policy::Report;

use crate::Answer;
use crate::tower::denial::{Denial, DeniedBy};
use crate::tower::grpc;
use crate::tower::hold::RequestHold;
use crate::tower::pass::FieldsToSend;
use crate::tower::reporter::{Reporter, ResponseCosts};
use crate::tower::settle;

/// The fields of the usual style, and one of limits in shadow mode.
const USUAL_FIELDS: usize = 3;

/// The decision about a request; made by [`ByPolicy::decide`](crate::tower::ByPolicy::decide).
///
/// ```
/// use ratekeeper::policy::Report;
/// use ratekeeper::tower::{ByPolicy, Decided};
/// use ratekeeper::{Keeper, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "2/1h"
///     "#,
/// )?;
/// let front_end = ByPolicy::new(keeper.into());
/// let request = http::Request::new(());
/// let peer = ([192, 0, 2, 1], 4711).into();
/// let Decided { answer, mut guard } = at_once(front_end.decide(&request, peer));
/// assert!(answer.allowed());
/// // Forward the request; then, before the guard is dropped:
/// guard.report(Report::default());
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Debug)]
pub struct Decided {
    /// The decisions of the limits: boxed, because they are large.
    pub answer: Box<Answer>,
    /// The permits of the request, and the charges that its result corrects.
    pub guard: RequestGuard,
}

/// The permits of a request, to be kept until the end of its response. Dropped, it gives them back,
/// however the request ends.
///
/// ```
/// use ratekeeper::tower::{ByPolicy, RequestGuard};
/// use ratekeeper::{Keeper, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     concurrency = { max = 1, lease = "1m" }
///     "#,
/// )?;
/// let front_end = ByPolicy::new(keeper.into());
/// let request = http::Request::new(());
/// let ask = || at_once(front_end.decide(&request, ([192, 0, 2, 1], 4711).into()));
/// let guard: RequestGuard = ask().guard;
/// assert!(!ask().answer.allowed(), "one request at a time");
/// drop(guard);
/// assert!(ask().answer.allowed());
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Debug)]
pub struct RequestGuard {
    pub(super) hold: Option<RequestHold>,
    pub(super) reporter: Option<Reporter>,
    /// Charges that the body of the response settles.
    pub(super) costs: Option<Box<ResponseCosts>>,
}

impl RequestGuard {
    /// Corrects the charges by the result of the request, once: further calls do nothing. Without a
    /// call the charges stay.
    pub fn report(&mut self, report: Report) {
        self.report_response(report, &HeaderMap::new());
    }

    /// Like [`report`](Self::report), with the actual costs that the response states, by the `settle`
    /// of each limit. Costs in its body are found by [`add_part`](Self::add_part),
    /// [`add_trailers`](Self::add_trailers) and [`end_response`](Self::end_response). Returns the number of charges that keep their estimate,
    /// because the response lacks the field or has no amount there, or because its body cannot be
    /// read.
    pub fn report_response(&mut self, report: Report, fields: &HeaderMap) -> usize {
        let Some(reporter) = self.reporter.take() else {
            return 0;
        };
        let head = (reporter.receive)(report, fields);
        self.costs = head.costs;
        head.unsettled
    }

    /// Returns true if the body of the response may settle a charge. Then ask for a response that is
    /// not compressed.
    pub fn reads_response(&self) -> bool {
        self.costs.is_some() || self.reporter.as_ref().is_some_and(|it| it.reads_body)
    }

    /// Reads a part of the body of the response, if it may settle a charge. Returns the number of
    /// bytes that are held of it then, until its end.
    pub fn add_part(&mut self, part: &[u8]) -> usize {
        let Some(costs) = &mut self.costs else {
            return 0;
        };
        costs.add(part);
        costs.held()
    }

    /// Takes the trailers of the response, which may settle charges.
    pub fn add_trailers(&mut self, fields: &HeaderMap) {
        if let Some(costs) = &mut self.costs {
            costs.add_trailers(fields);
        }
    }

    /// Settles charges by the body of the response, after its last part. Returns the number of those
    /// that keep their estimate, because the body has no amount there.
    pub fn end_response(&mut self) -> usize {
        self.costs.take().map_or(0, |costs| costs.finish())
    }

    /// Leaves the charges that the body of the response would have settled at their estimate, because
    /// it broke off or is not read any more. Returns their number. A body of known length whose last
    /// byte was read has [ended](Self::end_response).
    pub fn give_up_response(&mut self) -> usize {
        match self.costs.take() {
            Some(costs) if costs.is_whole() => costs.finish(),
            costs => costs.map_or(0, |costs| costs.charges),
        }
    }
}

/// Returns the response to a refused request with these header fields, as the layer sends it: a
/// problem document, or the form of gRPC.
///
/// ```
/// use http::HeaderMap;
/// use ratekeeper::policy::Facts;
/// use ratekeeper::tower::refusal;
/// use ratekeeper::{Keeper, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "1/1h"
///     "#,
/// )?;
/// let ask = || at_once(keeper.check(&Facts::default(), Scope::All)).unwrap();
/// let (_passed, refused) = (ask(), ask());
/// let response = refusal(&refused, &HeaderMap::new());
/// assert_eq!(response.status(), 429);
/// assert!(response.headers().contains_key("retry-after"));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
pub fn refusal(answer: &Answer, request: &HeaderMap) -> Response<Vec<u8>> {
    let denial = Denial(DeniedBy::Policy(Box::new(answer.clone())));
    let fields = FieldsToSend::by(answer);
    settle::refusal(&denial, fields, grpc::content_type(request))
}

impl FieldsToSend {
    /// The fields of an answer.
    pub(crate) fn by(answer: &Answer) -> Self {
        let mut fields = Vec::with_capacity(USUAL_FIELDS);
        answer.put_header_fields(|name, value| {
            // The values are names and numbers, which can be sent; others would be left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                fields.push((name, value));
            }
        });
        Self::Fields(fields)
    }
}
