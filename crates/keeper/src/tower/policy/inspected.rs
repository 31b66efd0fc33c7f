//! Inspected: a body of which the beginning was read before its request was decided.
//!
//! ```text
//!   client --- user=ann&x=.. ---> held, at most a maximum --> whole? the values that limits count by
//!                                   |                            no? no values
//!                                   '--> service: the held part, then the rest as it comes
//! ```
//!
//! The service receives each byte, the trailers and an error in the order in which they came.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// Default maximum number of bytes of a body that are read for limits: 64 KiB.
pub const MAX_INSPECTED_BODY: usize = 64 << 10;

/// A whole body, in the extensions of its request, for limits that count by its values. A front end
/// that asks by [`ByPolicy::decide`](crate::tower::ByPolicy::decide) puts it there; for the layer,
/// [`inspect_bodies`](crate::tower::RateLimitLayer::inspect_bodies) does.
///
/// ```
/// use ratekeeper::tower::InspectedBytes;
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(InspectedBytes("user=ann".into()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectedBytes(pub Bytes);

/// A body of which the beginning may have been read; it yields the same content as the body inside.
///
/// ```
/// use bytes::Bytes;
/// use http_body::Body;
/// use http_body_util::Full;
/// use ratekeeper::tower::InspectedBody;
///
/// let body = InspectedBody::new(Full::new(Bytes::from_static(b"user=ann")));
/// assert_eq!(body.size_hint().exact(), Some(8));
/// ```
pub struct InspectedBody<B: Body> {
    /// Content that was read: the first part, which is not copied, or all parts.
    held: Bytes,
    /// Content of several parts, before it is moved to `held`.
    joined: BytesMut,
    trailers: Option<HeaderMap>,
    failed: Option<B::Error>,
    has_ended: bool,
    rest: B,
}

impl<B> InspectedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    /// A body of which nothing was read.
    pub fn new(body: B) -> Self {
        Self {
            held: Bytes::new(),
            joined: BytesMut::new(),
            trailers: None,
            failed: None,
            has_ended: body.is_end_stream(),
            rest: body,
        }
    }

    /// Reads one more part. Returns the number of bytes that it holds then, or `None` at the end of
    /// the body, or after an error.
    pub fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Option<usize>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.rest).poll_frame(context));
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                self.hold(data);
                self.has_ended = self.rest.is_end_stream();
                return Poll::Ready(Some(self.held.len() + self.joined.len()));
            }
            Some(Ok(Err(frame))) => self.trailers = frame.into_trailers().ok(),
            Some(Err(error)) => self.failed = Some(error),
            None => {}
        }
        self.has_ended = true;
        Poll::Ready(None)
    }

    /// Keeps one buffer, however many parts a client sends.
    fn hold(&mut self, data: Bytes) {
        if self.held.is_empty() && self.joined.is_empty() {
            self.held = data;
            return;
        }
        if self.joined.is_empty() {
            self.joined
                .extend_from_slice(&std::mem::take(&mut self.held));
        }
        self.joined.extend_from_slice(&data);
    }

    fn join(&mut self) {
        if !self.joined.is_empty() {
            self.held = std::mem::take(&mut self.joined).freeze();
        }
    }

    /// Returns the whole content; `None` if it was not read to its end, has more than `max` bytes,
    /// or broke off.
    pub fn whole(&mut self, max: usize) -> Option<InspectedBytes> {
        self.join();
        let is_whole = self.has_ended && self.failed.is_none() && self.held.len() <= max;
        is_whole.then(|| InspectedBytes(self.held.clone()))
    }

    /// Returns the error after which the body broke off while it was read, once.
    pub fn take_error(&mut self) -> Option<B::Error> {
        self.failed.take()
    }

    /// Replaces the content that was read by equal bytes, which may for example count towards a
    /// budget until they are dropped.
    #[must_use]
    pub fn map_held(mut self, replace: impl FnOnce(Bytes) -> Bytes) -> Self {
        self.join();
        if !self.held.is_empty() {
            self.held = replace(self.held);
        }
        self
    }
}

impl<B> Body for InspectedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        this.join();
        if !this.held.is_empty() {
            let held = std::mem::take(&mut this.held);
            return Poll::Ready(Some(Ok(Frame::data(held))));
        }
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if this.has_ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut this.rest).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        let holds = !self.held.is_empty() || !self.joined.is_empty();
        let holds = holds || self.failed.is_some() || self.trailers.is_some();
        !holds && (self.has_ended || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = (self.held.len() + self.joined.len()) as u64;
        if self.has_ended {
            return SizeHint::with_exact(held);
        }
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

/// Nothing but the body inside is ever pinned.
impl<B: Body + Unpin> Unpin for InspectedBody<B> {}

impl<B: Body> fmt::Debug for InspectedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InspectedBody")
            .field("held", &(self.held.len() + self.joined.len()))
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}
