//! Cluster: nodes that each hold a part of the slots.
//!
//! ```text
//!   slot --> node, as far as known --> MOVED  it is another's: note that, go there
//!                                  --> ASK    go there once, ASKING
//!                                  --> later  wait a little, look around, once more
//!                                  --> absent a replica may take over: look around
//!                                  --> lost    the next call looks around
//!                                  --> resting it fails at once; we look around meanwhile
//! ```
//!
//! A node that is unreachable, or does not decide, affects the keys of its slots only.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Value, from_redis_value_ref};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::dial::{Dial, ServerAddress, renew_logins};
use super::node::{Manner, NodeRole, PAUSE, RedisNode, ScriptCall, patience};
use super::tls::ServerTls;
use crate::StoreError;
use crate::redis::hints::Losses;
use crate::redis::slot::SLOTS;
use crate::redis::trouble::Trouble;

/// Maximum number of known nodes: a cluster has at most 1,000.
const MAX_NODES: usize = 1_000;
/// Nodes that are asked for the slots at a time, so that one that hangs delays no lookup.
const ASKED_AT_ONCE: usize = 4;
/// Minimum time between lookups in the background, while a node is unreachable.
const LOOK: Duration = Duration::from_millis(250);

/// A cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// How to reach the configured nodes; all others, the address aside, like the first.
    seeds: Vec<Dial>,
    deadline: Duration,
    losses: Losses,
    map: Mutex<Map>,
    /// Time of the last lookup in the background.
    looked: Mutex<Option<Instant>>,
    /// Held during a lookup.
    looking: tokio::sync::Mutex<()>,
}

/// The known nodes of a cluster, and their slots.
#[derive(Debug)]
struct Map {
    nodes: HashMap<ServerAddress, Arc<RedisNode>>,
    /// Nodes that hold slots, by the last lookup; the configured ones before the first.
    holders: Vec<Arc<RedisNode>>,
    /// The node of each slot.
    owners: Vec<Option<Arc<RedisNode>>>,
    /// Number of successful lookups.
    looks: u64,
}

