//! Inspect: reports of the servers about themselves, for operators.
//!
//! ```text
//!   RedisStore --servers--> one, or the nodes of a cluster
//!                             +--> ping, clock, INFO, CONFIG GET, CLUSTER NODES
//! ```
//!
//! The connections are the store's own, so an answer here shows that the store can reach the
//! server. Nothing is changed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::UnixMicros;
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::RedisStore;
use super::batch::ScriptReply;
use super::config::{RedisServers, RedisTls};
use super::script::Scripts;
use super::servers::no_answer;
use super::servers::node::{Manner, RedisNode, ScriptCall};
use super::slot::SLOTS;
use super::trouble::Trouble;
use crate::StoreError;

impl RedisStore {
    /// Returns the servers that calls go to: one, the primary that sentinels name, or the nodes
    /// of a cluster: those that hold slots and those configured. If a cluster does not answer,
    /// returns the configured nodes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if no sentinel names a primary.
    pub async fn servers(&self) -> Result<Vec<RedisServer>, StoreError> {
        let nodes = self.servers.nodes().await?.into_iter();
        Ok(nodes.map(|node| self.server(node)).collect())
    }

    /// Returns the servers that hold keys, sorted by address.
    pub(super) async fn holders(&self) -> Result<Vec<RedisServer>, StoreError> {
        let mut nodes = self.servers.nodes().await?;
        if self.servers.has_slots() {
            nodes = self.servers.known();
        }
        Ok(nodes.into_iter().map(|node| self.server(node)).collect())
    }

    fn server(&self, node: Arc<RedisNode>) -> RedisServer {
        RedisServer {
            node,
            scripts: Arc::clone(&self.scripts),
            deadline: self.config.deadline,
        }
    }

    /// Returns the health of each server that calls go to, as far as known, without asking any.
    pub fn server_health(&self) -> Vec<ServerHealth> {
        let nodes = self.servers.known().into_iter();
        let health =
            nodes.map(|node| ServerHealth::new(node.address().to_string(), node.trouble()));
        health.collect()
    }

    /// Returns true if the store is a cluster, where each server holds a part of the keys.
    pub fn has_parts(&self) -> bool {
        self.servers.has_slots()
    }

    /// Returns why a sentinel refused to announce failovers, if one did: a planned failover then
    /// loses the charges of about a second.
    pub fn sentinel_refusal(&self) -> Option<&str> {
        self.servers.refusal()
    }

    /// Uses these certificates for new connections, after the trusted or own ones were renewed.
    /// Open connections go on, and nothing is checked if no server is reached by TLS.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if a certificate or key is invalid; nothing has changed then.
    pub fn renew_tls(&self, tls: &RedisTls) -> Result<(), StoreError> {
        self.servers.renew_tls(tls)
    }

    /// Uses the names and passwords of `servers` for new connections. They must be the same
    /// servers in the same order. Open connections go on.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if they are other servers; nothing has changed then.
    pub fn renew_logins(&self, servers: &RedisServers) -> Result<(), StoreError> {
        self.servers.renew_logins(servers)
    }
}

/// The health of a server, as calls have found it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServerHealth {
    /// `host:port`, or the path of a socket.
    pub address: String,
    /// Why no calls are sent to it, if so: requests that need it are decided without it.
    pub trouble: Option<String>,
}

impl ServerHealth {
    /// Creates the health of the server at `address`; `trouble` is why it gets no calls, if so.
    pub const fn new(address: String, trouble: Option<String>) -> Self {
        Self { address, trouble }
    }
}

/// A server that a store calls.
#[derive(derive_more::Debug)]
#[debug("RedisServer({})", node.address())]
pub struct RedisServer {
    pub(super) node: Arc<RedisNode>,
    scripts: Arc<Scripts>,
    deadline: Duration,
}

impl RedisServer {
    /// Returns `host:port`, or the path of a socket.
    pub fn address(&self) -> String {
        self.node.address().to_string()
    }

    /// Checks that the server answers, and that the store can log in.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if it answers and refuses, as for all methods here;
    /// [`StoreError::Unavailable`] if it does not answer within the deadline.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.query(&redis::cmd("PING")).await.map(|_| ())
    }

    /// Returns the server's clock, by `TIME`.
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    pub async fn clock(&self) -> Result<UnixMicros, StoreError> {
        let strange = || StoreError::Misconfigured("unexpected reply to TIME".into());
        clock_of(self.query(&redis::cmd("TIME")).await?).ok_or_else(strange)
    }

    /// Runs a script of the store that writes nothing, to check that scripts can be loaded.
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    pub async fn run_script(&self) -> Result<(), StoreError> {
        let server_clock = [Vec::new()];
        let call = ScriptCall::new(&self.scripts.load, &[], &server_clock);
        let found = async {
            let answer = self.node.run(call, Manner::Plain).await?;
            ScriptReply::read(answer, 0)
        };
        self.in_time(found).await.map(|_| ())
    }

    /// Returns the server's report about itself, by `INFO`.
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    pub async fn info(&self) -> Result<ServerInfo, StoreError> {
        let text = text(self.query(&redis::cmd("INFO")).await?);
        Ok(ServerInfo::read(&text))
    }

    /// Returns a setting, by `CONFIG GET`; `None` if the server has no such setting.
    ///
    /// # Errors
    /// As [`ping`](Self::ping): managed services often refuse this.
    pub async fn setting(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        let pairs = redis::from_redis_value(self.query(&command).await?);
        let pairs: BTreeMap<String, Value> = pairs.unwrap_or_default();
        Ok(pairs.into_values().next().map(text))
    }

    /// Returns the cluster as the server sees it, by `CLUSTER NODES`.
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    pub async fn cluster(&self) -> Result<Vec<ClusterNode>, StoreError> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("NODES");
        let text = text(self.query(&command).await?);
        Ok(text.lines().filter_map(ClusterNode::read).collect())
    }

    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.in_time(self.node.query(command)).await
    }

    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, StoreError> {
        let answer = timeout(self.deadline, answer).await;
        let answer = answer.unwrap_or_else(|_| Err(no_answer(self.deadline)));
        answer.map_err(|trouble| match trouble {
            Trouble::Refused(why) => StoreError::Misconfigured(why),
            trouble => StoreError::Unavailable(trouble.to_string()),
        })
    }
}

