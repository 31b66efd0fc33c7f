//! Settings: what a policy file says beside its rules.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ratekeeper_core::Nanos;

use crate::envoy;

/// `headers = "ietf" | "legacy" | "both" | "off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeaderStyle {
    /// `RateLimit-Policy` and `RateLimit`.
    #[default]
    Ietf,
    /// `X-RateLimit-*`.
    Legacy,
    /// Both.
    Both,
    /// Neither.
    Off,
}

/// Settings of the process that the policy file may hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// `timezone`: the name of the zone that calendar words follow, if the file has one.
    pub timezone: Option<String>,
    /// `[listen]`: addresses of the doors.
    pub listen: Listen,
    /// `[envoy]`: configuration files of Envoy's rate limit service.
    pub envoy_files: EnvoyFiles,
    /// `[envoy]`: how the gRPC door answers.
    pub envoy: EnvoyDoor,
    /// `[store.memory] budget`: bytes the store may use; none for the default.
    pub memory_budget: Option<usize>,
    /// `[store.redis]`: where the counters are that several processes share; none to keep
    /// them in the memory of this one.
    pub redis: Option<RedisSettings>,
}

/// `[store.redis]`: how to reach the store, and how many share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// `redis://HOST:PORT`, `rediss://HOST:PORT` or `unix://PATH`; at least one, and one only
    /// unless they are nodes of a cluster, or sentinels.
    pub urls: Vec<String>,
    /// Whether they are nodes of a cluster.
    pub cluster: bool,
    /// If they are sentinels: whom they name.
    pub sentinel: Option<SentinelSettings>,
    /// What `rediss://` needs to know.
    pub tls: StoreTls,
    /// The name to log in with.
    pub username: Option<Secret>,
    /// The password.
    pub password: Option<Secret>,
    /// Number of the database; 0 for a cluster.
    pub database: u16,
    /// Begins the name of every key.
    pub prefix: String,
    /// How long a call may take, connecting included.
    pub deadline: Nanos,
    /// Processes that share the store: while it fails, each holds that part of a limit.
    pub nodes: NonZeroU32,
}

impl RedisSettings {
    /// The same settings, with the files of `[store.redis.tls]` looked for in `home`: paths
    /// are relative to the policy file.
    #[must_use]
    pub fn at_home(mut self, home: &Path) -> Self {
        let tls = &mut self.tls;
        let files = tls.ca.iter_mut();
        let own = tls.identity.iter_mut();
        for file in files.chain(own.flat_map(|(certificate, key)| [certificate, key])) {
            *file = home.join(&*file);
        }
        self
    }
}

/// `[store.redis.sentinel]`: `url` lists sentinels, which name the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelSettings {
    /// What they call the primary.
    pub master: String,
    /// The name to log in to them with.
    pub username: Option<Secret>,
    /// The password.
    pub password: Option<Secret>,
}

/// `[store.redis.tls]`: PEM files. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoreTls {
    /// Who signs the certificates of servers; none: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own chain, and its private key; none: we show none.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the certificates of servers; none: the host that they are reached at.
    pub server_name: Option<String>,
}

/// Where a secret is; never the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// `env:NAME`: in an environment variable.
    Env(String),
    /// `file:PATH`: in a file, whose last line end does not count.
    File(PathBuf),
}

/// `[envoy]`: configuration files of Envoy's rate limit service, and what holds for all of
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvoyFiles {
    /// A file or a directory, relative to that of the policy; none for no such service.
    pub config: Option<PathBuf>,
    /// What holds for all of them.
    pub settings: envoy::EnvoySettings,
}

/// `[listen]`: `None` means not stated, `Some("off")` means off.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Listen {
    /// The check API and forward-auth.
    pub http: Option<String>,
    /// Envoy's rate limit service.
    pub grpc: Option<String>,
    /// Metrics, health, keys, reload.
    pub admin: Option<String>,
    /// `admin_hosts`: names beside those of loopback that the `Host` of an admin call without
    /// a token may have; in lower case.
    pub admin_hosts: Vec<String>,
    /// `admin_writes`: which calls may change state.
    pub admin_writes: AdminWrites,
    /// `max_held`: answers held back at a time by the http door.
    pub max_held: Option<u32>,
    /// `max_connections`: at the doors http and grpc together; `None` for the default.
    pub max_connections: Option<u32>,
    /// `idle_timeout`: how long a connection may be kept without a request; `None` for the
    /// defaults of the doors.
    pub idle_timeout: Option<Nanos>,
    /// `drain`: how long the doors accept and answer after the stop; `None` for the default.
    pub drain: Option<Nanos>,
    /// `grace`: how long requests in flight may take after that; `None` for the default.
    pub grace: Option<Nanos>,
}

/// Which calls may reset, refund and reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AdminWrites {
    /// `"token"`: those that present the admin token.
    #[default]
    Token,
    /// `"open"`: those too that come directly from this machine, and not from a web page.
    Open,
}

/// `[envoy]`: how the gRPC door answers, beside the statuses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvoyDoor {
    /// `headers`: the client is told its limits in `RateLimit` fields. Those called
    /// `X-RateLimit-*` are Envoy's own to add.
    pub headers: EnvoyHeaders,
    /// `header_names`: what the fields of [`EnvoyHeaders::Draft03`] are called.
    pub header_names: EnvoyHeaderNames,
    /// `body`: what a refused client reads.
    pub body: EnvoyBody,
    /// `metadata`: Envoy's other filters and its access log see which limit refused.
    pub metadata: bool,
    /// `tls`: certificates; none for plain text.
    pub tls: Option<Tls>,
}

/// Header fields that Envoy is asked to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EnvoyHeaders {
    /// None.
    #[default]
    Off,
    /// `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// A field each for limit, remaining and reset, as the Go service sends them.
    Draft03,
}

/// Names of fields: those of draft-ietf-httpapi-ratelimit-headers-03 (2022) by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyHeaderNames {
    /// `limit`: requests in a window.
    pub limit: String,
    /// `remaining`: requests left.
    pub remaining: String,
    /// `reset`: seconds until the window ends.
    pub reset: String,
}

impl Default for EnvoyHeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }
    }
}

/// The body of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EnvoyBody {
    /// Envoy's own: none.
    #[default]
    Off,
    /// As the limit's `response` says, as at the other doors: a problem document by default.
    Limit,
}

/// Certificates of a door, PEM. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The chain, the server's own first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs the certificates that clients must show; none: clients show none.
    pub client_ca: Option<PathBuf>,
}
