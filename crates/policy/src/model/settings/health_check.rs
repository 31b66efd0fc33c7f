//! Health check: the request that checks the addresses of upstreams.

use ratekeeper_core::Nanos;

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
