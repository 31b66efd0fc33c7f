//! Sentinel: the primary that the sentinels agree on, followed when they name another.
//!
//! ```text
//!   call --> primary, as far as known --> answer
//!               ^                   \--> later, absent: look, wait a little, once more
//!               |                    \-> lost, resting: look, so that the next goes right
//!   look: ask all sentinels at once, every LOOK at least while there are calls
//!         "10.0.0.7:6379, epoch 4"    the highest epoch is the newest primary
//! ```
//!
//! * A sentinel that was cut off names the old primary, with an older epoch: it is outvoted.
//! * The named server must itself report that it is a primary, on every new connection.
//! * An old primary that is cut off together with this process is left within [`LOOK`] once a
//!   sentinel with a newer epoch is reached. Its charges are lost: at most one limit more.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::config::{RedisSentinels, RedisTls};
use super::dial::{Dial, ServerAddress, is_encrypted, renew_logins};
use super::hints::Losses;
use super::node::{Manner, PAUSE, RedisNode, Role, ScriptCall};
use super::tls::Tls;
use super::trouble::Trouble;
use crate::StoreError;

/// Time between lookups while all is well.
const LOOK: Duration = Duration::from_secs(1);
/// Minimum time between lookups while something is wrong.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Timeout of a sentinel. Calls wait no longer for it, because they have their own deadline.
const PATIENCE: Duration = Duration::from_millis(500);
/// Maximum number of sentinels that are asked.
const MAX_SENTINELS: usize = 64;

/// Sentinels, and the primary that they name.
#[derive(Debug)]
pub(super) struct Sentinels {
    shared: Arc<SentinelInner>,
}

#[derive(Debug)]
struct SentinelInner {
    /// The sentinels' name of the primary.
    master: String,
    sentinels: Vec<RedisNode>,
    known: watch::Sender<Option<Primary>>,
    look: Mutex<SentinelLook>,
    /// Creates the node of an address.
    maker: Maker,
}

/// When the sentinels were asked last, and why they named no primary.
#[derive(Debug, Default)]
struct SentinelLook {
    last: Option<Instant>,
    running: bool,
    why: String,
}

#[derive(Clone, Debug)]
struct Primary {
    address: ServerAddress,
    /// Grows with every failover.
    epoch: u64,
    node: Arc<RedisNode>,
}

/// The answer of a sentinel.
#[derive(Debug)]
struct SentinelReply {
    host: String,
    port: u16,
    epoch: u64,
}

#[derive(Debug)]
struct Maker {
    like: Dial,
    patience: Duration,
    losses: Losses,
}

impl Sentinels {
    /// Creates the sentinels as configured; `patience` is the primary's timeout, for connecting
    /// and for answering each.
    pub(super) fn new(
        config: &RedisSentinels,
        tls: &Tls,
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
        let like = first.clone().log_in(&config.login);
        let sentinel = |dial| RedisNode::new(dial, Role::Any, PATIENCE, Losses::default());
        Ok(Self {
            shared: Arc::new(SentinelInner {
                master: config.master.clone(),
                sentinels: dials.into_iter().map(sentinel).collect(),
                known: watch::Sender::new(None),
                look: Mutex::default(),
                maker: Maker {
                    like,
                    patience,
                    losses: losses.clone(),
                },
            }),
        })
    }

