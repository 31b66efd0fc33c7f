//! Hold: the permits of a request, given back at the end of its response.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::Permits;

use super::gate::measured::Measured;
use crate::limiter::line::WaitLine;

/// The permits that a request holds: given back when it is dropped.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub enum RequestHold {
    Counted(CountGuard),
    /// Notified of the progress of the request. On the heap, as [`PassTerms`](super::pass::PassTerms).
    Measured(Box<Measured>),
    Other(Box<dyn Any + Send>),
}

impl RequestHold {
    /// Returns the measured request that must be notified of progress.
    pub(super) fn measured(&mut self) -> Option<&mut Measured> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::Counted(_) | Self::Other(_) => None,
        }
    }
}

debug_fields!([] RequestHold {});

/// What happens when the permits of a request come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub enum OnReturn {
    /// Nothing, because no request can wait for them.
    Silent,
    /// The first waiter is woken.
    WakeFirst,
}

/// A count of requests at work, and the line of waiters.
#[derive(Debug, Default)]
pub(super) struct WorkCount {
    at_work: AtomicU64,
    line: WaitLine,
}

impl WorkCount {
    pub(super) fn line(&self) -> &WaitLine {
        &self.line
    }

    pub(super) fn at_work(&self) -> u64 {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Adds `cost`, or nothing if the sum exceeds `most`.
    pub(super) fn add(
        self: &Arc<Self>,
        cost: Permits,
        most: Permits,
        on_return: OnReturn,
    ) -> Option<CountGuard> {
        let add = |count: u64| {
            let sum = count.checked_add(cost.get());
            sum.filter(|sum| *sum <= most.get())
        };
        let order = Ordering::Relaxed;
        self.at_work.fetch_update(order, order, add).ok()?;
        Some(CountGuard {
            cost: cost.get(),
            count: Arc::clone(self),
            on_return,
        })
    }
}

/// A part of the count, returned when dropped.
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct CountGuard {
    cost: u64,
    count: Arc<WorkCount>,
    on_return: OnReturn,
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.count.at_work.fetch_sub(self.cost, Ordering::Relaxed);
        if self.on_return == OnReturn::WakeFirst {
            // Takes the lock under which the first waiter looks, so that it sees this, or is woken.
            self.count.line.wake_first();
        }
    }
}
