//! Clock: whichever a service runs on, as one type.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ratekeeper::{Clock, Timer};
use ratekeeper_core::{Nanos, Origin, Time};

/// The clock of a service: the system's, or one that a test moves.
#[derive(Clone, derive_more::Debug)]
#[debug("ServiceClock")]
pub(crate) struct ServiceClock(Arc<dyn AnyTimer>);

/// A timer of any type; its waits are on the heap, and rare.
trait AnyTimer: Clock {
    fn wait(&self, span: Nanos) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<C: Timer> AnyTimer for C {
    fn wait(&self, span: Nanos) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.sleep_async(span))
    }
}

impl ServiceClock {
    pub(crate) fn new(clock: impl Timer + 'static) -> Self {
        Self(Arc::new(clock))
    }
}

impl Clock for ServiceClock {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn origin(&self) -> Origin {
        self.0.origin()
    }

    fn wall(&self) -> u64 {
        self.0.wall()
    }
}

impl Timer for ServiceClock {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        self.0.wait(span)
    }
}
