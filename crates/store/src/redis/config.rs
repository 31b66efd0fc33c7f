//! How a Redis store is set up.

use std::fmt;
use std::time::Duration;

use ratekeeper_core::Origin;

/// Whose clock decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RedisClock {
    /// The server's, read once for each call. `now` is not used.
    #[default]
    Server,
    /// The caller's: `now`, on a clock of the configured origin. For tests and replays; keys
    /// still expire by the server's clock.
    Caller,
}

/// Where the states are.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisServers {
    /// One server: `redis://[user:password@]host[:port][/database]`, `rediss://..` for TLS, or
    /// `unix:///path`.
    One(String),
    /// A cluster, by any of its nodes.
    Cluster(Vec<String>),
    /// The primary that sentinels name.
    Sentinel(RedisSentinels),
}

/// URLs may hold passwords.
impl fmt::Debug for RedisServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One(_) => "One(..)",
            Self::Cluster(_) => "Cluster(..)",
            Self::Sentinel(_) => "Sentinel(..)",
        })
    }
}

/// Sentinels, and the primary that they watch. It is reached as they are: by TLS if their URLs
/// begin with `rediss`.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSentinels {
    /// `redis://[user:password@]host[:port]` of each sentinel that is asked, all `redis` or all
    /// `rediss`. The user is the sentinel's.
    pub urls: Vec<String>,
    /// What they call the primary: `mymaster`.
    pub master: String,
    /// As whom to use the primary.
    pub login: RedisLogin,
}

/// Passwords are nobody's business.
impl fmt::Debug for RedisSentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSentinels")
            .field("master", &self.master)
            .finish_non_exhaustive()
    }
}

/// As whom to use a server.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisLogin {
    /// The user; none for the default one.
    pub username: Option<String>,
    /// The password; none if none is asked for.
    pub password: Option<String>,
    /// Number of the database.
    pub database: u16,
}

/// Passwords are nobody's business.
impl fmt::Debug for RedisLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLogin")
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

/// What encrypted connections need to know. Used for URLs that begin with `rediss`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedisTls {
    /// PEM of those who may sign a server's certificate; none for those that the system trusts.
    pub ca: Option<Vec<u8>>,
    /// What we show to servers that ask who we are.
    pub identity: Option<RedisIdentity>,
    /// The name that a server's certificate must hold; none for the host it is reached at.
    pub server_name: Option<String>,
}

/// What is configured, not what it is.
impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// A certificate of ours.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisIdentity {
    /// PEM of the chain, our own certificate first.
    pub certificate: Vec<u8>,
    /// PEM of its private key.
    pub key: Vec<u8>,
}

/// Keys are nobody's business.
impl fmt::Debug for RedisIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisIdentity(..)")
    }
}

/// How to reach and use the servers.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Where the states are.
    pub servers: RedisServers,
    /// For URLs that begin with `rediss`.
    pub tls: RedisTls,
    /// Begins the name of every key; must hold no `{`.
    pub prefix: String,
    /// How long a call may take, connecting included.
    pub deadline: Duration,
    /// Where the clock has its zero that the limits were constructed for: windows on a grid
    /// and calendars fall at the same moments for all processes. For callers that ask the store
    /// themselves; a keeper puts its own clock's in this place.
    pub origin: Origin,
    /// Whose clock decides.
    pub clock: RedisClock,
}

impl RedisConfig {
    /// One server, with prefix `rk` and a deadline of 100 ms. Without a keeper, for limits whose
    /// clock counts from 1970.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            servers: RedisServers::One(url.into()),
            tls: RedisTls::default(),
            prefix: "rk".into(),
            deadline: Duration::from_millis(100),
            origin: Origin::UNIX,
            clock: RedisClock::Server,
        }
    }
}
