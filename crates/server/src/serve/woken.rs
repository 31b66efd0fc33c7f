//! Woken: a future that is polled only after it woke its task, beside others that wake it more often.
//!
//! ```text
//!   bytes ---------------------------> connection: polls the stream
//!   tick --> is woken, by its waker -> connection: polls the stream and the tick
//! ```
//!
//! Its bytes wake a connection once or twice for each request. Each poll of a timer, or of a signal
//! that connections share, takes over a hundred instructions.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Returns the output of a future. All polls are those of one task, whose waker stays the same.
pub(crate) async fn when_woken<F: Future>(future: F) -> F::Output {
    let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    let is_woken = AtomicBool::new(true); // it is new
    let note = Arc::new(WakeNote { is_woken, task });
    let (waker, mut future) = (Waker::from(Arc::clone(&note)), pin!(future));
    poll_fn(|_| {
        let is_woken = &note.is_woken;
        // Acquire: what the future waits for.
        if is_woken.load(Ordering::Relaxed) && is_woken.swap(false, Ordering::Acquire) {
            return future.as_mut().poll(&mut Context::from_waker(&waker));
        }
        Poll::Pending
    })
    .await
}

/// Notes that a future woke its task.
struct WakeNote {
    is_woken: AtomicBool,
    task: Waker,
}

impl Wake for WakeNote {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn a_future_is_polled_at_first_and_after_its_wake() {
        let (polls, waker) = (Cell::new(0), RefCell::new(Waker::noop().clone()));
        let mut future = pin!(when_woken(poll_fn(|context| {
            polls.set(polls.get() + 1);
            waker.replace(context.waker().clone());
            match polls.get() {
                1 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(future.as_mut().poll(&mut context).is_pending());
            assert_eq!(polls.get(), 1);
        }
        waker.borrow().wake_by_ref();
        assert!(future.as_mut().poll(&mut context).is_ready());
    }
}
