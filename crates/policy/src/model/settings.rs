//! Settings: values of a policy file beside its rules.

pub(crate) mod envoy;
pub(crate) mod proxy;
pub(crate) mod upstream_url;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use ratekeeper_core::Nanos;
use strum::{AsRefStr, EnumString};

use crate::{EnvoyDoor, EnvoyFiles, ProxySettings};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, EnumString, AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum RevealKeys {
    /// A keyed hash of each value, by which a key can be recognised but not found.
    #[default]
    Hash,
    /// The beginning of each value, and its hash.
    Prefix,
    /// As they are.
    Raw,
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

/// Processes that may listen at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PortUse {
    /// One.
    #[default]
    Alone,
    /// All that say the same, of one user: the system gives each connection to one of them.
    Shared,
}

/// Calls that may reset, refund and reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum AdminWrites {
    /// `"token"`: calls that present the admin token.
    #[default]
    Token,
    /// `"open"`: also calls that come directly from this machine, and not from a web page.
    Open,
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

/// Place of a secret; never the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// `env:NAME`: in an environment variable.
    Env(String),
    /// `file:PATH`: in a file; a line end at its end does not count.
    File(PathBuf),
}

impl Secret {
    /// Returns the same place, with the path relative to `home`, the directory of the policy.
    #[must_use]
    pub fn at_home(&self, home: &Path) -> Self {
        match self {
            Self::Env(name) => Self::Env(name.clone()),
            Self::File(path) => Self::File(home.join(path)),
        }
    }
}

/// `[otlp]`: a receiver of the OpenTelemetry protocol over HTTP. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpSettings {
    /// `http://HOST[:PORT][/PATH]` or `https://`; `/v1/metrics` and `/v1/logs` are appended.
    pub endpoint: String,
    /// Header fields of each message, with names in lower case and the places of their values.
    pub headers: Vec<(String, Secret)>,
    /// PEM file of the authorities of the receiver's certificate; `None` for those that the
    /// system trusts.
    pub ca: Option<PathBuf>,
    /// Time between two messages with metrics.
    pub interval: Nanos,
    /// The value of the resource attribute `service.name`.
    pub service_name: String,
    /// True if metrics are sent.
    pub metrics: bool,
    /// True if events are sent, as log records.
    pub events: bool,
}

impl OtlpSettings {
    /// Returns the same settings, with files relative to `home`, the directory of the policy.
    #[must_use]
    pub fn at_home(mut self, home: &Path) -> Self {
        self.ca = self.ca.map(|ca| home.join(ca));
        for (_, secret) in &mut self.headers {
            *secret = secret.at_home(home);
        }
        self
    }
}

/// `[metrics]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSettings {
    /// `max_limits`: maximum number of limits with series of their own; the rest is counted
    /// together.
    pub max_limits: u32,
    /// `near_percent`: percentage of a limit above which an allowed request counts as near it.
    pub near_percent: u8,
}

impl Default for MetricSettings {
    fn default() -> Self {
        Self {
            max_limits: 1_000,
            near_percent: 80,
        }
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
