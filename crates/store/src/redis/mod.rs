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
mod by_hand;
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
mod turns;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Charge, Key, Origin, Time, UnixMicros};
use redis::Value;
use smallvec::SmallVec;

use crate::act::{Act, ActAnswer as _, ActItem, ActKind};
use crate::{Store, StoreAct, StoreError};
pub use bans::{BanCursor, BanPage, BannedKey};
pub use config::{
    RedisClock, RedisConfig, RedisIdentity, RedisLogin, RedisSentinels, RedisServers, RedisTls,
};
pub use inspect::{ClusterNode, RedisServer, ServerHealth, ServerInfo};
pub use timings::{CallTime, CallTimes};

use batch::{RedisBatch, RedisRequest, ScriptReply};
use denied::DenialCache;
use exchange::{Exchange, TRIES};
use gather::Gather;
use hints::{KeyHints, Losses};
use lanes::BatchReply;
use limits::KnownLimits;
use script::Scripts;
use servers::node::{ScriptCall, patience};
use servers::{Servers, no_answer};
use settle::{Erase, Item, settle};
use slot::slot_of;
use timings::{CallOutcome, Timings};
use trouble::Trouble;
use turns::Turns;

/// The Redis store: one limit, exact, across any number of processes, in one call a decision.
///
/// Its futures need a Tokio runtime.
pub struct RedisStore {
    config: RedisConfig,
    servers: Arc<Servers>,
    gather: Arc<Gather>,
    turns: Turns,
    denied: DenialCache,
    limits: KnownLimits,
    scripts: Arc<Scripts>,
    timings: Timings,
    hints: Arc<KeyHints>,
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
        let hints = Arc::new(KeyHints::new(losses));
        let gather = Gather::new(servers.clone(), scripts.clone(), hints.clone());
        Ok(Self {
            gather,
            hints,
            servers,
            turns: Turns::default(),
            denied: DenialCache::default(),
            limits: KnownLimits::new(config.origin, name::escaped(&config.node)),
            scripts,
            timings: Timings::default(),
            latest: AtomicU64::new(0),
            config,
        })
    }

    /// Returns how long calls took, by how they ended.
    pub fn call_times(&self) -> CallTimes {
        let each = self.timings.read();
        each.iter().fold(CallTimes::default(), CallTimes::and)
    }

    /// Returns the same for each act, with its name.
    pub fn call_times_by_act(&self) -> [(&'static str, CallTimes); ActKind::NAMES.len()] {
        let mut each = self.timings.read();
        std::array::from_fn(|act| (ActKind::NAMES[act], std::mem::take(&mut each[act])))
    }

    /// Removes the states of these keys, and leaves no mark that they were reset: for keys
    /// that no other process knows. `now` as for [`Store::reset`](crate::Store::reset).
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be asked.
    pub async fn erase(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        self.ask(Erase, charges, now).await.map(|_| ())
    }

    /// Performs an act within the deadline.
    async fn ask<A: Act>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let given = self.given(now);
        let ask = RedisRequest {
            act,
            items: items.iter().map(|&item| self.item(item)).collect(),
        };
        if ask.items.is_empty() {
            // Without charges no limit can deny.
            return Ok(settle(act, &[], &[], &mut [], UnixMicros::default()));
        }
        let keys: ItemKeys<'_> = items.iter().map(|item| item.charge().key).collect();
        let deadline = self.config.deadline;
        let done = tokio::time::timeout(deadline, self.spread(ask, &keys, given)).await;
        let done = done.unwrap_or_else(|_| {
            self.timings
                .note(act.kind(), CallOutcome::Timeout, deadline);
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
            keys @ (Trouble::Foreign(_) | Trouble::Crowded(_)) => keys.into(),
            other if self.servers.are_partly_there() => StoreError::Partly(other.to_string()),
            other => other.into(),
        }
    }

    fn item<'a>(&self, item: impl ActItem<'a>) -> Item {
        let charge = item.charge();
        let limit = self.limits.prepare(charge.limit);
        let name = name::name(&self.config.prefix, &limit.label, charge.key);
        Item {
            limit,
            name,
            cost: charge.cost,
            mode: charge.mode,
            lease: item.lease(),
            correction: item.correction(),
            receipt: item.receipt(),
        }
    }

    /// Performs a request with all keys in one slot.
    async fn one<A: Act>(
        &self,
        ask: RedisRequest<A>,
        keys: &[Key<'_>],
        slot: u16,
        given: Option<UnixMicros>,
    ) -> Result<A::Answer, Trouble> {
        let sent = tokio::time::Instant::now();
        let (named_act, kind) = (ask.act, ask.act.kind());
        let remembers = given.is_none();
        let script = ask.act.script();
        match (kind, &script) {
            (ActKind::Look, _) => {}
            (ActKind::Decide(_), Some(script)) => {
                if remembers && let Some(denied) = self.denied.recall(&ask.items, sent) {
                    return Ok((script.answer)(denied));
                }
            }
            _ => {
                let names = ask.items.iter().map(|item| &item.name);
                names.for_each(|name| self.denied.forget(name));
            }
        }
        let answer = match script {
            Some(script) if self.has_script(&ask) => {
                let (act, items) = (script.act, ask.items);
                let asked = RedisRequest { act, items };
                let (items, reply) = match self.gather.ask(asked, slot, given, sent).await {
                    Ok(BatchReply { ask, reply }) => (ask.items, reply),
                    Err(trouble) => (SmallVec::new(), Err(trouble)),
                };
                match reply {
                    Ok((decisions, now)) => {
                        self.latest.store(now.get(), Ordering::Relaxed);
                        if remembers {
                            self.denied.note(&items, &decisions, sent);
                        }
                        Ok((script.answer)(decisions))
                    }
                    // The script reads values of its own numbers only.
                    Err(Trouble::Foreign(_)) => {
                        let act = named_act;
                        let ask = RedisRequest { act, items };
                        self.exchanged(&ask, keys, slot, given, sent).await
                    }
                    Err(trouble) => Err(trouble),
                }
            }
            _ => self.exchanged(&ask, keys, slot, given, sent).await,
        };
        let took = sent.elapsed();
        let ended = CallOutcome::of(&answer, took, patience(self.config.deadline));
        self.timings.note(kind, ended, took);
        answer
    }

    /// Returns true if the script supports the limits and keys of the request.
    fn has_script<A: Act>(&self, ask: &RedisRequest<A>) -> bool {
        let now = UnixMicros::new(self.latest.load(Ordering::Relaxed));
        let mut limits = ask.items.iter().map(|item| &item.limit);
        limits
            .all(|limit| limit.twin.is_some() && !limit.earlier.iter().any(|old| old.matters(now)))
            && !RedisBatch::of([ask]).names_one_twice()
    }

    /// Runs a script that returns the values it finds.
    async fn find(&self, slot: u16, call: ScriptCall<'_>) -> Result<ScriptReply, Trouble> {
        let found = ScriptReply::read(self.servers.run(slot, call).await?, call.keys.len())?;
        self.latest.store(found.now.get(), Ordering::Relaxed);
        Ok(found)
    }

    /// Decides by an exchange, and remembers a denial.
    async fn exchanged<A: Act>(
        &self,
        ask: &RedisRequest<A>,
        keys: &[Key<'_>],
        slot: u16,
        given: Option<UnixMicros>,
        sent: tokio::time::Instant,
    ) -> Result<A::Answer, Trouble> {
        // Rare and large: boxed to keep it out of the future of every decision.
        let answer = Box::pin(self.by_exchange(ask, keys, slot, given)).await;
        if let (Ok(answer), ActKind::Decide(_), None) = (&answer, ask.act.kind(), given)
            && let Some(decisions) = answer.decisions()
        {
            self.denied.note(&ask.items, decisions, sent);
        }
        answer
    }

    /// Performs a request by load, decide and swap.
    async fn by_exchange<A: Act>(
        &self,
        ask: &RedisRequest<A>,
        keys: &[Key<'_>],
        slot: u16,
        given: Option<UnixMicros>,
    ) -> Result<A::Answer, Trouble> {
        // No call spans two slots, so earlier states in other slots are not inherited.
        let has_slots = self.servers.has_slots();
        let mut exchange = Exchange::of(ask, |index, earlier| {
            let name = name::name(&self.config.prefix, &earlier.label, keys[index]);
            (!has_slots || slot_of(&name) == slot).then_some(name)
        });
        exchange.given = given.is_some();
        let names = exchange.names();
        // A quarter of the deadline remains for the calls: only a call without an answer is a
        // failure of the server.
        let turns = tokio::time::timeout(self.config.deadline / 4 * 3, self.turns.take(&names));
        let crowded = |_| Trouble::Crowded("too many requests of these keys wait".into());
        let _turns = turns.await.map_err(crowded)?;
        let remembers = given.is_none();
        let given = [given.map_or(Vec::new(), |now| now.get().to_string().into())];
        for lost in 1..=TRIES {
            let load = ScriptCall::new(&self.scripts.load, &names, &given);
            let losses = self.hints.losses.so_far();
            let found = self.find(slot, load).await?;
            let hints = self.hints.of(&exchange.batch).filter(|_| remembers);
            let exchanged = exchange.decide(&found, hints.as_deref())?;
            let note = || {
                if remembers {
                    let after = &exchanged.after;
                    self.hints.note(&exchange.batch, &found, after, losses);
                }
            };
            let Some(arguments) = exchanged.swap else {
                note();
                return Ok(exchanged.answer);
            };
            let swap = ScriptCall::new(&self.scripts.swap, &names, &arguments);
            if self.servers.run(slot, swap).await? == Value::Int(1) {
                note();
                return Ok(exchanged.answer);
            }
            turns::pause(lost).await;
        }
        let why = format!("a key changed during each of {TRIES} attempts");
        Err(Trouble::Crowded(why))
    }
}

/// The keys of a request, in the order of its items.
type ItemKeys<'a> = SmallVec<[Key<'a>; 4]>;

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
        self.ask(act, items, now).await
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Concurrency, Limit, LimitId, Nanos, Permits};

    use super::*;

    /// The server is not asked, so it has not failed.
    #[tokio::test]
    async fn a_request_that_waits_for_its_turn_in_vain_is_no_failure_of_the_server() {
        let store = RedisStore::new(RedisConfig::new("redis://127.0.0.1:1")).unwrap();
        let algorithm = Concurrency::new(Permits::new(3), Nanos::SECOND).unwrap();
        let limit = Limit::new("at-work", LimitId::new(0), algorithm);
        let charge = Charge::enforced(&limit, Key::ALL, Permits::ONE);
        let name = store.item(charge).name;
        let _taken = store.turns.take(&[&*name]).await;
        let refused = store.decide(&[charge], Time::ZERO).await;
        assert!(matches!(refused, Err(StoreError::Partly(_))), "{refused:?}");
    }
}
