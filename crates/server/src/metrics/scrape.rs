//! Scrape: names and labels, in the `OpenMetrics` text format.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use ratekeeper_policy::RuleMode;
use ratekeeper_store::{LimitUsage, Loans, Usage};

use super::alerts::AlertMetrics;
use super::family::{
    DurationsSnapshot, counter, gauge, level, put, put_durations, put_gauge, seconds,
};
use super::process::Process;
use super::rules::KINDS;
use super::shared_store::SharedStore;
use super::{
    BUCKETS, ConfigInfo, Counter, Durations, GrantResult, LimitRow, LimitRows, Metrics, Protocol,
    ReportResult,
};
use crate::OverrideAct;
use crate::doors::hold::HoldEnd;

/// Answers held back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldAnswers {
    pub(crate) now: usize,
    /// Number of answers ended, by [`HoldEnd`].
    pub(crate) ended: [u64; HoldEnd::ALL.len()],
}

const DID: [&str; 4] = ["allowed", "denied", "queued", COVERED];
/// The effect of a limit that denies a request which another lets through.
const COVERED: &str = "covered";

impl Metrics {
    /// Returns all metrics in the `OpenMetrics` format.
    pub(crate) fn scrape(
        &self,
        usage: Usage,
        loans: Vec<(Arc<str>, Loans)>,
        held: HeldAnswers,
        (shared, alerts): (Option<SharedStore>, AlertMetrics),
    ) -> String {
        let counts = |counters: &[Counter]| counters.iter().map(Counter::count).collect();
        let snapshot = Snapshot {
            rows: self.rows.load_full(),
            requests: self.requests.iter().map(|each| counts(each)).collect(),
            durations: self.durations.iter().map(Durations::snapshot).collect(),
            rules: self.rules.snapshot(),
            files: self.rules.sha(),
            reloads: counts(&self.reloads),
            reports: counts(&self.reports),
            override_changes: counts(&self.override_changes),
            grants: counts(&self.grants),
            config: self.config.load_full(),
            usage,
            loans,
            held,
            shared,
            alerts,
            process: Arc::clone(&self.process),
        };
        let mut registry = Registry::with_prefix("ratekeeper");
        registry.register_collector(Box::new(snapshot));
        let mut text = String::new();
        // Writing to a string cannot fail, and every label is plain text.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

#[derive(Debug)]
struct Snapshot {
    rows: Arc<LimitRows>,
    /// Counts by protocol.
    requests: Vec<Vec<u64>>,
    durations: Vec<DurationsSnapshot>,
    /// Counts by path of the rule: `rules::KINDS`.
    rules: Vec<(Arc<str>, [u64; KINDS.len()])>,
    /// SHA-256 of the files of Envoy's rate limit service, if there are any.
    files: Option<Arc<str>>,
    reloads: Vec<u64>,
    /// Reports of results, by [`ReportResult`].
    reports: Vec<u64>,
    /// Changes of the file of overrides, by [`OverrideAct`].
    override_changes: Vec<u64>,
    grants: Vec<u64>,
    config: Option<Arc<ConfigInfo>>,
    usage: Usage,
    /// Loans of limits of concurrency, by name.
    loans: Vec<(Arc<str>, Loans)>,
    held: HeldAnswers,
    shared: Option<SharedStore>,
    alerts: AlertMetrics,
    process: Arc<Process>,
}

impl Durations {
    fn snapshot(&self) -> DurationsSnapshot {
        let edges = BUCKETS.iter().map(|&nanos| seconds(nanos));
        let edges = edges.chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(Counter::count);
        let buckets: Vec<_> = edges.zip(counts).collect();
        DurationsSnapshot {
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
            sum_seconds: seconds(self.sum_nanos.count()),
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let encoder = &mut encoder;
        self.requests(encoder)?;
        self.limits(encoder)?;
        self.alerts.encode(encoder)?;
        self.loans(encoder)?;
        self.held(encoder)?;
        self.reports(encoder)?;
        self.override_changes(encoder)?;
        self.grants(encoder)?;
        self.rules(encoder)?;
        self.store(encoder)?;
        if let Some(shared) = &self.shared {
            shared.encode(encoder)?;
        }
        self.process.encode(encoder)?;
        self.config(encoder)
    }
}

impl Snapshot {
    fn rows(&self) -> impl Iterator<Item = &LimitRow> {
        self.rows.iter().flatten().map(|row| &**row)
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests answered by a listener";
        let mut family = counter(encoder, "requests", help)?;
        for (protocol, counts) in Protocol::ALL.iter().zip(&self.requests) {
            for (result, count) in ["allowed", "denied", "error"].iter().zip(counts) {
                let labels = [("protocol", protocol.name()), ("result", *result)];
                put(&mut family, &labels, *count)?;
            }
        }
        let help = "Time to decide, without parsing and rendering";
        let mut family = encoder.encode_descriptor(
            "decision_duration_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        for (protocol, durations) in Protocol::ALL.iter().zip(&self.durations) {
            let labels = [("protocol", protocol.name()), ("path", "local")];
            put_durations(&mut family, &labels, durations)?;
        }
        Ok(())
    }

    fn rules(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Hits of a rule of Envoy's rate limit service";
        let mut family = counter(encoder, "rls_hits", help)?;
        for (rule, counts) in &self.rules {
            for (kind, count) in KINDS.iter().zip(counts) {
                put(&mut family, &[("rule", &**rule), ("kind", kind)], *count)?;
            }
        }
        Ok(())
    }

    fn limits(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Decisions of a limit";
        let mut family = counter(encoder, "decisions", help)?;
        for row in self.rows() {
            for (mode, counts) in ["enforce", "shadow"].iter().zip(&row.decisions) {
                let current = *mode == mode_name(row.mode);
                for (outcome, count) in DID.iter().zip(counts) {
                    let count = count.count();
                    // The current mode of the limit is listed from the start, at 0; few limits
                    // are ever covered.
                    if current && *outcome != COVERED || count > 0 {
                        let labels = [("limit", &*row.name), ("outcome", outcome), ("mode", mode)];
                        put(&mut family, &labels, count)?;
                    }
                }
            }
        }
        let help = "Cost of the requests a limit decided";
        let mut family = counter(encoder, "units", help)?;
        for row in self.rows() {
            for (outcome, count) in DID.iter().zip(&row.units) {
                let count = count.count();
                if *outcome != COVERED || count > 0 {
                    let labels = [("limit", &*row.name), ("outcome", outcome)];
                    put(&mut family, &labels, count)?;
                }
            }
        }
        let help = "Requests allowed with more than 80 % of the limit spent";
        let mut family = counter(encoder, "near_limit", help)?;
        for row in self.rows() {
            put(&mut family, &[("limit", &*row.name)], row.near.count())?;
        }
        if self.rows().any(|row| row.has_ban) {
            let help = "Bans that began";
            let mut family = counter(encoder, "bans", help)?;
            for row in self.rows().filter(|row| row.has_ban) {
                for (mode, count) in ["enforce", "shadow"].iter().zip(&row.bans) {
                    if *mode == mode_name(row.mode) || count.count() > 0 {
                        let labels = [("limit", &*row.name), ("mode", mode)];
                        put(&mut family, &labels, count.count())?;
                    }
                }
            }
        }
        let help = "Requests without a part of the limit's key";
        let mut family = counter(encoder, "key_missing", help)?;
        for row in self.rows() {
            put(
                &mut family,
                &[("limit", &*row.name)],
                row.key_missing.count(),
            )?;
        }
        Ok(())
    }

    fn loans(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.loans.is_empty() {
            return Ok(());
        }
        let help = "Permits on loan, for all keys of a limit";
        let mut family = gauge(encoder, "concurrency_in_use", help)?;
        for (name, loans) in &self.loans {
            put_gauge(&mut family, &[("limit", name)], loans.in_use)?;
        }
        let help = "Permits returned by the end of their lease, not by a release";
        let mut family = counter(encoder, "leases_expired", help)?;
        for (name, loans) in &self.loans {
            put(&mut family, &[("limit", name)], loans.lapsed)?;
        }
        Ok(())
    }

    fn held(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Answers that the http listener delays at present";
        let now = gauge(encoder, "held_answers", help)?;
        level(self.held.now as u64).encode(now)?;
        let help = "Answers that the http listener delayed, by result";
        let mut family = counter(encoder, "held_answers_ended", help)?;
        for ((_, name), count) in HoldEnd::ALL.iter().zip(self.held.ended) {
            put(&mut family, &[("result", *name)], count)?;
        }
        Ok(())
    }

    fn reports(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Reports of the results of requests, by effect";
        let mut family = counter(encoder, "reports", help)?;
        for ((_, name), count) in ReportResult::ALL.iter().zip(&self.reports) {
            put(&mut family, &[("result", *name)], *count)?;
        }
        Ok(())
    }

    fn override_changes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Changes of the file of overrides by the admin listener";
        let mut family = counter(encoder, "override_changes", help)?;
        for (act, count) in OverrideAct::ALL.iter().zip(&self.override_changes) {
            put(&mut family, &[("change", act.name())], *count)?;
        }
        Ok(())
    }

    fn grants(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Grants of credits, by effect";
        let mut family = counter(encoder, "grants", help)?;
        for ((_, name), count) in GrantResult::ALL.iter().zip(&self.grants) {
            put(&mut family, &[("result", *name)], *count)?;
        }
        Ok(())
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let used = |index: usize| -> LimitUsage {
            let mut limits = self.usage.limits.iter();
            let found = limits.find(|usage| usage.id.index() == index);
            found.copied().unwrap_or_default()
        };
        let rows = || {
            let rows = self.rows.iter().enumerate();
            rows.filter_map(|(index, row)| Some((row.as_ref()?, used(index))))
        };
        let mut family = gauge(encoder, "keys", "Keys with a state under a limit")?;
        for (row, usage) in rows() {
            put_gauge(&mut family, &[("limit", &*row.name)], usage.keys as u64)?;
        }
        let help = "Keys removed from a limit: idle ones, and those evicted by the memory budget";
        let mut family = counter(encoder, "keys_evicted", help)?;
        for (row, usage) in rows() {
            for (reason, count) in [
                ("idle", usage.evicted.idle),
                ("budget", usage.evicted.budget),
            ] {
                let labels = [("limit", &*row.name), ("reason", reason)];
                put(&mut family, &labels, count)?;
            }
        }
        let memory = gauge(encoder, "memory_bytes", "Bytes the store uses")?;
        level(self.usage.bytes as u64).encode(memory)?;
        let budget = gauge(encoder, "memory_budget_bytes", "Bytes the store may use")?;
        level(self.usage.budget_bytes as u64).encode(budget)
    }

    fn config(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(config) = &self.config {
            let version = config.version.to_string();
            let mut family = gauge(encoder, "config_info", "The policy in force")?;
            let labels = [("sha", &*config.sha), ("version", version.as_str())];
            put_gauge(&mut family, &labels, 1)?;
        }
        if let Some(sha) = &self.files {
            let help = "The files of Envoy's rate limit service in force";
            let mut family = gauge(encoder, "envoy_config_info", help)?;
            put_gauge(&mut family, &[("sha", &**sha)], 1)?;
        }
        if let Some(config) = &self.config {
            let name = "config_last_success_timestamp_seconds";
            let help = "Time at which the policy in force was loaded";
            let since = gauge(encoder, name, help)?;
            level(config.applied_at_seconds).encode(since)?;
            let name = "geo_database_built_timestamp_seconds";
            let help = "Time at which a database of [geo] was made";
            if !config.databases.is_empty() {
                let mut family = gauge(encoder, name, help)?;
                for (field, seconds) in &config.databases {
                    put_gauge(&mut family, &[("database", *field)], *seconds)?;
                }
            }
        }
        let mut family = counter(encoder, "config_reload", "Policies read after the start")?;
        for (result, count) in ["applied", "rejected"].iter().zip(&self.reloads) {
            put(&mut family, &[("result", *result)], *count)?;
        }
        let mut family = gauge(encoder, "build_info", "The program")?;
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        put_gauge(&mut family, &labels, 1)
    }
}

fn mode_name(mode: RuleMode) -> &'static str {
    match mode {
        RuleMode::Enforce => "enforce",
        RuleMode::Shadow => "shadow",
        RuleMode::Off => "off",
    }
}