    pub(super) async fn run(
        &self,
        call: ScriptCall<'_>,
        last: &mut Option<Trouble>,
    ) -> Result<Value, Trouble> {
        self.look(LOOK);
        loop {
            let node = self.primary(last).await;
            *last = None;
            match node.run(call, Manner::Plain).await {
                Err(trouble @ (Trouble::Later(_) | Trouble::Absent(_))) => *last = Some(trouble),
                Err(trouble @ (Trouble::Lost(_) | Trouble::Resting(_))) => {
                    self.look(LOOK_AGAIN);
                    return Err(trouble);
                }
                answer => return answer,
            }
            self.look(LOOK_AGAIN);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// As [`Servers::renew_tls`](super::servers::Servers::renew_tls).
    pub(super) fn renew_tls(&self, tls: &RedisTls) -> Result<(), StoreError> {
        self.shared.maker.like.renew(tls)
    }

    /// As [`Servers::renew_logins`](super::servers::Servers::renew_logins).
    pub(super) fn renew_logins(&self, config: &RedisSentinels) -> Result<(), StoreError> {
        let sentinels = self.shared.sentinels.iter().map(RedisNode::dial);
        renew_logins(sentinels, config.urls.iter().take(MAX_SENTINELS))?;
        let like = &self.shared.maker.like;
        like.renew_login(&like.clone().log_in(&config.login));
        Ok(())
    }

    /// Returns the primary, if a sentinel has named one yet.
    pub(super) fn known(&self) -> Option<Arc<RedisNode>> {
        let known = self.shared.known.borrow();
        known.as_ref().map(|primary| Arc::clone(&primary.node))
    }

    /// Returns the primary, if a sentinel names one within `deadline`.
    pub(super) async fn named(&self, deadline: Duration) -> Result<Arc<RedisNode>, Trouble> {
        let mut last = None;
        match timeout(deadline, self.primary(&mut last)).await {
            Ok(node) => Ok(node),
            Err(_) => Err(last.unwrap_or_else(|| Trouble::Absent(self.shared.why()))),
        }
    }

    /// Returns the primary, once a sentinel has named one. Until then, `last` holds the reason.
    async fn primary(&self, last: &mut Option<Trouble>) -> Arc<RedisNode> {
        let mut known = self.shared.known.subscribe();
        loop {
            if let Some(primary) = &*known.borrow_and_update() {
                return Arc::clone(&primary.node);
            }
            self.look(LOOK_AGAIN);
            *last = Some(Trouble::Absent(self.shared.why()));
            let _ = timeout(PAUSE, known.changed()).await;
        }
    }

    /// Asks all sentinels, unless that was done less than `pause` ago.
    fn look(&self, pause: Duration) {
        let now = Instant::now();
        {
            let mut look = self.shared.look.lock();
            let recent = |last: Instant| now.duration_since(last) < pause;
            if look.running || look.last.is_some_and(recent) {
                return;
            }
            look.running = true;
            look.last = Some(now);
        }
        let looking = Looking(Arc::clone(&self.shared));
        tokio::spawn(async move { looking.ask_all().await });
    }
}

/// A lookup in progress; over when dropped, even if it is cancelled.
struct Looking(Arc<SentinelInner>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.look.lock().running = false;
    }
}

impl Looking {
    async fn ask_all(self) {
        let mut asked = JoinSet::new();
        for index in 0..self.0.sentinels.len() {
            let shared = Arc::clone(&self.0);
            asked.spawn(async move { shared.ask(index).await });
        }
        let (mut answers, mut newest) = (0, None::<SentinelReply>);
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(named)) => {
                    answers += 1;
                    self.0.hear(&named, Weight::OfOne);
                    if newest
                        .as_ref()
                        .is_none_or(|newest| newest.epoch < named.epoch)
                    {
                        newest = Some(named);
                    }
                }
                Ok(Err(why)) => self.0.look.lock().why = why,
                Err(_) => {} // the runtime ends
            }
        }
        // Epochs begin anew when sentinels are set up anew: a majority may lower the epoch.
        if let Some(newest) = newest
            && answers * 2 > self.0.sentinels.len()
        {
            self.0.hear(&newest, Weight::OfMost);
        }
    }
}

/// The number of sentinels behind an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weight {
    OfOne,
    OfMost,
}

impl SentinelInner {
    /// Asks a sentinel for the primary.
    async fn ask(&self, index: usize) -> Result<SentinelReply, String> {
        let sentinel = &self.sentinels[index];
        let mut pipe = redis::pipe();
        pipe.cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master);
        pipe.cmd("SENTINEL").arg("MASTER").arg(&self.master);
        let answers = sentinel.query_all(&pipe).await;
        let answers = answers.map_err(|trouble| trouble.to_string())?;
        let [address, facts] = answers.as_slice() else {
            return Err(format!(
                "{} does not reply like a sentinel",
                sentinel.address()
            ));
        };
        named(address, facts)
            .ok_or_else(|| format!("{} names no primary `{}`", sentinel.address(), self.master))
    }

    /// Takes over the named primary, unless a newer one is known.
    fn hear(&self, named: &SentinelReply, weight: Weight) {
        self.known.send_if_modified(|known| {
            if let Some(known) = known {
                let older = named.epoch < known.epoch && weight == Weight::OfOne;
                if older {
                    return false;
                }
                let same = |dial: &Dial| *dial.address() == known.address;
                if self.maker.dial(named).as_ref().is_some_and(same) {
                    known.epoch = named.epoch;
                    return false;
                }
            }
            let Some(dial) = self.maker.dial(named) else {
                return false;
            };
            let address = dial.address().clone();
            let node = Arc::new(self.maker.node(dial));
            *known = Some(Primary {
                address,
                epoch: named.epoch,
                node,
            });
            true
        });
    }

    /// Returns why no primary is known.
    fn why(&self) -> String {
        let why = self.look.lock().why.clone();
        if why.is_empty() {
            return format!("no sentinel has named the primary `{}` yet", self.master);
        }
        format!("no sentinel names the primary `{}`: {why}", self.master)
    }
}

impl Maker {
    fn node(&self, dial: Dial) -> RedisNode {
        RedisNode::new(dial, Role::Primary, self.patience, self.losses.clone())
    }

    fn dial(&self, named: &SentinelReply) -> Option<Dial> {
        self.like.to(&named.host, named.port)
    }
}

/// Reads the answers of a sentinel: the address, and the epoch among the facts.
fn named(address: &Value, facts: &Value) -> Option<SentinelReply> {
    let Value::Array(address) = address else {
        return None;
    };
    let [host, port] = address.as_slice() else {
        return None;
    };
    let facts = match facts {
        Value::Array(facts) => facts.chunks_exact(2),
        _ => return None,
    };
    let mut epochs = facts.filter(|fact| text(&fact[0]) == Some("config-epoch"));
    let epoch = epochs.next().and_then(|fact| text(&fact[1])?.parse().ok());
    Some(SentinelReply {
        host: text(host).filter(|host| !host.is_empty())?.to_owned(),
        port: text(port)?.parse().ok()?,
        epoch: epoch?,
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
