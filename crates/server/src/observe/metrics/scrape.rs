//! Scrape: all metrics at one moment, in the order of the table.

use ratekeeper_policy::{Geo, Policy};
use ratekeeper_store::AnyStore;
use strum::VariantNames;

use super::durations::BUCKETS;
use super::family::{MetricList, MetricValues};
use super::limits::LimitsSnapshot;
use super::rules::KINDS;
use super::{
    DecisionPath, GrantResult, MetricSources, Metrics, Protocol, ReportResult, shared_store, table,
};
use crate::OverrideAct;
use crate::counter::Counter;
use crate::doors::hold::HoldEnd;
use crate::observe::alerts::webhook::RESULTS;

/// Snapshots of the counters in the state folder.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StateLevels {
    pub(crate) saved: u64,
    pub(crate) failed: u64,
    /// True since a file could not be written, until all could.
    pub(crate) is_failing: bool,
    pub(crate) bytes: u64,
    pub(crate) at_seconds: u64,
}

impl MetricSources<'_> {
    /// Reads all metrics, in the order of a scrape.
    pub(crate) fn list(&self) -> Vec<MetricValues> {
        let mut list = MetricList::new();
        let out = &mut list;
        let (store, metrics) = (self.keeper.store(), &self.observers.metrics);
        let policy = self.keeper.policy();
        let limits = LimitsSnapshot::new(self, &policy);
        metrics.encode_requests(store, out);
        limits.encode_decisions(out);
        limits.encode_levels(out);
        limits.encode_work(out);
        self.encode_results(out);
        limits.encode_keys(out);
        self.encode_memory(out);
        if let Some(shared) = store.shared() {
            shared_store::encode(shared, *metrics.clock_offset.lock(), out);
        }
        metrics.process.encode(out);
        self.encode_config(&policy, out);
        list
    }

    /// Writes the counts of reports, holds and other work beside decisions, by result.
    fn encode_results(&self, out: &mut MetricList) {
        let metrics = &self.observers.metrics;
        if let Some(webhook) = &self.observers.alerts.webhook {
            let messages = RESULTS.iter().zip(webhook.counts());
            table::WEBHOOK_MESSAGES.each(out, messages.map(|(result, count)| ([*result], count)));
        }
        let held = self.hold.standing();
        table::HELD_ANSWERS.write(out, held.now as u64);
        let ended = HoldEnd::VARIANTS.iter().zip(held.ended);
        table::HELD_ANSWERS_ENDED.each(out, ended.map(|(name, count)| ([*name], count)));
        let reports = &metrics.process.reports;
        table::REPORTS.counters(out, ReportResult::VARIANTS, reports);
        table::REPORTS_EXPECTED.write(out, metrics.reports_expected.count());
        let changes = &metrics.override_changes;
        table::OVERRIDE_CHANGES.counters(out, OverrideAct::VARIANTS, changes);
        table::GRANTS.counters(out, GrantResult::VARIANTS, &metrics.grants);
        table::RLS_HITS.begin(out);
        let hits = metrics.rules.snapshot();
        let hits = hits.iter().map(|(rule, counts)| (&**rule, *counts));
        table::RLS_HITS.rows(out, &KINDS, hits);
    }

    fn encode_config(&self, policy: &Policy, out: &mut MetricList) {
        let metrics = &self.observers.metrics;
        let version = policy.version.to_string();
        table::CONFIG_INFO.each(out, [([&*policy.sha, &*version], 1)]);
        if let Some(envoy) = self.keeper.envoy() {
            table::ENVOY_CONFIG_INFO.each(out, [([&**envoy.sha()], 1)]);
        }
        table::CONFIG_LAST_SUCCESS.write(out, metrics.applied_at_seconds());
        let databases = policy.geo.iter().flat_map(Geo::files);
        let built = databases.map(|file| ([file.field], file.built_unix_seconds));
        table::GEO_DATABASE_BUILT.each(out, built);
        let results = ["applied", "rejected"];
        table::CONFIG_RELOAD.counters(out, &results, &metrics.reloads);
        table::CONFIG_REJECTED.write(out, u64::from(metrics.is_rejected()));
        table::BUILD_INFO.each(out, [([env!("CARGO_PKG_VERSION")], 1)]);
    }

    /// Writes the memory of the counters, and their snapshots.
    fn encode_memory(&self, out: &mut MetricList) {
        let usage = self.keeper.store().local().usage();
        table::MEMORY_BYTES.write(out, usage.bytes as u64);
        table::MEMORY_BUDGET_BYTES.write(out, usage.budget_bytes as u64);
        let Some(state) = self.state else {
            return;
        };
        let saves = [(["ok"], state.saved), (["failed"], state.failed)];
        table::STATE_SAVES.each(out, saves);
        table::STATE_BYTES.write(out, state.bytes);
        table::STATE_LAST_SUCCESS.write(out, state.at_seconds);
    }
}

impl Metrics {
    fn encode_requests(&self, store: &AnyStore, out: &mut MetricList) {
        let requests = Protocol::VARIANTS.iter().copied().zip(&self.requests);
        let requests = requests.map(|(protocol, it)| (protocol, it.each_ref().map(Counter::count)));
        table::REQUESTS.rows(out, &["allowed", "denied", "error"], requests);
        table::UNLIMITED.counters(out, Protocol::VARIANTS, &self.unlimited);
        let mut series = table::DECISION_DURATION.open(out);
        for (protocol, durations) in Protocol::VARIANTS.iter().zip(&self.durations) {
            let shown = 1 + usize::from(store.shared().is_some());
            for (path, durations) in DecisionPath::VARIANTS.iter().zip(durations).take(shown) {
                series.durations(&[protocol, path], &durations.snapshot(&BUCKETS));
            }
        }
    }
}
