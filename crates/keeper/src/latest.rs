//! Latest: a value that is read often and seldom changes.
//!
//! ```text
//!   never changed:  first                    read by one load
//!   changed:        first   newest --> Arc   read through an `ArcSwap`
//! ```
//!
//! An `ArcSwap` alone would cost two locked instructions per read, which delay the processor's
//! other work: a third of a decision.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

#[derive(Debug)]
pub(crate) struct Latest<T> {
    first: T,
    /// Replaces `first` once the value was changed.
    newest: OnceLock<ArcSwap<T>>,
}

impl<T> Latest<T> {
    pub(crate) const fn new(first: T) -> Self {
        Self {
            first,
            newest: OnceLock::new(),
        }
    }

    /// Returns the first value, while it is the latest.
    #[inline]
    pub(crate) fn unchanged(&self) -> Option<&T> {
        self.newest.get().is_none().then_some(&self.first)
    }

    /// Passes the latest value to `view`.
    #[inline]
    pub(crate) fn with<R>(&self, view: impl FnOnce(&T) -> R) -> R {
        match self.newest.get() {
            None => view(&self.first),
            Some(newest) => view(&newest.load()),
        }
    }

    /// Replaces the value. Of two concurrent first calls one wins, whichever it is: the caller
    /// ensures that there is only one, or that either will do.
    pub(crate) fn store(&self, value: Arc<T>) {
        match self.newest.get() {
            Some(newest) => newest.store(value),
            // Lost if another thread was first: see above.
            None => drop(self.newest.set(ArcSwap::new(value))),
        }
    }

    /// Replaces the value with the result of `change` on the latest; safe to call concurrently.
    pub(crate) fn update(&self, mut change: impl FnMut(&T) -> T)
    where
        T: Clone,
    {
        let begin = || ArcSwap::from_pointee(self.first.clone());
        self.newest.get_or_init(begin).rcu(|old| change(old));
    }
}
