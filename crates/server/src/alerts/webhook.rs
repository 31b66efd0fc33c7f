//! Webhook: sends the start and the end of each alert to one receiver, signed.
//!
//! ```text
//!   notice --send--> queue of 1,000 --> one message at a time: up to 6 attempts, 10 s each
//!              |                                   2xx: delivered
//!              +-- full: dropped, counted          else: a wait that doubles, and again
//! ```
//!
//! Messages keep their order, because one is delivered or given up before the next is sent; at
//! worst that takes 91 s. A message may arrive twice, if its answer was lost: its `webhook-id` is
//! the same then.
//!
//! The receiver cannot make this process do anything: redirects are not followed, no body of an
//! answer is read, and its head is at most 16 KiB long. The URL is the operator's own, from the
//! policy; nothing of a request is in it.
//!
//! Source: "Standard Webhooks" (2023), for the headers and the signature.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ratekeeper::{Clock, read_secret};
use ratekeeper_core::Time;
use ratekeeper_policy::WebhookSettings;
use ratekeeper_resilience::{Backoff, Jitter, SplitMix};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::AlertNotice;
use super::message::{Message, signature, signing_key};
use crate::StartError;
use crate::context::ServiceContext;
use crate::metrics::Counter;
use crate::tls::trusting;

/// Maximum number of messages that wait; as many alerts as one limit can start at once.
const MAX_QUEUED: usize = super::MAX_WATCHED;
/// Maximum time of one attempt: connecting, sending, and the head of the answer.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Six attempts, up to 1, 2, 4, 8 and 16 s apart: a receiver that restarts misses nothing.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(16),
    attempts_max: 6,
    jitter: Jitter::Full,
};
/// Maximum time for which a service that stops delivers messages that wait.
pub(crate) const LAST_MESSAGES: Duration = Duration::from_secs(5);
/// Maximum size of the head of an answer.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Results of messages, as in the metric.
pub(crate) const RESULTS: [&str; 3] = ["delivered", "failed", "dropped"];

/// Number of messages by result: delivered, failed after all attempts, or dropped because the
/// queue was full.
#[derive(Debug, Default)]
pub(crate) struct WebhookCounts(pub(crate) [Counter; RESULTS.len()]);

/// Where messages are sent, and how they are signed.
pub(crate) struct Webhook {
    uri: Uri,
    host: String,
    port: u16,
    /// `None` without TLS.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    secret: Vec<u8>,
    key: aws_lc_rs::hmac::Key,
}

/// Omits the secret.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// Reads the secret and the certificates that the settings name; `home` is the folder of the
    /// policy.
    ///
    /// # Errors
    /// [`StartError::Alerts`] if one of them is missing or invalid.
    pub(crate) fn new(settings: &WebhookSettings, home: &Path) -> Result<Self, StartError> {
        let secret = read_secret("webhook.secret", &settings.secret.at_home(home));
        let secret = secret.map_err(|why| StartError::Alerts(why.to_string()))?;
        let secret = super::message::secret_bytes(&secret).ok_or_else(|| {
            StartError::Alerts(
                "`webhook.secret` must be 24 to 64 bytes in base64, after `whsec_`; make one with: \
                 echo whsec_$(openssl rand -base64 32)"
                    .into(),
            )
        })?;
        let wrong = |why: String| StartError::Alerts(format!("`webhook.url`: {why}"));
        let uri: Uri = settings
            .url
            .parse()
            .map_err(|why| wrong(format!("{why}")))?;
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
            let ca = settings.ca.as_deref().map(|ca| home.join(ca));
            let config = trusting(ca.as_deref())
                .map_err(|why| StartError::Alerts(format!("`webhook.ca`: {why}")))?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        let key = signing_key(&secret);
        Ok(Self {
            uri,
            host,
            port,
            tls,
            secret,
            key,
        })
    }

    pub(super) fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// Sends the message once, signed at `seconds` since 1970.
    async fn attempt(&self, message: &Message, seconds: u64) -> Result<(), String> {
        let request = self
            .request(message, seconds)
            .map_err(|why| why.to_string())?;
        let sent = async {
            let stream = TcpStream::connect((&*self.host, self.port)).await?;
            match &self.tls {
                None => exchange(stream, request).await,
                Some((client, name)) => {
                    let handshake = client.connect(name.clone(), stream).await;
                    exchange(handshake?, request).await
                }
            }
        };
        match timeout(ATTEMPT, sent).await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(format!("answered {status}")),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err(format!("no answer within {} s", ATTEMPT.as_secs())),
        }
    }

    fn request(&self, message: &Message, seconds: u64) -> http::Result<Request<Full<Bytes>>> {
        let authority = self
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        let target = self
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        Request::post(target)
            .header(header::HOST, authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("ratekeeper/", env!("CARGO_PKG_VERSION")),
            )
            .header("webhook-id", &*message.id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature(&self.key, message, seconds))
            .body(Full::new(message.body.clone()))
    }
}

