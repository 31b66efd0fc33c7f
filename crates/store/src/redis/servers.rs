//! Servers: one, or a cluster whose nodes each hold a part of the slots.
//!
//! ```text
//!   slot --> node, as far as known --> MOVED  it is another's: note that, go there
//!                                  --> ASK    go there once, ASKING
//!                                  --> later  wait a little, look around, once more
//!                                  --> absent a replica may take over: look around
//!                                  --> lost   the next call looks around
//! ```
//!
//! A call goes on only while it provably has not run, and until the deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Value};
use tokio::task::JoinSet;

use super::node::{Call, Manner, Node, Trouble};
use super::slot::SLOTS;
use crate::StoreError;

/// Waits before a call is tried again that could not run.
const PAUSE: Duration = Duration::from_millis(10);
/// Nodes that are known at most: a cluster has at most 1,000.
const MOST_NODES: usize = 1_000;
/// Nodes that are asked about the others at a time: those that hang hold up nobody.
const ASKED_AT_ONCE: usize = 4;

/// Where calls go.
#[derive(Debug)]
pub(super) enum Servers {
    /// And its deadline.
    One(Box<Node>, Duration),
    Cluster(Box<Cluster>),
}

impl Servers {
    /// One server.
    pub(super) fn one(url: &str, deadline: Duration) -> Result<Self, StoreError> {
        let node = Node::new(client(info(url)?)?, patience(deadline));
        Ok(Self::One(Box::new(node), deadline))
    }

    /// A cluster; any of its nodes will do.
    pub(super) fn cluster(urls: &[String], deadline: Duration) -> Result<Self, StoreError> {
        let seeds = urls
            .iter()
            .map(|url| info(url))
            .collect::<Result<Vec<_>, _>>()?;
        let Some(first) = seeds.first().cloned() else {
            let why = "a cluster needs the URL of at least one node";
            return Err(StoreError::Misconfigured(why.into()));
        };
        let mut nodes = HashMap::new();
        for seed in &seeds {
            let node = Node::new(client(seed.clone())?, patience(deadline));
            nodes.insert(seed.addr().to_string(), Arc::new(node));
        }
        Ok(Self::Cluster(Box::new(Cluster {
            first,
            deadline,
            map: Mutex::new(Map {
                nodes,
                owners: vec![None; usize::from(SLOTS)],
                looks: 0,
            }),
            looking: tokio::sync::Mutex::default(),
        })))
    }

