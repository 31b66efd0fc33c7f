//! The Redis store: one limit, exact, across any number of processes.
//!
//! ```text
//!   decide --> twins for all? --yes--> EVALSHA: read all, decide, write all or none
//!                   |                      |
//!                   no                     +--> values as found --> cores --> decisions
//!                   |
//!                   +--> load --> cores --> swap if unchanged (exchange.rs)
//! ```
//!
//! * **One call a decision**, on the server's clock, read once. Scripts run one at a time, so
//!   a limit is exact however many processes share it.
//! * **The definition answers.** The script finds, decides and writes; what callers are told
//!   is worked out here, by the same cores as in memory, from what the script found.
//! * **Denials write nothing**, unless the limit counts them.
//! * **Values carry their time**; a TTL only cleans up, and never before a value has become
//!   meaningless.
//! * **Nothing is sent twice** unless it provably did not run. A call that is not answered
//!   within the deadline is [`StoreError::Unavailable`]; it may have been charged.
//! * Redis 6.2 or newer, Valkey 7.2 or newer. The server must not evict keys
//!   (`maxmemory-policy noeviction` or a `volatile-ttl` that never triggers): a key evicted is
//!   a debt forgiven.

mod batch;
mod exchange;
mod limits;
mod name;
mod node;
mod script;
mod settle;
mod state;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{Charge, LeaseId, Lend, Nanos, Origin, Permits, Time, UnixMicros};
use redis::{Client, Value};
use smallvec::SmallVec;

use crate::{Decisions, Hold, Store, StoreError};
use batch::{Ask, Batch, Found};
use exchange::{Exchange, TRIES};
use limits::Limits;
use node::{Call, Node, Trouble};
use script::Scripts;
use settle::{Act, Item, Outcome, settle};

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

/// How to reach and use a server.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// `redis://[user:password@]host[:port][/database]`, or `unix:///path`.
    pub url: String,
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
    /// A server, with prefix `rk`, a deadline of 100 ms, for limits whose clock counts from
    /// 1970.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "rk".into(),
            deadline: Duration::from_millis(100),
            origin: Origin::UNIX,
            clock: RedisClock::Server,
        }
    }
}

/// The Redis store; see the [module](self).
///
/// Its futures need a Tokio runtime.
pub struct RedisStore {
    config: RedisConfig,
    node: Node,
    limits: Limits,
    scripts: Scripts,
    /// What the server's clock showed last; 0 if it has not been read.
    latest: AtomicU64,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.config.prefix)
            .field("limits", &self.limits)
            .finish_non_exhaustive() // the URL may hold a password
    }
}

impl RedisStore {
    /// A store that connects when it is first used.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if the URL is none, or the prefix holds a brace.
    pub fn new(config: RedisConfig) -> Result<Self, StoreError> {
        if config.prefix.contains('{') {
            let why = format!("prefix `{}` must not hold a `{{`", config.prefix);
            return Err(StoreError::Misconfigured(why));
        }
        let client = Client::open(config.url.as_str())
            .map_err(|error| StoreError::Misconfigured(error.to_string()))?;
        Ok(Self {
            node: Node::new(client, config.deadline),
            limits: Limits::new(config.origin),
            scripts: Scripts::new(),
            latest: AtomicU64::new(0),
            config,
        })
    }

    /// Does what a request wants, within the deadline.
    async fn ask(
        &self,
        act: Act,
        charges: &[(Charge<'_>, Option<LeaseId>)],
        now: Time,
    ) -> Result<Outcome, StoreError> {
        let told = match self.config.clock {
            RedisClock::Server => None,
            RedisClock::Caller => {
                Some(UnixMicros::new(self.config.origin.unix_nanos(now) / 1_000)) // down
            }
        };
        let ask = Ask {
            act,
            items: charges
                .iter()
                .map(|(charge, lease)| self.item(charge, *lease))
                .collect(),
        };
        if ask.items.is_empty() {
            // Nothing is asked, so nothing is denied.
            return Ok(settle(act, &[], &[], &mut [], UnixMicros::default()));
        }
        let done = async {
            if let Some(outcome) = self.by_script(&ask, told).await? {
                return Ok(outcome);
            }
            self.by_exchange(&ask, charges, told).await
        };
        match tokio::time::timeout(self.config.deadline, done).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(trouble)) => Err(StoreError::Unavailable(trouble.to_string())),
            Err(_) => {
                self.node.forget().await; // it may never answer again
                let deadline = self.config.deadline;
                let why = format!("no answer within {} ms", deadline.as_millis());
                Err(StoreError::Unavailable(why))
            }
        }
    }