/// Sends one request, and returns the status of its answer; the connection ends then.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> io::Result<StatusCode>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = &mut answer => answer,
        // A receiver may close the connection in the moment of its answer, which is there then.
        _ = connection => answer.await,
    };
    Ok(answer.map_err(io::Error::other)?.status())
}

/// The end of the queue that takes messages.
#[derive(Debug)]
pub(crate) struct WebhookQueue {
    queue: mpsc::Sender<Message>,
    counts: Arc<WebhookCounts>,
}

/// The end of the queue that delivers them.
#[derive(Debug)]
pub(crate) struct Delivery {
    webhook: Webhook,
    queue: Mutex<mpsc::Receiver<Message>>,
    counts: Arc<WebhookCounts>,
}

/// Creates the queue before a webhook.
pub(crate) fn queue(webhook: Webhook) -> (WebhookQueue, Delivery) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED);
    let counts = Arc::<WebhookCounts>::default();
    let taking = WebhookQueue {
        queue: sender,
        counts: Arc::clone(&counts),
    };
    let delivery = Delivery {
        webhook,
        queue: Mutex::new(receiver),
        counts,
    };
    (taking, delivery)
}

impl WebhookQueue {
    /// Queues the message of a notice; drops and counts it if the queue is full.
    pub(super) fn send(&self, notice: &AlertNotice, unix_millis: &dyn Fn(Time) -> u64, now: Time) {
        let message = Message::new(notice, unix_millis, now);
        if self.queue.try_send(message).is_err() {
            self.counts.0[2].add(1);
        }
    }

    /// Returns the number of messages by result: see [`RESULTS`].
    pub(crate) fn counts(&self) -> [u64; RESULTS.len()] {
        self.counts.0.each_ref().map(Counter::count)
    }
}

/// Delivers messages until `closing` is true and none waits.
pub(crate) async fn deliver<C: Clock>(
    shared: Arc<ServiceContext<C>>,
    delivery: Arc<Delivery>,
    mut closing: watch::Receiver<bool>,
) {
    let mut queue = delivery.queue.lock().await;
    loop {
        let message = tokio::select! {
            message = queue.recv() => message,
            // An error: the service has ended. Its value holds a lock, so it is dropped here.
            () = async { drop(closing.wait_for(|closing| *closing).await) } => {
                queue.close(); // messages that wait are still received
                continue;
            }
        };
        let Some(message) = message else { return };
        let delivered = delivery.deliver(&shared, &message).await;
        delivery.counts.0[usize::from(!delivered)].add(1);
    }
}

impl Delivery {
    /// Makes attempts until one succeeds; returns false if none did.
    async fn deliver<C: Clock>(&self, shared: &ServiceContext<C>, message: &Message) -> bool {
        let mut attempts = BACKOFF.attempts();
        let mut random = SplitMix::seeded();
        loop {
            let Err(why) = self.webhook.attempt(message, shared.unix_seconds()).await else {
                return true;
            };
            let Some(wait) = attempts.next_wait(&mut random) else {
                tracing::error!(
                    event = "webhook.failed",
                    id = &*message.id,
                    attempts = attempts.made(),
                    "{why}"
                );
                return false;
            };
            tracing::warn!(
                event = "webhook.retried",
                id = &*message.id,
                attempts = attempts.made(),
                "{why}"
            );
            sleep(wait.into()).await;
        }
    }
}
