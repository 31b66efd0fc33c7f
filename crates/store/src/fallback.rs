//! Fallback: a store that may fail, and the memory store that decides meanwhile.
//!
//! ```text
//!   request --> breaker closed? --yes--> store --answer--> the caller
//!                   | no                   | fails, or too late
//!                   v                      v
//!           the choice of each limit: local  the memory store, this process's share
//!                                     allow  passes, nothing is counted
//!                                     deny   refused, as a limit refuses
//!                                     error  the call returns the store's error
//! ```
//!
//! * **Any refusal refuses**: a request with several limits passes only if no enforcing limit
//!   refuses, whatever each chose.
//! * **A share** is the limit divided by `nodes`. It is enforced by counting every permit `nodes`
//!   times, which works for every algorithm, and rounds so that all shares together admit no more
//!   than the limit. Shares of a limit below the number of nodes admit nothing.
//! * **Debts are charged afterwards.** Once the store answers again, the charges that the memory
//!   store still holds for a key are made in the store as far as they fit, and removed here; the
//!   rest counts here until it has drained. So the store admits a key up to the limit, and each
//!   process up to one share more, however often the store fails. Permits on loan stay where they
//!   were lent until they come back; post-paid limits are not charged afterwards.
//! * **A call without an answer** may have been charged: then it counts twice, never zero times.
//! * **Upkeep is automatic.** While the store is unavailable or debts are open, requests start a
//!   task that probes the store and charges the debts, at most ten times a second; without a Tokio
//!   runtime the request itself does that.
//! * **A key with a foreign value** is decided in the same way, but only that key: the store is
//!   still in use.

mod acts;
mod debts;
mod health;
mod upkeep;
mod without;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::{Charge, Limit, LimitId, Nanos, Origin, Time};
use ratekeeper_resilience::{Breaker, BreakerSettings, SplitMix};

use crate::{
    ActKind, Decisions, MemoryConfig, MemoryStore, RedisConfig, RedisStore, Store, StoreAct,
    StoreCall, StoreError,
};
pub(crate) use acts::FallbackAct;
use acts::FallbackCall;
pub use health::{FallbackCounts, Health, HealthChange, OpCalls};

/// When the breaker opens and closes again. It opens sooner than one for a service would, because
/// deciding in memory costs nothing, and closes sooner, because a store that answers is usable. The
/// pauses bound the time until a recovery is noticed.
const BREAKER: BreakerSettings = BreakerSettings {
    window: Duration::from_secs(10),
    calls_min: 5,
    failure_percent: 50,
    open_base: Duration::from_millis(250),
    open_cap: Duration::from_secs(4),
    probe_rounds: 1,
    probe_patience: Duration::from_secs(30),
};
/// Minimum time between two upkeeps started by requests.
const UPKEEP: Nanos = Nanos::from_millis(100);

/// A store in another place, which may fail.
pub trait Remote: Store + 'static {
    /// Returns `Ok` if the store answers.
    fn ping(&self) -> impl StoreCall<()>;

    /// Returns true if it sends no calls at all now, because none was answered.
    fn is_away(&self) -> bool {
        false
    }

    /// Charges permits that were admitted without it. As [`Store::decide`], but only the stored
    /// states count, not earlier answers, because the store may have lost states meanwhile.
    fn debit(&self, charges: &[Charge<'_>], now: Time) -> impl StoreCall<Decisions> {
        self.decide(charges, now)
    }
}

/// A remote store behind a circuit breaker; while it cannot be asked, each limit is decided as
/// its [`Outage`](ratekeeper_core::Outage) says.
#[derive(Debug)]
pub struct Fallback<S>(Arc<FallbackInner<S>>);

#[derive(Debug)]
pub(crate) struct FallbackInner<S> {
    main: S,
    local: MemoryStore,
    nodes: NonZeroU32,
    breaker: Breaker,
    /// Limits that the memory store has decided by, in their latest versions.
    limits: Mutex<HashMap<LimitId, Limit>>,
    /// True if the memory store holds charges that must be debited.
    owes: AtomicBool,
    /// Held by the task that debits them.
    debiting: tokio::sync::Mutex<()>,
    /// When debts of keys that cannot be charged are tried again; 0 if there are none.
    owes_again_at: AtomicU64,
    /// When requests may start the next upkeep.
    upkeep_at: AtomicU64,
    /// The last state reported by [`Fallback::tend`].
    reported: Mutex<Option<StateReport>>,
    /// The last foreign value that was not reported, and when the next report is due.
    foreign: Mutex<(Option<String>, Time)>,
    last_error: Mutex<String>,
    counts: FallbackCounters,
}

/// State of the store, and permits debited by then.
#[derive(Clone, Copy, Debug)]
struct StateReport {
    is_down: bool,
    debited: u64,
}

#[derive(Debug, Default)]
struct FallbackCounters {
    /// By act; the last is for probes.
    calls: [CallCounters; OPS],
    local: AtomicU64,
    allow: AtomicU64,
    deny: AtomicU64,
    debited: AtomicU64,
}

#[derive(Debug, Default)]
struct CallCounters {
    answered: AtomicU64,
    failed: AtomicU64,
}

