//! Route: other upstream addresses of the gateway, for some requests.

use crate::{Matcher, ProxySettings, UpstreamUrl};

/// `[[listen.proxy.route]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `name`: unique among the routes.
    pub name: Box<str>,
    /// `match`: the requests that it is for; `None` for those that a limit sends there.
    pub matcher: Option<Matcher>,
    /// `upstream`: the addresses, at least one.
    pub upstream: Vec<UpstreamUrl>,
}

impl ProxySettings {
    /// Returns the addresses of the upstream and of the routes.
    pub fn addresses(&self) -> impl Iterator<Item = &UpstreamUrl> {
        let routed = self.routes.iter().flat_map(|route| &route.upstream);
        self.upstream.iter().chain(routed)
    }
}
