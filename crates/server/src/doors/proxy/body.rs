//! Body: that of a response, which holds the request's permits to its end, and may settle its
//! costs.
//!
//! The parts pass as they come. Those that may state a cost are copied, within a budget of all
//! responses; beyond it the response passes, and the estimate stays.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::Either;
use hyper::body::{Body, Frame, SizeHint};
use ratekeeper::tower::RequestGuard;
use ratekeeper_gateway::{DownloadBody, DownloadError};

use super::access_log::AccessLine;
use crate::byte_budget::HeldBytes;
use crate::observe::metrics::Process;
use crate::serve::listener::Reply;
use crate::serve::pulse::{HeldBack, InFlight};

/// The body of a response: our own, or the upstream's.
pub(crate) type ProxyBody = Either<Reply, Box<ForwardedBody>>;

/// The body of a response of the upstream.
#[derive(Debug)]
pub(crate) struct ForwardedBody {
    body: DownloadBody,
    /// `None` once the response has ended. The bytes are those that its costs are read from.
    guard: Option<(RequestGuard, HeldBytes)>,
    in_flight: InFlight,
    process: Arc<Process>,
    line: Option<Box<AccessLine>>,
    /// Why the body ends early, until the parts before that are sent.
    broken: Option<DownloadError>,
    /// Set while the upstream is waited for, so that a client that leaves is noticed.
    waits: Option<HeldBack>,
}

impl ForwardedBody {
    pub(crate) fn new(
        body: DownloadBody,
        guard: Option<(RequestGuard, HeldBytes)>,
        in_flight: InFlight,
        process: Arc<Process>,
    ) -> Self {
        let mut body = Self {
            body,
            guard,
            in_flight,
            process,
            line: None,
            broken: None,
            waits: None,
        };
        if body.body.is_end_stream() {
            body.end(RequestGuard::end_response);
        }
        body
    }

    /// Gives back the permits at the end of the response, after its costs are settled or given up.
    fn end(&mut self, costs: impl FnOnce(&mut RequestGuard) -> usize) {
        if let Some((mut guard, _)) = self.guard.take() {
            self.process.unsettled(costs(&mut guard));
        }
    }

    /// Reads a frame for the costs that it may state.
    fn read(&mut self, frame: &Frame<Bytes>) {
        let Some((guard, held)) = &mut self.guard else {
            return;
        };
        if let Some(data) = frame.data_ref() {
            let bytes = guard.add_part(data);
            if !held.resize(bytes) {
                self.process.unsettled(guard.give_up_response());
                held.resize(0);
            }
        } else if let Some(fields) = frame.trailers_ref() {
            guard.add_trailers(fields);
        }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            if this.waits.is_none() {
                this.waits = Some(this.in_flight.hold_back());
            }
            return Poll::Pending;
        };
        this.waits = None;
        if let Some(line) = &mut this.line {
            match &frame {
                Some(Ok(frame)) => line.sent(frame.data_ref().map_or(0, |data| data.len() as u64)),
                Some(Err(_)) => line.broken(),
                None => {}
            }
        }
        match &frame {
            Some(Ok(frame)) => {
                this.read(frame);
                // Servers do not ask for more than an announced length, nor behind trailers.
                if frame.is_trailers() || this.body.is_end_stream() {
                    this.end(RequestGuard::end_response);
                }
            }
            Some(Err(_)) => this.end(RequestGuard::give_up_response),
            None => this.end(RequestGuard::end_response),
        }
        if let Some(Err(error)) = frame {
            // hyper sends nothing more once it has the error, not even the head.
            this.broken = Some(error);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ForwardedBody {
    /// A client that leaves before the end does not lower its cost.
    fn drop(&mut self) {
        self.end(RequestGuard::give_up_response);
    }
}

/// Ends the line of a request with its response, once that is sent. The status of a gRPC call that
/// we fail is that of the failure.
pub(super) fn logged(
    mut response: Response<ProxyBody>,
    mut line: Box<AccessLine>,
) -> Response<ProxyBody> {
    let failure = response.extensions().get().copied();
    line.status(failure.unwrap_or(response.status()));
    match response.body_mut() {
        Either::Left(_) if line.is_head => {}
        Either::Left(body) => line.sent(body.size_hint().lower()),
        Either::Right(body) => body.line = Some(line),
    }
    response
}
