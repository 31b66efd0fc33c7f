//! Connection: a connection to an upstream, by TCP or TLS, for one request at a time or for many.
//!
//! ```text
//!   http    TCP -------------------------> HTTP/1.1
//!   unix    Unix socket -----------------> HTTP/1.1
//!   h2c     TCP -------------------------> HTTP/2
//!   https   TCP --> TLS --> ALPN: h2 ----> HTTP/2
//!                      '--> anything else, or an upgrade: HTTP/1.1
//! ```

use std::future::{Future, poll_fn};
use std::mem::take;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, interval, sleep};
use tokio_rustls::TlsConnector;

use crate::error::{ForwardError, UpstreamFailure};
use crate::noted::{InterimReceiver, NotedStream, Notes};
use crate::outgoing::Form;
use crate::upload::UploadBody;

/// Maximum number of bytes of a response's head.
const MAX_HEAD: usize = 64 << 10;
/// Maximum number of fields of a response.
const MAX_FIELDS: usize = 256;
/// Maximum number of requests in flight on one HTTP/2 connection, if its peer allows as many.
const MAX_STREAMS: usize = 100;
/// Bytes of a response that the upstream may send before its client has read them: as many as are
/// held for a response of HTTP/1.1.
const STREAM_WINDOW: u32 = 64 << 10;
/// All streams together, so that clients that do not read take no bandwidth from others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;
/// Maximum number of bytes of a request's body that are held by a stream.
const MAX_SEND_BYTES: usize = 64 << 10;
/// How long bytes on a shared connection may remain unacknowledged, and how often an idle one is
/// probed, because all requests of a thread would wait on a connection whose peer has vanished.
/// Pings of HTTP/2 would detect this too, but gRPC servers close connections that send many.
const DEAD_AFTER: Duration = Duration::from_secs(15);
const PROBE: Duration = Duration::from_secs(5);
/// How often a new connection is asked whether the settings of its peer have come.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// One address of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamAddress {
    /// `HOST:PORT`, whose name is resolved for each connection, or `unix:/PATH`.
    pub name: String,
    /// How it is connected to.
    pub transport: Transport,
}

/// How an upstream is connected to.
#[derive(Clone, Debug)]
pub enum Transport {
    /// HTTP/1.1 without TLS.
    Http1,
    /// HTTP/1.1 over a Unix socket.
    Unix(PathBuf),
    /// HTTP/2 without TLS.
    Http2,
    /// TLS; HTTP/2 if the upstream chooses it.
    Tls(TlsTransport),
}

/// TLS to an upstream.
#[derive(Clone, derive_more::Debug)]
pub struct TlsTransport {
    #[debug(skip)]
    any: TlsConnector,
    /// For connections that may switch to another protocol, which HTTP/2 does not.
    #[debug(skip)]
    http1: TlsConnector,
    name: ServerName<'static>,
}

impl TlsTransport {
    /// Verifies certificates by `config`, whose protocols are replaced; they must be for `name`.
    pub fn new(config: &ClientConfig, name: ServerName<'static>) -> Self {
        let with = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        };
        Self {
            any: with(&[b"h2", b"http/1.1"]),
            http1: with(&[b"http/1.1"]),
            name,
        }
    }
}

/// Connections that a request can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    Any,
    /// Connections of HTTP/1.1, if the upstream speaks it.
    Http1,
}

/// Sends requests on a connection that was opened.
#[derive(Debug)]
pub(crate) enum Sender {
    Http1(Http1Sender),
    Http2(http2::SendRequest<UploadBody>, Stream),
}

/// Sends one request at a time.
#[derive(Debug)]
pub(crate) struct Http1Sender {
    pub(crate) sender: http1::SendRequest<UploadBody>,
    notes: Arc<Notes>,
    /// The timer of the last request, for the next one.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Number of streams of an HTTP/2 connection, and how many its peer allows.
#[derive(Debug)]
pub(crate) struct StreamCount {
    open: AtomicUsize,
    most: AtomicUsize,
}

/// One stream of a connection; dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Stream(pub(crate) Arc<StreamCount>);

impl StreamCount {
    /// Returns a stream if there is room for one more.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Stream> {
        let most = self.most.load(Ordering::Relaxed);
        let more = |open: usize| (open < most).then_some(open + 1);
        let taken = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Stream(Arc::clone(self)))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sender {
    /// Sends a request, which is taken when this is polled.
    pub(crate) async fn send(
        &mut self,
        request: &mut Request<UploadBody>,
        interim: Option<&InterimReceiver>,
    ) -> Result<Response<Incoming>, TrySendError<Request<UploadBody>>> {
        match self {
            Self::Http1(Http1Sender { sender, notes, .. }) => {
                notes.begin(interim);
                sender.try_send_request(take(request)).await
            }
            Self::Http2(sender, _) => sender.try_send_request(take(request)).await,
        }
    }

    /// Returns the notes of a connection of HTTP/1.1.
    pub(crate) fn notes(&self) -> Option<Arc<Notes>> {
        match self {
            Self::Http1(sender) => Some(Arc::clone(&sender.notes)),
            Self::Http2(..) => None,
        }
    }

    /// Returns a timer, which [`keep_timer`](Self::keep_timer) gives back.
    pub(crate) fn take_timer(&mut self) -> Pin<Box<Sleep>> {
        let kept = match self {
            Self::Http1(sender) => sender.timer.take(),
            Self::Http2(..) => None,
        };
        kept.unwrap_or_else(|| Box::pin(sleep(Duration::ZERO)))
    }

    pub(crate) fn keep_timer(&mut self, timer: Pin<Box<Sleep>>) {
        if let Self::Http1(sender) = self {
            sender.timer = Some(timer);
        }
    }

    /// Returns true if a byte of the response to the last request has come. One of HTTP/2 comes
    /// whole, but for interim ones.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self, Self::Http1(sender) if sender.notes.has_begun())
    }
}

