//! Sentinel: the primary that the sentinels agree on, followed when they name another.
//!
//! ```text
//!   call --> primary, as far as known --> answer
//!               ^                   \--> later, absent: look up, wait a little, once more
//!               |                    \-> lost, resting: look up, so that the next goes right
//!   lookup: ask all sentinels at once, every LOOKUP_PERIOD while there are calls
//!           "10.0.0.7:6379, epoch 4"    the highest epoch is the newest primary
//! ```
//!
//! * A sentinel that was cut off names the old primary, with an older epoch: it is outvoted.
//! * The named server must itself report that it is a primary, on every new connection.
//! * In a failover, the old primary is left before its replica is promoted (`failover.rs`).
//! * An old primary that is cut off together with this process is left within [`LOOKUP_PERIOD`]
//!   once a sentinel with a newer epoch is reached. Its charges are lost: at most one limit more.

mod failover;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Value, from_redis_value_ref};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::dial::{Dial, ServerAddress, is_encrypted, renew_logins};
use super::node::{Manner, NodeRole, PAUSE, RedisNode, ScriptCall};
use super::tls::ServerTls;
use crate::StoreError;
use crate::redis::config::RedisSentinels;
use crate::redis::hints::Losses;
use crate::redis::trouble::Trouble;

/// Time between lookups while all is well.
const LOOKUP_PERIOD: Duration = Duration::from_secs(1);
/// Minimum time between lookups while something is wrong.
const LOOKUP_PAUSE: Duration = Duration::from_millis(50);
/// Timeout of a sentinel. Calls wait no longer for it, because they have their own deadline.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of sentinels that are asked.
const MAX_SENTINELS: usize = 64;

/// Sentinels, and the primary that they name.
#[derive(Debug)]
pub(crate) struct Sentinels {
    /// The sentinels' name of the primary.
    master: String,
    nodes: Vec<RedisNode>,
    known: watch::Sender<Option<Primary>>,
    /// The address of a primary that is replaced, and the time until which no sentinel is believed
    /// that names it.
    left: Mutex<Option<(ServerAddress, Instant)>>,
    /// True for sentinels that are subscribed to.
    subscribed: Vec<AtomicBool>,
    /// Why a sentinel refused a subscription.
    pub(super) refusal: OnceLock<String>,
    lookup: Mutex<LookupState>,
    /// How a primary is reached, except for its address.
    dial: Dial,
    /// Timeout of a primary, for connecting and for answering each.
    patience: Duration,
    losses: Losses,
}

/// When the sentinels were asked last, and why they named no primary.
#[derive(Debug, Default)]
struct LookupState {
    last: Option<Instant>,
    is_running: bool,
    why: String,
}

#[derive(Clone, Debug)]
struct Primary {
    address: ServerAddress,
    /// Grows with every failover.
    epoch: u64,
    node: Arc<RedisNode>,
}

/// The answer of a sentinel: the primary.
#[derive(Debug)]
struct SentinelReply {
    host: String,
    port: u16,
    epoch: u64,
}

/// The number of sentinels behind a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backing {
    One,
    Majority,
}

impl Sentinels {
    /// Creates the sentinels as configured; `patience` is the primary's timeout, for connecting
    /// and for answering each.
    pub(crate) fn new(
        config: &RedisSentinels,
        tls: &ServerTls,
        patience: Duration,
        losses: &Losses,
    ) -> Result<Self, StoreError> {
        let misconfigured = |why: &str| StoreError::Misconfigured(why.into());
        let encrypted = config.urls.iter().filter(|url| is_encrypted(url)).count();
        if encrypted > 0 && encrypted < config.urls.len() {
            let why = "either all sentinels and the primary use TLS, or none of them";
            return Err(misconfigured(why));
        }
        let mut dials = Vec::new();
        for url in config.urls.iter().take(MAX_SENTINELS) {
            let dial = Dial::new(url, tls)?;
            if matches!(dial.address(), ServerAddress::Socket(_)) {
                return Err(misconfigured("a sentinel needs HOST:PORT, not a socket"));
            }
            dials.push(dial);
        }
        let Some(first) = dials.first() else {
            return Err(misconfigured("at least one sentinel URL is required"));
        };
        let dial = first.clone().log_in(&config.login);
        let sentinel =
            |dial| RedisNode::new(dial, NodeRole::Any, SENTINEL_TIMEOUT, Losses::default());
        Ok(Self {
            master: config.master.clone(),
            subscribed: dials.iter().map(|_| AtomicBool::default()).collect(),
            refusal: OnceLock::new(),
            nodes: dials.into_iter().map(sentinel).collect(),
            known: watch::Sender::new(None),
            left: Mutex::default(),
            lookup: Mutex::default(),
            dial,
            patience,
            losses: losses.clone(),
        })
    }

