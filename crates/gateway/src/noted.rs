//! Noted: a stream of an upstream that notes whether a request is written and its response has
//! begun, and finds interim responses, such as `103 Early Hints`.
//!
//! ```text
//!   upstream --> HTTP/1.1 103 .. HTTP/1.1 200 .. --> hyper, which skips the first
//!                    '--> client, without fields of the connection
//! ```
//!
//! A request whose response has begun is not sent again. The bytes pass unchanged; the bytes of an
//! interim response are parsed once more, by `httparse`. The callback that hyper has for interim
//! responses would cost four allocations for each request, even if there are none.
//!
//! * Source: RFC 9110, "HTTP Semantics" (2022), section 15.2.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::Status;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::hop;

/// How an interim response begins.
const BEGINNING: &[u8] = b"HTTP/1.1 1";
/// Maximum number of bytes and of fields of one that is passed on.
const MAX_BYTES: usize = 16 << 10;
const MAX_FIELDS: usize = 64;

/// Takes the interim responses to requests.
pub trait TakeInterim: Send + Sync {
    /// Takes one to the request of this number, as the bytes of HTTP/1.1.
    fn take(&self, request: u64, head: &[u8]);
}

/// Receiver of the interim responses to one request.
#[derive(Clone, derive_more::Debug)]
pub struct InterimReceiver {
    /// Takes those of several requests.
    #[debug(skip)]
    pub taker: Arc<dyn TakeInterim>,
    /// Number of this one.
    pub request: u64,
}

/// The notes of a connection about its last request and the response to it.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    is_written: AtomicBool,
    has_begun: AtomicBool,
    interim: Mutex<Option<InterimReceiver>>,
}

impl Notes {
    /// Begins the notes about a request that is sent now.
    pub(crate) fn begin(&self, interim: Option<&InterimReceiver>) {
        *self.interim.lock() = interim.cloned();
        self.has_begun.store(false, Ordering::Relaxed);
        self.is_written.store(false, Ordering::Relaxed);
    }

    /// Returns true if a byte of the request was written, or was to be.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Returns true if a byte of the response has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
}

/// A stream that notes its bytes.
pub(crate) struct NotedStream<S> {
    stream: S,
    notes: Arc<Notes>,
    /// The beginning of a response, while that may be an interim one.
    head: Option<Vec<u8>>,
    /// True after interim responses alone: others run before the next read, because hyper reads on
    /// until a response begins, and an upstream may send hints without end.
    yields: bool,
}

impl<S> NotedStream<S> {
    pub(crate) fn new(stream: S) -> (Self, Arc<Notes>) {
        let notes = Arc::<Notes>::default();
        let stream = Self {
            stream,
            notes: Arc::clone(&notes),
            head: None,
            yields: false,
        };
        (stream, notes)
    }

    fn note(&mut self, bytes: &[u8]) {
        if !self.notes.has_begun() {
            self.notes.has_begun.store(true, Ordering::Relaxed);
            self.head = Some(Vec::new());
        }
        let Some(head) = &mut self.head else {
            return;
        };
        let continues = !head.is_empty();
        if continues || bytes.starts_with(BEGINNING) || BEGINNING.starts_with(bytes) {
            head.extend_from_slice(bytes);
            // Within a line, no head ends: one that comes byte by byte is parsed once for each line.
            let is_within = !bytes.contains(&b'\n') && head.len() <= MAX_BYTES;
            if is_within || pass_on(head, &self.notes.interim) {
                self.yields = true;
                return;
            }
        }
        self.head = None;
        // An idle connection must not keep the client's in memory.
        *self.notes.interim.lock() = None;
    }
}

/// Passes interim responses on and removes them. Returns true if more may come.
fn pass_on(bytes: &mut Vec<u8>, to: &Mutex<Option<InterimReceiver>>) -> bool {
    let mut rest = &bytes[..];
    while rest.starts_with(BEGINNING) {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let length = match response.parse(rest) {
            Ok(Status::Complete(length)) if length <= MAX_BYTES => length,
            Ok(Status::Partial) if rest.len() <= MAX_BYTES => break,
            Ok(_) | Err(_) => return false,
        };
        let status = response
            .code
            .and_then(|code| StatusCode::from_u16(code).ok());
        match status {
            Some(StatusCode::SWITCHING_PROTOCOLS) | None => return false,
            Some(StatusCode::CONTINUE) => {} // the gateway itself asks for the body
            Some(status) => {
                let to = to.lock();
                if let (Some(to), Some(head)) = (&*to, head(status, response.headers)) {
                    to.taker.take(to.request, &head);
                }
            }
        }
        rest = &rest[length..];
    }
    let more_may_come = rest.starts_with(BEGINNING) || BEGINNING.starts_with(rest);
    let passed = bytes.len() - rest.len();
    bytes.drain(..passed);
    more_may_come
}

