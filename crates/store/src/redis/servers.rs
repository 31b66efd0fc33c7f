//! Servers: where calls go, and how long they may take.
//!
//! ```text
//!   one       the node
//!   cluster   the node that holds the slot     (cluster.rs)
//!   sentinel  the primary that they name       (sentinel.rs)
//! ```
//!
//! A call is tried again only while it provably has not run, and until the deadline.

mod cluster;
mod dial;
pub(super) mod node;
mod ping;
mod sentinel;
#[cfg_attr(not(feature = "redis-tls"), path = "servers/no_tls.rs")]
mod tls;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::config::{RedisConfig, RedisServers, RedisTls};
use super::hints::Losses;
use super::trouble::Trouble;
use crate::StoreError;
use cluster::Cluster;
use dial::{Dial, is_encrypted, other_servers, renew_logins};
use node::{Manner, NodeRole, PAUSE, RedisNode, ScriptCall, patience};
use sentinel::Sentinels;
use tls::ServerTls;

/// The servers that calls go to.
#[derive(Debug)]
pub(super) enum Servers {
    /// The node, and the deadline of a call.
    One(Arc<RedisNode>, Duration),
    Cluster(Arc<Cluster>, Duration),
    Sentinel(Box<Sentinels>, Duration),
}

impl Servers {
    /// Creates the servers as configured, without connecting.
    pub(super) fn new(config: &RedisConfig, losses: &Losses) -> Result<Self, StoreError> {
        let deadline = config.deadline;
        let tls = || ServerTls::new(&config.tls);
        match &config.servers {
            RedisServers::One(url) => {
                let dial = Dial::new(url, &tls_for([url], tls)?)?;
                let node = RedisNode::new(dial, NodeRole::Any, patience(deadline), losses.clone());
                Ok(Self::One(Arc::new(node), deadline))
            }
            RedisServers::Cluster(urls) => {
                let cluster = Cluster::new(urls, &tls_for(urls, tls)?, deadline, losses)?;
                Ok(Self::Cluster(Arc::new(cluster), deadline))
            }
            RedisServers::Sentinel(sentinels) => {
                let tls = tls_for(&sentinels.urls, tls)?;
                let sentinels = Sentinels::new(sentinels, &tls, patience(deadline), losses)?;
                Ok(Self::Sentinel(Box::new(sentinels), deadline))
            }
        }
    }

    /// Returns true if keys of different slots may be on different servers.
    pub(super) const fn has_slots(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }

    /// Returns true if some servers of a cluster decide, while others that were asked do not.
    pub(super) fn are_partly_there(&self) -> bool {
        matches!(self, Self::Cluster(cluster, _) if cluster.is_partly_there())
    }

    /// Uses these certificates for new connections; checks nothing without TLS.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if a certificate or key is invalid; nothing has changed.
    pub(super) fn renew_tls(&self, tls: &RedisTls) -> Result<(), StoreError> {
        match self {
            Self::One(node, _) => node.dial().renew(tls),
            Self::Cluster(cluster, _) => cluster.renew_tls(tls),
            Self::Sentinel(sentinels, _) => sentinels.renew_tls(tls),
        }
    }

    /// Uses the names and passwords of `servers` for new connections. They must be the same
    /// servers.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if they are not.
    pub(super) fn renew_logins(&self, servers: &RedisServers) -> Result<(), StoreError> {
        match (self, servers) {
            (Self::One(node, _), RedisServers::One(url)) => renew_logins([node.dial()], [url]),
            (Self::Cluster(cluster, _), RedisServers::Cluster(urls)) => cluster.renew_logins(urls),
            (Self::Sentinel(known, _), RedisServers::Sentinel(new)) => known.renew_logins(new),
            _ => Err(other_servers()),
        }
    }

    /// Returns the servers that calls go to, after asking the cluster or the sentinels.
    pub(super) async fn nodes(&self) -> Result<Vec<Arc<RedisNode>>, Trouble> {
        match self {
            Self::One(node, _) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster, deadline) => Ok(cluster.nodes(*deadline).await),
            Self::Sentinel(sentinels, deadline) => {
                let node = sentinels.primary_within(*deadline).await?;
                Ok(vec![node])
            }
        }
    }

    /// Returns the servers that calls go to, as far as known, without asking any.
    pub(super) fn known(&self) -> Vec<Arc<RedisNode>> {
        match self {
            Self::One(node, _) => vec![Arc::clone(node)],
            Self::Cluster(cluster, _) => cluster.known(),
            Self::Sentinel(sentinels, _) => sentinels.known().into_iter().collect(),
        }
    }

    /// Runs a script with all keys in one slot, within the deadline.
    pub(super) async fn run(&self, slot: u16, call: ScriptCall<'_>) -> Result<Value, Trouble> {
        let (Self::One(_, deadline) | Self::Cluster(_, deadline) | Self::Sentinel(_, deadline)) =
            self;
        let mut last = None;
        let run = async {
            match self {
                Self::One(node, _) => run_on(node, call, &mut last).await,
                Self::Cluster(cluster, _) => cluster.run(slot, call, &mut last).await,
                Self::Sentinel(sentinels, _) => sentinels.run(call, &mut last).await,
            }
        };
        match tokio::time::timeout(almost(*deadline), run).await {
            Ok(answer) => answer,
            // `last` did not run; without it there was no answer at all.
            Err(_) => Err(last.unwrap_or_else(|| no_answer(*deadline))),
        }
    }
}

/// Returns the timeout of a call: less than the deadline, so that its caller gets the reason.
fn almost(deadline: Duration) -> Duration {
    deadline.saturating_sub(deadline / 16)
}

/// Returns the settings for URLs that begin with `rediss`; loads nothing if no URL does.
fn tls_for<'a>(
    urls: impl IntoIterator<Item = &'a String>,
    tls: impl FnOnce() -> Result<ServerTls, StoreError>,
) -> Result<ServerTls, StoreError> {
    let encrypted = |url: &String| is_encrypted(url);
    if urls.into_iter().any(encrypted) {
        tls()
    } else {
        Ok(ServerTls::default())
    }
}

/// Returns the error for a call that was not answered.
pub(super) fn no_answer(deadline: Duration) -> Trouble {
    Trouble::Lost(format!("no answer within {} ms", deadline.as_millis()))
}

/// Runs a call on the only server, again if it could not run yet.
async fn run_on(
    node: &Arc<RedisNode>,
    call: ScriptCall<'_>,
    last: &mut Option<Trouble>,
) -> Result<Value, Trouble> {
    loop {
        *last = None;
        match node.run(call, Manner::Plain).await {
            Err(Trouble::Later(why)) => *last = Some(Trouble::Later(why)),
            answer => return answer,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
