//! Context, shared by the doors: the keeper, its observers, and the source of its policy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use http::HeaderMap;
use ratekeeper::{Answer, Clock, Keeper};
use ratekeeper_core::{Origin, Time};
use ratekeeper_policy::{RevealKeys, Settings, envoy};
use ratekeeper_store::{AnyStore, StoreError};

use crate::admin::Streams;
use crate::byte_budget::{ByteBudget, MAX_BODY_BYTES};
use crate::clock::ServiceClock;
use crate::config::ExplainLimit;
use crate::doors::Access;
use crate::doors::hold::{DEFAULT_MAX_HELD, HoldQueue};
use crate::observe::Observers;
use crate::observe::alerts::Alerts;
use crate::observe::changes::{self, ChangeKind};
use crate::observe::denial_log::LoggedRequest;
use crate::observe::event::Sink;
use crate::observe::metrics::{ConfigSource, DecisionPath, Protocol, RequestResult};
use crate::observe::top_keys::KeyReveal;
use crate::readiness::Readiness;
use crate::source::PolicyOrigin;
use crate::state::StateFolder;
use crate::{Config, StartError};

#[derive(Debug)]
pub(crate) struct ServiceContext {
    pub(crate) keeper: Arc<Keeper<AnyStore, ServiceClock>>,
    pub(crate) observers: Observers,
    pub(crate) source: PolicyOrigin,
    pub(crate) readiness: Readiness,
    /// The folder for the next process, if the policy names one.
    pub(crate) state: Option<Arc<StateFolder>>,
    /// Held while records are decided again: one call at a time.
    pub(crate) whatif: tokio::sync::Mutex<()>,
    /// The last answer for the dashboard, and the pages that receive it.
    pub(crate) streams: Streams,
    /// Returns a limit in words, if the process has them.
    pub(crate) explain: Option<ExplainLimit>,
    pub(crate) access: Access,
    pub(crate) hold: HoldQueue,
    pub(crate) sink: Sink,
    pub(crate) bodies: Arc<ByteBudget>,
    /// Responses that may state a cost, and answers to batches. A client that reads slowly takes
    /// nothing from requests.
    pub(crate) responses: Arc<ByteBudget>,
    /// The proxy listener, whose settings a reload replaces.
    pub(crate) proxy: OnceLock<Weak<dyn Reload>>,
    /// The hour in which an untrusted proxy was reported, as [`NoticeHour::word`].
    untrusted_reported: AtomicU64,
}

/// A listener whose settings can be replaced.
pub(crate) trait Reload: Send + Sync {
    /// Reads what the settings name, and returns the function that puts them in force.
    ///
    /// # Errors
    /// Why they cannot be in force.
    fn prepare(self: Arc<Self>, settings: &Settings) -> Result<Box<dyn FnOnce()>, StartError>;
}

impl ServiceContext {
    pub(crate) fn new(
        config: &Config,
        keeper: Keeper<AnyStore, ServiceClock>,
        source: PolicyOrigin,
        state: Option<Arc<StateFolder>>,
        alerts: Alerts,
        access: Access,
        streams: Streams,
    ) -> Self {
        let keeper = Arc::new(keeper);
        let (clock, policy) = (keeper.clock(), keeper.policy());
        let unix_seconds = clock.origin().unix_nanos(clock.now()) / NANOS;
        let observers = Observers::new(&policy, unix_seconds, alerts);
        let changes = &observers.changes;
        let sink = changes.listening(config.sink.clone(), Arc::clone(&keeper));
        let max_held = policy.settings.listen.max_held;
        Self {
            keeper,
            observers,
            source,
            readiness: Readiness::default(),
            state,
            whatif: tokio::sync::Mutex::default(),
            streams,
            explain: config.explain,
            access,
            hold: HoldQueue::new(max_held.unwrap_or(DEFAULT_MAX_HELD)),
            sink,
            bodies: ByteBudget::new(MAX_BODY_BYTES),
            responses: ByteBudget::new(MAX_BODY_BYTES),
            proxy: OnceLock::new(),
            untrusted_reported: AtomicU64::new(0),
        }
    }

    /// Does work on a thread of its own, so that no decision waits; `None` if it panicked. Its
    /// changes are those of the operator whose call is being answered.
    pub(crate) async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Option<T> {
        let shared = Arc::clone(self);
        let work = changes::by_the_same(move || work(&shared));
        tokio::task::spawn_blocking(work).await.ok()
    }

    /// Puts the configuration of Envoy's rate limit service in force.
    pub(crate) fn install_envoy(&self, config: envoy::EnvoyConfig) {
        self.keeper.install_envoy(config);
        if let Some(config) = self.keeper.envoy() {
            self.observers.metrics.install_envoy(&config);
        }
    }

