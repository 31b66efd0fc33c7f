//! Alerts: how many are active, and what became of their messages.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{counter, gauge, put, put_gauge};
use crate::alerts::AlertCounts;
use crate::alerts::webhook::RESULTS;

/// Counts of alerts; without limits with an `alert` and without a webhook nothing is shown.
#[derive(Debug)]
pub(crate) struct AlertMetrics {
    pub(crate) limits: Vec<AlertCounts>,
    /// Number of messages by result; `None` without a webhook.
    pub(crate) webhook: Option<[u64; RESULTS.len()]>,
}

impl AlertMetrics {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if !self.limits.is_empty() {
            let help = "Keys of a limit with an active alert";
            let mut family = gauge(encoder, "alerts_active", help)?;
            for counts in &self.limits {
                put_gauge(&mut family, &[("limit", &*counts.limit)], counts.active)?;
            }
            let help = "Alerts of a limit that have started";
            let mut family = counter(encoder, "alerts", help)?;
            for counts in &self.limits {
                put(&mut family, &[("limit", &*counts.limit)], counts.started)?;
            }
            let help = "Decisions above the level of an alert whose key could not be watched";
            let mut family = counter(encoder, "alerts_unwatched", help)?;
            for counts in &self.limits {
                put(&mut family, &[("limit", &*counts.limit)], counts.unwatched)?;
            }
        }
        if let Some(webhook) = &self.webhook {
            let help = "Messages to the webhook of alerts";
            let mut family = counter(encoder, "webhook_messages", help)?;
            for (result, count) in RESULTS.iter().zip(webhook) {
                put(&mut family, &[("result", *result)], *count)?;
            }
        }
        Ok(())
    }
}
