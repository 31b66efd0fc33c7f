//! Upkeep: when the store is asked again, and the debits before that.

use std::sync::atomic::Ordering;

use ratekeeper_core::{Nanos, Time};
use ratekeeper_resilience::BreakerState;

use super::{BREAKER, FallbackInner, HealthChange, PROBE, Remote, UPKEEP, add};
use crate::{StoreAct, StoreError};

/// Minimum time between two reports of foreign values.
const FOREIGN_PERIOD: Nanos = Nanos::from_secs(60);

impl<S: Remote> FallbackInner<S> {
    /// Returns true if this request must start the upkeep; for one request at a time.
    pub(super) fn upkeep_is_due(&self, now: Time) -> bool {
        let owes =
            || self.owes.load(Ordering::Relaxed) || self.owes_again_at.load(Ordering::Relaxed) > 0;
        if self.is_asked() && !owes() {
            return false;
        }
        let at = self.upkeep_at.load(Ordering::Relaxed);
        // A clock that was set back does not delay the upkeep.
        let waits = now.as_nanos() < at && at - now.as_nanos() <= UPKEEP.as_nanos();
        if waits {
            return false;
        }
        let (next, order) = ((now + UPKEEP).as_nanos(), Ordering::Relaxed);
        let started = self.upkeep_at.compare_exchange(at, next, order, order);
        started.is_ok()
    }

    /// Probes the store if that is due, and debits permits that were admitted without it.
    pub(super) async fn keep_up(&self, now: Time) {
        let next = (now + UPKEEP).as_nanos();
        self.upkeep_at.store(next, Ordering::Relaxed);
        if !self.is_asked() {
            let _ = self.probe(now).await; // noted
        }
        let again_at = self.owes_again_at.load(Ordering::Relaxed);
        if again_at > 0 && now.as_nanos() >= again_at {
            self.owes_again_at.store(0, Ordering::Relaxed);
            self.owes.store(true, Ordering::Relaxed);
        }
        if self.is_asked() && self.owes.swap(false, Ordering::Relaxed) {
            let _ = self.charge_debts(now).await; // unpaid debts are still owed
        }
    }

    /// Probes a store that was not asked before. One failure opens the breaker.
    pub(super) async fn first_probe(&self, now: Time) {
        if self.probe(now).await.is_ok() {
            return;
        }
        for _ in 0..BREAKER.calls_min {
            if !self.is_asked() {
                break;
            }
            if let Ok(permit) = self.breaker.try_pass(now) {
                permit.failure(now);
            }
        }
    }

    /// Probes the store if the breaker lets a call pass, and charges its debts before requests are
    /// let in.
    ///
    /// # Errors
    /// The error of the store, which is noted.
    pub(super) async fn probe(&self, now: Time) -> Result<(), StoreError> {
        let Ok(permit) = self.breaker.try_pass(now) else {
            return Ok(());
        };
        let mut answer = self.main.ping().await;
        if answer.is_ok() && self.owes.swap(false, Ordering::Relaxed) {
            answer = self.charge_debts(now).await;
        }
        match &answer {
            Ok(()) => {
                add(&self.counts.calls[PROBE].answered, 1);
                permit.success(now);
            }
            Err(error) => {
                self.failed(PROBE, error);
                permit.failure(now);
            }
        }
        answer
    }

    /// Notes a failure of a call of that kind.
    pub(super) fn failed(&self, op: usize, error: &StoreError) {
        add(&self.counts.calls[op].failed, 1);
        *self.last_error.lock() = error.to_string();
    }

    /// Returns the last foreign value since the last report, once a minute at most.
    pub(super) fn foreign_report(&self, now: Time) -> Option<HealthChange> {
        let (found, next) = &mut *self.foreign.lock();
        if now < *next {
            return None;
        }
        let report = found.take()?;
        *next = now + FOREIGN_PERIOD;
        Some(HealthChange::Foreign(report))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.breaker.state() == BreakerState::Closed
    }

    /// Performs an act on the store; an error if the store fails or is not asked.
    pub(super) async fn ask<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let not_asked =
            || StoreError::Unavailable("calls are paused until the store answers a probe".into());
        if !self.is_asked() {
            return Err(not_asked());
        }
        let permit = self.breaker.try_pass(now).map_err(|_| not_asked())?;
        let op = act.kind().index();
        let answer = self.main.settle(act, items, now).await;
        match &answer {
            Ok(_) => {
                add(&self.counts.calls[op].answered, 1);
                permit.success(now);
            }
            // The store answers, and decides other keys.
            Err(error @ StoreError::Foreign(_)) => {
                self.failed(op, error);
                self.foreign.lock().0 = Some(error.to_string());
                permit.success(now);
            }
            // The store is in use, and has not failed.
            Err(StoreError::Crowded) => permit.success(now),
            // Other servers decide; the permit is dropped, which counts neither way.
            Err(error @ StoreError::Partly(_)) => self.failed(op, error),
            Err(error) => {
                self.failed(op, error);
                permit.failure(now);
            }
        }
        answer
    }
}
