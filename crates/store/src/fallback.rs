//! Fallback: a store that may fail, and what answers for it meanwhile.
//!
//! ```text
//!   request --> breaker closed? --yes--> store --answer--------------> as it says
//!                   | no                   | fails, or too late
//!                   v                      v
//!              what each limit chose: local  the memory store, this process's share
//!                                     allow  passes, nothing is counted
//!                                     deny   refused, as a limit refuses
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
//! * **A key whose value is not ours** is decided in the same way, alone: the store is there.

mod debts;
mod health;
mod without;

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::{Charge, Lend, Limit, LimitId, Nanos, Outage, Permits, Time};
use ratekeeper_resilience::{Breaker, BreakerSettings, BreakerState, SplitMix};
use smallvec::SmallVec;

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
/// A store that is somewhere else.
pub trait Remote: Store {
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
pub struct Fallback<S> {
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
    /// Whether it has been looked after, and whether it was down then.
    reported: Mutex<Option<bool>>,
    last_error: Mutex<String>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
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
        Self {
            main,
            local,
            nodes,
            breaker: Breaker::new(BREAKER, SplitMix::seeded())
                .unwrap_or_else(|_| unreachable!("constants within their bounds")),
            limits: Mutex::default(),
            owes: AtomicBool::new(false),
            owes_again_at: AtomicU64::new(0),
            reported: Mutex::default(),
            last_error: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// The store that may fail.
    pub const fn main(&self) -> &S {
        &self.main
    }

    /// What decides in its place.
    pub const fn local(&self) -> &MemoryStore {
        &self.local
    }

    /// How it is doing.
    pub fn health(&self) -> Health {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        Health {
            state: self.breaker.state(),
            answered: read(&counts.answered),
            failed: read(&counts.failed),
            fallback: FallbackCounts {
                local: read(&counts.local),
                allow: read(&counts.allow),
                deny: read(&counts.deny),
            },
            debited: read(&counts.debited),
            last_error: self.last_error.lock().clone(),
        }
    }

    /// Looks after it: probes it when that is due, and debits what was admitted without it.
    /// Must be called about ten times a second, or it is never asked again; the first call
    /// finds out whether it is there at all.
    pub async fn tend(&self, now: Time) -> Option<HealthChange> {
        let before = self.counts.debited.load(Ordering::Relaxed);
        let first = self.reported.lock().is_none();
        if first || !self.is_asked() {
            self.probe(first, now).await;
        }
        let again_at = self.owes_again_at.load(Ordering::Relaxed);
        if again_at > 0 && now.as_nanos() >= again_at {
            self.owes_again_at.store(0, Ordering::Relaxed);
            self.owes.store(true, Ordering::Relaxed);
        }
        if self.is_asked() && self.owes.swap(false, Ordering::Relaxed) {
            let _ = self.settle(now).await; // what is left is still owed
        }
        let down = !self.is_asked();
        let was = self.reported.lock().replace(down);
        let debited = self.counts.debited.load(Ordering::Relaxed) - before;
        match (was, down) {
            (None | Some(false), true) => Some(HealthChange::Down(self.last_error.lock().clone())),
            (Some(true), false) => Some(HealthChange::Up(debited)),
            _ => None,
        }
    }

    /// Asks whether it is there, if that is due, and pays it what it is owed before others
    /// are let in. That it is not there at `first` is enough to ask no more.
    async fn probe(&self, first: bool, now: Time) {
        let Ok(permit) = self.breaker.try_pass(now) else {
            return;
        };
        let mut answer = self.main.ping().await;
        if answer.is_ok() && self.owes.swap(false, Ordering::Relaxed) {
            answer = self.settle(now).await;
        }
        let Err(error) = answer else {
            permit.success(now);
            return;
        };
        self.failed(&error);
        permit.failure(now);
        for _ in 0..BREAKER.calls_min {
            if !first || !self.is_asked() {
                break;
            }
            if let Ok(permit) = self.breaker.try_pass(now) {
                permit.failure(now);
            }
        }
    }

    fn failed(&self, error: &StoreError) {
        add(&self.counts.failed, 1);
        *self.last_error.lock() = error.to_string();
    }

    /// What a request that no limit concerns is answered. No store is needed for it, so it says
    /// nothing about how the store is doing.
    fn nothing(&self, now: Time) -> Decisions {
        self.local.look_now(&[], now)
    }

    /// Whether requests are sent to it.
    pub fn is_asked(&self) -> bool {
        self.breaker.state() == BreakerState::Closed
    }

    /// The answer of the store; none if it fails or is not asked.
    async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
        now: Time,
    ) -> Result<T, StoreError> {
        let not_asked =
            || StoreError::Unavailable("it is not asked until a probe is answered".into());
        if !self.is_asked() {
            return Err(not_asked());
        }
        let permit = self.breaker.try_pass(now).map_err(|_| not_asked())?;
        let answer = call.await;
        match &answer {
            Ok(_) => {
                add(&self.counts.answered, 1);
                permit.success(now);
            }
            // It is there, and decides other keys.
            Err(error @ StoreError::Foreign(_)) => {
                self.failed(error);
                permit.success(now);
            }
            // Others decide; the permit is given back without a word.
            Err(error @ StoreError::Partly(_)) => self.failed(error),
            Err(error) => {
                self.failed(error);
                permit.failure(now);
            }
        }
        answer
    }
}

impl<S: Remote> Store for Fallback<S> {
    async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(self.nothing(now));
        }
        match self.ask(self.main.decide(charges, now), now).await {
            Ok(decisions) => Ok(decisions),
            Err(_) => Ok(self.decide_without(charges, Some(Lend::Unnamed), now)),
        }
    }

    async fn acquire(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(self.nothing(now));
        }
        match self.ask(self.main.acquire(charges, lend, now), now).await {
            Ok(decisions) => Ok(decisions),
            Err(_) => Ok(self.decide_without(charges, Some(lend), now)),
        }
    }

    async fn look(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        if charges.is_empty() {
            return Ok(self.nothing(now));
        }
        match self.ask(self.main.look(charges, now), now).await {
            Ok(decisions) => Ok(decisions),
            Err(_) => Ok(self.decide_without(charges, None, now)),
        }
    }

    /// While the store fails, only what was charged here can be given back here; the rest
    /// stays charged.
    async fn refund(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        if self.ask(self.main.refund(charges, now), now).await.is_err() {
            let local = |charge: &&Charge<'_>| charge.limit.outage == Outage::Local;
            let shares = charges.iter().filter(local);
            let shares: SmallVec<[Charge<'_>; 4]> =
                shares.map(|charge| self.scaled(charge)).collect();
            self.local.refund_now(&shares, now);
        }
        Ok(())
    }

    /// Fails if the store does: to say that something was forgotten would not be true.
    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        let mut there = self.ask(self.main.reset(charges, now), now).await?;
        let here = self.local.reset_now(charges, now);
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
        let here = self.local.release_now(holds, now);
        let nodes = self.nodes;
        let here = here.iter().map(|back| Permits::new(back.get() / nodes));
        let mut back: SmallVec<[Permits; 4]> = here.collect();
        let rest = |back: &Permits| *back == Permits::ZERO;
        if back.iter().any(rest) {
            let there = self.ask(self.main.release(holds, now), now).await?;
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
        let mut spans = self.local.renew_now(holds, now);
        if spans.iter().any(Option::is_none) {
            let there = self.ask(self.main.renew(holds, now), now).await?;
            for (span, there) in spans.iter_mut().zip(there) {
                *span = span.or(there);
            }
        }
        Ok(spans)
    }
}