    fn item(&self, charge: &Charge<'_>, lease: Option<LeaseId>) -> Item {
        let limit = self.limits.prepare(charge.limit);
        let name = name::name(&self.config.prefix, &limit.label, charge.key);
        Item {
            limit,
            name,
            cost: charge.cost,
            mode: charge.mode,
            lease,
        }
    }

    /// One call; `None` if the script cannot do it.
    async fn by_script(
        &self,
        ask: &Ask,
        told: Option<UnixMicros>,
    ) -> Result<Option<Outcome>, Trouble> {
        if !matches!(ask.act, Act::Decide(_) | Act::Refund) {
            return Ok(None);
        }
        let now = UnixMicros::new(self.latest.load(Ordering::Relaxed));
        if ask.items.iter().any(|item| item.limit.may_inherit(now)) {
            return Ok(None);
        }
        let batch = Batch::of([ask]);
        if batch.names_one_twice() {
            return Ok(None);
        }
        let Some((script, arguments)) = batch.script(&self.scripts, told) else {
            return Ok(None);
        };
        let call = Call {
            script: &script,
            keys: &batch.names(),
            arguments: &arguments,
        };
        let found = self.find(call).await?;
        Ok(batch.settle(&found)?.pop())
    }

    /// Runs a script that says what it finds.
    async fn find(&self, call: Call<'_>) -> Result<Found, Trouble> {
        let found = Found::read(self.node.run(call).await?, call.keys.len())?;
        self.latest.store(found.now.get(), Ordering::Relaxed);
        Ok(found)
    }

    /// Load, decide, swap.
    async fn by_exchange(
        &self,
        ask: &Ask,
        charges: &[(Charge<'_>, Option<LeaseId>)],
        told: Option<UnixMicros>,
    ) -> Result<Outcome, Trouble> {
        let exchange = Exchange::of(ask, |index, earlier| {
            name::name(&self.config.prefix, &earlier.label, charges[index].0.key)
        });
        let names = exchange.names();
        let told = told.map_or(Vec::new(), |now| now.get().to_string().into());
        for _ in 0..TRIES {
            let load = Call {
                script: &self.scripts.load,
                keys: &names,
                arguments: std::slice::from_ref(&told),
            };
            let exchanged = exchange.decide(&self.find(load).await?)?;
            let Some(arguments) = exchanged.swap else {
                return Ok(exchanged.outcome);
            };
            let swap = Call {
                script: &self.scripts.swap,
                keys: &names,
                arguments: &arguments,
            };
            if self.node.run(swap).await? == Value::Int(1) {
                return Ok(exchanged.outcome);
            }
        }
        let why = format!("changed by others {TRIES} times in a row");
        Err(Trouble::Later(why))
    }
}

/// An answer of another kind than was asked for cannot be: see [`settle`].
const KIND: &str = "an act is answered in its own kind";

fn decisions(outcome: Outcome) -> Decisions {
    match outcome {
        Outcome::Decided(decisions) => decisions,
        _ => unreachable!("{KIND}"),
    }
}

type Asked<'a> = SmallVec<[(Charge<'a>, Option<LeaseId>); 4]>;

fn unnamed<'a>(charges: &[Charge<'a>]) -> Asked<'a> {
    charges.iter().map(|&charge| (charge, None)).collect()
}

fn named<'a>(holds: &[Hold<'a>]) -> Asked<'a> {
    let asked = |hold: &Hold<'a>| (hold.free(), Some(hold.lease));
    holds.iter().map(asked).collect()
}

impl Store for RedisStore {
    async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        self.acquire(charges, Lend::Unnamed, now).await
    }

    async fn acquire(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> Result<Decisions, StoreError> {
        let outcome = self.ask(Act::Decide(lend), &unnamed(charges), now).await?;
        Ok(decisions(outcome))
    }

    async fn look(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        let outcome = self.ask(Act::Look, &unnamed(charges), now).await?;
        Ok(decisions(outcome))
    }

    async fn refund(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        let refunded = self.ask(Act::Refund, &unnamed(charges), now).await;
        refunded.map(|_| ())
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        match self.ask(Act::Reset, &unnamed(charges), now).await? {
            Outcome::WereThere(there) => Ok(there),
            _ => unreachable!("{KIND}"),
        }
    }

    async fn release(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Permits; 4]>, StoreError> {
        match self.ask(Act::Release, &named(holds), now).await? {
            Outcome::Released(permits) => Ok(permits),
            _ => unreachable!("{KIND}"),
        }
    }

    async fn renew(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Option<Nanos>; 4]>, StoreError> {
        match self.ask(Act::Renew, &named(holds), now).await? {
            Outcome::Renewed(spans) => Ok(spans),
            _ => unreachable!("{KIND}"),
        }
    }
}
