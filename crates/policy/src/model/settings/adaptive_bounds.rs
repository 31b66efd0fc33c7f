//! Adaptive bounds: minimum and maximum of the adaptive concurrency limit of an upstream, and its
//! part for requests with priority.

use crate::{Priority, ProxySettings};

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

impl ProxySettings {
    /// Returns the priorities under `adaptive_concurrency`.
    pub(crate) fn priorities(&self) -> impl Iterator<Item = &Priority> {
        let routed = self.routes.iter().map(|route| &route.adaptive_concurrency);
        let all = std::iter::once(&self.adaptive_concurrency).chain(routed);
        all.flatten().filter_map(|bounds| bounds.priority.as_ref())
    }
}
