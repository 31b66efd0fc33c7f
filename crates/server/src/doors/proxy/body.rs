//! Body: that of a response, which holds the request's permits to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use ratekeeper::tower::RequestGuard;
use ratekeeper_gateway::{DownloadBody, DownloadError};

use crate::metrics::Process;
use crate::pulse::{HeldBack, Pulse};

/// The body of a response: our own, or the upstream's.
#[derive(Debug)]
pub(crate) enum ProxyBody {
    Own(Full<Bytes>),
    Forwarded(Box<ForwardedBody>),
}

/// The body of a response of the upstream.
#[derive(Debug)]
pub(crate) struct ForwardedBody {
    body: DownloadBody,
    /// `None` once the response has ended.
    guard: Option<RequestGuard>,
    in_flight: InFlight,
    process: Arc<Process>,
    /// Set while the upstream is waited for, so that a client that leaves is noticed.
    waits: Option<HeldBack>,
}

/// A request in flight, to the end of its response.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Pulse>);

impl InFlight {
    pub(crate) fn begin(pulse: &Arc<Pulse>) -> Self {
        pulse.begin();
        Self(Arc::clone(pulse))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl ForwardedBody {
    pub(crate) fn new(
        body: DownloadBody,
        guard: Option<RequestGuard>,
        (in_flight, process): (InFlight, Arc<Process>),
    ) -> Self {
        let guard = guard.filter(|_| !body.is_end_stream());
        Self {
            body,
            guard,
            in_flight,
            process,
            waits: None,
        }
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            if self.waits.is_none() {
                self.waits = Some(self.in_flight.0.hold_back());
            }
            return Poll::Pending;
        };
        self.waits = None;
        if let Some(Err(error)) = &frame {
            self.process.upstream_failed(match error {
                DownloadError::Idle => "body_timeout",
                _ => "body_broken",
            });
        }
        // Servers do not ask for more than an announced length.
        if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
            self.guard = None;
        }
        Poll::Ready(frame)
    }
}

impl Default for ProxyBody {
    fn default() -> Self {
        Self::Own(Full::default())
    }
}

impl From<Full<Bytes>> for ProxyBody {
    fn from(body: Full<Bytes>) -> Self {
        Self::Own(body)
    }
}

impl From<ForwardedBody> for ProxyBody {
    fn from(body: ForwardedBody) -> Self {
        Self::Forwarded(Box::new(body))
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        match &mut *self {
            Self::Own(body) => {
                let frame = Pin::new(body).poll_frame(context);
                frame.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
            }
            Self::Forwarded(body) => body.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Forwarded(body) => body.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Forwarded(body) => body.body.size_hint(),
        }
    }
}
