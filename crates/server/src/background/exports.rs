//! Exports: messages to other servers. Their tasks end after the listeners, or before sockets are
//! left to the next process.
//!
//! ```text
//!   stop: listeners closed --> last messages, at most 5 s --> the admin listener closes
//! ```

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_policy::Settings;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::start;
use crate::admin::read_metrics;
use crate::context::ServiceContext;
use crate::observe::alerts::Alerts;
use crate::observe::alerts::webhook::Webhook;
use crate::observe::otlp::Exporter;
use crate::{Config, StartError};

/// Maximum time for which a service that stops sends messages that wait.
const LAST_MESSAGES: Duration = Duration::from_secs(5);

/// Tasks that send messages.
#[derive(Debug)]
pub(crate) struct Exports {
    close: watch::Sender<bool>,
    tasks: Vec<(&'static str, JoinHandle<()>)>,
}

/// Reads the receivers of a policy: creates its alerts, which go to one, and its exporter.
/// `instance` names this process on its machine, and `unix_nanos` is its start.
///
/// # Errors
/// [`StartError::Alerts`] or [`StartError::Otlp`] if a secret or certificate is missing.
pub(crate) fn receivers(
    config: &Config,
    settings: &Settings,
    instance: &str,
    unix_nanos: u64,
) -> Result<(Alerts, Option<Exporter>), StartError> {
    let webhook = settings.alerts.webhook.as_ref();
    let webhook = webhook.map(|webhook| Webhook::new(webhook, config.home()));
    let alerts = Alerts::new(&settings.alerts, webhook.transpose()?)?;
    let otlp = settings.otlp.as_ref();
    let otlp = otlp.map(|otlp| Exporter::new(otlp, config, instance, unix_nanos));
    let otlp = otlp.transpose()?;
    if let Some(events) = &config.events {
        events.close(); // nothing but an exporter takes them
    }
    Ok((alerts, otlp))
}

impl Exports {
    /// Starts a task for each kind of message.
    pub(crate) fn start(shared: &Arc<ServiceContext>) -> Self {
        let (close, closes) = watch::channel(false);
        let observers = &shared.observers;
        let mut tasks = Vec::new();
        if let Some(webhook) = observers.alerts.webhook.clone() {
            let closes = closes.clone();
            let deliver = move |shared: Arc<ServiceContext>| {
                let now = move || shared.unix_seconds();
                Arc::clone(&webhook).deliver_all(now, closes.clone())
            };
            tasks.push(("webhook", start(shared, "webhook", deliver)));
        }
        if let Some(exporter) = observers.metrics.process.otlp.get().cloned() {
            let (of_metrics, closing) = (Arc::clone(&exporter), closes.clone());
            let send = move |shared: Arc<ServiceContext>| {
                let read = move || (read_metrics(&shared), shared.unix_nanos());
                Arc::clone(&of_metrics).send_metrics(read, closing.clone())
            };
            tasks.push(("otlp metrics", start(shared, "otlp metrics", send)));
            let send = move |_| Arc::clone(&exporter).send_events(closes.clone());
            tasks.push(("otlp events", start(shared, "otlp events", send)));
        }
        Self { close, tasks }
    }

    /// Ends the alerts, and sends the messages that wait, until all are sent or 5 s have passed.
    pub(crate) async fn end(&mut self, shared: &ServiceContext) {
        shared.end_alerts();
        self.close.send_replace(true);
        let all = async {
            for (_, task) in &mut self.tasks {
                let _ = task.await; // an error: it panicked, which is logged
            }
        };
        let _ = timeout(LAST_MESSAGES, all).await;
    }

    /// Ends the alerts if they go on, and gives up the messages that were not sent.
    pub(crate) fn stop(self, shared: &ServiceContext) {
        shared.end_alerts();
        for (task, _) in self.tasks.iter().filter(|(_, task)| !task.is_finished()) {
            tracing::warn!(event = "export.stopped", task, "messages were not sent");
        }
    }
}