/// Returns an interim response as a client receives it.
fn head(status: StatusCode, fields: &[httparse::Header<'_>]) -> Option<Vec<u8>> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    hop::remove_named(&mut headers);
    hop::remove(&mut headers, &[]);
    headers.remove(CONTENT_LENGTH); // it has no body (RFC 9110, section 8.6)
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in &headers {
        // A value has no end of line.
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    Some(head)
}

impl<S: AsyncRead + Unpin> AsyncRead for NotedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let came = &buffer.filled()[before..];
        if !came.is_empty() {
            self.note(came);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for NotedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.notes.is_written.store(true, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Taken(Mutex<Vec<u8>>);

    impl TakeInterim for Taken {
        fn take(&self, request: u64, head: &[u8]) {
            assert_eq!(request, 7);
            self.0.lock().extend_from_slice(head);
        }
    }

    /// Returns the interim responses that are passed on, if a response comes in parts of this size.
    fn passed(response: &str, size: usize) -> String {
        let (mut stream, notes) = NotedStream::new(());
        let taken = Arc::<Taken>::default();
        notes.begin(Some(&InterimReceiver {
            taker: Arc::clone(&taken) as _,
            request: 7,
        }));
        assert!(!notes.has_begun());
        for part in response.as_bytes().chunks(size) {
            stream.note(part);
            assert!(notes.has_begun());
        }
        assert!(stream.head.is_none(), "the response has begun");
        assert_eq!(Arc::strong_count(&taken), 1, "the receiver is let go");
        String::from_utf8(taken.0.lock().clone()).unwrap()
    }

    #[test]
    fn interim_responses_are_found_in_parts_of_any_size() {
        let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
        let came = "HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 103 Early Hints\r\nConnection: x-hop\r\nx-hop: 1\r\nContent-Length: 7\r\n\
            Transfer-Encoding: chunked\r\nLink: </a.css>; rel=preload\r\n\r\n\
            HTTP/1.1 103 Other words\r\nlink: </a.css>; rel=preload\r\n\r\n\
            HTTP/1.1 199\r\n\r\n\
            HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n";
        let expected = format!("{hint}{hint}HTTP/1.1 199 \r\n\r\n");
        for size in 1..=came.len() {
            assert_eq!(passed(came, size), expected, "{size}");
        }
    }

    #[test]
    fn others_run_between_reads_of_interim_responses_alone() {
        let came = "HTTP/1.1 103 X\r\n\r\n".repeat(1000) + "HTTP/1.1 200 OK\r\n\r\n";
        let (mut stream, notes) = NotedStream::new(came.as_bytes());
        notes.begin(None);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let (mut sizes, mut is_pending) = (Vec::new(), Vec::new());
        while sizes.iter().sum::<usize>() < came.len() {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = Pin::new(&mut stream).poll_read(&mut context, &mut buffer);
            is_pending.push(read.is_pending());
            sizes.push(buffer.filled().len());
        }
        let reads = came.len().div_ceil(4096);
        assert_eq!(is_pending, [false, true].repeat(reads)[..2 * reads - 1]);
    }

    #[test]
    fn other_responses_pass_nothing_on() {
        let long = format!(
            "HTTP/1.1 103 X\r\nlink: {}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "x".repeat(MAX_BYTES)
        );
        for response in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 101 X\r\nupgrade: websocket\r\n\r\nHTTP/1.1 103 X\r\n\r\n",
            "HTTP/1.1 103 X\r\na b: c\r\n\r\n",
            "HTTP/1.0 103 X\r\n\r\n",
            "SSH-2.0",
            &long,
        ] {
            for size in [1, 7, response.len()] {
                assert_eq!(passed(response, size), "", "{response:.40}");
            }
        }
    }
}
