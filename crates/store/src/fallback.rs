//! Fallback: a store that may fail, and what answers for it meanwhile.
//!
//! ```text
//!   request --> breaker closed? --yes--> store --answer--------------> as it says
//!                   | no                   | fails, or too late
//!                   v                      v
//!              what each limit chose: local  the memory store, this process's share
//!                                     allow  passes, nothing is counted
//!                                     deny   refused, as a limit refuses
//!                                     error  the call returns the store's error
//! ```
//!
//! * **Any refusal refuses**: a request with several limits passes only if none of those that
//!   enforce refuses, whatever each chose.
//! * **A share** of one in `nodes` is had by counting every permit `nodes` times: that is the
//!   same for every algorithm, and rounds so that all shares together admit no more than the
//!   limit. A limit below the number of nodes shares out nothing.
//! * **Debts come back.** Once the store answers again, what the memory store still holds
//!   against a key is charged there, at most what fits, and forgotten here: at most one limit's
//!   worth for each key, since that is all a limit remembers. Permits on loan stay where they
//!   were lent until they come back; post-paid limits are not debited.
//! * A call that was not answered may have been charged: then it counts twice, never none.
//! * It looks after itself: while the store is away or is owed something, requests start a
//!   task that probes it and pays, ten times a second at most; without a Tokio runtime the
//!   request itself does that.
//! * **A key whose value is not ours** is decided in the same way, alone: the store is there.

mod debts;
mod health;
mod upkeep;
mod without;

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::{Charge, Lend, Limit, LimitId, Nanos, Origin, Permits, Time};
use ratekeeper_resilience::{Breaker, BreakerSettings, SplitMix};
use smallvec::SmallVec;

use crate::store::can_refund;
use crate::{Decisions, Hold, MemoryStore, Store, StoreError};
pub use health::{FallbackCounts, Health, HealthChange};

/// When the breaker opens and how it comes back. Sooner than for a service: what answers
/// meanwhile costs nothing, and a store is back as soon as it answers at all. The pauses
/// bound how long recovery goes unnoticed.
const BREAKER: BreakerSettings = BreakerSettings {
    window: Nanos::from_secs(10),
    calls_min: 5,
    failure_percent: 50,
    open_base: Nanos::from_millis(250),
    open_cap: Nanos::from_secs(4),
    probe_rounds: 1,
    probe_patience: Nanos::from_secs(30),
};
/// How often requests have it looked after at most.
const UPKEEP: Nanos = Nanos::from_millis(100);

