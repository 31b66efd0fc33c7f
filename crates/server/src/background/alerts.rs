//! Alerts: looked at once a second, and shown to the operator and to the webhook.

use std::time::Duration;

use crate::context::ServiceContext;
use crate::{AlertNotice, Event};

/// How often the watched keys are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);

impl ServiceContext {
    /// Shows a start or an end to the operator and to the webhook.
    pub(crate) fn report(&self, notice: AlertNotice) {
        if let Some(webhook) = &self.observers.alerts.webhook {
            let now = self.now();
            webhook.send(&notice, &|time| self.unix_millis(time), now);
        }
        self.sink.emit(&Event::Alert(notice));
    }

    /// Ends all alerts, because the service stops.
    pub(crate) fn end_alerts(&self) {
        self.observers.alerts.close(|notice| self.report(notice));
    }
}

/// Looks at the watched keys.
pub(super) fn look(shared: &ServiceContext) {
    let (now, origin) = (shared.now(), shared.origin());
    let wall = |time| origin.unix_nanos(time);
    let alerts = &shared.observers.alerts;
    alerts.look(now, wall, |notice| shared.report(notice));
}