/// The report of a server about itself, by name of the field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerInfo(BTreeMap<String, String>);

impl ServerInfo {
    /// Reads the answer of `INFO`: `name:value` on each line that is not a heading.
    pub fn read(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.trim_end().to_owned());
        Self(fields.map(owned).collect())
    }

    /// Returns a field as text.
    ///
    /// # Examples
    /// ```
    /// # use ratekeeper_store::ServerInfo;
    /// let info = ServerInfo::read("# Server\r\nredis_version:7.0.15\r\nhz:10\r\n");
    /// assert_eq!(info.text("redis_version"), Some("7.0.15"));
    /// assert_eq!(info.number("hz"), Some(10));
    /// ```
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a field that is a whole number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// A node of a cluster, as a server of the cluster sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterNode {
    /// `host:port`, as it is named to clients.
    pub address: String,
    /// Its role and health: `master`, `slave`, `fail`, `fail?`, `myself`, ...
    pub flags: Vec<String>,
    /// The slots that it holds.
    pub slots: Vec<RangeInclusive<u16>>,
}

impl ClusterNode {
    /// Reads a line of `CLUSTER NODES`: id, address, flags, five more, slots.
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let address = fields.nth(1)?;
        let address = address
            .split_once('@')
            .map_or(address, |(address, _)| address);
        let flags = fields.next()?.split(',').map(str::to_owned).collect();
        // Slots that are moving stand in brackets; they are still in the ranges of their owner.
        let slots = fields.skip(5).filter(|slots| !slots.starts_with('['));
        Some(Self {
            address: address.into(),
            flags,
            slots: slots.filter_map(slot_range).collect(),
        })
    }

    /// Returns true if the node has the flag.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Returns the slots that no node of these holds.
    pub fn unserved(nodes: &[Self]) -> Vec<RangeInclusive<u16>> {
        let mut held: Vec<_> = nodes.iter().flat_map(|node| node.slots.clone()).collect();
        held.sort_by_key(|range| *range.start());
        let mut gaps = Vec::new();
        let mut next = 0;
        for range in held {
            if *range.start() > next {
                gaps.push(next..=*range.start() - 1);
            }
            next = next.max(range.end().saturating_add(1));
        }
        if next < SLOTS {
            gaps.push(next..=SLOTS - 1);
        }
        gaps
    }
}

/// Reads the answer of `TIME`.
pub(super) fn clock_of(answer: Value) -> Option<UnixMicros> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(answer).ok()?;
    let whole = seconds.checked_mul(1_000_000)?;
    whole.checked_add(micros).map(UnixMicros::new)
}

/// Reads a slot or a range of slots: `5460`, `0-5460`.
fn slot_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < SLOTS).then_some(first..=last)
}

fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_cluster_are_read() {
        let line = "07c37d 10.0.0.7:6379@16379,seven.example myself,master - 0 142 1 connected \
                    0-5460 5462 [5461->-67ed2d] [77-<-292f8b]";
        let node = ClusterNode::read(line).unwrap();
        assert_eq!(node.address, "10.0.0.7:6379");
        assert!(node.is("master") && node.is("myself") && !node.is("fail"));
        assert_eq!(node.slots, [0..=5460, 5462..=5462]);
        let lost = "67ed2d :0@0 slave,fail,noaddr 07c37d 142 142 3 disconnected";
        let lost = ClusterNode::read(lost).unwrap();
        assert!(lost.is("fail") && lost.slots.is_empty());
        for strange in ["", "a", "a b"] {
            assert_eq!(ClusterNode::read(strange), None, "{strange}");
        }
    }

    #[test]
    fn slots_that_nobody_holds_are_found() {
        let node = |slots: &[RangeInclusive<u16>]| ClusterNode {
            address: String::new(),
            flags: Vec::new(),
            slots: slots.to_vec(),
        };
        for (nodes, gaps) in [
            (vec![], vec![0..=16_383]),
            (vec![node(&[8_000..=16_383]), node(&[0..=7_999])], vec![]),
            (
                vec![node(&[1..=10, 12..=16_382])],
                vec![0..=0, 11..=11, 16_383..=16_383],
            ),
            (vec![node(&[0..=10]), node(&[5..=16_383])], vec![]),
        ] {
            assert_eq!(ClusterNode::unserved(&nodes), gaps);
        }
    }
}
