//! Sync: the primitives of the standard library, or loom's, which try all schedules.

use ratekeeper_core::{Nanos, Time};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Returns the guarded value, even if a thread that held it panicked: values here are plain
/// numbers that are whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Threads that race read clocks that differ by less.
pub(crate) const SET_BACK: Nanos = Nanos::SECOND;

/// Returns true if a wait until then, of at most `longest`, is over. It also is if much more than
/// that remains: the clock was set back, and the time already waited is unknown.
pub(crate) fn is_over(until: Time, longest: Nanos, now: Time) -> bool {
    now >= until || until.since(now) > longest + SET_BACK
}
