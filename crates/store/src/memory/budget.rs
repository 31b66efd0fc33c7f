//! Budget: the bytes of a store, taken before they are allocated and given back after.
//!
//! ```text
//!   0                                          budget - reserve        budget
//!   |=== taken: tables, keys, states ============|.... free ....|-- reserve --|
//!                                                 growth stops here     '- only to move
//! ```
//!
//! A table that moves to a new size holds the old and the new one for a moment; both count.
//! The reserve lets a table shrink or convert when nothing else is left.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Divisor of the budget for the reserve: tables are many, and few move at once.
const RESERVE: usize = 16;

#[derive(Debug)]
pub(super) struct MemoryBudget {
    total: usize,
    taken: AtomicUsize,
}

/// Purpose of an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// To hold more.
    Grow,
    /// To hold the same elsewhere: the old bytes are given back soon.
    Move,
}

impl MemoryBudget {
    pub(super) fn new(total: usize) -> Self {
        Self {
            total,
            taken: AtomicUsize::new(0),
        }
    }

    /// Takes `bytes`; returns false if fewer are free.
    pub(super) fn take(&self, bytes: usize, purpose: Purpose) -> bool {
        let bound = match purpose {
            Purpose::Grow => self.total - self.total / RESERVE,
            Purpose::Move => self.total,
        };
        let fits = |taken: usize| taken.checked_add(bytes).filter(|&sum| sum <= bound);
        // Relaxed: a counter that publishes nothing.
        bytes == 0
            || self
                .taken
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
                .is_ok()
    }

    /// Gives `bytes` back.
    pub(super) fn give(&self, bytes: usize) {
        if bytes > 0 {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_leaves_the_reserve_for_moves() {
        let budget = MemoryBudget::new(160);
        assert!(budget.take(150, Purpose::Grow));
        assert!(!budget.take(1, Purpose::Grow));
        assert!(!budget.take(usize::MAX, Purpose::Move));
        assert!(budget.take(10, Purpose::Move));
        assert!(budget.take(0, Purpose::Grow));
        budget.give(160);
        assert_eq!(budget.taken(), 0);
    }
}
