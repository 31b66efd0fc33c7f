//! Request body: the rest that a handler has left is read and dropped, while its answer is sent.
//!
//! ```text
//!   POST, 300 KB --> handler: 429          --> the client, which still sends
//!                '-> the rest, at most 5 s and 1 MiB --> the next request
//! ```
//!
//! Without that, hyper closes the connection behind the answer, or resets the stream of HTTP/2. A
//! client that still sends may then lose the answer, as curl does, and one that keeps the connection
//! sends its next request in vain.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header;
use http::request::Parts;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::pulse::{InFlight, Pulse};

/// How long the rest of a body is read, and how much of it. Afterwards the connection is closed, or
/// the stream is reset.
const LINGER: Duration = Duration::from_secs(5);
const MAX_REST: usize = 1 << 20;

/// The body of a request.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None` once it is dropped.
    body: Option<Incoming>,
    /// `None` if there is no rest to read.
    unread: Option<Arc<Pulse>>,
}

impl RequestBody {
    /// Returns the body of a request with this head. A client that expects to be told to go on sends
    /// nothing.
    pub(crate) fn of(head: &Parts, body: Incoming, pulse: &Arc<Pulse>) -> Self {
        let is_sent = !body.is_end_stream() && !head.headers.contains_key(header::EXPECT);
        Self {
            body: Some(body),
            unread: is_sent.then(|| Arc::clone(pulse)),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut *body).poll_frame(context);
        let is_over = matches!(polled, Poll::Ready(None | Some(Err(_))));
        if is_over || body.is_end_stream() {
            self.unread = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(pulse), Some(mut body)) = (self.unread.take(), self.body.take())
            && let Ok(runtime) = Handle::try_current()
        {
            // A connection is not idle meanwhile: what comes is no head.
            let in_flight = InFlight::begin(&pulse);
            runtime.spawn(async move {
                let mut left = MAX_REST;
                let rest = async {
                    while let Some(Ok(frame)) = body.frame().await
                        && let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len))
                    {
                        left = rest;
                    }
                };
                let _ = timeout(LINGER, rest).await; // an error: hyper ends the rest
                drop(in_flight);
            });
        }
    }
}
