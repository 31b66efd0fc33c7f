//! Body: the body of a response, which holds the request's loans and may settle its costs; or of
//! a refusal.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::gate::measured::Measured;
use super::hold::RequestHold;
use super::reporter::{self, ResponseCosts};

pin_project! {
    /// The body of a response. Permits that the request holds (see
    /// [`in_flight`](super::RateLimitLayer::in_flight)) are given back when its end is read, behind
    /// the last frame, when it fails, and when it is dropped; those of a response without content,
    /// with its head.
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
    }
}

pin_project! {
    // Two variants, so that a body on the heap, as frameworks have, stays two words here: a
    // response of 128 bytes is moved in place, and a longer one by a call.
    #[project = Projected]
    enum Content<B> {
        // The body of a request that holds nothing.
        Free { #[pin] body: B },
        Other { other: Pin<Box<Other<B>>> },
    }
}

pin_project! {
    #[project = OtherProjected]
    enum Other<B> {
        Held {
            #[pin]
            body: B,
            hold: Option<RequestHold>,
            costs: Option<Box<ResponseCosts>>,
        },
        Refusal { bytes: Vec<u8> },
    }
}

impl<B> LimitedBody<B> {
    #[inline]
    pub(super) const fn free(body: B) -> Self {
        let content = Content::Free { body };
        Self { content }
    }

    #[inline]
    pub(super) fn served(
        body: B,
        mut hold: Option<RequestHold>,
        mut costs: Option<Box<ResponseCosts>>,
    ) -> Self
    where
        B: Body,
    {
        if hold.is_none() && costs.is_none() {
            return Self::free(body);
        }
        if body.is_end_stream() {
            if let Some(measured) = hold.as_mut().and_then(RequestHold::measured) {
                measured.whole();
            }
            reporter::settle(&mut costs);
            return Self::free(body);
        }
        Self::other(Other::Held { body, hold, costs })
    }

    /// Returns the body of the service; `None` for a refusal.
    #[cfg(feature = "actix")]
    pub(super) fn inner(&self) -> Option<&B> {
        self.content().ok()
    }

    /// Returns the body of the service.
    ///
    /// # Errors
    /// The text of a refusal.
    fn content(&self) -> Result<&B, &[u8]> {
        match &self.content {
            Content::Free { body } => Ok(body),
            Content::Other { other } => match &**other {
                Other::Held { body, .. } => Ok(body),
                Other::Refusal { bytes } => Err(bytes),
            },
        }
    }

    pub(super) fn refusal(bytes: Vec<u8>) -> Self {
        Self::other(Other::Refusal { bytes })
    }

    fn other(other: Other<B>) -> Self {
        let other = Box::pin(other);
        let content = Content::Other { other };
        Self { content }
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
        match self.project().content.project() {
            Projected::Free { body } => body.poll_frame(context),
            Projected::Other { other } => other.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.content()
            .map_or_else(<[u8]>::is_empty, B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let of_refusal = |bytes: &[u8]| SizeHint::with_exact(bytes.len() as u64);
        self.content().map_or_else(of_refusal, B::size_hint)
    }
}

/// What a body yields: a frame or an error, or `None` at its end.
type NextFrame<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

impl<B> Other<B>
where
    B: Body,
    B::Data: From<Vec<u8>>,
{
    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<NextFrame<B>> {
        let (mut body, hold, costs) = match self.project() {
            OtherProjected::Held { body, hold, costs } => (body, hold, costs),
            OtherProjected::Refusal { bytes } if bytes.is_empty() => return Poll::Ready(None),
            OtherProjected::Refusal { bytes } => {
                let bytes = std::mem::take(bytes).into();
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        };
        let frame = ready!(body.as_mut().poll_frame(context));
        if let Some(measured) = hold.as_mut().and_then(RequestHold::measured) {
            see(measured, frame.as_ref());
            if matches!(frame, Some(Ok(_))) && body.is_end_stream() {
                measured.whole();
            }
        }
        reporter::read(costs, frame.as_ref());
        // Servers do not ask for more than an announced length, nor behind trailers.
        if let Some(Ok(last)) = &frame
            && (last.is_trailers() || body.is_end_stream())
        {
            reporter::settle(costs);
        }
        if !matches!(&frame, Some(Ok(_))) {
            drop(hold.take());
        }
        Poll::Ready(frame)
    }
}

debug_fields!([B] LimitedBody<B> {});

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    type Boxed = Pin<Box<dyn Body<Data = bytes::Bytes, Error = ()> + Send>>;

    #[test]
    fn a_response_is_no_larger_than_that_of_the_service() {
        assert_eq!(size_of::<LimitedBody<Boxed>>(), size_of::<Boxed>());
        assert_eq!(size_of::<Response<LimitedBody<Boxed>>>(), 128);
    }
}
