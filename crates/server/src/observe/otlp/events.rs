//! Events: those of the log become log records, and wait in a queue.
//!
//! ```text
//!   tracing::info!(event = "decision.denied", limit, key)
//!     --> LogRecord { event_name: "decision.denied", attributes: [limit, key] }
//!     --> queue of 2,048; full: dropped and counted
//! ```

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper::{Clock as _, SystemClock};
use ratekeeper_wire::otlp::common::any_value::Value;
use ratekeeper_wire::otlp::common::{AnyValue, KeyValue};
use ratekeeper_wire::otlp::logs::LogRecord;
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::MAX_QUEUED;
use crate::counter::Counter;
use crate::serve::log_writer::cut;

/// The field of the name of an event. Lines of the log without it are not exported.
const NAME: &str = "event";
/// Beginning of the names of events about the exporter itself, which would make more of them.
const OWN: &str = "otlp.";
/// Maximum number of bytes of one value; the rest is cut off.
const MAX_VALUE_BYTES: usize = 4 << 10;

/// Takes the events of this process, for `[otlp]` of the policy.
///
/// [`layer`](Self::layer) goes into the subscriber of the program, and a clone into
/// [`Config::events`](crate::Config::events). Until a service with `[otlp]` starts at most 2,048
/// events wait; if it has no `[otlp]` they are dropped.
///
/// # Examples
/// ```
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// let export = ratekeeper_server::EventExport::new();
/// let subscriber = tracing_subscriber::registry().with(export.layer());
/// let mut config = ratekeeper_server::Config::new("ratekeeper.toml");
/// config.events = Some(export);
/// # drop((subscriber, config));
/// ```
#[derive(Clone, Debug)]
pub struct EventExport {
    queue: mpsc::Sender<LogRecord>,
    /// Taken by the service.
    waiting: Arc<Mutex<Option<mpsc::Receiver<LogRecord>>>>,
    dropped: Arc<Counter>,
    clock: SystemClock,
}

impl Default for EventExport {
    fn default() -> Self {
        Self::new()
    }
}

impl EventExport {
    /// Creates an empty queue.
    pub fn new() -> Self {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED);
        Self {
            queue,
            waiting: Arc::new(Mutex::new(Some(waiting))),
            dropped: Arc::default(),
            clock: SystemClock::new(),
        }
    }

    /// Returns the layer of a subscriber that queues events, from level `INFO`.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let is_event: fn(&Metadata<'_>) -> bool =
            |line| line.is_event() && line.fields().field(NAME).is_some();
        let filter: FilterFn<_> = filter_fn(is_event).with_max_level_hint(Level::INFO);
        ExportLayer(self.clone()).with_filter(filter)
    }

    /// Returns the end of the queue that events are received from; `None` if it was taken.
    pub(super) fn take(&self) -> Option<mpsc::Receiver<LogRecord>> {
        self.waiting.lock().take()
    }

    /// Drops the events that wait and those that come, because nothing exports them.
    pub(crate) fn close(&self) {
        self.waiting.lock().take();
    }

    /// Returns the number of events that found the queue full.
    pub(super) fn dropped(&self) -> Arc<Counter> {
        Arc::clone(&self.dropped)
    }

    fn push(&self, event: &Event<'_>) {
        if self.queue.is_closed() {
            return;
        }
        let mut fields = EventFields::default();
        event.record(&mut fields);
        if fields.name.starts_with(OWN) {
            return;
        }
        let (severity_number, severity_text) = match *event.metadata().level() {
            Level::ERROR => (17, "ERROR"),
            Level::WARN => (13, "WARN"),
            _ => (9, "INFO"),
        };
        let now = self.clock.wall();
        let record = LogRecord {
            time_unix_nano: now,
            observed_time_unix_nano: now,
            severity_number,
            severity_text: severity_text.to_owned(),
            body: fields.message.map(text),
            attributes: fields.attributes,
            event_name: fields.name,
        };
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(record) {
            self.dropped.add(1);
        }
    }
}

struct ExportLayer(EventExport);

impl<S: Subscriber> Layer<S> for ExportLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        self.0.push(event);
    }
}

/// The fields of an event.
#[derive(Default)]
struct EventFields {
    name: String,
    message: Option<String>,
    attributes: Vec<KeyValue>,
}

impl EventFields {
    fn add(&mut self, field: &Field, value: Value) {
        self.attributes.push(KeyValue {
            key: field.name().to_owned(),
            value: Some(AnyValue { value: Some(value) }),
        });
    }

    fn add_text(&mut self, field: &Field, mut value: String) {
        value.truncate(cut(&value, MAX_VALUE_BYTES).len());
        match field.name() {
            NAME => self.name = value,
            "message" => self.message = Some(value),
            _ => self.add(field, Value::StringValue(value)),
        }
    }
}

impl Visit for EventFields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::BoolValue(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(
            field,
            Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)),
        );
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::DoubleValue(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, format!("{value:?}"));
    }
}

fn text(value: String) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(value)),
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn events_become_records_and_a_full_queue_loses_new_ones() {
        let export = EventExport::new();
        let subscriber = tracing_subscriber::registry().with(export.layer());
        tracing::subscriber::with_default(subscriber, || {
            let key: Option<&str> = None;
            tracing::warn!(
                event = "ban.began",
                limit = "login",
                key,
                count = 3_u64,
                "text"
            );
            tracing::info!("a line without a name");
            tracing::warn!(event = "otlp.retried", "of its own");
            tracing::debug!(event = "watch.failed", "too much detail");
            tracing::error!(event = "store.failed", error = %"x\u{e9}".repeat(MAX_VALUE_BYTES));
            for _ in 0..MAX_QUEUED {
                tracing::info!(event = "stopping");
            }
        });
        let mut queue = export.take().unwrap();
        let first = queue.try_recv().unwrap();
        assert_eq!(first.event_name, "ban.began");
        assert_eq!((first.severity_number, &*first.severity_text), (13, "WARN"));
        assert_eq!(first.body, Some(super::text("text".into())));
        let attributes = first.attributes.iter().map(|it| (&*it.key, &it.value));
        let value = |value| Some(AnyValue { value: Some(value) });
        let limit = value(Value::StringValue("login".into()));
        let count = value(Value::IntValue(3));
        assert!(attributes.eq([("limit", &limit), ("count", &count)]));
        let second = queue.try_recv().unwrap();
        let Some(Value::StringValue(long)) = second.attributes[0].value.clone().unwrap().value
        else {
            panic!("a text");
        };
        assert!((MAX_VALUE_BYTES - 1..=MAX_VALUE_BYTES).contains(&long.len()));
        assert_eq!(export.dropped.count(), 2, "two had come before them");
        let rest = std::iter::from_fn(|| queue.try_recv().ok()).count();
        assert_eq!(rest, MAX_QUEUED - 2);
    }
}
