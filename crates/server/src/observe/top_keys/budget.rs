//! Budget: bytes that several owners share, with a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of bytes that are not taken yet.
#[derive(Debug)]
pub(super) struct ByteBudget(AtomicUsize);

impl ByteBudget {
    pub(super) const fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    pub(super) fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bytes that one owner has taken; it gives them back when it is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare {
    budget: Arc<ByteBudget>,
    taken: usize,
}

impl BudgetShare {
    /// Takes `bytes` of the budget; returns `None` if it has fewer.
    pub(super) fn take(budget: &Arc<ByteBudget>, bytes: usize) -> Option<Self> {
        let mut share = Self {
            budget: Arc::clone(budget),
            taken: 0,
        };
        share.grow(bytes).then_some(share)
    }

    /// Takes more bytes; returns false, and takes none, if the budget has fewer.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let rest = |left: usize| left.checked_sub(bytes);
        let left = &self.budget.0;
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        self.taken += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_budget_and_come_back() {
        let budget = Arc::new(ByteBudget::new(10));
        let mut first = BudgetShare::take(&budget, 6).unwrap();
        assert!(BudgetShare::take(&budget, 5).is_none());
        assert!(!first.grow(5));
        assert!(first.grow(4));
        assert!(BudgetShare::take(&budget, 1).is_none());
        drop(first);
        assert!(BudgetShare::take(&budget, 10).is_some());
    }
}
