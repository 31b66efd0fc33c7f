//! Scrape: all metrics at one moment, in the order of the table.

use std::sync::Arc;

use ratekeeper_store::Usage;

use super::durations::BUCKETS;
use super::family::{DurationsSnapshot, MetricList, MetricValues};
use super::limits::{LimitSources, LimitsSnapshot};
use super::process::Process;
use super::rules::KINDS;
use super::shared_store::SharedStore;
use super::{ConfigInfo, DecisionPath, GrantResult, Metrics, Protocol, ReportResult, table};
use crate::OverrideAct;
use crate::counter::Counter;
use crate::doors::hold::{HeldAnswers, HoldEnd};
use crate::observe::alerts::webhook::RESULTS;

/// Snapshots of the counters in the state folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateLevels {
    pub(crate) saved: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    pub(crate) at_seconds: u64,
}

/// Values that are read at a scrape, beside those of limits.
#[derive(Debug)]
pub(crate) struct Levels {
    pub(crate) usage: Usage,
    pub(crate) held: HeldAnswers,
    /// `None` if counters are in memory.
    pub(crate) shared: Option<SharedStore>,
    /// Snapshots of the counters; `None` without a state folder.
    pub(crate) state: Option<StateLevels>,
    /// Number of messages of alerts by result; `None` without a webhook.
    pub(crate) webhook: Option<[u64; RESULTS.len()]>,
}

impl Metrics {
    /// Reads all metrics.
    pub(crate) fn read(&self, levels: Levels, sources: &LimitSources<'_>) -> MetricsSnapshot {
        let counts = |counters: &[Counter]| counters.iter().map(Counter::count).collect();
        let durations = self.durations.iter();
        MetricsSnapshot {
            limits: LimitsSnapshot::new(&self.rows.load(), sources),
            requests: self.requests.iter().map(|each| counts(each)).collect(),
            unlimited: counts(&self.unlimited),
            durations: durations
                .map(|each| each.each_ref().map(|times| times.snapshot(&BUCKETS)))
                .collect(),
            reports_expected: self.reports_expected.count(),
            rules: self.rules.snapshot(),
            files: self.rules.sha(),
            reloads: counts(&self.reloads),
            rejected: self.is_rejected(),
            override_changes: counts(&self.override_changes),
            grants: counts(&self.grants),
            config: self.config.load_full(),
            levels,
            process: Arc::clone(&self.process),
        }
    }
}

/// All metrics at one moment.
#[derive(Debug)]
pub(crate) struct MetricsSnapshot {
    limits: LimitsSnapshot,
    /// Counts by protocol.
    requests: Vec<Vec<u64>>,
    unlimited: Vec<u64>,
    durations: Vec<[DurationsSnapshot; DecisionPath::NAMES.len()]>,
    /// Counts by path of the rule: `rules::KINDS`.
    rules: Vec<(Arc<str>, [u64; KINDS.len()])>,
    /// SHA-256 of the files of Envoy's rate limit service, if there are any.
    files: Option<Arc<str>>,
    reloads: Vec<u64>,
    rejected: bool,
    /// Changes of the file of overrides, by [`OverrideAct`].
    override_changes: Vec<u64>,
    grants: Vec<u64>,
    reports_expected: u64,
    config: Option<Arc<ConfigInfo>>,
    levels: Levels,
    process: Arc<Process>,
}

impl MetricsSnapshot {
    /// Returns them as values, in the order of a scrape.
    pub(crate) fn list(&self) -> Vec<MetricValues> {
        let mut list = MetricList::new();
        self.write(&mut list);
        list
    }

    fn write(&self, out: &mut MetricList) {
        self.requests(out);
        self.limits.encode_decisions(out);
        self.limits.encode_levels(out);
        self.limits.encode_work(out);
        self.results(out);
        self.store(out);
        if let Some(shared) = &self.levels.shared {
            shared.encode(out);
        }
        self.process.encode(out);
        self.config(out);
    }

