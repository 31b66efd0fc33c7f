//! How a Redis store is set up.

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
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RedisServers {
    /// One server: `redis://[user:password@]host[:port][/database]`, or `unix:///path`.
    One(String),
    /// A cluster, by any of its nodes.
    Cluster(Vec<String>),
}

/// How to reach and use the servers.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Where the states are.
    pub servers: RedisServers,
    /// Begins the name of every key; must hold no `{`.
    pub prefix: String,
    /// How long a call may take, connecting included.
    pub deadline: Duration,
    /// Where the clock has its zero that the limits were constructed for: windows on a grid
    /// and calendars fall at the same moments for all processes.
    pub origin: Origin,
    /// Whose clock decides.
    pub clock: RedisClock,
}

impl RedisConfig {
    /// One server, with prefix `rk`, a deadline of 100 ms, for limits whose clock counts from
    /// 1970.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            servers: RedisServers::One(url.into()),
            prefix: "rk".into(),
            deadline: Duration::from_millis(100),
            origin: Origin::UNIX,
            clock: RedisClock::Server,
        }
    }
}
