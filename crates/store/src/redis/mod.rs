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
//! * **The definition answers.** The script finds, decides and writes; the answers are computed
//!   here, by the same cores as in memory, from the values that the script found.
//! * **Denials write nothing**, unless the limit counts them; then it is charged by every
//!   request that reaches it, whichever limit refuses.
//! * **Denials are remembered** here for a second at most: see [`denied`].
//! * **Values contain their moments.** The TTL only frees memory: a value expires when it no longer
//!   has an effect, never before.
//! * **A store that lost its data** receives the debts that are remembered here: see [`hints`].
//! * **Nothing is sent twice** unless it provably did not run. A call that is not answered
//!   within the deadline is [`StoreError::Unavailable`]; it may have been charged.
//! * Redis 6.2 or newer, Valkey 7.2 or newer. The server must not evict keys
//!   (`maxmemory-policy noeviction` or a `volatile-ttl` that never triggers), because evicting
//!   a key forgives its debt.

mod bans;
mod batch;
mod busy;
mod by_hand;
mod calls;
mod config;
mod denied;
mod exchange;
mod gather;
mod hints;
mod inspect;
mod lanes;
mod limits;
mod name;
mod pace;
mod script;
mod servers;
mod settle;
mod slot;
mod spread;
mod state;
mod timings;
mod trouble;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Charge, Origin, Time, UnixMicros};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::act::{ActAnswer, ActItem, ActKind, AnyAnswer};
use crate::{Store, StoreAct, StoreError};
pub use bans::{BanCursor, BanPage, BannedKey};
pub use config::{
    RedisClock, RedisConfig, RedisIdentity, RedisLogin, RedisSentinels, RedisServers, RedisTls,
};
pub use inspect::{ClusterNode, RedisServer, ServerHealth, ServerInfo};
pub use timings::{CallTime, CallTimes};

use batch::{Items, RedisRequest};
use busy::BusyKeys;
use denied::DenialCache;
use gather::Gather;
use hints::{KeyHints, Losses};
use lanes::{BatchReply, LaneKey};
use limits::KnownLimits;
use script::Scripts;
use servers::node::patience;
use servers::{Servers, no_answer};
use settle::{Item, settle};
use slot::slot_of;
use timings::{CallOutcome, Timings};
use trouble::Trouble;

/// The Redis store: one limit, exact, across any number of processes, in one call a decision.
///
/// Its futures need a Tokio runtime.
pub struct RedisStore {
    config: RedisConfig,
    servers: Arc<Servers>,
    gather: Arc<Gather>,
    busy: BusyKeys,
    denied: DenialCache,
    limits: KnownLimits,
    scripts: Arc<Scripts>,
    timings: Timings,
    /// Last reading of the server's clock; 0 if it has not been read.
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
    /// Creates a store that connects when it is first used.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if a URL, certificate or key is invalid, or the prefix
    /// holds a `{`.
    pub fn new(config: RedisConfig) -> Result<Self, StoreError> {
        if config.prefix.contains('{') {
            let why = format!("prefix `{}` must not contain `{{`", config.prefix);
            return Err(StoreError::Misconfigured(why));
        }
        let losses = Losses::default();
        let servers = Arc::new(Servers::new(&config, &losses)?);
        let scripts = Arc::new(Scripts::new());
        // A quarter of the deadline remains for the calls.
        let wait = config.deadline / 4 * 3;
        let hints = Arc::new(KeyHints::new(losses));
        let gather = Gather::new(servers.clone(), scripts.clone(), hints, wait);
        Ok(Self {
            gather,
            busy: BusyKeys::default(),
            servers,
            denied: DenialCache::default(),
            limits: KnownLimits::new(config.origin, name::escaped(&config.node)),
            scripts,
            timings: Timings::default(),
            latest: AtomicU64::new(0),
            config,
        })
    }

