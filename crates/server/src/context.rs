//! Context, shared by the doors: the keeper, its metrics, and the source of its policy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(feature = "proxy")]
use std::sync::{OnceLock, Weak};

use http::HeaderMap;
use ratekeeper::{Answer, Clock, Keeper};
use ratekeeper_core::{Origin, Time};
use ratekeeper_policy::{RevealKeys, envoy};
use ratekeeper_store::AnyStore;
use tokio::sync::watch;

use crate::admin::{Snapshot, Streams};
use crate::config::ExplainLimit;
use crate::doors::Access;
use crate::doors::hold::HoldQueue;
#[cfg(feature = "proxy")]
use crate::doors::proxy::reload::Reload;
use crate::observe::alerts::Alerts;
use crate::observe::changes::Changes;
use crate::observe::country_hours::CountryHours;
use crate::observe::denial_log::{DenialLog, LoggedRequest};
use crate::observe::event::Sink;
use crate::observe::history::History;
use crate::observe::metrics::{DecisionPath, Metrics, Protocol};
use crate::observe::standing_bans::StandingBans;
use crate::observe::top_keys::KeyReveal;
use crate::observe::watching::Watchers;
use crate::regular_file::FileReader;
use crate::serve::body_budget::BodyBudget;
use crate::source::envoy_files;
use crate::source::last_seen::LastSeen;
use crate::state::StateFolder;

#[derive(Debug)]
pub(crate) struct ServiceContext<C> {
    pub(crate) keeper: Arc<Keeper<AnyStore, C>>,
    pub(crate) metrics: Metrics,
    pub(crate) alerts: Alerts,
    pub(crate) watchers: Watchers,
    pub(crate) bans: StandingBans,
    /// Held while records are decided again: one call at a time.
    pub(crate) whatif: tokio::sync::Mutex<()>,
    pub(crate) history: History,
    pub(crate) countries: CountryHours,
    /// The folder for the next process, if the policy names one.
    pub(crate) state: Option<Arc<StateFolder>>,
    pub(crate) changes: Arc<Changes>,
    /// The last answer for the dashboard, and the pages that receive it.
    pub(crate) snapshot: Snapshot,
    pub(crate) streams: Streams,
    /// Returns a limit in words, if the process has them.
    pub(crate) explain: Option<ExplainLimit>,
    denial_log: DenialLog,
    /// The policy file, if there is one.
    pub(crate) path: Option<PathBuf>,
    pub(crate) envoy_files: envoy_files::ConfigSource,
    pub(crate) last_seen: LastSeen,
    pub(crate) access: Access,
    pub(crate) hold: HoldQueue,
    pub(crate) sink: Sink,
    pub(crate) bodies: Arc<BodyBudget>,
    /// Responses that may state a cost, and answers to batches. A client that reads slowly takes
    /// nothing from requests.
    pub(crate) responses: Arc<BodyBudget>,
    /// Reads the policy file.
    pub(crate) reader: FileReader,
    /// The proxy listener, whose settings a reload replaces.
    #[cfg(feature = "proxy")]
    pub(crate) proxy: OnceLock<Weak<dyn Reload>>,
    ready: watch::Sender<bool>,
    /// True while the doors are open and the service is not stopping.
    serving: AtomicBool,
    /// True while the store fails and every limit refuses because of that.
    stuck: AtomicBool,
    /// Number of tasks that panicked and are not running again yet.
    down: AtomicU32,
    /// The hour in which an untrusted proxy was reported, as [`NoticeHour::word`].
    untrusted_reported: AtomicU64,
}

impl<C: Clock> ServiceContext<C> {
    pub(crate) fn new(
        keeper: Keeper<AnyStore, C>,
        (path, envoy_files): (Option<PathBuf>, envoy_files::ConfigSource),
        (last_seen, state): (LastSeen, Option<Arc<StateFolder>>),
        (access, hold, streams): (Access, HoldQueue, Streams),
        (alerts, sink): (Alerts, Sink),
    ) -> Self
    where
        C: 'static,
    {
        let metrics = Metrics::default();
        let origin = keeper.clock().origin();
        let now = origin.unix_nanos(keeper.clock().now());
        metrics.install(&keeper.policy(), now / NANOS);
        alerts.install(&keeper.policy(), drop); // none can end: it is the first policy
        let watchers = Watchers::new(&keeper.policy());
        let countries = CountryHours::default();
        countries.install(&keeper.policy());
        let keeper = Arc::new(keeper);
        let changes = Arc::<Changes>::default();
        let sink = changes.listening(sink, Arc::clone(&keeper));
        Self {
            keeper,
            metrics,
            alerts,
            watchers,
            bans: StandingBans::default(),
            whatif: tokio::sync::Mutex::default(),
            history: History::default(),
            countries,
            state,
            changes,
            snapshot: Snapshot::default(),
            streams,
            explain: None,
            denial_log: DenialLog::default(),
            path,
            envoy_files,
            last_seen,
            access,
            hold,
            sink,
            bodies: Arc::default(),
            responses: Arc::default(),
            #[cfg(feature = "proxy")]
            proxy: OnceLock::new(),
            reader: FileReader::default(),
            ready: watch::Sender::new(false),
            serving: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            down: AtomicU32::new(0),
            untrusted_reported: AtomicU64::new(0),
        }
    }

