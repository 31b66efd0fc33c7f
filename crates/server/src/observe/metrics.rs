//! Metrics: counters found at load, not by label; rendered when scraped.
//!
//! ```text
//!   policy --install--> one row of counters for each limit, by LimitId
//!   answer --record---> row[id] += 1            no name is looked up on the way
//!   scrape ------------> names and labels, once
//! ```
//!
//! Labels hold limit names and fixed words, never a key or a path of a request, so there are
//! as many series as the policy has limits; `table.rs` lists the two that hold other text. A
//! reload keeps the counts of limits that stay and drops those of limits that went.
//!
//! If one limit of several refuses, only that one counts, as `denied`. The others would
//! have allowed, but nothing was charged, so they count nothing.

mod durations;
mod family;
mod format;
mod limit_row;
mod limits;
#[cfg(test)]
mod monitoring;
mod process;
mod rules;
mod scrape;
mod shared_store;
mod table;
mod tally;
mod upstreams;

pub(crate) use durations::DecisionPath;
pub(crate) use family::{DurationsSnapshot, Kind, MetricSample, MetricValues, SampleValue};
pub(crate) use format::{Coding, Format, compressed};
pub(crate) use process::{Process, RequestFault};
pub(crate) use scrape::StateLevels;
pub(crate) use tally::{KeyCounts, Tally};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper::{Answer, Keeper, Outcome};
use ratekeeper_core::{LimitId, Nanos, Verdict};
use ratekeeper_policy::{Policy, Rule, envoy};
use ratekeeper_store::AnyStore;
use strum::{EnumCount, VariantNames};

use self::durations::{BUCKETS, DecisionTimes, WAITS};
use self::limit_row::{DID, EFFECTS, LimitRow, sum_of};
use super::Observers;
use super::by_limit::{self, LimitValues};
use crate::OverrideAct;
use crate::clock::ServiceClock;
use crate::counter::Counter;
use crate::doors::hold::HoldQueue;

/// Metrics of the service.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    rows: ArcSwap<LimitValues<LimitRow>>,
    /// Counts by protocol.
    requests: [[Counter; 3]; Protocol::VARIANTS.len()],
    /// Requests that no limit applied to, by protocol.
    unlimited: [Counter; Protocol::VARIANTS.len()],
    /// By protocol, then by [`DecisionPath`].
    durations: [[DecisionTimes; DecisionPath::VARIANTS.len()]; Protocol::VARIANTS.len()],
    /// Rules of Envoy's rate limit service.
    rules: rules::RuleTable,
    reloads: [Counter; 2],
    /// True while the files of that source are refused, by [`ConfigSource`].
    rejected: [AtomicBool; ConfigSource::COUNT],
    /// Changes of the file of overrides, by [`OverrideAct`].
    override_changes: [Counter; OverrideAct::VARIANTS.len()],
    /// Decisions that a report may correct.
    reports_expected: Counter,
    /// Grants of credits, by [`GrantResult`].
    grants: [Counter; GrantResult::VARIANTS.len()],
    /// Seconds since 1970 at which the policy was put in force.
    applied_at: AtomicU64,
    /// Nanoseconds that the clock of the shared store is ahead, once they are known.
    pub(crate) clock_offset: Mutex<Option<i64>>,
    pub(crate) process: Arc<process::Process>,
}

/// The parts of the service that have metrics; they are read at a scrape.
#[derive(Debug)]
pub(crate) struct MetricSources<'s> {
    pub(crate) keeper: &'s Keeper<AnyStore, ServiceClock>,
    pub(crate) observers: &'s Observers,
    pub(crate) hold: &'s HoldQueue,
    /// Snapshots of the counters; `None` without a state folder.
    pub(crate) state: Option<StateLevels>,
}

/// The files that a configuration is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumCount)]
pub(crate) enum ConfigSource {
    Policy,
    Envoy,
}

/// The protocol of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Protocol {
    Http,
    Rls,
    /// Requests that are forwarded.
    Proxy,
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestResult {
    Allowed,
    Denied,
    Error,
}

impl RequestResult {
    pub(crate) fn of(answer: &Answer) -> Self {
        if answer.allowed() {
            Self::Allowed
        } else {
            Self::Denied
        }
    }
}

/// The result of a report.
#[derive(Clone, Copy, Debug, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ReportResult {
    Corrected,
    Repeated,
    NotOpen,
    Error,
    /// The response had no amount where `settle` says.
    Unsettled,
}

/// The result of a grant.
#[derive(Clone, Copy, Debug, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum GrantResult {
    Added,
    Repeated,
    Error,
}

impl Metrics {
    /// Makes rows for the limits of `policy`; counts of limits that stay are kept.
    pub(crate) fn install(&self, policy: &Policy, unix_seconds: u64) {
        let rows = by_limit::renewed(&self.rows.load(), &policy.rules, |rule, known| {
            let new = LimitRow::new(rule, policy);
            Some(match known.cloned() {
                Some(row) => row.under(new),
                None => Arc::new(new),
            })
        });
        self.rows.store(Arc::new(rows));
        self.applied_at.store(unix_seconds, Ordering::Relaxed);
    }