    /// Returns how long the calls of each act took, by how they ended, with the name of the act.
    pub fn call_times(&self) -> [(&'static str, CallTimes); ActKind::NAMES.len()] {
        let mut each = self.timings.read();
        std::array::from_fn(|act| (ActKind::NAMES[act], std::mem::take(&mut each[act])))
    }

    /// Removes the states of these keys, and leaves no mark that they were reset: for keys
    /// that no other process knows. `now` as for [`Store::reset`](crate::Store::reset).
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be asked.
    pub async fn erase(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        let erased = self.ask::<SmallVec<[bool; 4]>>(ActKind::Erase, charges, now);
        erased.await.map(|_| ())
    }

    /// Performs an act within the deadline.
    async fn ask<'i, T: ActAnswer>(
        &self,
        act: ActKind,
        items: &[impl ActItem<'i>],
        now: Time,
    ) -> Result<T, StoreError> {
        let given = self.given(now);
        if items.is_empty() {
            // Without charges no limit can deny.
            return Ok(typed(settle(act, &[], &[], &mut [], UnixMicros::default())));
        }
        let items = items.iter().map(|&item| self.item(item)).collect();
        let deadline = self.config.deadline;
        let done = tokio::time::timeout(deadline, self.spread(act, items, given)).await;
        let done = done.unwrap_or_else(|_| {
            self.timings.note(act, CallOutcome::Timeout, deadline);
            Err(no_answer(deadline))
        });
        done.map_err(|trouble| self.error(trouble))
    }

    /// Returns the caller's moment; `None` if the servers' clocks count.
    fn given(&self, now: Time) -> Option<UnixMicros> {
        (self.config.clock == RedisClock::Caller).then(|| {
            let unix = self.limits.origin().unix_nanos(now);
            UnixMicros::new(unix / 1_000) // down
        })
    }

    /// Returns the error for callers, by the keys that the failure affects.
    fn error(&self, trouble: Trouble) -> StoreError {
        match trouble {
            keys @ (Trouble::Foreign(_) | Trouble::Crowded) => keys.into(),
            other if self.servers.are_partly_there() => StoreError::Partly(other.to_string()),
            other => other.into(),
        }
    }

    fn item<'a>(&self, item: impl ActItem<'a>) -> Item {
        let charge = item.charge();
        let limit = self.limits.prepare(charge.limit);
        let named = |label| name::name(&self.config.prefix, label, charge.key);
        let name = named(&limit.label);
        let now = UnixMicros::new(self.latest.load(Ordering::Relaxed));
        let earlier = limit.earlier.iter().enumerate();
        let earlier = earlier.filter(|(_, old)| old.matters(now));
        let earlier = earlier.map(|(index, old)| (index, named(&old.label)));
        // No call spans two slots, so earlier states in other slots are not inherited.
        let shares_slot = |old: &[u8]| !self.servers.has_slots() || slot_of(old) == slot_of(&name);
        let earlier = earlier.filter(|(_, old)| shares_slot(old)).collect();
        Item {
            limit,
            name,
            cost: charge.cost,
            mode: charge.mode,
            lease: item.lease(),
            correction: item.correction(),
            receipt: item.receipt(),
            earlier,
        }
    }

    /// Performs a request with all keys in one slot.
    async fn one<T: ActAnswer>(
        &self,
        act: ActKind,
        items: Items,
        slot: u16,
        given: Option<UnixMicros>,
    ) -> Result<T, Trouble> {
        let sent = Instant::now();
        match act {
            ActKind::Look => {}
            ActKind::Decide(_) => {
                if given.is_none()
                    && let Some(denied) = self.denied.recall(&items, sent)
                {
                    return Ok(typed(denied.into()));
                }
            }
            _ => items.iter().for_each(|item| self.denied.forget(&item.name)),
        }
        let answer = self
            .answer(RedisRequest { act, items }, slot, given, sent)
            .await;
        let took = sent.elapsed();
        let ended = CallOutcome::of(&answer, took, patience(self.config.deadline));
        self.timings.note(act, ended, took);
        answer.map(typed)
    }

    /// Has a request decided by the script if that supports it, otherwise by an exchange; remembers a
    /// denial.
    async fn answer(
        &self,
        mut ask: RedisRequest,
        slot: u16,
        given: Option<UnixMicros>,
        sent: Instant,
    ) -> Result<AnyAnswer, Trouble> {
        let busiest = || self.busy.busiest(&ask);
        let exchanged = (!ask.has_script()).then(busiest).flatten();
        let mut way = LaneKey {
            slot,
            given,
            exchanged,
        };
        loop {
            let BatchReply { ask: asked, reply } = self.gather.ask(ask, way, sent).await?;
            ask = asked;
            match reply {
                // The script reads values of its own numbers only.
                Err(Trouble::Foreign(_)) if way.exchanged.is_none() => {
                    way.exchanged = self.busy.busiest(&ask);
                }
                Ok((answer, now)) => {
                    self.latest.store(now.get(), Ordering::Relaxed);
                    if let (ActKind::Decide(_), AnyAnswer::Decisions(decisions), None) =
                        (ask.act, &answer, given)
                    {
                        self.denied.note(&ask.items, decisions, sent);
                    }
                    return Ok(answer);
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }
}

/// Returns the answer in the type of its act.
fn typed<T: ActAnswer>(answer: AnyAnswer) -> T {
    T::try_from(answer).unwrap_or_else(|_| unreachable!("each act has its own answer"))
}

impl Store for RedisStore {
    fn set_origin(&self, origin: Origin) {
        self.limits.set_origin(origin);
    }

    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        act.check(items)?;
        self.ask(act.kind(), items, now).await
    }
}
