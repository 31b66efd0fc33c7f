//! Route: other upstream addresses of the gateway, for some requests.

use crate::{AdaptiveBounds, Matcher, UpstreamUrl};

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
