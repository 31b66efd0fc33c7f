//! Debts: permits admitted without the store, and charged there afterwards.

use std::sync::atomic::{AtomicBool, Ordering};

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Charge, Key, Limit, Nanos, Permits, Time};

use super::{FallbackInner, Remote, add};
use crate::{GiveBack, KeyEntry, StoreError};

/// Maximum number of keys of a limit debited in one go, by descending debt.
const MAX_DEBITS: usize = 4_096;

/// Wait before debts of keys with foreign values are tried again.
const AGAIN: Nanos = Nanos::from_secs(1);

impl<S: Remote> FallbackInner<S> {
    /// Notes the limits of these charges, which the memory store makes.
    pub(super) fn remember(&self, shares: &[Charge<'_>]) {
        if shares.is_empty() {
            return;
        }
        let mut limits = self.limits.lock();
        for charge in shares {
            let known = limits.get(&charge.limit.id);
            if known.is_none_or(|known| known.version < charge.limit.version) {
                limits.insert(charge.limit.id, charge.limit.clone());
            }
        }
        drop(limits);
        self.owes.store(true, Ordering::Relaxed);
    }

    /// Takes the new numbers of limits that it remembers, by which the memory store counts now.
    pub(super) fn renew<'l>(&self, limits: impl Iterator<Item = &'l Limit>) {
        let mut known = self.limits.lock();
        for limit in limits {
            known.entry(limit.id).and_modify(|it| it.clone_from(limit));
        }
    }

    /// Charges the store the permits that were admitted without it, as far as they fit. Permits
    /// that do not fit still count against the share here, because otherwise each failure of a
    /// store would admit another share.
    ///
    /// # Errors
    /// The first error of the store; its debts are still owed.
    pub(super) async fn charge_debts(&self, now: Time) -> Result<(), StoreError> {
        // Two tasks at once would charge, and forget, each debt twice.
        let _turn = self.debiting.lock().await;
        let mut unpaid = Unpaid {
            owes: &self.owes,
            is_left: true,
        };
        let limits: Vec<Limit> = self.limits.lock().values().cloned().collect();
        for limit in limits.iter().filter(|limit| is_debited(&limit.algorithm)) {
            let entries = self.local.keys(limit, MAX_DEBITS, now);
            if entries.len() == MAX_DEBITS {
                self.owes.store(true, Ordering::Relaxed); // there may be more
            }
            for entry in &entries {
                self.charge_debt(limit, entry, now).await?;
            }
        }
        unpaid.is_left = false;
        Ok(())
    }

    /// Charges the store the debt of one key, and gives back here what it charged. The debt of a
    /// key that cannot be charged stays here, so that other keys are debited.
    async fn charge_debt(
        &self,
        limit: &Limit,
        entry: &KeyEntry,
        now: Time,
    ) -> Result<(), StoreError> {
        if entry.decision.verdict.is_ban() {
            return Ok(()); // its usage is not shown
        }
        let used = limit.algorithm.capacity() - entry.decision.remaining;
        let key = Key::from_bytes(&entry.key);
        let charge = |cost| Charge::enforced(limit, key, Permits::new(cost));
        let sharers = u64::from(self.sharers(limit).get());
        // Rounded up: a part of a permit counts as a permit.
        let debt = charge(used.get().div_ceil(sharers));
        match self.debit(debt, now).await {
            Ok(charged) => {
                // Permits admitted here meanwhile are still owed.
                let paid = used.get().min(charged.get().saturating_mul(sharers));
                self.local.settle_now(GiveBack, &[charge(paid)], now);
                Ok(())
            }
            Err(StoreError::Foreign(_) | StoreError::Partly(_) | StoreError::Crowded) => {
                let again_at = (now + AGAIN).as_nanos();
                self.owes_again_at.store(again_at, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Charges the store as much of the cost as fits; returns how much that is.
    async fn debit(&self, mut charge: Charge<'_>, now: Time) -> Result<Permits, StoreError> {
        // Other processes charge too, so a cost that fitted may fit no more.
        const TRIES: usize = 3;
        if charge.limit.algorithm.counts_strikes() {
            // A debit that does not fit is not the client's fault, and must not be a strike.
            let free = charge.at_cost(Permits::ZERO);
            let stands = self.main.look(&[free], now).await?;
            let left = stands.each.first().map(|decision| decision.remaining);
            charge.cost = left.unwrap_or_default().min(charge.cost);
        }
        for _ in 0..TRIES {
            if charge.cost == Permits::ZERO {
                break;
            }
            let decisions = self.main.debit(&[charge], now).await?;
            if decisions.admitted {
                add(&self.counts.debited, charge.cost.get());
                return Ok(charge.cost);
            }
            let left = decisions.each.first().map(|decision| decision.remaining);
            charge.cost = left.unwrap_or_default().min(charge.cost);
        }
        Ok(Permits::ZERO)
    }
}

/// Debts being charged; marked as owed again if that ends early.
struct Unpaid<'a> {
    owes: &'a AtomicBool,
    is_left: bool,
}

impl Drop for Unpaid<'_> {
    fn drop(&mut self) {
        if self.is_left {
            self.owes.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns true if usage follows from the remaining permits, and is not on loan or bought.
fn is_debited(algorithm: &AnyAlgorithm) -> bool {
    !matches!(
        algorithm,
        AnyAlgorithm::Concurrency(_) | AnyAlgorithm::WarmUp(_) | AnyAlgorithm::Balance(_)
    )
}
