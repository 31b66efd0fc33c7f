//! Metrics: counters found at load, not by label; rendered when scraped.
//!
//! ```text
//!   policy --install--> one row of counters for each limit, by LimitId
//!   answer --record---> row[id] += 1            no name is looked up on the way
//!   scrape ------------> names and labels, once
//! ```
//!
//! Labels hold limit names and fixed words only, never a key, path or address, so there are
//! as many series as the policy has limits. A reload keeps the counts of limits that stay and
//! drops those of limits that went.
//!
//! If one limit of several refuses, only that one counts, as `denied`. The others would
//! have allowed, but nothing was charged, so they count nothing.

mod alerts;
mod family;
mod format;
mod grants;
mod offset;
mod process;
mod reports;
mod rules;
mod scrape;
mod shared_store;
mod tally;

pub(crate) use alerts::AlertMetrics;
pub(crate) use format::Format;
pub(crate) use grants::GrantResult;
pub(crate) use offset::{Offset, ahead};
pub(crate) use process::ConnectionCounts;
#[cfg(feature = "proxy")]
pub(crate) use process::Process;
pub(crate) use reports::ReportResult;
pub(crate) use scrape::HeldAnswers;
pub(crate) use shared_store::SharedStore;
pub(crate) use tally::Tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{LimitId, Mode, Nanos, Permits, Time, Verdict};
use ratekeeper_policy::{Geo, Policy, Rule, RuleMode, envoy};

use crate::OverrideAct;

/// Percentage of a limit above which an allowed request counts as near it.
const NEAR_PERCENT: u64 = 80;
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

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
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
    durations: [Durations; Protocol::ALL.len()],
    /// Rules of Envoy's rate limit service.
    rules: rules::RuleTable,
    reloads: [Counter; 2],
    /// Reports of results, by [`ReportResult`].
    reports: [Counter; ReportResult::ALL.len()],
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

/// Number of effects.
const EFFECTS: usize = 4;

/// The effect of a limit on a request.
#[derive(Clone, Copy, Debug)]
enum Did {
    Allowed,
    Denied,
    Queued,
    /// Denied, and let through by another limit.
    Covered,
}

/// The counters of one limit.
#[derive(Debug)]
struct LimitRow {
    name: Arc<str>,
    mode: RuleMode,
    /// By mode (enforce, shadow), then by effect (allowed, denied, queued, covered).
    decisions: [[Counter; EFFECTS]; 2],
    units: [Counter; EFFECTS],
    near: Counter,
    key_missing: Counter,
    /// True if the limit bans keys.
    has_ban: bool,
    /// Bans that began, by mode.
    bans: [Counter; 2],
}

