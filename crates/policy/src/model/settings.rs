//! Settings: values of a policy file beside its rules.

pub(crate) mod access_log;
pub(crate) mod adaptive_bounds;
pub(crate) mod envoy_settings;
pub(crate) mod health_check;
pub(crate) mod port_use;
pub(crate) mod route;
pub(crate) mod secret;
pub(crate) mod telemetry;
pub(crate) mod upstream_url;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratekeeper_core::{Gcra, Nanos};

use self::envoy_settings::EnvoySettings;
use crate::{
    AccessLogSettings, AdaptiveBounds, HealthCheck, MetricSettings, OtlpSettings, PortUse, Route,
    Secret, UpstreamTls, UpstreamUrl,
};

/// Settings of the process that the policy file may hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// `timezone`: the name of the zone of calendar words, if the file has one.
    pub timezone: Option<String>,
    /// `overrides`: path of the file with overrides, relative to the policy file.
    pub overrides: Option<String>,
    /// `[listen]`: addresses of the listeners.
    pub listen: Listen,
    /// `[envoy]`: configuration files of Envoy's rate limit service.
    pub envoy_files: EnvoyFiles,
    /// `[envoy]`: how the gRPC listener answers.
    pub envoy: EnvoyDoor,
    /// `[store.memory] budget`: bytes the store may use; `None` for the default.
    pub memory_budget: Option<usize>,
    /// `[store.memory] state`: folder, relative to the policy file, where the counters in memory
    /// and the history outlive the process; `None` for none.
    pub state: Option<String>,
    /// `[store.memory] state_every`: time between two snapshots; `None` for a minute.
    pub state_every: Option<Nanos>,
    /// `[store.redis]`: store of the counters that several processes share; `None` to keep them
    /// in the memory of this one.
    pub redis: Option<RedisSettings>,
    /// `[alerts]`: where alerts go beside the log, the metrics and the admin listener.
    pub alerts: AlertSettings,
    /// `reveal_keys`: how keys are shown in lists of top keys and in the log of denials.
    pub reveal_keys: RevealKeys,
    /// `log_denials`: the log has lines about refused requests.
    pub log_denials: LogDenials,
    /// `log_requests`: those lines show method, path and request id.
    pub log_requests: bool,
    /// `[otlp]`: receiver of metrics and events; `None` for no such.
    pub otlp: Option<OtlpSettings>,
    /// `[metrics]`: how much a scrape shows.
    pub metrics: MetricSettings,
}

/// `reveal_keys = "hash" | "prefix" | "raw"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RevealKeys {
    /// A keyed hash of each value, by which a key can be recognised but not found.
    #[default]
    Hash,
    /// The beginning of each value, and its hash.
    Prefix,
    /// As they are.
    Raw,
}

impl RevealKeys {
    /// Returns the word of the policy.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Prefix => "prefix",
            Self::Raw => "raw",
        }
    }
}

/// `log_denials = true | false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogDenials {
    /// The first denial of a key, then fewer and fewer.
    #[default]
    Sampled,
    /// None.
    Off,
}

/// `[alerts]`
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AlertSettings {
    /// `webhook`: receiver of alerts; `None` for no such.
    pub webhook: Option<WebhookSettings>,
    /// `reveal_keys`: the log and the webhook show the key of an alert.
    pub reveal_keys: bool,
}

/// `webhook` of `[alerts]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// `http://HOST[:PORT]/PATH` or `https://`; without login and fragment.
    pub url: String,
    /// Secret that signs each message: `whsec_` and base64.
    pub secret: Secret,
    /// PEM file of the authorities of the receiver's certificate; `None` for those that the
    /// system trusts. The path is as written.
    pub ca: Option<PathBuf>,
}