    /// Whether keys of different slots may be on different servers.
    pub(super) const fn has_slots(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Runs a script whose keys are of one slot, within the deadline.
    pub(super) async fn run(&self, slot: u16, call: Call<'_>) -> Result<Value, Trouble> {
        let (deadline, run) = match self {
            Self::One(node, deadline) => (*deadline, Run::One(node)),
            Self::Cluster(cluster) => (cluster.deadline, Run::Cluster(cluster)),
        };
        let mut last = None;
        let run = async {
            match run {
                Run::One(node) => run_on(node, call, &mut last).await,
                Run::Cluster(cluster) => cluster.run(slot, call, &mut last).await,
            }
        };
        match tokio::time::timeout(deadline, run).await {
            Ok(answer) => answer,
            // What came last did not run, or nothing came at all.
            Err(_) => Err(last.unwrap_or_else(|| no_answer(deadline))),
        }
    }
}

/// How long a node is waited for: a little less than the deadline, so that a connection that
/// hangs is given up by who waits for it, and not kept for the next.
fn patience(deadline: Duration) -> Duration {
    deadline.saturating_sub(deadline / 8)
}

enum Run<'a> {
    One(&'a Node),
    Cluster(&'a Cluster),
}

/// What is said of a call that was not answered.
pub(super) fn no_answer(deadline: Duration) -> Trouble {
    Trouble::Lost(format!("no answer within {} ms", deadline.as_millis()))
}

/// Runs a call on the only server, again if it could not run yet.
async fn run_on(node: &Node, call: Call<'_>, last: &mut Option<Trouble>) -> Result<Value, Trouble> {
    loop {
        *last = None;
        match node.run(call, Manner::Plain).await {
            Err(Trouble::Later(why)) => *last = Some(Trouble::Later(why)),
            answer => return answer,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    /// How nodes are reached: the address aside, as the first that was named.
    first: ConnectionInfo,
    deadline: Duration,
    map: Mutex<Map>,
    /// Whose turn it is to look around.
    looking: tokio::sync::Mutex<()>,
}

/// What is known of a cluster.
#[derive(Debug)]
struct Map {
    nodes: HashMap<String, Arc<Node>>,
    /// By slot.
    owners: Vec<Option<Arc<Node>>>,
    /// How often that was asked.
    looks: u64,
}

impl Cluster {
    async fn run(
        &self,
        slot: u16,
        call: Call<'_>,
        last: &mut Option<Trouble>,
    ) -> Result<Value, Trouble> {
        let mut manner = Manner::Plain;
        let mut node = self.owner(slot).await?;
        loop {
            *last = None;
            let trouble = match node.run(call, manner).await {
                Ok(answer) => return Ok(answer),
                Err(trouble @ (Trouble::Refused(_) | Trouble::Foreign(_))) => return Err(trouble),
                Err(trouble @ Trouble::Lost(_)) => {
                    // Cut off, perhaps, and a replica has taken over: the next call finds out.
                    self.doubt(&node);
                    return Err(trouble);
                }
                Err(trouble) => trouble,
            };
            manner = Manner::Plain;
            match &trouble {
                Trouble::Moved { slot, address } => {
                    node = self.node(address)?;
                    self.note(*slot, &node);
                }
                Trouble::Ask { address } => {
                    node = self.node(address)?;
                    manner = Manner::Asking;
                }
                _ => {
                    *last = Some(trouble);
                    tokio::time::sleep(PAUSE).await;
                    self.look_around().await;
                    node = self.owner(slot).await?;
                    continue;
                }
            }
            *last = Some(trouble);
        }
    }

    /// The node that holds a slot, as far as known.
    async fn owner(&self, slot: u16) -> Result<Arc<Node>, Trouble> {
        let known = |map: &Map| map.owners.get(usize::from(slot)).cloned().flatten();
        let found = known(&self.map.lock());
        if let Some(node) = found {
            return Ok(node);
        }
        self.look_around().await;
        let map = self.map.lock();
        let any = || map.nodes.values().next().cloned();
        known(&map)
            .or_else(any)
            .ok_or_else(|| Trouble::Absent("no node of the cluster is known".into()))
    }

    fn note(&self, slot: u16, node: &Arc<Node>) {
        if let Some(owner) = self.map.lock().owners.get_mut(usize::from(slot)) {
            *owner = Some(Arc::clone(node));
        }
    }

    /// Which slots the node holds is to be asked again.
    fn doubt(&self, node: &Arc<Node>) {
        for owner in &mut self.map.lock().owners {
            if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, node)) {
                *owner = None;
            }
        }
    }

    /// The node at an address of the form `host:port`.
    fn node(&self, address: &str) -> Result<Arc<Node>, Trouble> {
        let strange = || Trouble::Refused(format!("`{address}` is no address"));
        let (host, port) = address.rsplit_once(':').ok_or_else(strange)?;
        let port: u16 = port.parse().map_err(|_| strange())?;
        let info = at(&self.first, host, port).ok_or_else(strange)?;
        let mut map = self.map.lock();
        let name = info.addr().to_string();
        if let Some(node) = map.nodes.get(&name) {
            return Ok(Arc::clone(node));
        }
        if map.nodes.len() >= MOST_NODES {
            return Err(Trouble::Refused("the cluster names too many nodes".into()));
        }
        let client = client(info).map_err(|error| Trouble::Refused(error.to_string()))?;
        let node = Arc::new(Node::new(client, patience(self.deadline)));
        map.nodes.insert(name, Arc::clone(&node));
        Ok(node)
    }

    /// Asks nodes who holds which slots, until one says. Callers that need to know at the same
    /// time ask once.
    async fn look_around(&self) {
        let before = self.map.lock().looks;
        let _one = self.looking.lock().await;
        if self.map.lock().looks != before {
            return;
        }
        let mut nodes: Vec<_> = self.map.lock().nodes.values().cloned().collect();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < ASKED_AT_ONCE
                && let Some(node) = nodes.pop()
            {
                asked.spawn(async move {
                    let mut command = redis::cmd("CLUSTER");
                    node.query(command.arg("SLOTS")).await
                });
            }
            let Some(answer) = asked.join_next().await else {
                return;
            };
            if let Ok(Ok(Value::Array(ranges))) = answer
                && self.note_all(&ranges)
            {
                return;
            }
        }
    }

    /// Notes what a node says about slots; whether it says anything.
    fn note_all(&self, ranges: &[Value]) -> bool {
        let mut any = false;
        for (first, last, address) in ranges.iter().filter_map(range) {
            if let Ok(owner) = self.node(&address) {
                (first..=last).for_each(|slot| self.note(slot, &owner));
                any = true;
            }
        }
        self.map.lock().looks += u64::from(any);
        any
    }
}

/// Of `CLUSTER SLOTS`: first slot, last slot, address of the primary.
fn range(entry: &Value) -> Option<(u16, u16, String)> {
    let Value::Array(entry) = entry else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(primary),
        ..,
    ] = entry.as_slice()
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        _ => String::new(), // the node that was asked, or one unknown: see `at`
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    (first <= last && last < SLOTS).then(|| (first, last, format!("{host}:{port}")))
}

fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let misconfigured = |error: redis::RedisError| StoreError::Misconfigured(error.to_string());
    url.into_connection_info().map_err(misconfigured)
}

fn client(info: ConnectionInfo) -> Result<Client, StoreError> {
    Client::open(info).map_err(|error| StoreError::Misconfigured(error.to_string()))
}

/// The same way to connect, to another address. A cluster that does not say a host means the
/// one that was asked.
fn at(like: &ConnectionInfo, host: &str, port: u16) -> Option<ConnectionInfo> {
    let named = |like: &str| if host.is_empty() { like } else { host }.to_owned();
    let address = match like.addr() {
        ConnectionAddr::Tcp(known, _) => ConnectionAddr::Tcp(named(known), port),
        ConnectionAddr::TcpTls {
            host: known,
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host: named(known),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => return None,
    };
    Some(like.clone().set_addr(address))
}
