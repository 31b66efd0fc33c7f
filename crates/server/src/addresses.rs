//! Addresses: where each door listens.
//!
//! ```text
//!   command line, else policy, else default --> address --> socket --> address in use
//! ```

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ratekeeper_policy::UpstreamUrl;
use ratekeeper_policy::config::Listeners;
use ratekeeper_policy::{PortUse, Settings};
use socket2::Socket;

use crate::config::Doors;
use crate::observe::event::Sink;
use crate::serve::door_address::UNIX;
use crate::{Config, Door, DoorAddress, Event, StartError};

/// Default address of the proxy listener if there is an upstream, and else of the check API:
/// requests come to this port.
const USUAL: &str = "127.0.0.1:8080";
/// Default address of Envoy's rate limit service, if there are configuration files: only that
/// service uses them.
const GRPC_WITH_FILES: &str = "127.0.0.1:8081";
/// Default address of the admin door.
const ADMIN: &str = "127.0.0.1:9090";
/// The other doors are closed.
const OFF: &str = "off";

/// Returns the listeners that the policy does not decide.
pub(crate) fn listeners(config: &Config) -> Listeners {
    let opens = |door| Some(*config.addresses.of(door)? != *OFF);
    Listeners {
        http: opens(Door::Http),
        grpc: opens(Door::Grpc).or(config.envoy_config.is_some().then_some(true)),
        proxy: opens(Door::Proxy),
        forwards: !config.upstream.is_empty(),
    }
}

impl Doors<DoorAddress> {
    /// Returns the addresses of the doors that a service opens.
    pub(crate) fn chosen(config: &Config, settings: &Settings) -> Result<Self, StartError> {
        let policy = &settings.listen;
        let files = config.envoy_config.is_some() || settings.envoy_files.config.is_some();
        let grpc = if files { GRPC_WITH_FILES } else { OFF };
        let choose = |door, policy: Option<&String>, default| {
            let written = config.addresses.of(door).or(policy);
            resolve(door, written.map_or(default, String::as_str))
        };
        let forwards = policy.proxy.is_some() || !config.upstream.is_empty();
        let proxy = if forwards { USUAL } else { OFF };
        let address = policy.proxy.as_ref();
        let address = address.and_then(|proxy| proxy.address.as_ref());
        let proxy = choose(Door::Proxy, address, proxy)?;
        let http = if proxy.is_some() { OFF } else { USUAL };
        let http = choose(Door::Http, policy.http.as_ref(), http)?;
        let grpc = choose(Door::Grpc, policy.grpc.as_ref(), grpc)?;
        let admin = choose(Door::Admin, policy.admin.as_ref(), ADMIN)?;
        if proxy.is_some() && !forwards {
            return Err(StartError::NoUpstream);
        }
        let doors = Self([http, grpc, admin, proxy]);
        if doors.open().next().is_none() {
            return Err(StartError::NoDoor);
        }
        Ok(doors)
    }

    /// Returns the port, or the path, of the first open door, which no other process of the machine
    /// has.
    pub(crate) fn instance(&self) -> String {
        let first = self.open().next().map(|(_, address)| address);
        first.map_or_else(String::new, |address| match address {
            DoorAddress::Tcp(address) => address.port().to_string(),
            DoorAddress::Unix(path) => path.display().to_string(),
        })
    }

    /// Opens the doors, by the sockets that were passed if there are any.
    pub(crate) fn bind(
        &self,
        passed: &[Arc<OwnedFd>],
        port: PortUse,
    ) -> Result<Doors<DoorListener>, StartError> {
        let mut passed = passed
            .iter()
            .map(|socket| Ok(Socket::from(socket.try_clone()?)))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| StartError::Thread(error.to_string()))?;
        let mut doors = Doors(<_>::default());
        for (door, address) in self.open() {
            let opened = DoorListener::open(door, address.clone(), port, &mut passed)?;
            doors.0[door as usize] = Some(opened);
        }
        match passed.first() {
            None => Ok(doors),
            Some(unused) => Err(StartError::UnusedSocket(
                DoorAddress::of(unused).map_or_else(String::new, |address| address.to_string()),
            )),
        }
    }

    /// Emits the address of each door, and a notice for each that is open to the network.
    pub(crate) fn announce(&self, sink: &Sink) {
        for (door, address) in self.open() {
            sink.emit(&Event::Listening {
                door,
                address: address.clone(),
            });
            if door != Door::Proxy && !address.is_local() {
                let guard = match door {
                    Door::Http | Door::Grpc | Door::Proxy => {
                        "any client that reaches it can spend the limits of others"
                    }
                    Door::Admin => "calls need the admin token, which travels unencrypted",
                };
                let text =
                    format!("the {door} listener at {address} is open to the network: {guard}");
                sink.notice(text);
            }
        }
    }
}