/// `[store.redis]`: how to reach the store, and the number of processes that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// `redis://HOST:PORT`, `rediss://HOST:PORT` or `unix://PATH`; at least one, and one only
    /// unless they are nodes of a cluster, or sentinels.
    pub urls: Vec<String>,
    /// True if they are nodes of a cluster.
    pub cluster: bool,
    /// Settings of sentinels; `None` if the URLs are no sentinels.
    pub sentinel: Option<SentinelSettings>,
    /// TLS parameters of `rediss://`.
    pub tls: StoreTls,
    /// The name to log in with.
    pub username: Option<Secret>,
    /// The password.
    pub password: Option<Secret>,
    /// Number of the database; 0 for a cluster.
    pub database: u16,
    /// Prefix of the name of every key.
    pub prefix: String,
    /// Maximum time of a call, connecting included.
    pub deadline: Nanos,
    /// Number of processes that share the store: while it fails, each holds that part of a limit.
    pub nodes: NonZeroU32,
    /// Name of this process among them, for limits that each counts by itself; `None` for a random
    /// one.
    pub node: Option<NodeName>,
}

/// `node` of `[store.redis]`: the name of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeName {
    /// As written.
    Text(String),
    /// `env:NAME`: in an environment variable.
    Env(String),
}

impl RedisSettings {
    /// Returns the same settings, with the files of secrets and of `[store.redis.tls]` relative to
    /// `home`, because paths are relative to the policy file.
    #[must_use]
    pub fn at_home(mut self, home: &Path) -> Self {
        let tls = &mut self.tls;
        let files = tls.ca.iter_mut();
        let own = tls.identity.iter_mut();
        for file in files.chain(own.flat_map(|(certificate, key)| [certificate, key])) {
            *file = home.join(&*file);
        }
        let sentinel = self.sentinel.iter_mut();
        let secrets = sentinel.flat_map(|it| it.username.iter_mut().chain(&mut it.password));
        let own = self.username.iter_mut().chain(&mut self.password);
        for secret in own.chain(secrets) {
            *secret = secret.at_home(home);
        }
        self
    }
}

/// `[store.redis.sentinel]`: `url` lists sentinels, which name the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelSettings {
    /// Name of the primary at the sentinels.
    pub master: String,
    /// The name to log in to them with.
    pub username: Option<Secret>,
    /// The password.
    pub password: Option<Secret>,
}

/// `[store.redis.tls]`: PEM files. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoreTls {
    /// Authorities of server certificates; `None` for those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own chain, and its private key; `None` to present no certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name in the certificates of servers; `None` for the host that they are reached at.
    pub server_name: Option<String>,
}

impl Tls {
    /// Returns the same files, relative to `home`, the directory of the policy.
    #[must_use]
    pub fn at_home(&self, home: &Path) -> Self {
        Self {
            certificate: home.join(&self.certificate),
            key: home.join(&self.key),
            client_ca: self.client_ca.as_ref().map(|path| home.join(path)),
        }
    }
}

/// `[envoy]`: configuration files of Envoy's rate limit service, and the settings of all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvoyFiles {
    /// A file or a directory, relative to that of the policy; `None` for no such service.
    pub config: Option<PathBuf>,
    /// Settings of all of the files.
    pub settings: EnvoySettings,
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
    /// `admin_writes`: calls that may change state.
    pub admin_writes: AdminWrites,
    /// `reuse_port`: whether another process may listen at the same ports.
    pub port_use: PortUse,
    /// `max_held`: maximum number of answers held back at a time by the http listener.
    pub max_held: Option<u32>,
    /// `max_connections`: at the listeners http, proxy and grpc together; `None` for the default.
    pub max_connections: Option<u32>,
    /// `idle_timeout`: maximum time of a connection without a request; `None` for the defaults.
    pub idle_timeout: Option<Nanos>,
    /// `head_timeout`: maximum time of the head of a request; `None` for the default.
    pub head_timeout: Option<Nanos>,
    /// `drain`: how long the listeners accept and answer after the stop; `None` for the default.
    pub drain: Option<Nanos>,
    /// `grace`: how long requests in flight may take after that; `None` for the default.
    pub grace: Option<Nanos>,
    /// `[listen.proxy]`: the listener that forwards requests; `None` for no such.
    pub proxy: Option<ProxySettings>,
}

