//! Observe: what sees decisions and events, and decides nothing: metrics, top keys, alerts, bans,
//! history, the recorder, and exports to other servers.

pub(crate) mod alerts;
mod by_limit;
pub(crate) mod changes;
pub(crate) mod country_hours;
pub(crate) mod denial_log;
pub(crate) mod event;
pub(crate) mod history;
pub(crate) mod key_usage;
pub(crate) mod metrics;
pub(crate) mod otlp;
pub(crate) mod recorder;
pub(crate) mod standing_bans;
pub(crate) mod top_keys;
pub(crate) mod upstreams;
pub(crate) mod watching;

use std::sync::Arc;

use ratekeeper::Answer;
use ratekeeper_core::Time;
use ratekeeper_policy::{Policy, RevealKeys};

use self::alerts::{AlertNotice, Alerts};
use self::changes::Changes;
use self::country_hours::CountryHours;
use self::denial_log::{DenialLog, LoggedRequest};
use self::history::{History, MAX_LIMITS};
use self::metrics::{DecisionPath, Metrics, Protocol};
use self::standing_bans::StandingBans;
use self::top_keys::KeyReveal;
use self::watching::Watchers;

/// All that sees decisions. A new observer is a field here, and its calls in the functions below.
#[derive(Debug)]
pub(crate) struct Observers {
    pub(crate) metrics: Metrics,
    pub(crate) alerts: Alerts,
    pub(crate) watchers: Watchers,
    pub(crate) bans: StandingBans,
    pub(crate) history: History,
    pub(crate) countries: CountryHours,
    pub(crate) changes: Arc<Changes>,
    denial_log: DenialLog,
}

impl Observers {
    /// Creates the observers of the first policy.
    pub(crate) fn new(policy: &Arc<Policy>, unix_seconds: u64, alerts: Alerts) -> Self {
        let observers = Self {
            metrics: Metrics::default(),
            alerts,
            watchers: Watchers::new(policy),
            bans: StandingBans::default(),
            history: History::default(),
            countries: CountryHours::default(),
            changes: Arc::default(),
            denial_log: DenialLog::default(),
        };
        observers.install(policy, unix_seconds, drop); // no alert of another policy can end
        observers
    }

    /// Follows a policy that is now in force; `ended` receives the alerts that end with the last one.
    pub(crate) fn install(
        &self,
        policy: &Arc<Policy>,
        unix_seconds: u64,
        ended: impl Fn(AlertNotice),
    ) {
        let first = policy.rules.iter().take(MAX_LIMITS).map(|it| it.limit.id);
        self.history
            .begin(first.filter(|id| !self.metrics.counts(*id)));
        self.metrics.install(policy, unix_seconds);
        self.alerts.install(policy, ended);
        self.watchers.install(policy);
        self.countries.install(policy);
        self.bans.install(policy);
    }

    /// Notes a decided request, answered at `now`.
    pub(crate) fn note(
        &self,
        protocol: Protocol,
        path: DecisionPath,
        request: LoggedRequest<'_>,
        answer: &Answer,
        now: Time,
    ) {
        let decided_at = answer.decided_at();
        let took = now.since(decided_at);
        let metrics = &self.metrics;
        let watch = self.watchers.noting(answer, |denial, limit| {
            let reveal = self.key_reveal(answer.policy().settings.reveal_keys);
            self.denial_log.log(answer, request, denial, limit, reveal);
        });
        metrics.record(protocol, path, answer, took, watch, |outcome| {
            let Some(terms) = outcome.rule.limit.algorithm.bans() else {
                return;
            };
            // The wait is longer where the limit refuses for longer than the ban.
            let wait = outcome.decision.verdict.retry_after().unwrap_or_default();
            let end = decided_at + wait.min(terms.longest);
            self.bans.begin(outcome.rule.limit.id, outcome.key, end);
        });
        self.alerts.note(answer);
        self.countries.note(answer);
    }

    /// Returns how keys are shown.
    pub(crate) fn key_reveal(&self, how: RevealKeys) -> KeyReveal<'_> {
        let identity = &self.alerts.identity;
        KeyReveal { how, identity }
    }
}
