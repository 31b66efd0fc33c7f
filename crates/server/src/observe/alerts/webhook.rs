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
//! No body of an answer is read.
//!
//! Source: "Standard Webhooks" (2023), for the headers and the signature.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use ratekeeper::read_secret;
use ratekeeper_core::Time;
use ratekeeper_policy::WebhookSettings;
use ratekeeper_resilience::{Backoff, Jitter, SplitMix};
use tokio::sync::{Mutex, mpsc, watch};

use super::AlertNotice;
use super::message::{Message, signature, signing_key};
use crate::StartError;
use crate::counter::Counter;
use crate::serve::http_receiver::{HttpReceiver, next, pause};

/// Maximum number of messages that wait; as many alerts as one limit can start at once.
const MAX_QUEUED: usize = super::MAX_WATCHED;
/// Six attempts, up to 1, 2, 4, 8 and 16 s apart: a receiver that restarts misses nothing.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(16),
    attempts_max: 6,
    jitter: Jitter::Full,
};

/// Results of messages, as in the metric.
pub(crate) const RESULTS: [&str; 3] = ["delivered", "failed", "dropped"];

/// Number of messages by result: delivered, failed after all attempts, or dropped because the
/// queue was full.
type WebhookCounts = [Counter; RESULTS.len()];

/// Where messages are sent, how they are signed, and those that wait.
#[derive(derive_more::Debug)]
pub(crate) struct Webhook {
    receiver: HttpReceiver,
    #[debug(skip)]
    pub(super) key: aws_lc_rs::hmac::Key,
    queue: mpsc::Sender<Message>,
    /// Locked by the task that delivers.
    waiting: Mutex<mpsc::Receiver<Message>>,
    counts: WebhookCounts,
}

impl Webhook {
    /// Reads the secret and the certificates that the settings name; `home` is the folder of the
    /// policy.
    ///
    /// # Errors
    /// [`StartError::Alerts`] if one of them is missing or invalid.
    pub(crate) fn new(settings: &WebhookSettings, home: &Path) -> Result<Self, StartError> {
        let secret = read_secret("webhook.secret", &settings.secret.at_home(home));
        let secret = secret.map_err(StartError::Alerts)?;
        let key = signing_key(&secret).ok_or_else(|| {
            StartError::Alerts(
                "`webhook.secret` must be 24 to 64 bytes in base64, after `whsec_`; make one with: \
                 echo whsec_$(openssl rand -base64 32)"
                    .into(),
            )
        })?;
        let ca = settings.ca.as_deref().map(|ca| home.join(ca));
        let fields = ["webhook.url", "webhook.ca"];
        let receiver = HttpReceiver::new(fields, &settings.url, ca.as_deref());
        let receiver = receiver.map_err(StartError::Alerts)?;
        let (queue, waiting) = mpsc::channel(MAX_QUEUED);
        Ok(Self {
            receiver,
            key,
            queue,
            waiting: Mutex::new(waiting),
            counts: WebhookCounts::default(),
        })
    }

    /// Queues the message of a notice; drops and counts it if the queue is full.
    pub(crate) fn send(&self, notice: &AlertNotice, unix_millis: &dyn Fn(Time) -> u64, now: Time) {
        let message = Message::new(notice, unix_millis, now);
        if self.queue.try_send(message).is_err() {
            self.counts[2].add(1);
        }
    }

    /// Returns the number of messages by result: see [`RESULTS`].
    pub(crate) fn counts(&self) -> [u64; RESULTS.len()] {
        self.counts.each_ref().map(Counter::count)
    }

    /// Delivers messages until `closing` is true and none waits.
    pub(crate) async fn deliver_all(
        self: Arc<Self>,
        unix_seconds: impl Fn() -> u64,
        mut closing: watch::Receiver<bool>,
    ) {
        let mut waiting = self.waiting.lock().await;
        while let Some(message) = next(&mut waiting, &mut closing).await {
            let delivered = self.deliver(&unix_seconds, &message, &mut closing);
            let delivered = delivered.await;
            self.counts[usize::from(!delivered)].add(1);
        }
    }

    /// Makes attempts until one succeeds; returns false if none did.
    async fn deliver(
        &self,
        unix_seconds: impl Fn() -> u64,
        message: &Message,
        closing: &mut watch::Receiver<bool>,
    ) -> bool {
        let mut attempts = BACKOFF.attempts();
        let mut random = SplitMix::seeded();
        loop {
            let Err(why) = self.attempt(message, unix_seconds()).await else {
                return true;
            };
            let made = attempts.made();
            let Some(wait) = attempts.next_wait(&mut random) else {
                tracing::error!(
                    event = "webhook.failed",
                    id = &*message.id,
                    attempts = made,
                    "{why}"
                );
                return false;
            };
            tracing::warn!(
                event = "webhook.retried",
                id = &*message.id,
                attempts = made,
                "{why}"
            );
            pause(wait.into(), closing).await;
        }
    }

    /// Sends the message once, signed at `seconds` since 1970.
    async fn attempt(&self, message: &Message, seconds: u64) -> Result<(), String> {
        let request = self
            .request(message, seconds)
            .map_err(|why| why.to_string())?;
        let status = self.receiver.send(request, 0).await?.status();
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("answered {status}"))
        }
    }

    fn request(&self, message: &Message, seconds: u64) -> http::Result<Request<Full<Bytes>>> {
        self.receiver
            .post("")
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", &*message.id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature(&self.key, message, seconds))
            .body(Full::new(message.body.clone()))
    }
}
