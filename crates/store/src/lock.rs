//! Lock: a mutex that stays usable after a panic.
//!
//! The states that it guards are changed by code that does not panic; if it did, a limit that goes
//! on deciding is better than one that refuses every caller.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex that stays usable after a panic.
#[derive(Default, Debug)]
pub struct Lock<T>(Mutex<T>);

/// Access to the value of a [`Lock`], until it is dropped.
pub type LockGuard<'a, T> = MutexGuard<'a, T>;

impl<T> Lock<T> {
    /// Creates a lock of a value.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until no other thread has access to the value.
    #[inline]
    pub fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_lock_is_used_on_after_a_panic() {
        let lock = Lock::new(1);
        let panics = catch_unwind(AssertUnwindSafe(|| {
            let mut value = lock.lock();
            *value = 2;
            panic!("with the lock held");
        }));
        assert!(panics.is_err());
        assert_eq!(*lock.lock(), 2);
    }
}
