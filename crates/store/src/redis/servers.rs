//! Servers: where calls go, and how long they may take.
//!
//! ```text
//!   one       the node
//!   cluster   the node that holds the slot     (cluster.rs)
//!   sentinel  the primary that they name       (sentinel.rs)
//! ```
//!
//! A call goes on only while it provably has not run, and until the deadline.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::cluster::Cluster;
use super::config::{RedisConfig, RedisServers, RedisTls};
use super::dial::{Dial, other_servers, renew_logins};
use super::hints::Losses;
use super::node::{Manner, RedisNode, Role, ScriptCall};
use super::sentinel::Sentinels;
use super::tls::Tls;
use super::trouble::Trouble;
use crate::StoreError;

/// Waits before a call is tried again that could not run.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// Where calls go.
#[derive(Debug)]
pub(super) enum Servers {
    /// And the deadline of a call.
    One(Arc<RedisNode>, Duration),
    Cluster(Arc<Cluster>, Duration),
    Sentinel(Box<Sentinels>, Duration),
}

impl Servers {
    /// As configured; nobody is asked yet.
    pub(super) fn new(config: &RedisConfig, losses: &Losses) -> Result<Self, StoreError> {
        let deadline = config.deadline;
        let tls = || Tls::new(&config.tls);
        match &config.servers {
            RedisServers::One(url) => {
                let dial = Dial::new(url, &tls_for([url], tls)?)?;
                let node = RedisNode::new(dial, Role::Any, patience(deadline), losses.clone());
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

    /// Whether keys of different slots may be on different servers.
    pub(super) const fn has_slots(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }

    /// Whether some servers of a cluster decide, while others that were asked do not.
    pub(super) fn are_partly_there(&self) -> bool {
        matches!(self, Self::Cluster(cluster, _) if cluster.is_partly_there())
    }

    /// The next connections are made by these certificates; nothing is looked at where there
    /// is no TLS.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if a certificate or key is none; nothing has changed.
    pub(super) fn renew_tls(&self, tls: &RedisTls) -> Result<(), StoreError> {
        match self {
            Self::One(node, _) => node.dial().renew(tls),
            Self::Cluster(cluster, _) => cluster.renew_tls(tls),
            Self::Sentinel(sentinels, _) => sentinels.renew_tls(tls),
        }
    }

    /// The next connections are made by the names and passwords of these, which are the same
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

    /// The servers that calls go to, as far as known.
    pub(super) async fn nodes(&self) -> Result<Vec<Arc<RedisNode>>, Trouble> {
        match self {
            Self::One(node, _) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster, deadline) => Ok(cluster.nodes(*deadline).await),
            Self::Sentinel(sentinels, deadline) => {
                let node = sentinels.named(*deadline).await?;
                Ok(vec![node])
            }
        }
    }

    /// The same, without asking anybody.
    pub(super) fn known(&self) -> Vec<Arc<RedisNode>> {
        match self {
            Self::One(node, _) => vec![Arc::clone(node)],
            Self::Cluster(cluster, _) => cluster.known(),
            Self::Sentinel(sentinels, _) => sentinels.known().into_iter().collect(),
        }
    }

    /// Runs a script whose keys are of one slot, within the deadline.
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
            // What came last did not run, or nothing came at all.
            Err(_) => Err(last.unwrap_or_else(|| no_answer(*deadline))),
        }
    }
}

/// How long a call may take: so much less than the deadline that who waits for it hears why.
fn almost(deadline: Duration) -> Duration {
    deadline.saturating_sub(deadline / 16)
}

/// How long a node is waited for: a little less than the deadline, so that a connection that
/// hangs is given up by who waits for it, and not kept for the next.
pub(super) fn patience(deadline: Duration) -> Duration {
    deadline.saturating_sub(deadline / 8)
}

/// What URLs need that begin with `rediss`; nothing is looked up if none does.
fn tls_for<'a>(
    urls: impl IntoIterator<Item = &'a String>,
    tls: impl FnOnce() -> Result<Tls, StoreError>,
) -> Result<Tls, StoreError> {
    let encrypted = |url: &String| is_encrypted(url);
    if urls.into_iter().any(encrypted) {
        tls()
    } else {
        Ok(Tls::default())
    }
}

/// Whether a URL is one of TLS.
pub(super) fn is_encrypted(url: &str) -> bool {
    url.starts_with("rediss://") || url.starts_with("valkeys://")
}

/// What is said of a call that was not answered.
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
