//! Addresses: where each door listens.
//!
//! ```text
//!   command line, else policy, else default --> address --> socket --> address in use
//! ```

use std::net::{SocketAddr, TcpListener};

use ratekeeper::Clock;
use ratekeeper_policy::Settings;

use crate::config::{DEFAULT_ADMIN, DEFAULT_GRPC, DEFAULT_GRPC_WITH_FILES, DEFAULT_HTTP};
use crate::context::ServiceContext;
use crate::listener::bind;
use crate::{Config, Door, Event, ListenAddress, StartError};

/// A value for each open door.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doors<T> {
    pub(crate) http: Option<T>,
    pub(crate) grpc: Option<T>,
    pub(crate) admin: Option<T>,
}

impl<T> Doors<T> {
    pub(crate) fn of(&self, door: Door) -> Option<&T> {
        match door {
            Door::Http => self.http.as_ref(),
            Door::Grpc => self.grpc.as_ref(),
            Door::Admin => self.admin.as_ref(),
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
        let doors = Self {
            http: choose(Door::Http, &config.http, &policy.http, DEFAULT_HTTP)?,
            grpc: choose(Door::Grpc, &config.grpc, &policy.grpc, grpc)?,
            admin: choose(Door::Admin, &config.admin, &policy.admin, DEFAULT_ADMIN)?,
        };
        if doors.grpc.is_some() && !cfg!(feature = "grpc") {
            return Err(StartError::NoGrpc);
        }
        if doors.http.is_none() && doors.grpc.is_none() && doors.admin.is_none() {
            return Err(StartError::NoDoor);
        }
        Ok(doors)
    }

    /// Binds the addresses.
    pub(crate) fn bind(self) -> Result<Doors<TcpListener>, StartError> {
        let taken = |door, at: Option<SocketAddr>| at.map(|at| bind(door, at)).transpose();
        Ok(Doors {
            http: taken(Door::Http, self.http)?,
            grpc: taken(Door::Grpc, self.grpc)?,
            admin: taken(Door::Admin, self.admin)?,
        })
    }

    /// Emits the address of each door, and a notice for each that is open to the network.
    pub(crate) fn announce<C: Clock>(&self, shared: &ServiceContext<C>) {
        for door in [Door::Http, Door::Grpc, Door::Admin] {
            let Some(&address) = self.of(door) else {
                continue;
            };
            shared.sink.emit(&Event::Listening { door, address });
            if !address.ip().to_canonical().is_loopback() {
                let guard = match door {
                    Door::Http | Door::Grpc => {
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

impl Doors<TcpListener> {
    /// Returns the addresses in use.
    pub(crate) fn addresses(&self) -> Doors<SocketAddr> {
        let local = |listener: &Option<TcpListener>| {
            let listener = listener.as_ref();
            listener.and_then(|listener| listener.local_addr().ok())
        };
        Doors {
            http: local(&self.http),
            grpc: local(&self.grpc),
            admin: local(&self.admin),
        }
    }
}