impl Cluster {
    /// Creates a cluster from the URLs of any of its nodes.
    pub(crate) fn new(
        urls: &[String],
        tls: &ServerTls,
        deadline: Duration,
        losses: &Losses,
    ) -> Result<Self, StoreError> {
        let seeds = urls.iter().map(|url| Dial::new(url, tls));
        let seeds = seeds.collect::<Result<Vec<_>, _>>()?;
        if seeds.is_empty() {
            let why = "a cluster needs the URL of at least one node";
            return Err(StoreError::Misconfigured(why.into()));
        }
        let mut nodes = HashMap::new();
        for seed in seeds.iter().cloned() {
            let address = seed.address().clone();
            let node = RedisNode::new(seed, NodeRole::Any, patience(deadline), losses.clone());
            nodes.insert(address, Arc::new(node));
        }
        Ok(Self {
            seeds,
            deadline,
            losses: losses.clone(),
            map: Mutex::new(Map {
                holders: nodes.values().cloned().collect(),
                nodes,
                owners: vec![None; usize::from(SLOTS)],
                looks: 0,
            }),
            looked: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) async fn run(
        self: &Arc<Self>,
        slot: u16,
        call: ScriptCall<'_>,
        last: &mut Option<Trouble>,
    ) -> Result<Value, Trouble> {
        let mut manner = Manner::Plain;
        let mut node = self.owner(slot).await?;
        loop {
            *last = None;
            let trouble = match node.run(call, manner).await {
                Ok(answer) => return Ok(answer),
                Err(trouble @ Trouble::Resting(_)) => {
                    self.look_around_meanwhile();
                    return Err(trouble);
                }
                Err(trouble @ (Trouble::Refused(_) | Trouble::Foreign(_))) => return Err(trouble),
                Err(trouble @ Trouble::Lost(_)) => {
                    // It may be cut off, and replaced by a replica: the next call finds out.
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

    /// Returns the node that holds a slot, or any node if that is unknown.
    async fn owner(&self, slot: u16) -> Result<Arc<RedisNode>, Trouble> {
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

    fn note(&self, slot: u16, node: &Arc<RedisNode>) {
        if let Some(owner) = self.map.lock().owners.get_mut(usize::from(slot)) {
            *owner = Some(Arc::clone(node));
        }
    }

    /// Forgets which slots the node holds, so that they are looked up again.
    fn doubt(&self, node: &Arc<RedisNode>) {
        for owner in &mut self.map.lock().owners {
            if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, node)) {
                *owner = None;
            }
        }
    }

    /// Returns the node at an address of the form `host:port`, created if it is new.
    fn node(&self, address: &str) -> Result<Arc<RedisNode>, Trouble> {
        let strange = || Trouble::Refused(format!("`{address}` is not HOST:PORT"));
        let (host, port) = address.rsplit_once(':').ok_or_else(strange)?;
        let port: u16 = port.parse().map_err(|_| strange())?;
        let first = self.seeds.first().ok_or_else(strange)?;
        let dial = first.to(host, port).ok_or_else(strange)?;
        let mut map = self.map.lock();
        if let Some(node) = map.nodes.get(dial.address()) {
            return Ok(Arc::clone(node));
        }
        if map.nodes.len() >= MAX_NODES {
            return Err(Trouble::Refused("the cluster has too many nodes".into()));
        }
        let address = dial.address().clone();
        let node = Arc::new(RedisNode::new(
            dial,
            NodeRole::Any,
            patience(self.deadline),
            self.losses.clone(),
        ));
        map.nodes.insert(address, Arc::clone(&node));
        Ok(node)
    }

    /// Returns the nodes that hold slots, then the other known ones, each once. Looks them up
    /// first, but for no longer than `deadline`.
    pub(crate) async fn nodes(&self, deadline: Duration) -> Vec<Arc<RedisNode>> {
        let _ = timeout(deadline, self.look_around()).await;
        let map = self.map.lock();
        let mut all: Vec<Arc<RedisNode>> = Vec::new();
        for node in map.owners.iter().flatten().chain(map.nodes.values()) {
            if !all.iter().any(|known| Arc::ptr_eq(known, node)) {
                all.push(Arc::clone(node));
            }
        }
        all
    }

    /// Returns the nodes that hold slots, as far as known, sorted by address.
    pub(crate) fn known(&self) -> Vec<Arc<RedisNode>> {
        let mut known = self.map.lock().holders.clone();
        known.sort_by_cached_key(|node| node.address().to_string());
        known
    }

    /// As [`Servers::renew_logins`](super::Servers::renew_logins).
    pub(crate) fn renew_logins(&self, urls: &[String]) -> Result<(), StoreError> {
        renew_logins(&self.seeds, urls)
    }

    /// Returns true if some nodes decide, while others that were asked do not.
    pub(crate) fn is_partly_there(&self) -> bool {
        let map = self.map.lock();
        let any = |decides| {
            let mut nodes = map.nodes.values();
            nodes.any(|node| node.decides() == Some(decides))
        };
        any(false) && any(true)
    }

    /// Looks up the slots in the background.
    fn look_around_meanwhile(self: &Arc<Self>) {
        let now = Instant::now();
        {
            let mut looked = self.looked.lock();
            if looked.is_some_and(|looked| now.duration_since(looked) < LOOK) {
                return;
            }
            *looked = Some(now);
        }
        let cluster = Arc::clone(self);
        tokio::spawn(async move { cluster.look_around().await });
    }

    /// Asks nodes which slots each node holds, until one answers; those with fewest failures
    /// first. Concurrent callers share one lookup.
    async fn look_around(&self) {
        let before = self.map.lock().looks;
        let _one = self.looking.lock().await;
        if self.map.lock().looks != before {
            return;
        }
        let mut nodes: Vec<_> = self.map.lock().nodes.values().cloned().collect();
        nodes.sort_by_cached_key(|node| Reverse(node.failures()));
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

    /// Notes the slots that a node lists; returns false if it lists none.
    fn note_all(&self, ranges: &[Value]) -> bool {
        let mut holders: Vec<Arc<RedisNode>> = Vec::new();
        for (first, last, address) in ranges.iter().filter_map(range) {
            if let Ok(owner) = self.node(&address) {
                (first..=last).for_each(|slot| self.note(slot, &owner));
                if !holders.iter().any(|known| Arc::ptr_eq(known, &owner)) {
                    holders.push(owner);
                }
            }
        }
        if holders.is_empty() {
            return false;
        }
        let mut map = self.map.lock();
        (map.holders, map.looks) = (holders, map.looks + 1);
        true
    }
}

/// Reads an entry of `CLUSTER SLOTS`: first slot, last slot, address of the primary.
fn range(entry: &Value) -> Option<(u16, u16, String)> {
    let [first, last, primary, ..] = entry.as_sequence()? else {
        return None;
    };
    let [host, port, ..] = primary.as_sequence()? else {
        return None;
    };
    let number = |value| u16::try_from(from_redis_value_ref::<i64>(value).ok()?).ok();
    let (first, last, port) = (number(first)?, number(last)?, number(port)?);
    // Nil: the node that was asked, or one unknown: see `Dial::to`.
    let host: Option<String> = from_redis_value_ref(host).ok()?;
    let address = format!("{}:{port}", host.unwrap_or_default());
    (first <= last && last < SLOTS).then_some((first, last, address))
}