    /// Runs a script on the primary, and again while it provably has not run. Callers give up by a
    /// timeout; then `last` holds the reason.
    pub(crate) async fn run(
        self: &Arc<Self>,
        call: ScriptCall<'_>,
        last: &mut Option<Trouble>,
    ) -> Result<Value, Trouble> {
        self.look_up(LOOKUP_PERIOD);
        loop {
            let node = self.primary(last).await;
            *last = None;
            match node.run(call, Manner::Plain).await {
                Err(trouble @ (Trouble::Later(_) | Trouble::Absent(_))) => *last = Some(trouble),
                Err(trouble @ (Trouble::Lost(_) | Trouble::Resting(_))) => {
                    self.look_up(LOOKUP_PAUSE);
                    return Err(trouble);
                }
                answer => return answer,
            }
            self.look_up(LOOKUP_PAUSE);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// As [`Servers::renew_logins`](super::Servers::renew_logins).
    pub(crate) fn renew_logins(&self, config: &RedisSentinels) -> Result<(), StoreError> {
        let sentinels = self.nodes.iter().map(RedisNode::dial);
        renew_logins(sentinels, config.urls.iter().take(MAX_SENTINELS))?;
        let dial = &self.dial;
        dial.renew_login(&dial.clone().log_in(&config.login));
        Ok(())
    }

    /// Returns the primary, if a sentinel has named one yet.
    pub(crate) fn known(&self) -> Option<Arc<RedisNode>> {
        let known = self.known.borrow();
        known.as_ref().map(|primary| Arc::clone(&primary.node))
    }

    /// Returns the primary, if a sentinel names one within `deadline`.
    pub(crate) async fn primary_within(
        self: &Arc<Self>,
        deadline: Duration,
    ) -> Result<Arc<RedisNode>, Trouble> {
        let mut last = None;
        match timeout(deadline, self.primary(&mut last)).await {
            Ok(node) => Ok(node),
            Err(_) => Err(last.unwrap_or_else(|| Trouble::Absent(self.why()))),
        }
    }

    /// Returns the primary, once a sentinel has named one. Until then, `last` holds the reason.
    async fn primary(self: &Arc<Self>, last: &mut Option<Trouble>) -> Arc<RedisNode> {
        let mut known = self.known.subscribe();
        loop {
            if let Some(primary) = &*known.borrow_and_update() {
                return Arc::clone(&primary.node);
            }
            self.look_up(LOOKUP_PAUSE);
            *last = Some(Trouble::Absent(self.why()));
            let _ = timeout(PAUSE, known.changed()).await;
        }
    }

    /// Starts a lookup, unless one is running or was started less than `pause` ago.
    fn look_up(self: &Arc<Self>, pause: Duration) {
        let now = Instant::now();
        {
            let mut lookup = self.lookup.lock();
            let recent = |last: Instant| now.duration_since(last) < pause;
            if lookup.is_running || lookup.last.is_some_and(recent) {
                return;
            }
            lookup.is_running = true;
            lookup.last = Some(now);
        }
        failover::subscribe(self);
        let lookup = Lookup(Arc::clone(self));
        tokio::spawn(async move { lookup.ask_all().await });
    }
}

/// A lookup in progress; over when dropped, even if it is cancelled.
struct Lookup(Arc<Sentinels>);

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.lookup.lock().is_running = false;
    }
}