    /// Returns where the zero of the clock lies on the wall clock.
    pub(crate) fn origin(&self) -> Origin {
        self.keeper.wall_origin()
    }

    /// Returns the time of the clock.
    pub(crate) fn now(&self) -> Time {
        self.keeper.clock().now()
    }

    /// Returns nanoseconds since 1970.
    pub(crate) fn unix_nanos(&self) -> u64 {
        self.origin().unix_nanos(self.now())
    }

    /// Notes an act of an operator, for the dashboard.
    pub(crate) fn note_change(&self, text: &str) {
        self.note(ChangeKind::Change, text);
    }

    /// Notes a change or a fault, for the dashboard.
    pub(crate) fn note(&self, kind: ChangeKind, text: &str) {
        let (now, changes) = (self.now(), &self.observers.changes);
        changes.note(now, self.unix_millis(now), kind, text);
    }

    /// Notes that the files of a source are those in force.
    pub(crate) fn end_refusals(&self, source: ConfigSource) {
        self.observers.metrics.reload_accepted(source);
        self.observers.changes.end_refusals(source);
    }

    /// Counts a request that no limit has decided, or whose decision charges nothing.
    pub(crate) fn count_request(&self, protocol: Protocol, result: RequestResult) {
        self.observers.metrics.request(protocol, result);
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
        let (now, path) = (self.now(), self.decision_path());
        self.observers.note(protocol, path, request, answer, now);
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
        self.observers.key_reveal(how)
    }

    /// Counts a call with a wrong token, and logs it.
    pub(crate) fn note_wrong_token(&self, caller: SocketAddr, headers: &HeaderMap) {
        if self.access.has_wrong_token(headers) {
            let now = self.now();
            self.observers.metrics.process.wrong_token(caller, now);
        }
    }

    /// Logs a call that the store could not answer.
    pub(crate) fn store_failed(&self, error: &StoreError) {
        let now = self.now();
        self.observers.metrics.process.store_failed(error, now);
    }

    /// Gives a notice, if it is the first about proxies in this hour: all clients of `peer` count
    /// as one.
    pub(crate) fn notice_of_proxy(&self, version: u32, peer: IpAddr, why: impl FnOnce() -> String) {
        let hour = NoticeHour::new(version, self.now()).word();
        let reported = &self.untrusted_reported;
        if reported.load(Ordering::Relaxed) != hour
            && reported.swap(hour, Ordering::Relaxed) != hour
        {
            // As `trusted_proxies` names it.
            let unix = peer.is_unspecified().then(|| "unix:".to_owned());
            let peer = unix.unwrap_or_else(|| peer.to_string());
            self.sink.notice(format!("RK-W101: {peer} {}", why()));
        }
    }

    /// Gives a notice after a refusal, if the peer is a trusted proxy whose clients count as one.
    pub(crate) fn refused_unnamed(&self, peer: IpAddr, headers: &HeaderMap) {
        let policy = self.keeper.look_at_policy();
        let field = &*policy.client_ip.header;
        let lines = headers.get_all(field).iter();
        let lines: Vec<_> = lines.map(|line| (field, line.as_bytes())).collect();
        if policy.client_ip.is_unreadable(peer, &lines) {
            self.notice_of_proxy(policy.version, peer, || {
                format!(
                    "is a trusted proxy, and its `{field}` names no address of a client, so all of \
                     its clients count as one; let it append the address of its peer"
                )
            });
        }
        let mut others = CLIENT_FIELDS.into_iter();
        if lines.is_empty()
            && policy.client_ip.trusts(peer)
            && let Some(other) = others.find(|name| headers.contains_key(*name))
        {
            self.notice_of_proxy(policy.version, peer, || {
                format!(
                    "is a trusted proxy that sends `{other}` and no `{field}`, so all of its \
                     clients count as one; write header = \"{other}\" in [client_ip]"
                )
            });
        }
        let client = policy.client_ip.identify(peer, &lines);
        let known = [client, peer.to_canonical()];
        let hops = lines
            .iter()
            .flat_map(|(_, line)| line.split(|byte| *byte == b','));
        if is_private(client) && known[0] != known[1] && hops.count() > 1 {
            let mut wider = policy.client_ip.clone();
            wider.trusted_proxies.push(client.into());
            if !known.contains(&wider.identify(peer, &lines)) {
                self.notice_of_proxy(policy.version, client, || {
                    format!(
                        "is a private address behind another one in `{field}`; if it is a proxy, \
                         all of its clients count as one: add it to `trusted_proxies` in [client_ip]"
                    )
                });
            }
        }
    }
}

/// Fields by which proxies name a client, besides that of the policy.
pub(crate) const CLIENT_FIELDS: [&str; 4] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
];

/// Returns true for an address of a private network, which proxies have and visitors seldom.
pub(crate) const fn is_private(peer: IpAddr) -> bool {
    match peer {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback(),
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