impl UpstreamAddress {
    /// Returns the `Host` of requests that have none.
    pub(crate) fn host(&self) -> Option<HeaderValue> {
        match &self.transport {
            Transport::Unix(_) => Some(HeaderValue::from_static("localhost")),
            _ => HeaderValue::from_str(&self.name).ok(),
        }
    }

    /// Returns true if connections serve one request at a time, whatever the upstream says.
    pub(crate) const fn is_alone(&self) -> bool {
        matches!(self.transport, Transport::Http1 | Transport::Unix(_))
    }

    /// Returns the form of requests on a connection.
    pub(crate) fn form(&self, sender: &Sender) -> Form {
        match (sender, &self.transport) {
            (Sender::Http1(_), _) => Form::Http1,
            (Sender::Http2(..), Transport::Tls(_)) => {
                Form::Http2(Scheme::HTTPS, self.name.parse().ok())
            }
            (Sender::Http2(..), _) => Form::Http2(Scheme::HTTP, self.name.parse().ok()),
        }
    }

    /// Opens a connection, without a bound on the time that it takes.
    pub(crate) async fn open(&self, wanted: Wanted) -> Result<Sender, ForwardError> {
        const REFUSED: ForwardError = ForwardError::Upstream(UpstreamFailure::Refused);
        if let Transport::Unix(path) = &self.transport {
            let stream = UnixStream::connect(path).await.map_err(|_| REFUSED)?;
            return http1(stream).await.ok_or(REFUSED);
        }
        let stream = TcpStream::connect(&*self.name).await.map_err(|_| REFUSED)?;
        let _ = stream.set_nodelay(true); // a refusal costs speed only
        match &self.transport {
            Transport::Http1 | Transport::Unix(_) => http1(stream).await,
            Transport::Http2 => {
                watch_for_death(&stream);
                http2(stream).await
            }
            Transport::Tls(tls) => {
                let connector = match wanted {
                    Wanted::Any => &tls.any,
                    Wanted::Http1 => &tls.http1,
                };
                let stream = connector.connect(tls.name.clone(), stream).await;
                let stream = stream.map_err(|why| ForwardError::Tls(why.to_string()))?;
                let (tcp, session) = stream.get_ref();
                if session.alpn_protocol() == Some(b"h2") {
                    watch_for_death(tcp);
                    http2(stream).await
                } else {
                    http1(stream).await
                }
            }
        }
        .ok_or(REFUSED)
    }
}

async fn http1<S>(stream: S) -> Option<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder
        .writev(false) // most requests are a head alone, which is one part
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_FIELDS);
    let (stream, notes) = NotedStream::new(stream);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await; // its request has the error
    });
    Some(Sender::Http1(Http1Sender {
        sender,
        notes,
        timer: None,
    }))
}

/// Waits for the settings of the upstream, so that it is sent no more streams than it allows.
async fn http2<S>(stream: S) -> Option<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_max_send_streams(0) // until the settings come
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BYTES)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX));
    let (sender, mut connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
    // Another task of hyper receives them, and wakes nothing here.
    let mut looks = interval(LOOK_EVERY);
    let allowed = poll_fn(|context| {
        loop {
            if Pin::new(&mut connection).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            match connection.current_max_send_streams() {
                0 => ready!(looks.poll_tick(context)),
                allowed => return Poll::Ready(Some(allowed)),
            };
        }
    });
    let allowed = allowed.await?;
    let streams = Arc::new(StreamCount {
        open: AtomicUsize::new(1),
        most: AtomicUsize::new(allowed.min(MAX_STREAMS)),
    });
    let stream = Stream(Arc::clone(&streams));
    tokio::spawn(poll_fn(move |context| {
        let ended = Pin::new(&mut connection).poll(context);
        let allowed = connection.current_max_send_streams();
        let most = allowed.min(MAX_STREAMS);
        streams.most.store(most, Ordering::Relaxed);
        ended.map(drop) // its requests have the error
    }));
    Some(Sender::Http2(sender, stream))
}

/// Ends a connection whose peer does not acknowledge, which TCP alone notices after 15 minutes.
fn watch_for_death(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE);
    let _ = socket.set_tcp_keepalive(&keepalive); // a refusal costs only the notice
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(DEAD_AFTER));
}
