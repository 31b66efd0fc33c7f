//! Connection state: what serves a connection, and the bounds of the heads of its requests.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;

use super::pulse::Pulse;
use super::watched::{Asleep, Wakes, Watched};

/// Maximum number of bytes of a request's head, unless the listener has a setting.
pub(crate) const MAX_HEAD_BYTES: usize = 16 << 10;
/// Maximum number of header fields of a request, likewise.
pub(crate) const MAX_HEADERS: usize = 100;
/// Maximum number of requests in flight on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;

pub(super) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The bounds of the head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadBounds {
    /// Also the size of hyper's buffer for a connection.
    pub(crate) bytes: usize,
    /// Over HTTP/2, only the bytes are bounded.
    pub(crate) fields: usize,
}

impl Default for HeadBounds {
    fn default() -> Self {
        Self {
            bytes: MAX_HEAD_BYTES,
            fields: MAX_HEADERS,
        }
    }
}

/// The state of a connection.
pub(super) enum State<S: HttpService<Incoming>> {
    /// No request has begun.
    Asleep(Asleep),
    One(Box<http1::Connection<TokioIo<Watched>, S>>),
    Two(Pin<Box<http2::Connection<TokioIo<Watched>, S, TokioExecutor>>>),
}

/// The next event of a connection.
pub(super) enum NextEvent {
    Wakes(Wakes),
    End(Option<hyper::Error>),
}

impl<S, F, B> State<S>
where
    S: HttpService<Incoming, ResBody = B, Error = Infallible, Future = F> + Unpin,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxedError>> + Send + 'static,
{
    pub(super) fn one(stream: Watched, service: S, bounds: HeadBounds) -> Self {
        let mut builder = http1::Builder::new();
        builder
            .header_read_timeout(None) // `Pulse` bounds it, at no cost per request
            .max_buf_size(bounds.bytes)
            // A client that has closed its sending side is answered all the same; and hyper need
            // not get a buffer ready to look for that in the middle of each request.
            .half_close(true)
            // Answers are small: one copy costs less than a vectored write. And the rest of an
            // interim response is sent by `Watched::poll_write` only.
            .writev(false)
            .max_headers(bounds.fields);
        Self::One(Box::new(
            builder.serve_connection(TokioIo::new(stream), service),
        ))
    }

    pub(super) fn two(stream: Watched, service: S, bounds: HeadBounds) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(bounds.bytes).unwrap_or(u32::MAX));
        Self::Two(Box::pin(
            builder.serve_connection(TokioIo::new(stream), service),
        ))
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<NextEvent> {
        match self {
            Self::Asleep(asleep) => asleep
                .poll(context)
                .map(|woken| woken.map_or(NextEvent::End(None), NextEvent::Wakes)),
            // Errors are the client's: it left, or sent bytes that are not HTTP and got the reason.
            Self::One(connection) => Pin::new(&mut **connection)
                .poll(context)
                .map(|end| NextEvent::End(end.err())),
            Self::Two(connection) => {
                let end = connection.as_mut().poll(context);
                end.map(|end| NextEvent::End(end.err()))
            }
        }
    }

    /// Serves the protocol that the last answer has switched to, if it has.
    pub(super) async fn switch(self, upgrade: &Upgrade, pulse: &Pulse) {
        if let (Self::One(connection), Some(protocol)) = (self, upgrade.take()) {
            let parts = connection.into_parts();
            let mut stream = parts.io.into_inner();
            stream.put_back(parts.read_buf);
            tokio::select! {
                () = pulse.closed() => {}
                () = protocol(stream.into_tunnel()) => {}
            }
        }
    }

    /// Returns the same state without its buffers; HTTP/2 and partly received heads are kept.
    pub(super) fn asleep(self, service: impl Fn() -> S, bounds: HeadBounds) -> Self {
        let Self::One(connection) = self else {
            return self;
        };
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner();
        if parts.read_buf.is_empty() {
            return Self::Asleep(Asleep::new(stream));
        }
        stream.put_back(parts.read_buf);
        Self::one(stream, service(), bounds)
    }
}

/// Serves the stream of a connection from the first byte after the answer.
pub(crate) type Protocol = Box<dyn FnOnce(Watched) -> Serving + Send>;
/// The future of that.
pub(crate) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The protocol that a connection switches to; usually none.
#[derive(Default, derive_more::Debug)]
#[debug("Upgrade")]
pub(crate) struct Upgrade(Mutex<Option<Protocol>>);

impl Upgrade {
    /// Sets the protocol, before the answer is sent.
    pub(crate) fn set(&self, protocol: Protocol) {
        *self.0.lock() = Some(protocol);
    }

    pub(crate) fn take(&self) -> Option<Protocol> {
        self.0.lock().take()
    }
}
