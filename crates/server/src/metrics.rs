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

mod family;
mod format;
mod grants;
mod limit_row;
mod limits;
mod offset;
mod process;
mod reports;
mod rules;
mod scrape;
mod shared_store;
mod table;
mod tally;

#[cfg(test)]
pub(crate) use family::Family;
pub(crate) use family::{DurationsSnapshot, Kind, MetricValues, Sample, SampleValue};
pub(crate) use format::{Coding, Format};
pub(crate) use grants::GrantResult;
pub(crate) use limits::{DeniedKeys, LimitLevels, LimitSources};
pub(crate) use offset::{Offset, ahead};
#[cfg(feature = "proxy")]
pub(crate) use process::CheckedAddress;
pub(crate) use process::{ConnectionCounts, Process};
pub(crate) use reports::ReportResult;
pub(crate) use scrape::{HeldAnswers, Levels, MetricsSnapshot, StateLevels};
pub(crate) use shared_store::SharedStore;
pub(crate) use tally::Tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use ratekeeper::Answer;
use ratekeeper_core::{LimitId, Mode, Nanos, Time, Verdict};
use ratekeeper_policy::{Geo, Policy, envoy};

use self::family::seconds;
use self::limit_row::{EFFECTS, LimitRow};
use crate::OverrideAct;

/// Upper bounds of the buckets of decision time, in nanoseconds; the last has none.
const BUCKETS: [u64; 12] = [
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
];
/// Upper bounds of the buckets of waits in queues, in nanoseconds; the last has none.
const WAITS: [u64; 9] = [
    1_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    15_000_000_000,
    60_000_000_000,
];

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    fn at(count: u64) -> Self {
        Self(AtomicU64::new(count))
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts `count`, for values that may decrease.
    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// Returns the count, and begins again at zero.
    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Metrics of the service.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    rows: ArcSwap<LimitRows>,
    /// Counts by protocol.
    requests: [[Counter; 3]; Protocol::ALL.len()],
    /// Requests that no limit applied to, by protocol.
    unlimited: [Counter; Protocol::ALL.len()],
    durations: [Durations<{ BUCKETS.len() + 1 }>; Protocol::ALL.len()],
    queue_waits: Durations<{ WAITS.len() + 1 }>,
    /// Rules of Envoy's rate limit service.
    rules: rules::RuleTable,
    reloads: [Counter; 2],
    /// True while the files of that source are refused, by [`ConfigSource`].
    rejected: [AtomicBool; ConfigSource::COUNT],
    /// Changes of the file of overrides, by [`OverrideAct`].
    override_changes: [Counter; OverrideAct::ALL.len()],
    /// Grants of credits, by [`GrantResult`].
    grants: [Counter; GrantResult::ALL.len()],
    config: ArcSwapOption<ConfigInfo>,
    /// Clock offset of the shared store.
    pub(crate) clock_offset: Offset,
    pub(crate) process: Arc<process::Process>,
}

/// Rows by [`LimitId`](ratekeeper_core::LimitId); `None` for limits that the policy has lost.
type LimitRows = Vec<Option<Arc<LimitRow>>>;

#[derive(Debug)]
struct ConfigInfo {
    sha: Arc<str>,
    version: u32,
    applied_at_seconds: u64,
    /// Fields of `[geo]`, and the seconds since 1970 at which their databases were made.
    databases: Vec<(&'static str, u64)>,
}

/// The files that a configuration is read from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConfigSource {
    Policy,
    Envoy,
}

impl ConfigSource {
    const COUNT: usize = 2;
}

/// The protocol of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Http,
    Rls,
    /// Requests that are forwarded.
    Proxy,
}

impl Protocol {
    const ALL: [Self; 3] = [Self::Http, Self::Rls, Self::Proxy];

    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Rls => "rls",
            Self::Proxy => "proxy",
        }
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestResult {
    Allowed,
    Denied,
    Error,
}

/// A histogram with `N` buckets, the last of which has no upper bound.
#[derive(Debug)]
struct Durations<const N: usize> {
    buckets: [Counter; N],
    sum_nanos: Counter,
}

/// Lets one line a second into the log, and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct LogGate {
    /// The second of the last line, from 1; 0 if there is none yet.
    second: AtomicU64,
    suppressed: AtomicU64,
}

impl Metrics {
    /// Makes rows for the limits of `policy`; counts of limits that stay are kept.
    pub(crate) fn install(&self, policy: &Policy, now_seconds: u64) {
        let old = self.rows.load();
        let plans = policy.plans.as_ref();
        let mut rows = LimitRows::new();
        for rule in &policy.rules {
            let index = rule.limit.id.index();
            if rows.len() <= index {
                rows.resize_with(index + 1, || None);
            }
            let kept = old.get(index).cloned().flatten();
            let row = match kept {
                Some(row) if row.is_of(rule, plans) => row,
                Some(row) => Arc::new(row.under(rule, plans)),
                None => Arc::new(LimitRow::new(rule, plans)),
            };
            if let Some(place) = rows.get_mut(index) {
                *place = Some(row);
            }
        }
        self.rows.store(Arc::new(rows));
        let databases = policy.geo.iter().flat_map(Geo::files);
        let databases = databases.map(|file| (file.field, file.built_unix_seconds));
        self.config.store(Some(Arc::new(ConfigInfo {
            sha: Arc::clone(&policy.sha),
            version: policy.version,
            applied_at_seconds: now_seconds,
            databases: databases.collect(),
        })));
    }

