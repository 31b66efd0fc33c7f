//! Addresses: where each door listens.
//!
//! ```text
//!   command line, else policy, else default --> address --> socket --> address in use
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};

use ratekeeper::Clock;
use ratekeeper_policy::Settings;
#[cfg(feature = "proxy")]
use ratekeeper_policy::UpstreamUrl;

use crate::config::{
    DEFAULT_ADMIN, DEFAULT_GRPC, DEFAULT_GRPC_WITH_FILES, DEFAULT_HTTP, DEFAULT_HTTP_WITH_PROXY,
    DEFAULT_PROXY,
};
use crate::context::ServiceContext;
use crate::{Config, Door, Event, ListenAddress, StartError};

/// A value for each open door.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doors<T> {
    pub(crate) http: Option<T>,
    pub(crate) grpc: Option<T>,
    pub(crate) admin: Option<T>,
    pub(crate) proxy: Option<T>,
}

impl<T> Doors<T> {
    pub(crate) fn of(&self, door: Door) -> Option<&T> {
        match door {
            Door::Http => self.http.as_ref(),
            Door::Grpc => self.grpc.as_ref(),
            Door::Admin => self.admin.as_ref(),
            Door::Proxy => self.proxy.as_ref(),
        }
    }
}

impl Doors<SocketAddr> {
    /// Returns the addresses of the doors that a service opens.
    pub(crate) fn chosen(config: &Config, settings: &Settings) -> Result<Self, StartError> {
        let policy = &settings.listen;
        let files = config.envoy_config.is_some() || settings.envoy_files.config.is_some();
        let grpc = if files {
            DEFAULT_GRPC_WITH_FILES
        } else {
            DEFAULT_GRPC
        };
        let choose = |door, own: &Option<ListenAddress>, policy: &Option<String>, default| {
            let policy = || policy.as_deref().map(ListenAddress::parse);
            let listen = own.clone().or_else(policy);
            listen
                .unwrap_or_else(|| ListenAddress::parse(default))
                .resolve(door)
        };
        let forwards = policy.proxy.is_some() || !config.upstream.is_empty();
        let proxy = if forwards { DEFAULT_PROXY } else { "off" };
        let proxy_address = policy
            .proxy
            .as_ref()
            .and_then(|proxy| proxy.address.clone());
        let proxy = choose(Door::Proxy, &config.proxy, &proxy_address, proxy)?;
        let http = if proxy.is_some() {
            DEFAULT_HTTP_WITH_PROXY
        } else {
            DEFAULT_HTTP
        };
        let doors = Self {
            http: choose(Door::Http, &config.http, &policy.http, http)?,
            proxy,
            grpc: choose(Door::Grpc, &config.grpc, &policy.grpc, grpc)?,
            admin: choose(Door::Admin, &config.admin, &policy.admin, DEFAULT_ADMIN)?,
        };
        if doors.grpc.is_some() && !cfg!(feature = "grpc") {
            return Err(StartError::NoGrpc);
        }
        if doors.proxy.is_some() && !cfg!(feature = "proxy") {
            return Err(StartError::NoProxy);
        }
        if doors.proxy.is_some() && !forwards {
            return Err(StartError::NoUpstream);
        }
        let all = [doors.http, doors.proxy, doors.grpc, doors.admin];
        if all.iter().all(Option::is_none) {
            return Err(StartError::NoDoor);
        }
        Ok(doors)
    }

    /// Returns the port of the first open door, which no other process of the machine has.
    pub(crate) fn instance(&self) -> String {
        let each = [self.http, self.proxy, self.grpc, self.admin];
        let first = each.into_iter().flatten().next();
        first.map_or_else(String::new, |address| address.port().to_string())
    }

    /// Binds the addresses.
    pub(crate) fn bind(self) -> Result<Doors<TcpListener>, StartError> {
        let taken = |door, at: Option<SocketAddr>| at.map(|at| bind(door, at)).transpose();
        Ok(Doors {
            http: taken(Door::Http, self.http)?,
            proxy: taken(Door::Proxy, self.proxy)?,
            grpc: taken(Door::Grpc, self.grpc)?,
            admin: taken(Door::Admin, self.admin)?,
        })
    }

