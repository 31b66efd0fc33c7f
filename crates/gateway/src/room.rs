//! Room: the maximum number of requests to an address at a time, which a reload may change.
//!
//! ```text
//!   most 3 | a | b | c |  --lowered to 1-->  | a | b | c |  surplus 2: no other request enters
//!                                            | c |          until three have left
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// A permit for each request.
#[derive(Debug)]
pub(crate) struct Room {
    permits: Arc<Semaphore>,
    most: AtomicUsize,
    /// Permits beyond the maximum, which requests had when it was lowered.
    surplus: AtomicUsize,
}

impl Room {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(most)),
            most: AtomicUsize::new(most),
            surplus: AtomicUsize::new(0),
        }
    }

    /// Sets the maximum. If more requests are under way, no other enters until enough have ended.
    pub(crate) fn resize(&self, most: usize) {
        let before = self.most.swap(most, Ordering::Relaxed);
        let fewer = before.saturating_sub(most);
        let in_use = fewer - self.permits.forget_permits(fewer);
        self.surplus.fetch_add(in_use, Ordering::Relaxed);
        for _ in before..most {
            if !self.takes_away() {
                self.permits.add_permits(1);
            }
        }
    }

    /// Returns the permit of a request, which waits for it until `end`; `start` is the moment at
    /// which it came, and becomes that at which it entered.
    pub(crate) async fn enter(
        &self,
        start: &mut Instant,
        end: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        loop {
            let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                permit
            } else {
                let permit = timeout_at(end, Arc::clone(&self.permits).acquire_owned()).await;
                *start = Instant::now();
                permit.ok()?.ok()?
            };
            if !self.takes_away() {
                return Some(permit);
            }
            permit.forget();
        }
    }

    /// Returns the number of requests that may enter at once.
    pub(crate) fn free(&self) -> usize {
        self.permits.available_permits()
    }

    /// Returns the number of requests under way.
    pub(crate) fn in_use(&self) -> usize {
        let [most, surplus] = [&self.most, &self.surplus].map(|it| it.load(Ordering::Relaxed));
        (most + surplus).saturating_sub(self.free())
    }

    /// Returns true if one more permit is beyond the maximum, and has to go.
    fn takes_away(&self) -> bool {
        let fewer = |left: usize| left.checked_sub(1);
        let order = Ordering::Relaxed;
        self.surplus.fetch_update(order, order, fewer).is_ok()
    }
}
