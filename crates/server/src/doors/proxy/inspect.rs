//! Inspect: reads the body of a request before its limits are asked, if one of them counts by it.
//!
//! Nothing is charged and no permit is taken meanwhile. The bytes that are read count towards the
//! budget of all requests, until they are sent or the client is noticed to have left.

use std::future::poll_fn;
use std::time::Duration;

use http::request::Parts;
use hyper::body::Incoming;
use ratekeeper::Timer;
use ratekeeper::tower::{InspectedBody, InspectedParts};
use ratekeeper_gateway::RequestBody;
use tokio::time::timeout;

use super::ProxyDoor;
use crate::body_budget::{HeldBytes, MAX_HELD_BYTES};
use crate::doors::problem::{BROKEN_BODY, Problem, TOO_BUSY, TOO_SLOW};
use crate::listener::Caller;
use crate::metrics::{Protocol, RequestResult};

/// How long the part of a body that limits need may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

impl<C: Timer + 'static> ProxyDoor<C> {
    /// Returns the body of a request, and its share of the bytes that all requests may hold. If a limit
    /// counts by it, its beginning is read, and the whole of a short one stands in the extensions of
    /// the request.
    pub(super) async fn inspect(
        &self,
        caller: Caller<'_>,
        parts: &mut Parts,
        body: Incoming,
    ) -> Result<(InspectedBody<Incoming>, HeldBytes), Box<Problem>> {
        let mut body = InspectedBody::new(body);
        let mut held = self.shared.bodies.hold();
        if !self.limits.needs_body(parts, caller.address) {
            return Ok((body, held));
        }
        let max = self.max_inspected_body;
        let reading = timeout(READ_TIMEOUT, read(&mut body, max, &mut held)).await;
        let read = reading.unwrap_or_else(|_| {
            let seconds = READ_TIMEOUT.as_secs();
            let detail =
                format!("a limit counts by the body, which must arrive within {seconds} s");
            Err(Problem::new(TOO_SLOW, detail))
        });
        if let Err(problem) = read {
            let metrics = &self.shared.metrics;
            metrics.request(Protocol::Proxy, RequestResult::Error);
            return Err(Box::new(problem));
        }
        if let Some(whole) = body.whole(max) {
            parts.extensions.insert(whole);
        }
        Ok((body, held))
    }
}

/// Reads a body to its end, or beyond `max`.
async fn read(
    body: &mut InspectedBody<Incoming>,
    max: usize,
    budget: &mut HeldBytes,
) -> Result<(), Problem> {
    while let Some(held) = poll_fn(|context| body.poll_more(context)).await {
        if !budget.resize(held) {
            let detail = format!("all requests together already hold {MAX_HELD_BYTES} bytes");
            return Err(Problem::new(TOO_BUSY, detail));
        }
        if held > max {
            break;
        }
    }
    if body.take_error().is_some() {
        let detail = "the connection failed, or the length announced was wrong";
        return Err(Problem::new(BROKEN_BODY, detail));
    }
    Ok(())
}

/// Returns a body for the gateway, which sends the part that was read first. Its bytes are part of
/// `budget` until they are sent.
pub(super) fn request_body(body: InspectedBody<Incoming>, budget: HeldBytes) -> RequestBody {
    let InspectedParts {
        held,
        trailers,
        rest,
    } = body.into_parts();
    RequestBody {
        held: if held.is_empty() {
            held
        } else {
            budget.keep(held)
        },
        trailers,
        rest,
    }
}
