//! Watched: a stream that notes its bytes, and sleeps until the first.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::ready;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::pulse::Pulse;

/// Maximum number of bytes read of a connection that is closed anyway.
const LAST_BYTES: usize = 4096;
/// How a client announces HTTP/2 (RFC 9113, section 3.4); no method of HTTP/1
/// begins so.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The stream of a connection, without TLS or with it.
type ClientStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A stream that notes its bytes.
#[derive(Debug)]
pub(crate) struct Watched {
    stream: ClientStream,
    pulse: Arc<Pulse>,
    /// Bytes that were read before, and are read again first.
    before: Bytes,
    /// True if the client may go on after the end of our side.
    is_tunnel: bool,
}

impl Watched {
    pub(crate) fn new(stream: ClientStream, pulse: Arc<Pulse>) -> Self {
        Self {
            stream,
            pulse,
            before: Bytes::new(),
            is_tunnel: false,
        }
    }

    /// The same connection after an upgrade: its two sides end apart.
    pub(crate) fn into_tunnel(self) -> Self {
        Self {
            is_tunnel: true,
            ..self
        }
    }

    /// Puts back bytes that were read.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        self.before = bytes;
    }

    /// Returns true if the client has closed the connection; wakes the connection when it does,
    /// unless the client has sent more before that.
    fn client_left(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        match &mut self.stream {
            Either::Left(stream) => {
                let peeked = stream.poll_peek(cx, &mut buffer);
                matches!(peeked, Poll::Ready(Ok(0) | Err(_)))
            }
            // The end of TLS is a message, which only reading finds.
            Either::Right(stream) if self.before.is_empty() => {
                let read = Pin::new(&mut **stream).poll_read(cx, &mut buffer);
                let more = Bytes::copy_from_slice(buffer.filled());
                if read.is_ready() && !more.is_empty() {
                    self.before = more;
                    self.note_read();
                    return false;
                }
                read.is_ready()
            }
            Either::Right(_) => false,
        }
    }

    /// Sends the interim responses that wait for the client, if hyper has nothing to send.
    fn send_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pulse = Arc::clone(&self.pulse);
        pulse.interim.poll_send(|bytes| {
            let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
            self.note_write(&written);
            written
        })
    }

    fn note_read(&self) {
        self.pulse.moved.store(true, Ordering::Relaxed);
        self.pulse.unclaimed.store(true, Ordering::Relaxed);
    }

    fn note_write<T>(&self, written: &Poll<T>) {
        self.pulse
            .unsent
            .store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.pulse.moved.store(true, Ordering::Relaxed);
        }
    }
}

/// A stream that has received nothing yet.
#[derive(Debug)]
pub(crate) struct Asleep {
    stream: Option<Watched>,
    first: [u8; PREFACE.len()],
    read: usize,
}

/// A stream that has received bytes.
#[derive(Debug)]
pub(crate) enum Wakes {
    Http1(Watched),
    Http2(Watched),
}

impl Asleep {
    pub(crate) fn new(stream: Watched) -> Self {
        Self {
            stream: Some(stream),
            first: [0; PREFACE.len()],
            read: 0,
        }
    }

    /// Ready when enough bytes have come to find the version; `None` at the end of the stream.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Wakes>> {
        loop {
            let Some(stream) = &mut self.stream else {
                return Poll::Ready(None); // it has woken before
            };
            let mut buffer = ReadBuf::new(&mut self.first[self.read..]);
            let end = match Pin::new(stream).poll_read(context, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result.is_err() || buffer.filled().is_empty(),
            };
            self.read += buffer.filled().len();
            let first = &self.first[..self.read];
            if end && first.is_empty() {
                return Poll::Ready(None);
            }
            let preface = PREFACE.starts_with(first);
            if preface && !end && first.len() < PREFACE.len() {
                continue;
            }
            let first = Bytes::copy_from_slice(first);
            let whole = first.len() == PREFACE.len();
            return Poll::Ready(self.stream.take().map(|mut stream| {
                stream.put_back(first);
                if preface && whole {
                    stream.pulse.set_h2();
                    Wakes::Http2(stream)
                } else {
                    Wakes::Http1(stream)
                }
            }));
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let again = self.before.len().min(buffer.remaining());
        if again > 0 {
            buffer.put_slice(&self.before[..again]);
            self.before.advance(again);
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.note_read();
        }
        if again > 0 {
            return Poll::Ready(Ok(())); // an error or the end comes again
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.pulse.interim.has_begun() {
            ready!(self.send_interim(cx))?;
        }
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_write(&result);
        result
    }

    /// Called whenever the connection is polled, after the last byte that hyper has to send. While
    /// an answer is held back, nothing is read that would show that the client has left, so this
    /// checks for it. A client that closes only its own direction is taken for gone, as proxies do.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pulse.holds_back() && !self.pulse.is_h2() && self.client_left(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.pulse.interim.waits() {
            ready!(self.send_interim(cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        if result.is_ready() && !self.is_tunnel {
            // Unread bytes would make the close a reset, which can cost the client the answer that
            // names the error in them.
            let tcp = match &self.stream {
                Either::Left(stream) => stream,
                Either::Right(stream) => stream.get_ref().0,
            };
            let _ = tcp.try_read(&mut [0; LAST_BYTES]);
        }
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_write(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