    fn requests(&self, out: &mut MetricList) {
        let mut series = table::REQUESTS.open(out);
        for (protocol, counts) in Protocol::ALL.iter().zip(&self.requests) {
            for (result, count) in ["allowed", "denied", "error"].iter().zip(counts) {
                series.count(&[protocol.name(), result], *count);
            }
        }
        let mut series = table::UNLIMITED.open(out);
        for (protocol, count) in Protocol::ALL.iter().zip(&self.unlimited) {
            series.count(&[protocol.name()], *count);
        }
        let mut series = table::DECISION_DURATION.open(out);
        for (protocol, durations) in Protocol::ALL.iter().zip(&self.durations) {
            let is_shared = self.levels.shared.is_some();
            let shown = if is_shared {
                DecisionPath::NAMES.len()
            } else {
                1
            };
            for (path, durations) in DecisionPath::NAMES.iter().zip(durations).take(shown) {
                series.durations(&[protocol.name(), path], durations);
            }
        }
    }

    /// Writes the counts of reports, holds and other work beside decisions, by result.
    fn results(&self, out: &mut MetricList) {
        if let Some(messages) = &self.levels.webhook {
            let mut series = table::WEBHOOK_MESSAGES.open(out);
            for (result, count) in RESULTS.iter().zip(messages) {
                series.count(&[result], *count);
            }
        }
        let held = self.levels.held;
        table::HELD_ANSWERS.write(out, held.now as u64);
        let mut series = table::HELD_ANSWERS_ENDED.open(out);
        for ((_, name), count) in HoldEnd::ALL.iter().zip(held.ended) {
            series.count(&[name], count);
        }
        let mut series = table::REPORTS.open(out);
        for ((_, name), count) in ReportResult::ALL.iter().zip(&self.process.reports) {
            series.count(&[name], count.count());
        }
        table::REPORTS_EXPECTED.write(out, self.reports_expected);
        let mut series = table::OVERRIDE_CHANGES.open(out);
        for (act, count) in OverrideAct::ALL.iter().zip(&self.override_changes) {
            series.count(&[act.name()], *count);
        }
        let mut series = table::GRANTS.open(out);
        for ((_, name), count) in GrantResult::ALL.iter().zip(&self.grants) {
            series.count(&[name], *count);
        }
        let mut series = table::RLS_HITS.open(out);
        for (rule, counts) in &self.rules {
            for (kind, count) in KINDS.iter().zip(counts) {
                series.count(&[rule, kind], *count);
            }
        }
    }

    fn store(&self, out: &mut MetricList) {
        self.limits.encode_keys(out);
        let usage = &self.levels.usage;
        table::MEMORY_BYTES.write(out, usage.bytes as u64);
        table::MEMORY_BUDGET_BYTES.write(out, usage.budget_bytes as u64);
        let Some(state) = self.levels.state else {
            return;
        };
        let mut series = table::STATE_SAVES.open(out);
        series.count(&["ok"], state.saved);
        series.count(&["failed"], state.failed);
        table::STATE_BYTES.write(out, state.bytes);
        table::STATE_LAST_SUCCESS.write(out, state.at_seconds);
    }

    fn config(&self, out: &mut MetricList) {
        if let Some(config) = &self.config {
            let mut series = table::CONFIG_INFO.open(out);
            series.level(&[&config.sha, &config.version.to_string()], 1);
        }
        if let Some(sha) = &self.files {
            let mut series = table::ENVOY_CONFIG_INFO.open(out);
            series.level(&[sha], 1);
        }
        if let Some(config) = &self.config {
            table::CONFIG_LAST_SUCCESS.write(out, config.applied_at_seconds);
            if !config.databases.is_empty() {
                let mut series = table::GEO_DATABASE_BUILT.open(out);
                for (field, seconds) in &config.databases {
                    series.level(&[field], *seconds);
                }
            }
        }
        let mut series = table::CONFIG_RELOAD.open(out);
        for (result, count) in ["applied", "rejected"].iter().zip(&self.reloads) {
            series.count(&[result], *count);
        }
        table::CONFIG_REJECTED.write(out, u64::from(self.rejected));
        let mut series = table::BUILD_INFO.open(out);
        series.level(&[env!("CARGO_PKG_VERSION")], 1);
    }
}
