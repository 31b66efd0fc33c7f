//! Upstreams: the receivers of requests, and the choice among them.
//!
//! ```text
//!   request --diverted by a limit--> the route of that name
//!          \--matches a route-----> the first such route
//!           '----------------------> `upstream`
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;
use ratekeeper::Answer;
use ratekeeper::tower::target;
use ratekeeper_core::Nanos;
use ratekeeper_gateway::{Gateway, GatewaySettings, TlsTransport, Transport, UpstreamAddress};
use ratekeeper_policy::{
    AdaptiveBounds, HealthCheck, Priority, ProxySettings, Route, UpstreamScheme, UpstreamTls,
    UpstreamUrl,
};
use ratekeeper_resilience::Bounds;
use rustls::pki_types::ServerName;

use crate::StartError;
use crate::clock::ServiceClock;
use crate::observe::upstreams::{NamedUpstream, watch};
use crate::serve::tls::trusting;

/// Default time limits.
const CONNECT: Nanos = Nanos::SECOND;
const RESPONSE: Nanos = Nanos::from_secs(60);
const BODY: Nanos = Nanos::from_secs(60);
const CHECK: Nanos = Nanos::from_secs(5);
const UPGRADE: Nanos = Nanos::from_secs(600);
/// Bodies are passed on as they come, and take no memory here: the maximum protects the
/// application. As large as what a CDN passes.
const MAX_BODY: usize = 100 << 20;

/// The upstream of all requests, and those of routes.
#[derive(Debug)]
pub(super) struct Upstreams {
    usual: RoutedUpstream,
    routes: Vec<RoutedUpstream>,
    /// The settings that all of them share.
    common: ProxySettings,
    max_connections: usize,
}

#[derive(Debug)]
pub(super) struct RoutedUpstream {
    /// Without `matcher`: only for requests that a limit diverts.
    route: Route,
    pub(super) gateway: Arc<Gateway>,
}

impl Upstreams {
    /// Creates the upstreams with `max_connections` to each address; there is no connection until
    /// a request needs one. Files are relative to `home`. Upstreams of `before` with the same
    /// settings are kept, with their connections; others go on with the counts of their routes.
    pub(super) fn of(
        settings: &ProxySettings,
        max_connections: usize,
        home: &Path,
        before: Option<&Self>,
        clock: &ServiceClock,
    ) -> Result<Self, StartError> {
        let common = common(settings);
        let is_kept = |it: &&Self| it.common == common;
        let gateway = |route: &Route| {
            let kept = before.filter(is_kept);
            let kept = kept.and_then(|before| before.find(route));
            if let Some(kept) = kept {
                return Ok(Arc::clone(&kept.gateway));
            }
            let mut known = before.iter().flat_map(|before| before.all());
            let before = known.find(|it| it.route.name == route.name);
            let urls = &route.upstream;
            let addresses = addresses(urls, &settings.upstream_tls, home);
            let settings = GatewaySettings {
                addresses: addresses.map_err(StartError::UpstreamTls)?,
                max_connections,
                connect: settings.connect_timeout.unwrap_or(CONNECT).into(),
                response: settings.response_timeout.unwrap_or(RESPONSE).into(),
                body: settings.body_timeout.unwrap_or(BODY).into(),
                upgrade: settings.upgrade_timeout.unwrap_or(UPGRADE).into(),
                upgrades: upgrades(settings.upgrades.as_deref()),
                max_body: max_body(route),
                watch: watch(clock, &route.name, urls.len()),
                health: settings.health.as_ref().map(check),
                concurrency: route.adaptive_concurrency.as_ref().map(bounds),
            };
            Gateway::new(settings, before.map(|it| &*it.gateway))
                .map(Arc::new)
                .ok_or(StartError::Upstreams(urls.len()))
        };
        let with_gateway = |route: Route| {
            let gateway = gateway(&route)?;
            Ok(RoutedUpstream { route, gateway })
        };
        let usual = Route {
            upstream: settings.upstream.clone(),
            max_body: settings.max_body,
            adaptive_concurrency: settings.adaptive_concurrency.clone(),
            ..Route::default()
        };
        let routes = settings.routes.iter().cloned().map(&with_gateway);
        let routes = routes.collect::<Result<_, StartError>>()?;
        Ok(Self {
            usual: with_gateway(usual)?,
            routes,
            common,
            max_connections,
        })
    }

    /// Sets the bounds of requests that begin.
    pub(super) fn take_place(&self) {
        for it in self.all() {
            it.gateway.take_place(self.max_connections);
        }
    }

    /// Returns the upstream with the settings of a route, whichever requests it was for.
    fn find(&self, route: &Route) -> Option<&RoutedUpstream> {
        self.all().find(|it| {
            let matcher = route.matcher.clone();
            let route_before = Route {
                matcher,
                ..it.route.clone()
            };
            route_before == *route
        })
    }

    fn all(&self) -> impl Iterator<Item = &RoutedUpstream> {
        std::iter::once(&self.usual).chain(&self.routes)
    }

    /// Returns the names of the routes.
    pub(super) fn names(&self) -> impl Iterator<Item = Box<str>> {
        self.routes.iter().map(|it| it.route.name.clone())
    }

    /// Returns the upstreams with the names of their routes.
    pub(super) fn named(&self) -> Vec<NamedUpstream> {
        let named = self.all().map(|it| NamedUpstream {
            route: it.route.name.clone(),
            gateway: Arc::clone(&it.gateway),
        });
        named.collect()
    }