#[derive(Debug, Default)]
struct Durations {
    buckets: [Counter; BUCKETS.len() + 1],
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
        let mut rows = LimitRows::new();
        for rule in &policy.rules {
            let index = rule.limit.id.index();
            if rows.len() <= index {
                rows.resize_with(index + 1, || None);
            }
            let kept = old.get(index).cloned().flatten();
            let row = match kept {
                Some(row) if row.is_of(rule) => row,
                Some(row) => Arc::new(row.under(rule)),
                None => Arc::new(LimitRow::new(rule)),
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

    pub(crate) fn reload_applied(&self) {
        self.reloads[0].add(1);
    }

    pub(crate) fn reload_rejected(&self) {
        self.reloads[1].add(1);
    }

    pub(crate) fn override_changed(&self, act: OverrideAct) {
        self.override_changes[act as usize].add(1);
    }

    pub(crate) fn request(&self, protocol: Protocol, result: RequestResult) {
        self.requests[protocol as usize][result as usize].add(1);
    }

    /// Counts a call of Envoy's rate limit service that its configuration decided.
    pub(crate) fn record_call(
        &self,
        answer: &envoy::EnvoyAnswer<'_>,
        config: &Arc<envoy::EnvoyConfig>,
        took: Nanos,
    ) {
        let result = match answer.overall {
            envoy::EnvoyCode::Ok => RequestResult::Allowed,
            envoy::EnvoyCode::OverLimit => RequestResult::Denied,
        };
        self.request(Protocol::Rls, result);
        self.durations[Protocol::Rls as usize].observe(took);
        self.rules.record(answer, config);
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
        self.durations[protocol as usize].observe(took);
        let rows = self.rows.load();
        for outcome in answer.outcomes() {
            let row = rows.get(outcome.rule.limit.id.index());
            if let Some(row) = row.and_then(Option::as_ref) {
                row.record(&outcome, admitted);
            }
        }
    }
}

impl LimitRow {
    fn new(rule: &Rule) -> Self {
        Self {
            name: Arc::clone(&rule.limit.name),
            mode: rule.mode,
            has_ban: rule.limit.algorithm.bans().is_some(),
            bans: Default::default(),
            decisions: Default::default(),
            units: Default::default(),
            near: Counter::default(),
            key_missing: Counter::default(),
        }
    }

    fn is_of(&self, rule: &Rule) -> bool {
        self.mode == rule.mode && self.has_ban == rule.limit.algorithm.bans().is_some()
    }

    /// Returns the same counts under a changed rule. A request that is being counted right now may
    /// be lost; decisions themselves are not touched.
    fn under(&self, rule: &Rule) -> Self {
        let copy = |counter: &Counter| Counter(AtomicU64::new(counter.count()));
        let copies = |counters: &[Counter; EFFECTS]| counters.each_ref().map(copy);
        Self {
            decisions: self.decisions.each_ref().map(copies),
            units: copies(&self.units),
            near: copy(&self.near),
            key_missing: copy(&self.key_missing),
            bans: self.bans.each_ref().map(copy),
            ..Self::new(rule)
        }
    }

    fn record(&self, outcome: &Outcome<'_>, admitted: bool) {
        if outcome.key_missing {
            self.key_missing.add(1);
        }
        let did = match outcome.decision.verdict {
            _ if !outcome.is_asked => return,
            verdict if !verdict.allows() && outcome.covered_by.is_some() => {
                if !admitted {
                    return;
                }
                Did::Covered
            }
            Verdict::Allow | Verdict::AllowAfter(_) if !admitted => return,
            Verdict::Allow => Did::Allowed,
            Verdict::AllowAfter(_) => Did::Queued,
            _ => Did::Denied,
        };
        let shadow = usize::from(outcome.mode() == Some(Mode::Shadow));
        self.decisions[shadow][did as usize].add(1);
        self.units[did as usize].add(u64::from(outcome.cost.get()));
        if matches!(outcome.decision.verdict, Verdict::Ban { .. }) {
            self.bans[shadow].add(1);
        } else if !matches!(did, Did::Covered | Did::Denied)
            && near(outcome.quota(), outcome.decision.remaining)
        {
            self.near.add(1);
        }
    }
}

/// Returns true if more than [`NEAR_PERCENT`] of `quota` is spent.
fn near(quota: Permits, remaining: Permits) -> bool {
    let spent = u64::from((quota - remaining).get());
    spent * 100 > u64::from(quota.get()) * NEAR_PERCENT
}

impl Durations {
    fn observe(&self, took: Nanos) {
        let bucket = BUCKETS.iter().take_while(|&&edge| edge < took.as_nanos());
        self.buckets[bucket.count()].add(1);
        self.sum_nanos.add(took.as_nanos());
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
    fn near_is_above_four_fifths() {
        let near = |remaining| near(Permits::new(10), Permits::new(remaining));
        assert!(!near(10));
        assert!(!near(2), "80 % is not above 80 %");
        assert!(near(1));
        assert!(!near(11), "more than the quota is not near");
    }

    #[test]
    fn durations_fall_into_the_bucket_that_holds_them() {
        let durations = Durations::default();
        for nanos in [0, 500, 501, 2_000_000_000] {
            durations.observe(Nanos::from_nanos(nanos));
        }
        let counts: Vec<u64> = durations.buckets.iter().map(Counter::count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