/// Number of kinds of calls: the acts, and the probe.
const OPS: usize = ActKind::NAMES.len() + 1;
/// The kind of probes.
const PROBE: usize = OPS - 1;

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Fallback<RedisStore> {
    /// Creates a store in Redis or Valkey that `nodes` processes share, with a memory store of 256
    /// MiB while it fails.
    ///
    /// # Errors
    /// The errors of [`RedisStore::new`].
    pub fn shared_by(nodes: NonZeroU32, config: RedisConfig) -> Result<Self, StoreError> {
        let local = MemoryStore::new(MemoryConfig::default());
        Ok(Self::new(RedisStore::new(config)?, local, nodes))
    }
}

impl<S: Remote> Fallback<S> {
    /// Creates a fallback: `local` decides while `main` fails; `nodes` processes share `main`.
    pub fn new(main: S, local: MemoryStore, nodes: NonZeroU32) -> Self {
        Self(Arc::new(FallbackInner {
            main,
            local,
            nodes,
            breaker: Breaker::new(BREAKER, SplitMix::seeded())
                .unwrap_or_else(|_| unreachable!("the constants are within their bounds")),
            limits: Mutex::default(),
            owes: AtomicBool::new(false),
            debiting: tokio::sync::Mutex::default(),
            owes_again_at: AtomicU64::new(0),
            upkeep_at: AtomicU64::new(0),
            reported: Mutex::default(),
            foreign: Mutex::default(),
            last_error: Mutex::default(),
            counts: FallbackCounters::default(),
        }))
    }

    /// Returns the store that may fail.
    pub fn main(&self) -> &S {
        &self.0.main
    }

    /// Returns the memory store that decides in its place.
    pub fn local(&self) -> &MemoryStore {
        &self.0.local
    }

    /// Returns the number of processes that share the store.
    pub fn nodes(&self) -> NonZeroU32 {
        self.0.nodes
    }

    /// Returns the health of the store.
    pub fn health(&self) -> Health {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.0.counts;
        let calls: [OpCalls; OPS] = std::array::from_fn(|op| OpCalls {
            op: ActKind::NAMES.get(op).copied().unwrap_or("probe"),
            answered: read(&counts.calls[op].answered),
            failed: read(&counts.calls[op].failed),
        });
        Health {
            state: self.0.breaker.state(),
            is_down: self.is_down(),
            answered: calls[..PROBE].iter().map(|each| each.answered).sum(),
            failed: calls.iter().map(|each| each.failed).sum(),
            calls,
            fallback: FallbackCounts {
                local: read(&counts.local),
                allow: read(&counts.allow),
                deny: read(&counts.deny),
            },
            debited: read(&counts.debited),
            last_error: self.0.last_error.lock().clone(),
        }
    }

    /// Runs the upkeep now, and returns the change of health since the last call; the first call
    /// probes whether the store answers at all. Only needed by programs that report such changes,
    /// which call it ten times a second: otherwise requests start the upkeep.
    pub async fn tend(&self, now: Time) -> Option<HealthChange> {
        let this = &*self.0;
        let is_first = this.reported.lock().is_none();
        if is_first {
            this.first_probe(now).await;
        }
        this.keep_up(now).await;
        let report = StateReport {
            is_down: self.is_down(),
            debited: this.counts.debited.load(Ordering::Relaxed),
        };
        let mut reported = this.reported.lock();
        match (*reported, report.is_down) {
            (None | Some(StateReport { is_down: false, .. }), true) => {
                *reported = Some(report);
                Some(HealthChange::Down(this.last_error.lock().clone()))
            }
            (Some(before @ StateReport { is_down: true, .. }), false) => {
                *reported = Some(report);
                Some(HealthChange::Up(report.debited - before.debited))
            }
            (None, false) => {
                *reported = Some(report);
                None
            }
            _ => this.foreign_report(now),
        }
    }

    /// Probes the store because another call failed: without requests, probes that fail are what
    /// opens the breaker.
    pub async fn doubt(&self, now: Time) {
        for _ in 0..BREAKER.calls_min {
            if !self.is_asked() || self.0.probe(now).await.is_ok() {
                return;
            }
        }
    }

    /// Returns true if requests are sent to the store.
    pub fn is_asked(&self) -> bool {
        self.0.is_asked()
    }

    /// Returns true if requests are decided without the store: the breaker is not closed, or the
    /// store itself waits until a server answers again, which it notices after three calls.
    pub fn is_down(&self) -> bool {
        !self.is_asked() || self.0.main.is_away()
    }

    /// Starts the upkeep in a task; without a Tokio runtime, runs it.
    async fn start_upkeep(&self, now: Time) {
        let inner = Arc::clone(&self.0);
        let upkeep = async move { inner.keep_up(now).await };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(upkeep));
            return;
        }
        upkeep.await;
    }
}

impl<S: Remote> Store for Fallback<S> {
    fn set_origin(&self, origin: Origin) {
        self.0.main.set_origin(origin);
        self.0.local.set_origin(origin);
    }

    fn adopt<'l>(&self, limits: &(impl Iterator<Item = &'l Limit> + Clone), now: Time) {
        self.0.main.adopt(limits, now);
        self.0.local.adopt(limits, now);
        self.0.renew(limits.clone());
    }

    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        if matches!(act.kind(), ActKind::Decide(_) | ActKind::Look) {
            if items.is_empty() {
                return Ok(self.0.local.settle_now(act, items, now)); // not asked of the store
            }
            if self.0.upkeep_is_due(now) {
                Box::pin(self.start_upkeep(now)).await;
            }
        }
        act.check(items)?;
        act.perform(FallbackCall {
            fallback: &self.0,
            items,
            now,
        })
        .await
    }
}