impl Lookup {
    async fn ask_all(self) {
        let mut asked = JoinSet::new();
        for index in 0..self.0.nodes.len() {
            let inner = Arc::clone(&self.0);
            asked.spawn(async move { inner.ask(index).await });
        }
        let (mut replies, mut newest) = (0, None::<SentinelReply>);
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(reply)) => {
                    replies += 1;
                    self.0.accept(&reply, Backing::One);
                    let is_older = |it: &SentinelReply| it.epoch < reply.epoch;
                    if newest.as_ref().is_none_or(is_older) {
                        newest = Some(reply);
                    }
                }
                Ok(Err(why)) => self.0.lookup.lock().why = why,
                Err(_) => {} // the runtime ends
            }
        }
        // Epochs begin anew when sentinels are set up anew: a majority may lower the epoch.
        if let Some(newest) = newest
            && replies * 2 > self.0.nodes.len()
        {
            self.0.accept(&newest, Backing::Majority);
        }
    }
}

impl Sentinels {
    /// Asks a sentinel for the primary.
    async fn ask(&self, index: usize) -> Result<SentinelReply, String> {
        let sentinel = &self.nodes[index];
        let mut pipe = redis::pipe();
        pipe.cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master);
        pipe.cmd("SENTINEL").arg("MASTER").arg(&self.master);
        let answers = sentinel.query_all(&pipe).await;
        let answers = answers.map_err(|trouble| trouble.to_string())?;
        parse_reply(&answers)
            .ok_or_else(|| format!("{} names no primary `{}`", sentinel.address(), self.master))
    }

    /// Uses a primary no longer, whatever sentinels say until then. Returns its epoch, if known.
    fn leave(&self, old: &ServerAddress, until: Instant) -> u64 {
        let mut left = self.left.lock();
        *left = Some((old.clone(), until));
        let mut epoch = 0;
        self.known.send_if_modified(|known| {
            let is_old = known.as_ref().is_some_and(|known| known.address == *old);
            epoch = known.as_ref().map_or(0, |known| known.epoch);
            known.take_if(|_| is_old).is_some()
        });
        epoch
    }

    /// Takes over the named primary, unless a newer one is known.
    fn accept(&self, reply: &SentinelReply, backing: Backing) {
        let Some(dial) = self.dial.to(&reply.host, reply.port) else {
            return;
        };
        let left = self.left.lock();
        let is_left = |(old, until): &(_, _)| *old == *dial.address() && Instant::now() < *until;
        if left.as_ref().is_some_and(is_left) {
            return;
        }
        self.known.send_if_modified(|known| match known {
            Some(known) if reply.epoch < known.epoch && backing == Backing::One => false,
            Some(known) if known.address == *dial.address() => {
                known.epoch = reply.epoch;
                false
            }
            _ => {
                let address = dial.address().clone();
                let losses = self.losses.clone();
                let node = RedisNode::new(dial, NodeRole::Primary, self.patience, losses);
                *known = Some(Primary {
                    address,
                    epoch: reply.epoch,
                    node: Arc::new(node),
                });
                true
            }
        });
    }

    /// Returns why no primary is known.
    fn why(&self) -> String {
        let is_replaced = |(_, until): &(ServerAddress, Instant)| Instant::now() < *until;
        if self.left.lock().as_ref().is_some_and(is_replaced) {
            return format!("the sentinels replace the primary `{}`", self.master);
        }
        let why = self.lookup.lock().why.clone();
        if why.is_empty() {
            return format!("no sentinel has named the primary `{}` yet", self.master);
        }
        format!("no sentinel names the primary `{}`: {why}", self.master)
    }
}

/// Reads the answers of a sentinel: the address, and the epoch among the facts.
fn parse_reply(answers: &[Value]) -> Option<SentinelReply> {
    let [address, facts] = answers else {
        return None;
    };
    let (host, port): (String, u16) = from_redis_value_ref(address).ok()?;
    let facts: HashMap<String, String> = from_redis_value_ref(facts).ok()?;
    let epoch = facts.get("config-epoch")?.parse().ok()?;
    (!host.is_empty()).then_some(SentinelReply { host, port, epoch })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
