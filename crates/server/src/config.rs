//! Config: how a service is started, and why it may refuse to.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratekeeper_policy::config::Diagnostic;
use ratekeeper_policy::{
    AdminWrites, Policy, ProxySettings, Rule, Settings, UpstreamUrl, WallTime,
};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

use crate::observe::event::Sink;
use crate::serve::door_address::DoorAddress;
use crate::{Event, EventExport, LogWriter, StoreChoice};

/// A listening address of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Door {
    /// The check API and forward-auth.
    Http,
    /// Envoy's rate limit service.
    Grpc,
    /// Metrics, health, keys, reload.
    Admin,
    /// Limits requests, and forwards them.
    Proxy,
}

/// A value for each open door, by its discriminant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doors<T>(pub(crate) [Option<T>; Door::VARIANTS.len()]);

impl<T> Doors<T> {
    pub(crate) fn of(&self, door: Door) -> Option<&T> {
        self.0[door as usize].as_ref()
    }

    pub(crate) fn take(&mut self, door: Door) -> Option<T> {
        self.0[door as usize].take()
    }

    /// Returns the open doors.
    pub(crate) fn open(&self) -> impl Iterator<Item = (Door, &T)> {
        let all = [Door::Http, Door::Proxy, Door::Grpc, Door::Admin];
        all.into_iter()
            .filter_map(|door| Some((door, self.of(door)?)))
    }
}

/// Returns the description of a limit, line by line: its requests, and its bounds.
pub type ExplainLimit = fn(&Policy, &Rule, WallTime) -> Vec<String>;

/// How a service is started.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The policy file. `None`: no limits except those of `envoy_config`.
    pub policy: Option<PathBuf>,
    /// Configuration of Envoy's rate limit service, a file or a directory. `None`: as the
    /// policy says, else there is no such service.
    pub envoy_config: Option<PathBuf>,
    /// Addresses of the upstream that requests are forwarded to. Empty: as the policy says.
    pub upstream: Vec<UpstreamUrl>,
    /// Where the counters are. `None`: as the policy says.
    pub store: Option<StoreChoice>,
    /// Maximum number of bytes that the store uses. `None`: as the policy says, else 256 MiB, or a
    /// quarter of the memory of the machine or container if that is less.
    pub memory_budget: Option<usize>,
    /// Token that admin calls must present; without it the admin door stays on loopback.
    pub admin_token: Option<String>,
    /// Which calls may reset, refund and reload. `None`: as the policy says, else those that
    /// present the token.
    pub admin_writes: Option<AdminWrites>,
    /// Number of threads that decide. `None`: one for each core.
    pub workers: Option<NonZeroUsize>,
    /// Reloads the policy when its file changes.
    pub watch: bool,
    /// Puts enforcing limits in shadow mode, also after a reload.
    pub shadow: bool,
    /// Handles signals: SIGTERM and SIGINT stop the service, SIGHUP reloads it.
    pub signals: bool,
    /// Listening sockets that another process has opened, such as systemd, for the listeners with
    /// their addresses. They stay open for the next process: connections wait in them between the
    /// two.
    pub sockets: Vec<Arc<OwnedFd>>,
    /// Answers `GET /v1/explain?limit=NAME` with the lines of `explain` about a limit at a time.
    /// `None`: there is no such path.
    pub explain: Option<ExplainLimit>,
    /// The log, whose dropped lines are shown in the metrics.
    pub log: Option<LogWriter>,
    /// The events that are sent to the receiver of `[otlp]`.
    pub events: Option<EventExport>,
    /// Addresses of doors, in place of those of the policy.
    pub(crate) addresses: Doors<String>,
    pub(crate) sink: Sink,
}

impl Config {
    /// Returns the configuration of a service with that policy file: it watches the file, leaves
    /// signals to the caller, and takes no token.
    pub fn new(policy: impl Into<PathBuf>) -> Self {
        Self {
            policy: Some(policy.into()),
            watch: true,
            ..Self::default()
        }
    }

    /// Returns the directory that paths in the policy are relative to.
    pub(crate) fn home(&self) -> &Path {
        let parent = self.policy.as_deref().and_then(Path::parent);
        parent.unwrap_or(Path::new(""))
    }

    /// Overrides an address: `http=127.0.0.1:9000`, `proxy=unix:/PATH`, `admin=off`; port 0 takes a
    /// free one. Other doors listen as the policy says; else the admin door at `127.0.0.1:9090`,
    /// Envoy's rate limit service at `127.0.0.1:8081` if it has configuration files, and at
    /// `127.0.0.1:8080` the proxy door if there is an upstream, and else the check API.
    ///
    /// # Errors
    /// [`StartError::Listen`] for another form or an unknown door.
    pub fn listen(mut self, text: &str) -> Result<Self, StartError> {
        let wrong = || StartError::Listen(text.to_owned());
        let (door, address) = text.split_once('=').ok_or_else(wrong)?;
        let door: Door = door.parse().map_err(|_| wrong())?;
        if address.is_empty() {
            return Err(wrong());
        }
        self.addresses.0[door as usize] = Some(address.to_owned());
        Ok(self)
    }

    /// Sends events to `sink`, from the threads of the service.
    #[must_use]
    pub fn on_event(mut self, sink: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.sink = Sink(Arc::new(sink));
        self
    }
}

