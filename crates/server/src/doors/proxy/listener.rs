//! Listener: the proxy listener, whose settings a reload replaces while requests run on.
//!
//! ```text
//!   reload --> settings --good?--> ProxyDoor of the next request
//!                 |                 requests of before keep theirs, and its connections, to their end
//!                 '--no--> the reload is rejected, and everything stays
//! ```
//!
//! Only a restart changes its address, and whether it has TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Response;
use ratekeeper_policy::{ProxySettings, Settings, UpstreamUrl};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ProxyDoor;
use super::body::ProxyBody;
use crate::addresses::own_upstream;
use crate::config::proxy_settings;
use crate::context::{Reload, ServiceContext};
use crate::observe::metrics::RequestFault;
use crate::serve::connection_state::HeadBounds;
use crate::serve::listener::{Asked, Handle};
use crate::serve::proxy_header;
use crate::serve::tls::ListenerTls;
use crate::{Config, Door, DoorAddress, StartError};

/// How long the announcement of a client may take.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(5);

/// The listener that forwards.
#[derive(Debug)]
pub(crate) struct ProxyListener {
    current: ArcSwap<ProxyDoor>,
    pub(crate) tls: Option<Arc<ListenerTls>>,
    place: ProxyPlace,
}

/// The parts of the listener that no policy states.
#[derive(Debug)]
pub(super) struct ProxyPlace {
    /// Its own address.
    own: DoorAddress,
    /// The directory of the policy.
    pub(super) home: PathBuf,
    /// `--upstream`, in place of that of the policy.
    upstream: Vec<UpstreamUrl>,
}

impl ProxyListener {
    /// Creates the listener at its address; it connects when the first request comes. `None` if
    /// the policy has none.
    pub(crate) fn open(
        shared: &Arc<ServiceContext>,
        own: DoorAddress,
        config: &Config,
    ) -> Result<Option<Arc<Self>>, StartError> {
        let place = ProxyPlace {
            own,
            home: config.home().to_owned(),
            upstream: config.upstream.clone(),
        };
        let policy = shared.keeper.policy();
        let settings = &policy.settings;
        let Some(proxy) = place.settings(settings)? else {
            return Ok(None);
        };
        let tls = tls_of(&proxy, &place.home)?.map(Arc::new);
        let door = ProxyDoor::of(shared, proxy, settings, &place, None)?;
        door.show();
        let current = ArcSwap::from_pointee(door);
        let listener = Arc::new(Self {
            current,
            tls,
            place,
        });
        let reloaded: Arc<dyn Reload> = Arc::<Self>::clone(&listener);
        let _ = shared.proxy.set(Arc::downgrade(&reloaded)); // set once: it is new
        Ok(Some(listener))
    }
}

impl ProxyPlace {
    /// Returns the settings of the listener, unless they name the listener itself as an upstream.
    fn settings(&self, settings: &Settings) -> Result<Option<ProxySettings>, StartError> {
        let proxy = proxy_settings(&self.upstream, settings);
        let upstreams = proxy.iter().flat_map(ProxySettings::addresses);
        match own_upstream(&self.own, upstreams) {
            Some(upstream) => Err(StartError::UpstreamLoop(upstream)),
            None => Ok(proxy),
        }
    }
}

impl Reload for ProxyListener {
    fn prepare(self: Arc<Self>, settings: &Settings) -> Result<Box<dyn FnOnce()>, StartError> {
        let current = self.current.load_full();
        let Some(proxy) = self.place.settings(settings)? else {
            return Ok(Box::new(|| ())); // it stays open until the restart
        };
        if proxy == current.settings {
            return Ok(Box::new(|| ()));
        }
        // Read also if the listener has no TLS until a restart, which must find them good.
        let tls = if !proxy.tls.is_empty() && proxy.tls != current.settings.tls {
            tls_of(&proxy, &self.place.home)?
        } else {
            None
        };
        let (shared, place) = (&current.shared, &self.place);
        let door = ProxyDoor::of(shared, proxy, settings, place, Some(&current))?;
        Ok(Box::new(move || {
            if let (Some(own), Some(next)) = (&self.tls, tls) {
                own.certificates.replace(next.certificates);
            }
            door.show();
            self.current.store(Arc::new(door));
        }))
    }
}

impl Handle for Arc<ProxyListener> {
    type Body = ProxyBody;

    fn tls(&self) -> Option<&ListenerTls> {
        self.tls.as_deref()
    }

    fn head_bounds(&self) -> HeadBounds {
        self.current.load().head_bounds()
    }

    async fn client(&self, stream: &mut TcpStream, peer: SocketAddr) -> Option<SocketAddr> {
        let door = self.current.load_full();
        if !door.settings.proxy_protocol {
            return Some(peer);
        }
        door.announced(stream, peer).await
    }

    fn failed(&self, error: &hyper::Error) {
        if error.is_parse() || error.is_parse_too_large() {
            self.current.load().unreadable(error);
        }
    }

    async fn handle(&self, asked: Asked<'_>) -> Response<ProxyBody> {
        let door = self.current.load_full();
        door.handle(asked).await
    }
}

impl ProxyDoor {
    /// Returns the client that a trusted peer announces before the first request.
    async fn announced(&self, stream: &mut TcpStream, peer: SocketAddr) -> Option<SocketAddr> {
        let trusts = {
            let policy = self.shared.keeper.look_at_policy();
            policy.client_ip.trusts(peer.ip().to_canonical())
        };
        let client = if trusts {
            let read = proxy_header::read(stream, peer);
            timeout(ANNOUNCED_WITHIN, read).await.ok().flatten()
        } else {
            None
        };
        if client.is_none() {
            self.note_fault(RequestFault::ProxyHeader, None);
        }
        client
    }
}

/// Reads the certificates of the listener; `None` for plain HTTP.
fn tls_of(settings: &ProxySettings, home: &Path) -> Result<Option<ListenerTls>, StartError> {
    let files: Vec<_> = settings.tls.iter().map(|tls| tls.at_home(home)).collect();
    let tls =
        (!files.is_empty()).then(|| ListenerTls::read(Door::Proxy, &files, &[b"h2", b"http/1.1"]));
    tls.transpose().map_err(StartError::ProxyCertificates)
}