    /// Returns the number of decisions of a limit since the start, by effect.
    pub(crate) fn decisions(&self, limit: LimitId) -> [u64; EFFECTS] {
        let rows = self.rows.load();
        let row = rows.get(limit.index()).and_then(Option::as_ref);
        let by_mode = row.map(|row| row.decisions.iter());
        let all = |effect: usize| {
            let each = by_mode.clone().into_iter().flatten();
            each.map(|counters| counters[effect].count()).sum()
        };
        std::array::from_fn(all)
    }

    /// Makes rows for the rules of Envoy's rate limit service.
    pub(crate) fn install_envoy(&self, config: &Arc<envoy::EnvoyConfig>) {
        self.rules.install(config);
    }

    pub(crate) fn reload_applied(&self, source: ConfigSource) {
        self.reloads[0].add(1);
        self.reload_needless(source);
    }

    /// Notes that the files are those in force.
    pub(crate) fn reload_needless(&self, source: ConfigSource) {
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

    pub(crate) fn request(&self, protocol: Protocol, result: RequestResult) {
        self.requests[protocol as usize][result as usize].add(1);
    }

    /// Counts a call of Envoy's rate limit service that its configuration decided. A call that
    /// gives hits back is not traffic: it never counts as one without a limit.
    pub(crate) fn record_call(
        &self,
        (call, answer): (&envoy::EnvoyCall<'_>, &envoy::EnvoyAnswer<'_>),
        config: &Arc<envoy::EnvoyConfig>,
        took: Nanos,
    ) {
        let result = match answer.overall {
            envoy::EnvoyCode::Ok => RequestResult::Allowed,
            envoy::EnvoyCode::OverLimit => RequestResult::Denied,
        };
        self.request(Protocol::Rls, result);
        self.durations[Protocol::Rls as usize].observe(took, &BUCKETS);
        self.rules.record(answer, config);
        let mut statuses = answer.statuses.iter();
        let is_limited = statuses.any(|status| status.current_limit.is_some());
        let mut asked = call.descriptors.iter();
        let gives_back = asked.any(|one| one.direction == envoy::Direction::GiveBack);
        if !is_limited && !gives_back {
            self.unlimited[Protocol::Rls as usize].add(1);
        }
    }

    /// Counts a decided request.
    pub(crate) fn record(&self, protocol: Protocol, answer: &Answer, took: Nanos) {
        let admitted = answer.allowed();
        let result = if admitted {
            RequestResult::Allowed
        } else {
            RequestResult::Denied
        };
        self.request(protocol, result);
        self.durations[protocol as usize].observe(took, &BUCKETS);
        let rows = self.rows.load();
        let mut is_limited = false;
        for outcome in answer.outcomes() {
            is_limited = true;
            if let Verdict::AllowAfter(wait) = outcome.decision.verdict
                && admitted
                && outcome.is_asked
                && outcome.mode() == Some(Mode::Enforce)
            {
                self.queue_waits.observe(wait, &WAITS);
            }
            let row = rows.get(outcome.rule.limit.id.index());
            if let Some(row) = row.and_then(Option::as_ref) {
                row.record(&outcome, admitted);
            }
        }
        if !is_limited {
            self.unlimited[protocol as usize].add(1);
        }
    }
}

impl<const N: usize> Default for Durations<N> {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_nanos: Counter::default(),
        }
    }
}

impl<const N: usize> Durations<N> {
    /// Counts a duration; `edges` are the upper bounds of the buckets, in nanoseconds.
    fn observe(&self, took: Nanos, edges: &[u64]) {
        let bucket = edges.iter().take_while(|&&edge| edge < took.as_nanos());
        if let Some(bucket) = self.buckets.get(bucket.count()) {
            bucket.add(1);
        }
        self.sum_nanos.add(took.as_nanos());
    }

    fn snapshot(&self, edges: &[u64]) -> DurationsSnapshot {
        let edges = edges.iter().map(|&nanos| seconds(nanos));
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

impl LogGate {
    /// Returns the number of lines suppressed since the last one, if one may be written now.
    pub(crate) fn opens(&self, now: Time) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000 + 1;
        let last = self.second.load(Ordering::Relaxed);
        let won = second > last
            && self
                .second
                .compare_exchange(last, second, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if won {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_denial_a_second_is_logged() {
        let gate = LogGate::default();
        let at = |millis| Time::ZERO + Nanos::from_millis(millis);
        assert_eq!(gate.opens(at(0)), Some(0));
        assert_eq!(gate.opens(at(1)), None);
        assert_eq!(gate.opens(at(999)), None);
        assert_eq!(gate.opens(at(1000)), Some(2));
        assert_eq!(
            gate.opens(at(500)),
            None,
            "no denial is logged when the clock steps back"
        );
    }

    #[test]
    fn durations_fall_into_the_bucket_that_holds_them() {
        let durations = Durations::<{ BUCKETS.len() + 1 }>::default();
        for nanos in [0, 500, 501, 2_000_000_000] {
            durations.observe(Nanos::from_nanos(nanos), &BUCKETS);
        }
        let counts: Vec<u64> = durations.buckets.iter().map(Counter::count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