    /// Returns the receiver of a request with this answer of its limits.
    pub(super) fn of_request(&self, parts: &Parts, answer: Option<&Answer>) -> &RoutedUpstream {
        if self.routes.is_empty() {
            return &self.usual;
        }
        let diverted = answer.and_then(Answer::diverts_to);
        let facts = target(parts);
        let is_taken = |it: &&RoutedUpstream| match (diverted, &it.route.matcher) {
            (Some(name), _) => *it.route.name == *name,
            (None, Some(matcher)) => matcher.matches(&facts),
            (None, None) => false,
        };
        let route = self.routes.iter().find(is_taken);
        route.unwrap_or(&self.usual)
    }
}

impl RoutedUpstream {
    /// Returns the maximum number of bytes of the body of a request.
    pub(super) fn max_body(&self) -> u64 {
        max_body(&self.route)
    }

    /// Returns the part of the adaptive limit that a request leaves to those with priority, in
    /// percent.
    pub(super) fn left_percent(&self, has_priority: impl FnOnce(&Priority) -> bool) -> u32 {
        let bounds = self.route.adaptive_concurrency.as_ref();
        let priority = bounds.and_then(|bounds| bounds.priority.as_ref());
        let priority = priority.filter(|priority| !has_priority(priority));
        priority.map_or(0, |priority| priority.last_percent.into())
    }
}

/// Returns the settings that are those of each upstream.
fn common(settings: &ProxySettings) -> ProxySettings {
    ProxySettings {
        address: None,
        tls: Vec::new(),
        upstream: Vec::new(),
        routes: Vec::new(),
        cors: Vec::new(),
        preflight_limit: None,
        access_log: None,
        error_pages: BTreeMap::new(),
        proxy_protocol: false,
        max_head: None,
        max_head_fields: None,
        max_inspected_body: None,
        max_body: None,
        adaptive_concurrency: None,
        ..settings.clone()
    }
}

/// Returns the maximum number of bytes of the body of a request.
fn max_body(route: &Route) -> u64 {
    route.max_body.unwrap_or(MAX_BODY) as u64
}

/// Returns the protocols that connections may switch to: WebSocket, unless others are written.
fn upgrades(written: Option<&[String]>) -> Vec<HeaderValue> {
    let Some(written) = written else {
        return vec![HeaderValue::from_static("websocket")];
    };
    // A policy takes only characters of a value.
    let values = written.iter().map(|protocol| protocol.parse());
    values.filter_map(Result::ok).collect()
}

fn bounds(written: &AdaptiveBounds) -> Bounds {
    Bounds {
        least: written.min,
        most: written.max,
        initial: written.min,
    }
}

fn check(health: &HealthCheck) -> ratekeeper_gateway::HealthCheck {
    let path = health.path.parse();
    ratekeeper_gateway::HealthCheck {
        path: path.expect("a policy takes only characters of a path"),
        interval: health.interval.unwrap_or(CHECK).into(),
    }
}

/// Returns the addresses of an upstream; files are relative to `home`.
fn addresses(
    urls: &[UpstreamUrl],
    tls: &UpstreamTls,
    home: &Path,
) -> Result<Vec<UpstreamAddress>, String> {
    let mut config = None;
    let mut address = |url: &UpstreamUrl| {
        let transport = match url.scheme {
            UpstreamScheme::Http => Transport::Http1,
            UpstreamScheme::Unix => Transport::Unix(url.host.clone().into()),
            UpstreamScheme::H2c => Transport::Http2,
            UpstreamScheme::Https => {
                let config = match &mut config {
                    Some(config) => config,
                    none => {
                        let ca = tls.ca.as_ref().map(|ca| home.join(ca));
                        none.insert(trusting(ca.as_deref())?)
                    }
                };
                let host = tls.server_name.as_ref().unwrap_or(&url.host);
                let name = host.trim_start_matches('[').trim_end_matches(']');
                let name = ServerName::try_from(name.to_owned());
                let name = name.map_err(|why| format!("`{host}`: {why}"))?;
                Transport::Tls(TlsTransport::new(config, name))
            }
        };
        let name = url.address();
        Ok(UpstreamAddress { name, transport })
    };
    urls.iter().map(&mut address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_that_the_policy_accepts_is_a_name_for_tls() {
        let long = format!("{}.example", "a".repeat(63));
        for host in [
            "localhost",
            "app.internal.",
            "_a-b.3com.example",
            "10.0.0.7",
            "[::1]",
            &long,
        ] {
            let url: UpstreamUrl = format!("https://{host}").parse().unwrap();
            let tls = UpstreamTls::default();
            let read = addresses(&[url], &tls, Path::new("."));
            assert_eq!(read.map(|all| all.len()), Ok(1), "{host}");
        }
    }

    #[test]
    fn every_path_that_a_policy_takes_can_be_asked_for() {
        let text = |path: &str| {
            format!(
                "version = 1\n[listen.proxy]\nupstream = \"http://127.0.0.1:1\"\n\
                 health = {{ path = \"{path}\" }}\n\
                 [[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"1/1s\"\n"
            )
        };
        for byte in 0x20..0x7f_u8 {
            let path = format!("/a{}b", char::from(byte).escape_default());
            let parsed = ratekeeper_policy::config::parse(&text(&path), <_>::default());
            if let Ok(loaded) = parsed {
                let proxy = loaded.policy.settings.listen.proxy.expect("it is set");
                let health = proxy.health.expect("it is set");
                assert_eq!(check(&health).path.as_str(), health.path);
            } else {
                assert!(!byte.is_ascii_alphanumeric(), "{path}");
            }
        }
    }
}