/// A store that is somewhere else.
pub trait Remote: Store + 'static {
    /// Whether it answers.
    fn ping(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Charges what was admitted without it. As [`Store::decide`], but what it holds decides,
    /// and nothing that was heard of it before: it may have been lost meanwhile.
    fn debit(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send {
        self.decide(charges, now)
    }
}

/// A store that is somewhere else, and what holds while it cannot be asked: each limit as its
/// [`Outage`](ratekeeper_core::Outage) says, behind a circuit breaker.
#[derive(Debug)]
pub struct Fallback<S>(Arc<FallbackInner<S>>);

#[derive(Debug)]
struct FallbackInner<S> {
    main: S,
    local: MemoryStore,
    nodes: NonZeroU32,
    breaker: Breaker,
    /// Limits that the memory store has decided by, as they were last.
    limits: Mutex<HashMap<LimitId, Limit>>,
    /// Whether the memory store holds anything that must be debited.
    owes: AtomicBool,
    /// When debts of keys that cannot be charged are tried again; 0 if there are none.
    owes_again_at: AtomicU64,
    /// When requests may have it looked after again.
    upkeep_at: AtomicU64,
    /// What [`Fallback::tend`] said last.
    reported: Mutex<Option<StateReport>>,
    last_error: Mutex<String>,
    counts: FallbackCounters,
}

/// How it was, and how much had been debited by then.
#[derive(Clone, Copy, Debug)]
struct StateReport {
    is_down: bool,
    debited: u64,
}

#[derive(Debug, Default)]
struct FallbackCounters {
    answered: AtomicU64,
    failed: AtomicU64,
    local: AtomicU64,
    allow: AtomicU64,
    deny: AtomicU64,
    debited: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl<S: Remote> Fallback<S> {
    /// `main`, with `local` in its place while it fails; `nodes` processes share it.
    pub fn new(main: S, local: MemoryStore, nodes: NonZeroU32) -> Self {
        Self(Arc::new(FallbackInner {
            main,
            local,
            nodes,
            breaker: Breaker::new(BREAKER, SplitMix::seeded())
                .unwrap_or_else(|_| unreachable!("constants within their bounds")),
            limits: Mutex::default(),
            owes: AtomicBool::new(false),
            owes_again_at: AtomicU64::new(0),
            upkeep_at: AtomicU64::new(0),
            reported: Mutex::default(),
            last_error: Mutex::default(),
            counts: FallbackCounters::default(),
        }))
    }

    /// The store that may fail.
    pub fn main(&self) -> &S {
        &self.0.main
    }

    /// What decides in its place.
    pub fn local(&self) -> &MemoryStore {
        &self.0.local
    }

    /// How it is doing.
    pub fn health(&self) -> Health {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.0.counts;
        Health {
            state: self.0.breaker.state(),
            answered: read(&counts.answered),
            failed: read(&counts.failed),
            fallback: FallbackCounts {
                local: read(&counts.local),
                allow: read(&counts.allow),
                deny: read(&counts.deny),
            },
            debited: read(&counts.debited),
            last_error: self.0.last_error.lock().clone(),
        }
    }

    /// Looks after it now, and returns what has changed since the last call; the first call
    /// finds out whether it is there at all. Only for programs that report such changes, ten
    /// times a second: requests have it looked after as well.
    pub async fn tend(&self, now: Time) -> Option<HealthChange> {
        let this = &*self.0;
        let first = this.reported.lock().is_none();
        this.keep_up(first, now).await;
        let report = StateReport {
            is_down: !this.is_asked(),
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
            _ => None,
        }
    }

    /// Whether requests are sent to it.
    pub fn is_asked(&self) -> bool {
        self.0.is_asked()
    }

    /// Has it looked after, if that is due: by a task, where tasks can be.
    async fn look_after(&self, now: Time) {
        let inner = Arc::clone(&self.0);
        let upkeep = async move { inner.keep_up(false, now).await };
        #[cfg(not(loom))]
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

    async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(self.0.nothing(now));
        }
        if self.0.upkeep_is_due(now) {
            Box::pin(self.look_after(now)).await;
        }
        match self.0.ask(|main| main.decide(charges, now), now).await {
            Ok(decisions) => Ok(decisions),
            Err(error) => self
                .0
                .decide_without(charges, Some(Lend::Unnamed), now, error),
        }
    }

    async fn acquire(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(self.0.nothing(now));
        }
        if self.0.upkeep_is_due(now) {
            Box::pin(self.look_after(now)).await;
        }
        match self
            .0
            .ask(|main| main.acquire(charges, lend, now), now)
            .await
        {
            Ok(decisions) => Ok(decisions),
            Err(error) => self.0.decide_without(charges, Some(lend), now, error),
        }
    }

    async fn look(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(self.0.nothing(now));
        }
        if self.0.upkeep_is_due(now) {
            Box::pin(self.look_after(now)).await;
        }
        match self.0.ask(|main| main.look(charges, now), now).await {
            Ok(decisions) => Ok(decisions),
            Err(error) => self.0.decide_without(charges, None, now, error),
        }
    }

    /// While the store fails, only what was charged here can be given back here. Fails if that
    /// is not all of it: then nothing is given back.
    async fn refund(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        can_refund(charges)?;
        let Err(error) = self.0.ask(|main| main.refund(charges, now), now).await else {
            return Ok(());
        };
        let shares: SmallVec<[Charge<'_>; 4]> =
            charges.iter().map(|charge| self.0.scaled(charge)).collect();
        if !shares.iter().all(|share| self.0.is_owed_here(share, now)) {
            return Err(error);
        }
        self.0.local.refund_now(&shares, now);
        Ok(())
    }

    /// Fails if the store does: to say that something was forgotten would not be true.
    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        let mut there = self.0.ask(|main| main.reset(charges, now), now).await?;
        let here = self.0.local.reset_now(charges, now);
        for (there, here) in there.iter_mut().zip(here) {
            *there |= here;
        }
        Ok(there)
    }

    /// Permits come back where they were lent. Fails if one was not lent here, and the store
    /// cannot say.
    async fn release(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Permits; 4]>, StoreError> {
        let here = self.0.local.release_now(holds, now);
        let nodes = self.0.nodes;
        let here = here.iter().map(|back| Permits::new(back.get() / nodes));
        let mut back: SmallVec<[Permits; 4]> = here.collect();
        let rest = |back: &Permits| *back == Permits::ZERO;
        if back.iter().any(rest) {
            let there = self.0.ask(|main| main.release(holds, now), now).await?;
            for (back, there) in back.iter_mut().zip(there) {
                *back = (*back).max(there);
            }
        }
        Ok(back)
    }

    async fn renew(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Option<Nanos>; 4]>, StoreError> {
        let mut spans = self.0.local.renew_now(holds, now);
        if spans.iter().any(Option::is_none) {
            let there = self.0.ask(|main| main.renew(holds, now), now).await?;
            for (span, there) in spans.iter_mut().zip(there) {
                *span = span.or(there);
            }
        }
        Ok(spans)
    }
}
