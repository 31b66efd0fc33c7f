//! Adaptive bounds: minimum and maximum of the adaptive concurrency limit of an upstream.

/// `adaptive_concurrency` of `[listen.proxy]`: from 1 to 1,000,000, in order.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveBounds {
    /// `min`: the lower bound, and the initial limit.
    pub min: u32,
    /// `max`: the upper bound.
    pub max: u32,
}