/// Why a service did not start. `Display` is the message for an operator.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The text is not `LISTENER=ADDRESS`.
    #[error(
        "listen address `{0}` is not LISTENER=ADDRESS\nhint: write http=127.0.0.1:9000, grpc=127.0.0.1:0 or admin=off"
    )]
    Listen(String),
    /// The policy file cannot be read.
    #[error("cannot read the policy `{}`: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        reason: String,
    },
    /// The policy has errors.
    #[error("{report}")]
    Policy {
        /// All findings, rendered.
        report: String,
        /// All findings.
        findings: Vec<Diagnostic>,
    },
    /// The configuration of Envoy's rate limit service cannot be read.
    #[error("{0}\nhint: name a file, or a directory of *.yaml files")]
    EnvoyUnreadable(String),
    /// The configuration of Envoy's rate limit service has errors: all of them, rendered.
    #[error("{0}")]
    EnvoyFiles(String),
    /// There is neither a policy nor a configuration of Envoy's rate limit service.
    #[error(
        "there is no policy\nhint: name a policy file, or a configuration of Envoy's rate limit service"
    )]
    NoPolicy,
    /// The text is not the URL of a store; it is not shown, because it may hold a password.
    #[error("the URL of the store cannot be used: {message}\nhint: {hint}")]
    StoreUrl {
        /// Description of the error.
        message: String,
        /// How to correct it.
        hint: String,
    },
    /// The store cannot be used as the policy says.
    #[error("the store cannot be used: {0}")]
    Store(String),
    /// The text is not an address.
    #[error(
        "{door} address `{text}` cannot be used: {reason}\nhint: write HOST:PORT, unix:/PATH, or off"
    )]
    Address {
        /// The door.
        door: Door,
        /// The text as written.
        text: String,
        /// Error of the system.
        reason: String,
    },
    /// Another process listens on the address.
    #[error(
        "{door} address {address} is in use by another process\nhint: choose another address by --listen {door}=ADDRESS; port 0 picks a free one"
    )]
    InUse {
        /// The door.
        door: Door,
        /// The address.
        address: DoorAddress,
    },
    /// No listener has the address of a socket that was passed.
    #[error(
        "a socket at {0} is passed to this process, and no listener has this address\nhint: write it in [listen], or pass --listen LISTENER={0}"
    )]
    UnusedSocket(String),
    /// The system refuses the address.
    #[error("{door} address {address} cannot be opened: {reason}")]
    Bind {
        /// The door.
        door: Door,
        /// The address.
        address: DoorAddress,
        /// Error of the system.
        reason: String,
    },
    /// The admin door would be open to the network without a token.
    #[error(
        "admin address {0} is open to the network and no token is set\nhint: set RATEKEEPER_ADMIN_TOKEN, or write admin = \"127.0.0.1:{port}\" in [listen]",
        port = .0.port()
    )]
    AdminExposed(std::net::SocketAddr),
    /// The certificates of the gRPC door cannot be used.
    #[error("[envoy.tls]: {0}")]
    Certificates(String),
    /// The certificates of the proxy door cannot be used.
    #[error("`tls` of [listen.proxy]: {0}")]
    ProxyCertificates(String),
    /// The certificates of upstreams cannot be verified as the policy says.
    #[error("`upstream_tls` of [listen.proxy]: {0}")]
    UpstreamTls(String),
    /// The receiver of `[otlp]` cannot be used.
    #[error("[otlp]: {0}")]
    Otlp(String),
    /// The folder of `state` cannot be used.
    #[error("`state` of [store.memory]: {0}")]
    State(String),
    /// The webhook of `[alerts]` cannot be used.
    #[error("[alerts]: {0}")]
    Alerts(String),
    /// The proxy door has an address and nothing to forward to.
    #[error(
        "the proxy listener has no upstream\nhint: name one by --upstream http://127.0.0.1:3000, or in the policy: [listen.proxy] with upstream"
    )]
    NoUpstream,
    /// An address of the upstream is that of the proxy door.
    #[error(
        "the upstream {0} is the proxy listener itself, so requests would be forwarded without end\nhint: name the address of the application, or move the listener: --listen proxy=127.0.0.1:8081"
    )]
    UpstreamLoop(String),
    /// The access log cannot be written.
    #[error("access_log of [listen.proxy]: {0}")]
    AccessLog(String),
    /// There are more addresses of the upstream than are supported.
    #[error("the upstream has {0} addresses; at most 32 are supported\nhint: name fewer")]
    Upstreams(usize),
    /// No door is open.
    #[error(
        "every listener is off, so there is nothing to do\nhint: open one, for example by --listen http=127.0.0.1:8080"
    )]
    NoDoor,
    /// The admin token is empty or has bytes that no header can carry.
    #[error("the admin token must be 1 to 512 visible ASCII characters")]
    Token,
    /// The system refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}

/// Returns the settings of the proxy listener: those of the policy, with `upstream` in place of its
/// own unless that is empty.
pub(crate) fn proxy_settings(
    upstream: &[UpstreamUrl],
    settings: &Settings,
) -> Option<ProxySettings> {
    let policy = settings.listen.proxy.clone();
    if upstream.is_empty() {
        return policy;
    }
    Some(ProxySettings {
        upstream: upstream.to_vec(),
        ..policy.unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_overrides_are_parsed() {
        let config = Config::new("p")
            .listen("http=127.0.0.1:0")
            .unwrap()
            .listen("admin=off")
            .unwrap();
        let address = |door| config.addresses.of(door).map(String::as_str);
        assert_eq!(address(Door::Http), Some("127.0.0.1:0"));
        assert_eq!(address(Door::Admin), Some("off"));
        for text in ["", "http", "http=", "resp=127.0.0.1:1", "=off"] {
            assert!(
                matches!(Config::new("p").listen(text), Err(StartError::Listen(_))),
                "{text}"
            );
        }
    }
}