/// Returns the address of a door, which is `HOST:PORT`, where port 0 takes a free one, or `unix:/PATH`;
/// `None` if it is off.
fn resolve(door: Door, text: &str) -> Result<Option<DoorAddress>, StartError> {
    if text == OFF {
        return Ok(None);
    }
    if let Some(path) = text.strip_prefix(UNIX) {
        return Ok(Some(DoorAddress::Unix(path.into())));
    }
    let wrong = |reason: String| StartError::Address {
        door,
        text: text.to_owned(),
        reason,
    };
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?;
    let first = addresses.next().map(DoorAddress::Tcp);
    let first = first.ok_or_else(|| wrong("the name has no address".into()))?;
    Ok(Some(first))
}

/// The socket of a door.
#[derive(Debug)]
pub(crate) struct DoorListener {
    pub(crate) socket: Socket,
    pub(crate) opened_by: OpenedBy,
}

/// The process that has opened the socket of a door.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenedBy {
    /// This one: its end closes the socket.
    Us,
    /// One that keeps it open for the next process.
    Parent,
}

impl DoorListener {
    /// Takes the passed socket with the address, or opens one.
    fn open(
        door: Door,
        address: DoorAddress,
        port: PortUse,
        passed: &mut Vec<Socket>,
    ) -> Result<Self, StartError> {
        let is_here = |socket: &Socket| DoorAddress::of(socket).as_ref() == Some(&address);
        let (bound, opened_by) = match passed.iter().position(is_here) {
            Some(index) => (Ok(passed.swap_remove(index)), OpenedBy::Parent),
            None => (address.bind(port), OpenedBy::Us),
        };
        let open = bound.and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(Self { socket, opened_by })
        });
        open.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse { door, address },
            _ => StartError::Bind {
                door,
                address,
                reason: error.to_string(),
            },
        })
    }
}

impl Doors<DoorListener> {
    /// Returns the addresses in use.
    pub(crate) fn addresses(&self) -> Doors<DoorAddress> {
        let address = |it: &Option<DoorListener>| DoorAddress::of(&it.as_ref()?.socket);
        Doors(self.0.each_ref().map(address))
    }
}

/// Returns the address of the upstream that is the proxy itself, so that a request would be
/// forwarded without end. Names other than `localhost` are not resolved.
pub(crate) fn own_upstream<'a>(
    own: &DoorAddress,
    upstreams: impl Iterator<Item = &'a UpstreamUrl>,
) -> Option<String> {
    let mut addresses = upstreams.map(UpstreamUrl::address);
    match own.tcp() {
        Some(own) => addresses.find(|address| is_own(own, address)),
        None => addresses.find(|address| *address == own.to_string()),
    }
}

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
            assert_eq!(doors.of(Door::Http).is_some(), http, "{listen}");
        }
    }

    #[test]
    fn addresses_resolve() {
        let at = |text: &str| resolve(Door::Http, text);
        assert_eq!(
            at("[::1]:80").unwrap(),
            Some(DoorAddress::Tcp(([0, 0, 0, 0, 0, 0, 0, 1], 80).into()))
        );
        let unix = DoorAddress::Unix("/run/a.sock".into());
        assert_eq!(at("unix:/run/a.sock").unwrap(), Some(unix));
        assert_eq!(at("off").unwrap(), None);
        for text in ["8080", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"] {
            assert!(
                matches!(at(text), Err(StartError::Address { .. })),
                "{text}"
            );
        }
    }
}