    /// Emits the address of each door, and a notice for each that is open to the network.
    pub(crate) fn announce<C: Clock>(&self, shared: &ServiceContext<C>) {
        for door in [Door::Http, Door::Proxy, Door::Grpc, Door::Admin] {
            let Some(&address) = self.of(door) else {
                continue;
            };
            shared.sink.emit(&Event::Listening { door, address });
            if door != Door::Proxy && !address.ip().to_canonical().is_loopback() {
                let guard = match door {
                    Door::Http | Door::Grpc | Door::Proxy => {
                        "any client that reaches it can spend the limits of others"
                    }
                    Door::Admin => "calls need the admin token, which travels unencrypted",
                };
                let text =
                    format!("the {door} listener at {address} is open to the network: {guard}");
                shared.sink.emit(&Event::Notice(text));
            }
        }
    }
}

/// Opens a door; port 0 takes a free one.
fn bind(door: Door, address: SocketAddr) -> Result<TcpListener, StartError> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::InUse { door, address },
        _ => StartError::Bind {
            door,
            address,
            reason: error.to_string(),
        },
    })
}

impl Doors<TcpListener> {
    /// Returns the addresses in use.
    pub(crate) fn addresses(&self) -> Doors<SocketAddr> {
        let local = |listener: &Option<TcpListener>| {
            let listener = listener.as_ref();
            listener.and_then(|listener| listener.local_addr().ok())
        };
        Doors {
            http: local(&self.http),
            proxy: local(&self.proxy),
            grpc: local(&self.grpc),
            admin: local(&self.admin),
        }
    }
}

/// Returns the address of the upstream that is the proxy itself, so that a request would be
/// forwarded without end. Names other than `localhost` are not resolved.
#[cfg(feature = "proxy")]
pub(crate) fn own_upstream<'a>(
    own: SocketAddr,
    upstreams: impl Iterator<Item = &'a UpstreamUrl>,
) -> Option<String> {
    let mut addresses = upstreams.map(UpstreamUrl::address);
    addresses.find(|address| is_own(own, address))
}

#[cfg(feature = "proxy")]
fn is_own(own: SocketAddr, upstream: &str) -> bool {
    let (own_ip, port) = (own.ip().to_canonical(), own.port());
    let is_local = own_ip.is_loopback() || own_ip.is_unspecified();
    if let Some(("localhost", of_name)) = upstream.rsplit_once(':') {
        return is_local && of_name.parse() == Ok(port);
    }
    let Ok(upstream) = upstream.parse::<SocketAddr>() else {
        return false;
    };
    let ip = upstream.ip().to_canonical();
    let meets = ip == own_ip
        || own_ip.is_unspecified() && ip.is_loopback()
        || ip.is_unspecified() && is_local;
    upstream.port() == port && meets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "proxy")]
    fn an_upstream_may_not_be_the_proxy_itself() {
        for (own, upstream, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "localhost:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::1]:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "192.0.2.1:80", false),
            ("192.0.2.1:80", "localhost:80", false),
            ("127.0.0.1:80", "app.internal:80", false),
        ] {
            let own = own.parse().unwrap();
            assert_eq!(is_own(own, upstream), expected, "{own} {upstream}");
        }
    }

    #[test]
    fn the_http_listener_is_open_unless_a_proxy_listens() {
        for (listen, http) in [("proxy=off", true), ("proxy=127.0.0.1:0", false)] {
            let mut config = Config::new("").listen(listen).unwrap();
            config
                .upstream
                .push("http://127.0.0.1:3000".parse().unwrap());
            let doors = Doors::chosen(&config, &Settings::default()).unwrap();
            assert_eq!(doors.http.is_some(), http, "{listen}");
        }
    }
}
