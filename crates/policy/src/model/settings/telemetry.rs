//! Telemetry: the receiver of metrics and events, and what a scrape shows.

use std::path::{Path, PathBuf};

use ratekeeper_core::Nanos;

use crate::Secret;

/// `[otlp]`: a receiver of the OpenTelemetry protocol over HTTP. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpSettings {
    /// `http://HOST[:PORT][/PATH]` or `https://`; `/v1/metrics` and `/v1/logs` are appended.
    pub endpoint: String,
    /// Header fields of each message, with names in lower case and the places of their values.
    pub headers: Vec<(String, Secret)>,
    /// PEM file of the authorities of the receiver's certificate; `None` for those that the
    /// system trusts.
    pub ca: Option<PathBuf>,
    /// Time between two messages with metrics.
    pub interval: Nanos,
    /// The value of the resource attribute `service.name`.
    pub service_name: String,
    /// True if metrics are sent.
    pub metrics: bool,
    /// True if events are sent, as log records.
    pub events: bool,
}

impl OtlpSettings {
    /// Returns the same settings, with files relative to `home`, the directory of the policy.
    #[must_use]
    pub fn at_home(mut self, home: &Path) -> Self {
        self.ca = self.ca.map(|ca| home.join(ca));
        for (_, secret) in &mut self.headers {
            *secret = secret.at_home(home);
        }
        self
    }
}

/// `[metrics]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSettings {
    /// `max_limits`: maximum number of limits with series of their own; the rest is counted
    /// together.
    pub max_limits: u32,
    /// `near_percent`: percentage of a limit above which an allowed request counts as near it.
    pub near_percent: u8,
}

impl Default for MetricSettings {
    fn default() -> Self {
        Self {
            max_limits: 1_000,
            near_percent: 80,
        }
    }
}
