//! Inspect: reads the body of a request before its limits are asked, if one of them counts by it.
//!
//! Nothing is charged and no permit is taken meanwhile. The bytes that are read count towards the
//! budget of all requests, until they are sent or the client is noticed to have left.

use std::future::poll_fn;

use bytes::Bytes;
use http::request::Parts;
use hyper::body::Body;
use ratekeeper::tower::InspectedBody;
use ratekeeper_gateway::ClientBody;
use tokio::time::timeout;

use super::ProxyDoor;
use crate::byte_budget::HeldBytes;
use crate::doors::body::{READ_TIMEOUT, broken, too_busy};
use crate::doors::problem::{Problem, TOO_LARGE, TOO_SLOW};
use crate::observe::metrics::{Protocol, RequestResult};
use crate::serve::listener::Caller;
use crate::serve::request_body::RequestBody;

impl ProxyDoor {
    /// Returns the body of a request, if it has one. If a limit counts by it, its beginning is read,
    /// and the whole of a short one stands in the extensions of the request.
    pub(super) async fn inspect(
        &self,
        caller: Caller<'_>,
        parts: &mut Parts,
        body: RequestBody,
    ) -> Result<Option<ClientBody>, Box<Problem>> {
        let stated = body.size_hint().lower();
        let max = match stated {
            0 => 0, // the route is chosen for a length only
            _ => self.upstreams.of_request(parts, None).max_body(),
        };
        if stated > max {
            let problem = Problem::new(TOO_LARGE, too_large(max));
            return Err(Box::new(self.unread(problem)));
        }
        if !self.limits.needs_body(&*parts, caller.address) {
            return Ok(client_body(body));
        }
        let mut body = InspectedBody::new(body);
        let mut held = self.shared.bodies.hold();
        let max = self.max_inspected_body;
        if let Err(problem) = read(&mut body, max, &mut held).await {
            return Err(Box::new(self.unread(problem)));
        }
        let mut body = body.map_held(|bytes| held.keep(bytes));
        if let Some(whole) = body.whole(max) {
            parts.extensions.insert(whole);
        }
        Ok(client_body(body))
    }

    /// Counts a request whose limits were not asked.
    pub(super) fn unread(&self, problem: Problem) -> Problem {
        self.shared
            .count_request(Protocol::Proxy, RequestResult::Error);
        problem
    }
}

/// Returns a body as the gateway takes it; `None` if it is empty.
fn client_body(
    body: impl Body<Data = Bytes, Error = hyper::Error> + Send + 'static,
) -> Option<ClientBody> {
    (!body.is_end_stream()).then(|| Box::pin(body) as ClientBody)
}

/// Returns the reason why a longer body is refused.
fn too_large(max: u64) -> String {
    format!("the body may have up to {max} bytes, see `max_body`")
}

/// Reads a body to its end, or beyond `max`, in a bounded time.
async fn read<B>(
    body: &mut InspectedBody<B>,
    max: usize,
    budget: &mut HeldBytes,
) -> Result<(), Problem>
where
    B: Body<Data = Bytes> + Unpin,
{
    let all = async {
        while let Some(held) = poll_fn(|context| body.poll_more(context)).await {
            if !budget.resize(held) {
                return Err(too_busy());
            }
            if held > max {
                break;
            }
        }
        match body.take_error() {
            Some(_) => Err(broken()),
            None => Ok(()),
        }
    };
    timeout(READ_TIMEOUT, all).await.unwrap_or_else(|_| {
        let seconds = READ_TIMEOUT.as_secs();
        let detail = format!("a limit counts by the body, which must arrive within {seconds} s");
        Err(Problem::new(TOO_SLOW, detail))
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::byte_budget::{ByteBudget, MAX_BODY_BYTES};
    use crate::doors::problem::TOO_BUSY;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_slowly_is_given_up() {
        let budget = ByteBudget::new(MAX_BODY_BYTES);
        let mut held = budget.hold();
        // A part that came, and an end that never comes.
        let slow = Full::new(Bytes::from("user=an")).with_trailers(std::future::pending());
        let mut body = InspectedBody::new(slow);
        let problem = read(&mut body, 64, &mut held).await.unwrap_err();
        assert_eq!(problem.kind, TOO_SLOW);
        assert_eq!(budget.bytes(), 7, "held as long as the body is");
        drop(held);
        assert_eq!(budget.bytes(), 0);
    }

    #[tokio::test]
    async fn a_body_is_read_within_the_budget_of_all() {
        let budget = ByteBudget::new(MAX_BODY_BYTES);
        let mut others = budget.hold();
        assert!(others.resize(MAX_BODY_BYTES - 3));
        for (text, expected) in [("abc", None), ("abcd", Some(TOO_BUSY))] {
            let mut held = budget.hold();
            let mut body = InspectedBody::new(Full::new(Bytes::from(text)));
            let read = read(&mut body, 64, &mut held).await;
            assert_eq!(read.err().map(|problem| problem.kind), expected, "{text}");
        }
    }
}
