//! Configuration of a Redis store.

use std::time::Duration;

use ratekeeper_core::Origin;
use ratekeeper_resilience::{Random as _, SplitMix};

/// The clock that decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RedisClock {
    /// The server's, read once for each call. `now` is not used.
    #[default]
    Server,
    /// The caller's: `now`, on a clock of the configured origin. For tests and replays; keys
    /// still expire by the server's clock.
    Caller,
}

/// The servers that hold the states. Its debug output omits the URLs, which may hold passwords.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[non_exhaustive]
pub enum RedisServers {
    /// One server: `redis://[user:password@]host[:port][/database]`, `rediss://..` for TLS, or
    /// `unix:///path`.
    #[debug("One(..)")]
    One(String),
    /// A cluster, by the URLs of any of its nodes.
    #[debug("Cluster(..)")]
    Cluster(Vec<String>),
    /// The primary that sentinels name.
    #[debug("Sentinel(..)")]
    Sentinel(RedisSentinels),
}

impl RedisServers {
    pub(super) const fn urls(&self) -> &[String] {
        match self {
            Self::One(url) => std::slice::from_ref(url),
            Self::Cluster(urls) => urls.as_slice(),
            Self::Sentinel(sentinels) => sentinels.urls.as_slice(),
        }
    }
}

/// Sentinels, and the primary that they watch. It is reached in the same way: by TLS if their
/// URLs begin with `rediss`.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
pub struct RedisSentinels {
    /// `redis://[user:password@]host[:port]` of each sentinel that is asked, all `redis` or all
    /// `rediss`. The user is the sentinel's.
    #[debug(skip)]
    pub urls: Vec<String>,
    /// The sentinels' name of the primary: `mymaster`.
    pub master: String,
    /// Login at the primary.
    #[debug(skip)]
    pub login: RedisLogin,
}

/// Login at a server.
#[derive(Clone, PartialEq, Eq, Default, derive_more::Debug)]
pub struct RedisLogin {
    /// The user; `None` for the default one.
    #[debug(skip)]
    pub username: Option<String>,
    /// The password; `None` if the server asks for no password.
    #[debug(skip)]
    pub password: Option<String>,
    /// Number of the database.
    pub database: u16,
}

/// Settings of encrypted connections. Used for URLs that begin with `rediss`.
#[derive(Clone, PartialEq, Eq, Default, derive_more::Debug)]
pub struct RedisTls {
    /// PEM of the certificate authorities to trust; `None` for those that the system trusts.
    #[debug("{}", ca.is_some())]
    pub ca: Option<Vec<u8>>,
    /// Client certificate, for servers that ask for one.
    #[debug("{}", identity.is_some())]
    pub identity: Option<RedisIdentity>,
    /// The name that a server's certificate must hold; `None` for the host it is reached at.
    pub server_name: Option<String>,
}

/// A client certificate.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("RedisIdentity(..)")]
pub struct RedisIdentity {
    /// PEM of the chain, the client's own certificate first.
    pub certificate: Vec<u8>,
    /// PEM of its private key.
    pub key: Vec<u8>,
}

/// How to reach and use the servers.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// The servers that hold the states.
    pub servers: RedisServers,
    /// Settings for URLs that begin with `rediss`.
    pub tls: RedisTls,
    /// Prefix of the name of every key; must hold no `{`.
    pub prefix: String,
    /// Maximum time of a call, connecting included.
    pub deadline: Duration,
    /// Origin of the clock that the limits were constructed for, so that windows on a grid and
    /// calendars fall at the same moments for all processes. For callers that use the store
    /// directly; a keeper replaces it by the origin of its own clock.
    pub origin: Origin,
    /// The clock that decides.
    pub clock: RedisClock,
    /// Name of this process in the keys of limits that each process counts by itself. A limit
    /// continues after a restart under the same name.
    pub node: String,
}

impl RedisConfig {
    /// Configures one server, with prefix `rk`, a deadline of 100 ms and a random name of the
    /// process. Without a keeper, for limits on a clock that counts from 1970.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            servers: RedisServers::One(url.into()),
            tls: RedisTls::default(),
            prefix: "rk".into(),
            deadline: Duration::from_millis(100),
            origin: Origin::UNIX,
            clock: RedisClock::Server,
            node: format!("{:016x}", SplitMix::seeded().draw()),
        }
    }
}
