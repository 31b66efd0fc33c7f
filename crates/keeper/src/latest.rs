//! Latest: a value that is read all the time and seldom changes.
//!
//! ```text
//!   never changed:  first                    a load says so, and no more
//!   changed:        first   newest --> Arc   behind an `ArcSwap`, out of the way
//! ```
//!
//! An `ArcSwap` alone would cost two locked instructions a reading, which hold back whatever
//! the processor does at the same time: a third of a decision.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

#[derive(Debug)]
pub(crate) struct Latest<T> {
    first: T,
    /// In place of the first, once it was changed.
    newest: OnceLock<ArcSwap<T>>,
}

impl<T> Latest<T> {
    pub(crate) const fn new(first: T) -> Self {
        Self {
            first,
            newest: OnceLock::new(),
        }
    }

    /// The first value, while it is the latest.
    #[inline]
    pub(crate) fn unchanged(&self) -> Option<&T> {
        self.newest.get().is_none().then_some(&self.first)
    }

    /// Shows the latest.
    #[inline]
    pub(crate) fn with<R>(&self, view: impl FnOnce(&T) -> R) -> R {
        match self.newest.get() {
            None => view(&self.first),
            Some(newest) => view(&newest.load()),
        }
    }

    /// Replaces it. Of two at once one stays, no matter which came last: the caller sees to it
    /// that there is one, or that either will do.
    pub(crate) fn store(&self, value: Arc<T>) {
        match self.newest.get() {
            Some(newest) => newest.store(value),
            // Lost if another came first: see above.
            None => drop(self.newest.set(ArcSwap::new(value))),
        }
    }

    /// Replaces it by what `change` makes of the latest; by any number at once.
    pub(crate) fn update(&self, mut change: impl FnMut(&T) -> T)
    where
        T: Clone,
    {
        let begin = || ArcSwap::from_pointee(self.first.clone());
        self.newest.get_or_init(begin).rcu(|old| change(old));
    }
}
