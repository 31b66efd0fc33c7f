//! HTTP receiver: a server that takes messages of this process, as the policy names it.
//!
//! ```text
//!   message --connect, TLS--> one POST --> status, fields, at most `max_body` bytes
//! ```
//!
//! The receiver cannot make this process do anything: redirects are not followed, the head of an
//! answer is at most 16 KiB long, and of its body no more is read than the caller asks for. The URL
//! is the operator's own, from the policy; nothing of a request is in it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response, Uri, header, request};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::tls::trusting;

/// Maximum time of one attempt: connecting, sending, and the answer.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Maximum time between two attempts of a service that stops.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum size of the head of an answer.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Where messages are sent.
#[derive(derive_more::Debug)]
pub(crate) struct HttpReceiver {
    uri: Uri,
    host: String,
    port: u16,
    /// `None` without TLS.
    #[debug(skip)]
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl HttpReceiver {
    /// Returns the receiver at a URL that the policy has checked; `ca` is the file of its
    /// authorities, `None` for those of the system. `fields` are the names of both in the policy.
    ///
    /// # Errors
    /// A sentence that names the wrong field.
    pub(crate) fn new(fields: [&str; 2], url: &str, ca: Option<&Path>) -> Result<Self, String> {
        let wrong = |why: String| format!("`{}`: {why}", fields[0]);
        let uri: Uri = url.parse().map_err(|why| wrong(format!("{why}")))?;
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().unwrap_or_default();
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let tls = if encrypted {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|why| wrong(why.to_string()))?;
            let config = trusting(ca).map_err(|why| format!("`{}`: {why}", fields[1]))?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        Ok(Self {
            uri,
            host,
            port,
            tls,
        })
    }

    /// Begins a message to the URL, with `path` behind its own.
    pub(crate) fn post(&self, path: &str) -> request::Builder {
        let authority = self.uri.authority();
        let authority = authority.map_or("", |authority| authority.as_str());
        let own = self.uri.path_and_query();
        let own = own.map_or("/", |own| own.as_str());
        let target = match path {
            "" => own.to_owned(),
            path => format!("{}{path}", own.trim_end_matches('/')),
        };
        Request::post(target)
            .header(header::HOST, authority)
            .header(
                header::USER_AGENT,
                concat!("ratekeeper/", env!("CARGO_PKG_VERSION")),
            )
    }

    /// Sends a message once; reads at most `max_body` bytes of the answer, whose body is empty if
    /// it is longer.
    ///
    /// # Errors
    /// When no answer comes, in words.
    pub(crate) async fn send(
        &self,
        message: Request<Full<Bytes>>,
        max_body: usize,
    ) -> Result<Response<Bytes>, String> {
        let sent = async {
            let stream = TcpStream::connect((&*self.host, self.port)).await?;
            match &self.tls {
                None => exchange(stream, message, max_body).await,
                Some((client, name)) => {
                    let handshake = client.connect(name.clone(), stream).await;
                    exchange(handshake?, message, max_body).await
                }
            }
        };
        match timeout(ATTEMPT, sent).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err(format!("no answer within {} s", ATTEMPT.as_secs())),
        }
    }
}

/// Returns once `closing` is true, or the service has ended.
pub(crate) async fn closed(closing: &mut watch::Receiver<bool>) {
    // Its value holds a lock, so it is dropped here.
    drop(closing.wait_for(|closing| *closing).await);
}

/// Returns the next message; `None` once `closing` is true and no message waits.
pub(crate) async fn next<M>(
    queue: &mut mpsc::Receiver<M>,
    closing: &mut watch::Receiver<bool>,
) -> Option<M> {
    tokio::select! {
        message = queue.recv() => return message,
        () = closed(closing), if !queue.is_closed() => queue.close(),
    }
    queue.recv().await // messages that wait are still received
}

/// Waits between two attempts; at most a second from the time at which `closing` is true, for
/// a receiver that is back by then.
pub(crate) async fn pause(wait: Duration, closing: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = sleep(wait) => {}
        () = async { closed(closing).await; sleep(LAST_PAUSE).await } => {}
    }
}

/// Sends one request, and returns its answer; the connection ends then.
async fn exchange<S>(
    stream: S,
    message: Request<Full<Bytes>>,
    max_body: usize,
) -> io::Result<Response<Bytes>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let mut answer = std::pin::pin!(async {
        let answer = sender.send_request(message).await;
        let (head, body) = answer.map_err(io::Error::other)?.into_parts();
        let read = match max_body {
            0 => None,
            most => Limited::new(body, most).collect().await.ok(),
        };
        let body = read.map(Collected::to_bytes).unwrap_or_default();
        Ok(Response::from_parts(head, body))
    });
    tokio::select! {
        answer = &mut answer => answer,
        // A receiver may close the connection in the moment of its answer, which is there then.
        _ = connection => answer.await,
    }
}
