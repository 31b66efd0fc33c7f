//! OTLP: sends metrics and events to a receiver of the OpenTelemetry protocol, over HTTP.
//!
//! ```text
//!   metrics, each `interval`:   the table as it is --> POST ENDPOINT/v1/metrics
//!   events:   queue of 2,048 --> up to 512 a message, 1 s after the first --> POST ENDPOINT/v1/logs
//!               |                       |
//!               +-- full: dropped       +-- 429, 502, 503, 504, no answer: up to 5 attempts
//! ```
//!
//! * Messages are protobuf, compressed by gzip: some receivers take no JSON.
//! * No decision waits: the metrics are read as a scrape reads them, and an event that finds the
//!   queue full is dropped and counted.
//! * Metrics are cumulative since the start, so a message that is given up loses nothing that the
//!   next one does not have.
//! * A service that stops sends both once more, within the last 5 s.
//!
//! Source: OpenTelemetry Protocol Specification 1.10 (2026), OTLP/HTTP.

mod delivery;
mod events;
mod message;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use prost::Message as _;
use ratekeeper::read_secret;
use ratekeeper_policy::OtlpSettings;
use ratekeeper_wire::otlp::logs::LogRecord;
use strum::VariantNames;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::delivery::{Delivery, OtlpSignal};
pub use self::events::EventExport;
use self::message::Source;
use super::metrics::{MetricValues, compressed};
use crate::counter::Counter;
use crate::serve::http_receiver::{HttpReceiver, closed, next};
use crate::{Config, StartError};

/// Maximum number of events that wait.
const MAX_QUEUED: usize = 2_048;
/// Maximum number of events in a message.
const MAX_BATCH: usize = 512;
/// Time from an event to its message, for others to join it.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// Results of messages, as in the metric.
pub(crate) const EXPORT_RESULTS: [&str; 2] = ["delivered", "failed"];

/// What became of messages and events.
#[derive(Debug, Default)]
pub(crate) struct OtlpCounts {
    /// Messages by signal and result.
    pub(crate) exports: [[Counter; EXPORT_RESULTS.len()]; OtlpSignal::VARIANTS.len()],
    /// Events that found the queue full, or whose message was given up or refused in part.
    pub(crate) dropped_events: Arc<Counter>,
}

impl OtlpCounts {
    /// Returns the names of signals, with their counts by [`EXPORT_RESULTS`].
    pub(crate) fn by_signal(&self) -> impl Iterator<Item = (&'static str, [u64; 2])> {
        let counts = |each: &[Counter; 2]| each.each_ref().map(Counter::count);
        let all = OtlpSignal::VARIANTS.iter().zip(&self.exports);
        all.map(move |(signal, each)| (*signal, counts(each)))
    }
}

/// Sends metrics and events.
#[derive(Debug)]
pub(crate) struct Exporter {
    source: Source,
    delivery: Delivery,
    events: Mutex<mpsc::Receiver<LogRecord>>,
    /// Time between two messages of metrics; `None` if they are not sent.
    interval: Option<Duration>,
}

impl Exporter {
    /// Reads the secrets and certificates that the settings name. The messages are about a process
    /// that `instance` names and which started at `unix_nanos`.
    ///
    /// # Errors
    /// [`StartError::Otlp`] if a secret or certificate is missing or invalid.
    pub(crate) fn new(
        settings: &OtlpSettings,
        config: &Config,
        instance: &str,
        unix_nanos: u64,
    ) -> Result<Self, StartError> {
        let settings = settings.clone().at_home(config.home());
        let mut headers = Vec::new();
        for (name, secret) in &settings.headers {
            let field = format!("headers.{name}");
            let value = read_secret(&field, secret).map_err(StartError::Otlp)?;
            let wrong = |_| StartError::Otlp(format!("`{field}` cannot be the value of a header"));
            let mut value = HeaderValue::from_str(&value).map_err(wrong)?;
            value.set_sensitive(true);
            let name = HeaderName::from_bytes(name.as_bytes());
            let name = name.map_err(|why| StartError::Otlp(format!("`{field}`: {why}")))?;
            headers.push((name, value));
        }
        let fields = ["endpoint", "ca"];
        let receiver = HttpReceiver::new(fields, &settings.endpoint, settings.ca.as_deref());
        let receiver = receiver.map_err(StartError::Otlp)?;
        let mut counts = OtlpCounts::default();
        let export = config.events.as_ref().filter(|_| settings.events);
        if let Some(export) = export {
            counts.dropped_events = export.dropped();
        }
        let events = export.and_then(EventExport::take);
        Ok(Self {
            source: Source::new(&settings.service_name, instance, unix_nanos),
            delivery: Delivery {
                receiver,
                headers,
                counts,
            },
            events: Mutex::new(events.unwrap_or_else(|| mpsc::channel(1).1)),
            interval: settings.metrics.then(|| settings.interval.into()),
        })
    }

    pub(crate) fn counts(&self) -> &OtlpCounts {
        &self.delivery.counts
    }

    /// Sends the metrics that `read` returns, with the nanoseconds since 1970, until `closing` is
    /// true, and once more then; if they are sent at all.
    pub(crate) async fn send_metrics(
        self: Arc<Self>,
        read: impl Fn() -> (Vec<MetricValues>, u64) + Clone + Send + 'static,
        mut closing: watch::Receiver<bool>,
    ) {
        let Some(period) = self.interval else {
            return;
        };
        let mut tick = interval(period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await; // the first comes at once
        loop {
            let is_last = tokio::select! {
                _ = tick.tick() => false,
                () = closed(&mut closing) => true,
            };
            let (exporter, read) = (Arc::clone(&self), read.clone());
            let write = move || {
                let (metrics, unix_nanos) = read();
                let message = exporter.source.metrics(&metrics, unix_nanos);
                compressed(&message.encode_to_vec())
            };
            // On a thread of its own, as a scrape. An error: it panicked, which is logged.
            if let Ok(body) = tokio::task::spawn_blocking(write).await {
                let send = self.delivery.send(OtlpSignal::Metrics, body, &mut closing);
                send.await;
            }
            if is_last {
                return;
            }
        }
    }

    /// Sends events until `closing` is true and none waits.
    pub(crate) async fn send_events(self: Arc<Self>, mut closing: watch::Receiver<bool>) {
        let mut queue = self.events.lock().await;
        while let Some(first) = next(&mut queue, &mut closing).await {
            let mut records = vec![first];
            if queue.len() + 1 < MAX_BATCH {
                tokio::select! {
                    () = sleep(BATCH_WAIT) => {}
                    () = closed(&mut closing) => {}
                }
            }
            while records.len() < MAX_BATCH
                && let Ok(record) = queue.try_recv()
            {
                records.push(record);
            }
            let events = records.len() as u64;
            let message = self.source.events(records).encode_to_vec();
            let message = compressed(&message);
            let sent = self
                .delivery
                .send(OtlpSignal::Events, message, &mut closing);
            let lost = sent.await.map_or(events, |refused| refused.min(events));
            self.delivery.counts.dropped_events.add(lost);
        }
    }
}