/// `[listen.proxy]`: `None` means not stated.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProxySettings {
    /// `address`: where it listens; `Some("off")` means off.
    pub address: Option<String>,
    /// `tls`: certificates, chosen by the name that a client asks for; none for plain HTTP.
    pub tls: Vec<Tls>,
    /// `upstream`: the addresses, at least one.
    pub upstream: Vec<UpstreamUrl>,
    /// `upstream_tls`: how the certificates of `https` upstreams are verified.
    pub upstream_tls: UpstreamTls,
    /// `route`: other receivers of some requests, in their order.
    pub routes: Vec<Route>,
    /// `cors`: origins of web pages that may read refusals, in lower case.
    pub cors: Vec<String>,
    /// `preflight_limit`: maximum rate of preflights of an address from these origins.
    pub preflight_limit: Option<Gcra>,
    /// `error_pages`: HTML by the status of an error that the listener itself reports.
    pub error_pages: BTreeMap<u16, Arc<str>>,
    /// `connect_timeout`: maximum time until a connection is open.
    pub connect_timeout: Option<Nanos>,
    /// `response_timeout`: maximum time until the head of a response comes.
    pub response_timeout: Option<Nanos>,
    /// `body_timeout`: maximum time between two parts of the body of a response.
    pub body_timeout: Option<Nanos>,
    /// `upgrades`: protocols that a connection may switch to; `None` for WebSocket alone.
    pub upgrades: Option<Vec<String>>,
    /// `upgrade_timeout`: maximum time without a byte after an upgrade.
    pub upgrade_timeout: Option<Nanos>,
    /// `proxy_protocol`: connections begin with the address of the client.
    pub proxy_protocol: bool,
    /// `max_head`: maximum number of bytes of the head of a request; `None` for the default.
    pub max_head: Option<usize>,
    /// `max_head_fields`: maximum number of its fields; `None` for the default.
    pub max_head_fields: Option<usize>,
    /// `max_body`: maximum number of bytes of the body of a request; `None` for the default.
    pub max_body: Option<usize>,
    /// `max_inspected_body`: maximum number of bytes of a body that are read for limits.
    pub max_inspected_body: Option<usize>,
    /// `adaptive_concurrency`: bounds of the number of requests that wait for the upstream.
    pub adaptive_concurrency: Option<AdaptiveBounds>,
    /// `health`: how addresses are checked; `None` for no checks.
    pub health: Option<HealthCheck>,
    /// `access_log`: `None` for no such log.
    pub access_log: Option<AccessLogSettings>,
}

/// Calls that may reset, refund and reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AdminWrites {
    /// `"token"`: calls that present the admin token.
    #[default]
    Token,
    /// `"open"`: also calls that come directly from this machine, and not from a web page.
    Open,
}

/// `[envoy]`: how the gRPC listener answers, beside the statuses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnvoyDoor {
    /// `headers`: `RateLimit` fields that report its limits to the client. Envoy itself adds
    /// those called `X-RateLimit-*`.
    pub headers: EnvoyHeaders,
    /// `header_names`: names of the fields of [`EnvoyHeaders::Draft03`].
    pub header_names: EnvoyHeaderNames,
    /// `body`: the body that a refused client receives.
    pub body: EnvoyBody,
    /// `metadata`: reports the limit that refused to Envoy's other filters and its access log.
    pub metadata: bool,
    /// `tls`: certificates; `None` for plain text.
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
    /// Envoy's own body, which is empty.
    #[default]
    Off,
    /// The limit's `response`, as at the other listeners: a problem document by default.
    Limit,
}

/// A certificate of a listener, PEM. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The chain, the server's own first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of client certificates, which are then required; `None` to require none.
    pub client_ca: Option<PathBuf>,
}

impl ProxySettings {
    /// Returns the addresses of the upstream and of the routes.
    pub fn addresses(&self) -> impl Iterator<Item = &UpstreamUrl> {
        let routed = self.routes.iter().flat_map(|route| &route.upstream);
        self.upstream.iter().chain(routed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_secrets_are_relative_to_the_policy() {
        let at_home = |secret: Secret| secret.at_home(Path::new("/etc/ratekeeper"));
        let file = |path: &str| Secret::File(path.into());
        assert_eq!(at_home(file("key")), file("/etc/ratekeeper/key"));
        assert_eq!(at_home(file("/run/key")), file("/run/key"));
        let variable = Secret::Env("KEY".into());
        assert_eq!(at_home(variable.clone()), variable);
    }
}
