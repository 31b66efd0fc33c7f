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
pub(super) struct Servers {
    layout: Layout,
    tls: ServerTls,
    /// Of a call.
    deadline: Duration,
}

#[derive(Debug)]
enum Layout {
    One(Arc<RedisNode>),
    Cluster(Arc<Cluster>),
    Sentinel(Arc<Sentinels>),
}

impl Servers {
    /// Creates the servers as configured, without connecting.
    pub(super) fn new(config: &RedisConfig, losses: &Losses) -> Result<Self, StoreError> {
        let (deadline, urls) = (config.deadline, config.servers.urls());
        let tls = if urls.iter().any(|url| is_encrypted(url)) {
            ServerTls::new(&config.tls)?
        } else {
            ServerTls::default() // loads nothing
        };
        let layout = match &config.servers {
            RedisServers::One(url) => {
                let (dial, patience) = (Dial::new(url, &tls)?, patience(deadline));
                let node = RedisNode::new(dial, NodeRole::Any, patience, losses.clone());
                Layout::One(Arc::new(node))
            }
            RedisServers::Cluster(urls) => {
                let cluster = Cluster::new(urls, &tls, deadline, losses)?;
                Layout::Cluster(Arc::new(cluster))
            }
            RedisServers::Sentinel(sentinels) => {
                let sentinels = Sentinels::new(sentinels, &tls, patience(deadline), losses)?;
                Layout::Sentinel(Arc::new(sentinels))
            }
        };
        Ok(Self {
            layout,
            tls,
            deadline,
        })
    }

    /// Returns true if keys of different slots may be on different servers.
    pub(super) const fn has_slots(&self) -> bool {
        matches!(self.layout, Layout::Cluster(_))
    }

    /// Returns why a sentinel refused to announce failovers, if one did.
    pub(super) fn refusal(&self) -> Option<&str> {
        match &self.layout {
            Layout::Sentinel(sentinels) => sentinels.refusal.get().map(String::as_str),
            _ => None,
        }
    }

    /// Returns true if some servers of a cluster decide, while others that were asked do not.
    pub(super) fn are_partly_there(&self) -> bool {
        matches!(&self.layout, Layout::Cluster(cluster) if cluster.is_partly_there())
    }

    /// Uses these certificates for new connections; checks nothing without TLS.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if a certificate or key is invalid; nothing has changed.
    pub(super) fn renew_tls(&self, tls: &RedisTls) -> Result<(), StoreError> {
        self.tls.renew(tls)
    }

    /// Uses the names and passwords of `servers` for new connections. They must be the same
    /// servers.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if they are not.
    pub(super) fn renew_logins(&self, servers: &RedisServers) -> Result<(), StoreError> {
        match (&self.layout, servers) {
            (Layout::One(node), RedisServers::One(url)) => renew_logins([node.dial()], [url]),
            (Layout::Cluster(cluster), RedisServers::Cluster(urls)) => cluster.renew_logins(urls),
            (Layout::Sentinel(known), RedisServers::Sentinel(new)) => known.renew_logins(new),
            _ => Err(other_servers()),
        }
    }

    /// Returns the servers that calls go to, after asking the cluster or the sentinels.
    pub(super) async fn nodes(&self) -> Result<Vec<Arc<RedisNode>>, Trouble> {
        match &self.layout {
            Layout::One(node) => Ok(vec![Arc::clone(node)]),
            Layout::Cluster(cluster) => Ok(cluster.nodes(self.deadline).await),
            Layout::Sentinel(known) => Ok(vec![known.primary_within(self.deadline).await?]),
        }
    }

    /// Returns the servers that calls go to, as far as known, without asking any.
    pub(super) fn known(&self) -> Vec<Arc<RedisNode>> {
        match &self.layout {
            Layout::One(node) => vec![Arc::clone(node)],
            Layout::Cluster(cluster) => cluster.known(),
            Layout::Sentinel(sentinels) => sentinels.known().into_iter().collect(),
        }
    }

    /// Runs a script with all keys in one slot, within the deadline.
    pub(super) async fn run(&self, slot: u16, call: ScriptCall<'_>) -> Result<Value, Trouble> {
        let mut last = None;
        let run = async {
            match &self.layout {
                Layout::One(node) => run_on(node, call, &mut last).await,
                Layout::Cluster(cluster) => cluster.run(slot, call, &mut last).await,
                Layout::Sentinel(sentinels) => sentinels.run(call, &mut last).await,
            }
        };
        match tokio::time::timeout(almost(self.deadline), run).await {
            Ok(answer) => answer,
            // `last` did not run; without it there was no answer at all.
            Err(_) => Err(last.unwrap_or_else(|| no_answer(self.deadline))),
        }
    }
}

/// Returns the timeout of a call: less than the deadline, so that its caller gets the reason.
fn almost(deadline: Duration) -> Duration {
    deadline.saturating_sub(deadline / 16)
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
