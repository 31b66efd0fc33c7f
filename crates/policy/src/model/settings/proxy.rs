//! Proxy: settings of the listener that forwards requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ratekeeper_core::{Gcra, Nanos};
use strum::EnumString;

use crate::{Matcher, Priority, Tls, UpstreamTls, UpstreamUrl};

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

/// `[[listen.proxy.route]]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// `name`: unique among the routes.
    pub name: Box<str>,
    /// `match`: the requests that it is for; `None` for those that a limit sends there.
    pub matcher: Option<Matcher>,
    /// `upstream`: the addresses, at least one.
    pub upstream: Vec<UpstreamUrl>,
    /// `max_body`, or that of `[listen.proxy]`.
    pub max_body: Option<usize>,
    /// `adaptive_concurrency`, or that of `[listen.proxy]`.
    pub adaptive_concurrency: Option<AdaptiveBounds>,
}

/// `adaptive_concurrency` of `[listen.proxy]` or of a route: from 1 to 1,000,000, in order.
///
/// ```
/// use ratekeeper_policy::config::{Context, parse};
///
/// let text = r#"
///     version = 1
///     [listen.proxy]
///     upstream = "http://127.0.0.1:3000"
///     adaptive_concurrency = { min = 10, max = 500 }
///     [[limit]]
///     name = "per-ip"
///     key = ["ip"]
///     limit = "300/1m"
/// "#;
/// let loaded = parse(text, Context::default()).unwrap();
/// let proxy = loaded.policy.settings.listen.proxy.unwrap();
/// assert_eq!(proxy.adaptive_concurrency.unwrap().max, 500);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdaptiveBounds {
    /// `min`: the lower bound, and the initial limit.
    pub min: u32,
    /// `max`: the upper bound.
    pub max: u32,
    /// `priority`: the last part, rounded down, for requests with priority.
    pub priority: Option<Priority>,
}

/// `health` of `[listen.proxy]`.
///
/// ```
/// use ratekeeper_policy::config::{Context, parse};
///
/// let text = r#"
///     version = 1
///     [listen.proxy]
///     upstream = ["http://10.0.0.1:3000", "http://10.0.0.2:3000"]
///     health = { path = "/healthz" }
///     [[limit]]
///     name = "per-ip"
///     key = ["ip"]
///     limit = "300/1m"
/// "#;
/// let loaded = parse(text, Context::default()).unwrap();
/// let proxy = loaded.policy.settings.listen.proxy.unwrap();
/// assert_eq!(proxy.health.unwrap().path, "/healthz");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// `path`: the target of the request; begins with `/`.
    pub path: String,
    /// `interval`: time from one check to the next, and maximum time of one; `None` for the
    /// default.
    pub interval: Option<Nanos>,
}

/// `access_log` of `[listen.proxy]`.
///
/// ```
/// use ratekeeper_policy::config::{Context, parse};
///
/// let text = r#"
///     version = 1
///     [listen.proxy]
///     upstream = "http://127.0.0.1:3000"
///     access_log = { to = "stdout" }
///     [[limit]]
///     name = "per-ip"
///     key = ["ip"]
///     limit = "300/1m"
/// "#;
/// let loaded = parse(text, Context::default()).unwrap();
/// let log = loaded.policy.settings.listen.proxy.unwrap().access_log.unwrap();
/// assert!(log.has("path") && !log.has("query"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// `to`: the file, as written; `None` for standard output.
    pub file: Option<PathBuf>,
    /// `only`: the responses that have a line.
    pub only: LoggedResponses,
    /// `sample`: lines of a hundred that are written.
    pub sample_percent: u32,
    /// `fields`: their names; none for all but `query`.
    pub fields: Vec<String>,
}

/// The responses that have a line in the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum LoggedResponses {
    /// All.
    #[default]
    All,
    /// `"refused"`: those of limits that refuse.
    Refused,
    /// `"failed"`: those from status 500, and those that broke off.
    Failed,
}

impl ProxySettings {
    /// Returns the addresses of the upstream and of the routes.
    pub fn addresses(&self) -> impl Iterator<Item = &UpstreamUrl> {
        let routed = self.routes.iter().flat_map(|route| &route.upstream);
        self.upstream.iter().chain(routed)
    }

    /// Returns the priorities under `adaptive_concurrency`.
    pub(crate) fn priorities(&self) -> impl Iterator<Item = &Priority> {
        let routed = self.routes.iter().map(|route| &route.adaptive_concurrency);
        let all = std::iter::once(&self.adaptive_concurrency).chain(routed);
        all.flatten().filter_map(|bounds| bounds.priority.as_ref())
    }
}

impl AccessLogSettings {
    /// Returns true if a line has this field.
    pub fn has(&self, field: &str) -> bool {
        if self.fields.is_empty() {
            return field != "query"; // which may hold secrets
        }
        self.fields.iter().any(|name| name == field)
    }
}