    /// Puts the configuration of Envoy's rate limit service in force.
    pub(crate) fn install_envoy(&self, config: envoy::EnvoyConfig) {
        self.keeper.install_envoy(config);
        if let Some(config) = self.keeper.envoy() {
            self.metrics.install_envoy(&config);
        }
    }

    /// Returns where the zero of the clock lies on the wall clock.
    pub(crate) fn origin(&self) -> Origin {
        self.keeper.wall_origin()
    }

    /// Returns nanoseconds since 1970.
    pub(crate) fn unix_nanos(&self) -> u64 {
        self.origin().unix_nanos(self.keeper.clock().now())
    }

    /// Returns whole seconds since 1970.
    pub(crate) fn unix_seconds(&self) -> u64 {
        self.unix_nanos() / NANOS
    }

    /// Returns milliseconds since 1970.
    pub(crate) fn unix_millis(&self, time: Time) -> u64 {
        self.origin().unix_nanos(time) / 1_000_000
    }

    /// Counts a decided request.
    pub(crate) fn record(&self, protocol: Protocol, request: LoggedRequest<'_>, answer: &Answer) {
        let now = self.keeper.clock().now();
        let took = now.since(answer.decided_at());
        let path = self.decision_path();
        self.metrics
            .record(protocol, path, answer, took, |outcome| {
                let wait = outcome.decision.verdict.retry_after();
                let end = answer.decided_at() + wait.unwrap_or_default();
                self.bans.begin(outcome.rule.limit.id, outcome.key, end);
            });
        self.alerts.note(answer);
        self.countries.note(answer);
        self.watchers.note_and_log(answer, |denial, limit| {
            let reveal = self.key_reveal(answer.policy().settings.reveal_keys);
            self.denial_log.log(answer, request, denial, limit, reveal);
        });
    }

    /// Returns where decisions are made at present.
    pub(crate) fn decision_path(&self) -> DecisionPath {
        match self.keeper.store().shared() {
            Some(store) if store.is_asked() => DecisionPath::Store,
            _ => DecisionPath::Local,
        }
    }

    /// Returns how keys are shown.
    pub(crate) fn key_reveal(&self, how: RevealKeys) -> KeyReveal<'_> {
        let identity = &self.alerts.identity;
        KeyReveal { how, identity }
    }

    /// Counts a call with a wrong token, and logs it.
    pub(crate) fn note_wrong_token(&self, caller: SocketAddr, headers: &HeaderMap) {
        if self.access.has_wrong_token(headers) {
            let now = self.keeper.clock().now();
            self.metrics.process.wrong_token(caller, now);
        }
    }

    pub(crate) fn ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.serving.store(ready, Ordering::Relaxed);
        self.note_readiness();
    }

    /// Sets whether the store fails and every limit refuses because of that.
    pub(crate) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
        self.note_readiness();
    }

    /// Notes that a task that must go on has ended.
    pub(crate) fn note_down(&self) {
        self.down.fetch_add(1, Ordering::Relaxed);
        self.note_readiness();
    }

    /// Notes that the task runs again.
    pub(crate) fn note_up(&self) {
        self.down.fetch_sub(1, Ordering::Relaxed);
        self.note_readiness();
    }

    fn note_readiness(&self) {
        self.ready.send_if_modified(|ready| {
            let serving = self.serving.load(Ordering::Relaxed);
            let runs = self.down.load(Ordering::Relaxed) == 0;
            let now = serving && runs && !self.stuck.load(Ordering::Relaxed);
            std::mem::replace(ready, now) != now
        });
    }

    /// Returns a receiver that is notified when readiness changes.
    #[cfg(feature = "grpc")]
    pub(crate) fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Returns true if this is the first report of an untrusted proxy in this hour of that policy.
    pub(crate) fn first_untrusted(&self, version: u32) -> bool {
        let hour = NoticeHour::new(version, self.keeper.clock().now()).word();
        let reported = &self.untrusted_reported;
        reported.load(Ordering::Relaxed) != hour && reported.swap(hour, Ordering::Relaxed) != hour
    }
}

/// An hour of the service under one policy, in which a notice is given once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NoticeHour {
    /// Version of the policy.
    version: u32,
    /// Since the start, from 1; 0 is none.
    hour: u32,
}

impl NoticeHour {
    pub(crate) fn new(version: u32, now: Time) -> Self {
        let hour = now.as_nanos() / (3_600 * NANOS) + 1;
        Self {
            version,
            hour: u32::try_from(hour).unwrap_or(u32::MAX),
        }
    }

    fn word(self) -> u64 {
        u64::from(self.version) << 32 | u64::from(self.hour)
    }
}

const NANOS: u64 = 1_000_000_000;
