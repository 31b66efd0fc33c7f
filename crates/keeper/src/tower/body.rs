//! Body: that of a response, which holds the request's loans and may settle its costs; or that of a
//! refusal.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::hold::RequestHold;
use super::measured::Measured;
use super::reporter::ResponseCosts;

pin_project! {
    /// The body of a response. Permits that the request holds (see
    /// [`in_flight`](super::RateLimitLayer::in_flight)) are given back when its last frame is
    /// returned, when it fails, and when it is dropped.
    ///
    /// ```
    /// use http::Response;
    /// use ratekeeper::tower::LimitedBody;
    ///
    /// /// The response of a limited service that sends texts.
    /// type Limited = Response<LimitedBody<String>>;
    /// ```
    pub struct LimitedBody<B> {
        #[pin]
        content: Content<B>,
        hold: Option<RequestHold>,
        costs: Option<Box<ResponseCosts>>,
    }
}

pin_project! {
    #[project = Projected]
    enum Content<B> {
        Served { #[pin] body: B },
        Refusal { bytes: Vec<u8> },
    }
}

impl<B> LimitedBody<B> {
    #[inline]
    pub(super) fn served(
        body: B,
        mut hold: Option<RequestHold>,
        mut costs: Option<Box<ResponseCosts>>,
    ) -> Self
    where
        B: Body,
    {
        let measured = hold.as_mut().and_then(RequestHold::measured);
        if (measured.is_some() || costs.is_some()) && body.is_end_stream() {
            if let Some(measured) = measured {
                measured.whole();
            }
            settle(&mut costs);
        }
        Self {
            content: Content::Served { body },
            hold,
            costs,
        }
    }

    /// Returns the body of the service; `None` for a refusal.
    #[cfg(feature = "actix")]
    pub(super) const fn inner(&self) -> Option<&B> {
        match &self.content {
            Content::Served { body } => Some(body),
            Content::Refusal { .. } => None,
        }
    }

    pub(super) fn refusal(bytes: Vec<u8>) -> Self {
        let content = Content::Refusal { bytes };
        Self {
            content,
            hold: None,
            costs: None,
        }
    }
}

/// Reports a frame to `measured`.
fn see<D: Buf, E>(measured: &mut Measured, frame: Option<&Result<Frame<D>, E>>) {
    match frame {
        None => measured.whole(),
        Some(Ok(frame)) => {
            if let Some(data) = frame.data_ref() {
                measured.sent(data.remaining());
            }
            if let Some(fields) = frame.trailers_ref() {
                measured.trailers(fields);
            }
        }
        Some(Err(_)) => {}
    }
}

/// Settles costs at the end of a body.
fn settle(costs: &mut Option<Box<ResponseCosts>>) {
    if let Some(costs) = costs.take() {
        costs.finish();
    }
}

/// Reads a frame for the costs that a body settles. After an error, or data in several pieces, the
/// estimates stay.
fn read<D: Buf, E>(costs: &mut Option<Box<ResponseCosts>>, frame: Option<&Result<Frame<D>, E>>) {
    let Some(reading) = costs else {
        return;
    };
    match frame {
        None => settle(costs),
        Some(Ok(frame)) => {
            if let Some(data) = frame.data_ref() {
                match data.chunk() {
                    whole if whole.len() == data.remaining() => reading.add(whole),
                    _ if reading.reads_data() => *costs = None,
                    _ => {}
                }
            } else if let Some(fields) = frame.trailers_ref() {
                reading.add_trailers(fields);
            }
        }
        Some(Err(_)) => *costs = None,
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body,
    B::Data: From<Vec<u8>>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let frame = match this.content.project() {
            Projected::Served { mut body } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                if let Some(measured) = this.hold.as_mut().and_then(RequestHold::measured) {
                    see(measured, frame.as_ref());
                    if matches!(frame, Some(Ok(_))) && body.is_end_stream() {
                        measured.whole();
                    }
                }
                read(this.costs, frame.as_ref());
                // Servers do not ask for more than an announced length, nor behind trailers.
                if let Some(Ok(last)) = &frame
                    && (last.is_trailers() || body.is_end_stream())
                {
                    settle(this.costs);
                }
                frame
            }
            Projected::Refusal { bytes } if bytes.is_empty() => None,
            Projected::Refusal { bytes } => Some(Ok(Frame::data(std::mem::take(bytes).into()))),
        };
        if !matches!(&frame, Some(Ok(_))) {
            drop(this.hold.take());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Served { body } => body.is_end_stream(),
            Content::Refusal { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Served { body } => body.size_hint(),
            Content::Refusal { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl<B> fmt::Debug for LimitedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedBody")
            .field("holds", &self.hold.is_some())
            .finish_non_exhaustive()
    }
}
