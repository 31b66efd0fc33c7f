//! Line: the queue of waiters for permits, served in the order in which they came.
//!
//! ```text
//!   permits ---> | first | second | third | ... <--- joins at the end
//!                    |
//!                    '- alone has a timer; nothing is charged before its turn, so a
//!                       waiter that leaves owes nothing, and those behind move up
//! ```
//!
//! Each grant is made for the present moment, never for an earlier one at which it was due, because
//! any span admits no more than the limit then. So a timer that is late slows a limit down, unless
//! its burst holds what becomes free meanwhile.
//!
//! While a caller waits, `check` is refused, so that no request passes the line.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use ratekeeper_core::Permits;
use ratekeeper_store::{Lock, LockGuard};

#[derive(Debug, Default)]
#[cfg_attr(
    feature = "tower",
    expect(unnameable_types, reason = "limits are made in this crate only")
)]
#[cfg_attr(
    not(feature = "tower"),
    expect(unreachable_pub, reason = "gates of the tower layer show it")
)]
pub struct WaitLine {
    /// The number of waiters; a hint for callers that do not hold the lock.
    length: AtomicUsize,
    queue: Lock<Waiters>,
}

/// The waiters, in order.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    next: u64,
    by_number: BTreeMap<u64, Waiter>,
    /// The total cost of all waiters.
    permits: u128,
}

#[derive(Debug)]
struct Waiter {
    cost: Permits,
    waker: Waker,
}

impl WaitLine {
    /// Returns the number of waiters.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, Waiters> {
        self.queue.lock()
    }

    /// Joins at the end; returns the place in the line.
    pub(crate) fn join(&self, queue: &mut Waiters, cost: Permits, waker: &Waker) -> u64 {
        let number = queue.next;
        queue.next += 1;
        queue.permits += u128::from(cost.get());
        let waker = waker.clone();
        queue.by_number.insert(number, Waiter { cost, waker });
        self.length.store(queue.by_number.len(), Ordering::Relaxed);
        number
    }

    /// Leaves, served or not; wakes the waiter that is first now.
    pub(crate) fn leave(&self, mut queue: LockGuard<'_, Waiters>, number: u64) {
        let was_first = queue.is_first(number);
        if let Some(left) = queue.by_number.remove(&number) {
            queue.permits -= u128::from(left.cost.get());
        }
        self.length.store(queue.by_number.len(), Ordering::Relaxed);
        let first = queue.first();
        drop(queue);
        if was_first && let Some(waker) = first {
            waker.wake();
        }
    }

    /// Wakes the first waiter, because something other than time has changed.
    pub(crate) fn wake_first(&self) {
        let first = self.lock().first();
        if let Some(waker) = first {
            waker.wake();
        }
    }
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Returns the total cost of all waiters, and `cost` after them, at most what `Permits` hold.
    pub(crate) fn total_with(&self, cost: Permits) -> Permits {
        let total = self.permits + u128::from(cost.get());
        Permits::new(u64::try_from(total).unwrap_or(u64::MAX))
    }

    pub(crate) fn is_first(&self, number: u64) -> bool {
        let first = self.by_number.first_key_value();
        first.is_some_and(|(&first, _)| first == number)
    }

    /// Sets the waker for when this waiter's turn comes.
    pub(crate) fn set_waker(&mut self, number: u64, waker: &Waker) {
        if let Some(waiter) = self.by_number.get_mut(&number) {
            waiter.waker.clone_from(waker);
        }
    }

    fn first(&self) -> Option<Waker> {
        let (_, waiter) = self.by_number.first_key_value()?;
        Some(waiter.waker.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_saturate() {
        let line = WaitLine::default();
        for _ in 0..3_000 {
            let mut queue = line.lock();
            assert_eq!(queue.total_with(Permits::MAX), Permits::MAX);
            line.join(&mut queue, Permits::MAX, Waker::noop());
        }
        for number in 0..3_000 {
            line.leave(line.lock(), number);
        }
        assert_eq!(line.lock().total_with(Permits::ONE), Permits::ONE);
    }
}