    /// Returns the number of decisions of a limit since the start, by effect.
    pub(crate) fn decisions(&self, limit: LimitId) -> [(&'static str, u64); EFFECTS] {
        let row = self.row(limit);
        let counts = row.map_or([0; EFFECTS], |row| sum_of(&row.counts().decisions));
        std::array::from_fn(|did| (DID[did], counts[did]))
    }

    /// Returns true if the policy has such a limit.
    pub(crate) fn counts(&self, limit: LimitId) -> bool {
        self.row(limit).is_some()
    }

    /// Returns the row of a limit; `None` if the policy has no such limit.
    fn row(&self, limit: LimitId) -> Option<Arc<LimitRow>> {
        by_limit::of(&self.rows.load(), limit).cloned()
    }

    /// Makes rows for the rules of Envoy's rate limit service.
    pub(crate) fn install_envoy(&self, config: &Arc<envoy::EnvoyConfig>) {
        self.rules.install(config);
    }

    pub(crate) fn reload_applied(&self) {
        self.reloads[0].add(1);
    }

    /// Notes that the files are those in force.
    pub(crate) fn reload_accepted(&self, source: ConfigSource) {
        self.rejected[source as usize].store(false, Ordering::Relaxed);
    }

    pub(crate) fn reload_rejected(&self, source: ConfigSource) {
        self.reloads[1].add(1);
        self.rejected[source as usize].store(true, Ordering::Relaxed);
    }

    /// Returns true while the files of the policy, or those of Envoy's service, are refused.
    pub(crate) fn is_rejected(&self) -> bool {
        let mut each = self.rejected.iter();
        each.any(|rejected| rejected.load(Ordering::Relaxed))
    }

    pub(crate) fn override_changed(&self, act: OverrideAct) {
        self.override_changes[act as usize].add(1);
    }

    pub(crate) fn report(&self, result: ReportResult) {
        self.process.reports[result as usize].add(1);
    }

    pub(crate) fn grant(&self, result: GrantResult) {
        self.grants[result as usize].add(1);
    }

    pub(crate) fn request(&self, protocol: Protocol, result: RequestResult) {
        self.requests[protocol as usize][result as usize].add(1);
    }

    /// Counts a call of Envoy's rate limit service that its configuration decided. A call that
    /// gives hits back is not traffic: it never counts as one without a limit.
    pub(crate) fn record_call(
        &self,
        call: &envoy::EnvoyCall<'_>,
        answer: &envoy::EnvoyAnswer<'_>,
        config: &Arc<envoy::EnvoyConfig>,
        path: DecisionPath,
        took: Nanos,
    ) {
        let result = match answer.overall {
            envoy::EnvoyCode::Ok => RequestResult::Allowed,
            envoy::EnvoyCode::OverLimit => RequestResult::Denied,
        };
        self.request(Protocol::Rls, result);
        self.durations[Protocol::Rls as usize][path as usize].observe(took, &BUCKETS);
        self.rules.record(answer, config);
        let mut statuses = answer.statuses.iter();
        let is_limited = statuses.any(|status| status.current_limit.is_some());
        let mut asked = call.descriptors.iter();
        let gives_back = asked.any(|one| one.direction == envoy::Direction::GiveBack);
        if !is_limited && !gives_back {
            self.unlimited[Protocol::Rls as usize].add(1);
        }
    }

    /// Counts a decided request; `each` receives its outcomes, and `banned` those with which a ban
    /// began.
    pub(crate) fn record(
        &self,
        protocol: Protocol,
        path: DecisionPath,
        answer: &Answer,
        took: Nanos,
        each: impl Fn(&Outcome<'_>),
        banned: impl Fn(&Outcome<'_>),
    ) {
        let result = RequestResult::of(answer);
        self.request(protocol, result);
        self.durations[protocol as usize][path as usize].observe(took, &BUCKETS);
        if answer.decision().is_some() {
            self.reports_expected.add(1);
        }
        let rows = self.rows.load();
        let row = |rule: &Rule| by_limit::of(&rows, rule.limit.id);
        let (mut is_limited, mut waits) = (false, false);
        for outcome in answer.outcomes() {
            each(&outcome);
            is_limited = true;
            waits |= matches!(outcome.decision.verdict, Verdict::AllowAfter(_));
            if let Some(row) = row(outcome.rule)
                && row.record(&outcome, result)
            {
                banned(&outcome);
            }
        }
        if waits
            && result == RequestResult::Allowed
            && let Some((by, wait)) = answer.delayed_by()
            && let Some(durations) = row(by.rule).and_then(|row| row.waits.as_ref())
        {
            durations.observe(wait, &WAITS);
        }
        answer
            .exempt()
            .filter_map(row)
            .for_each(|row| row.record_exempt());
        if !is_limited {
            self.unlimited[protocol as usize].add(1);
        }
    }
}
