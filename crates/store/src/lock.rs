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
