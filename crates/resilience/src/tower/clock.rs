//! Clock: the time of the tokio runtime, so that tests can hold it.

use std::time::SystemTime;

use ratekeeper_core::{Nanos, Origin, Time};
use tokio::time::Instant;

/// Counts from when it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero: Instant,
    origin: Origin,
}

impl Clock {
    pub(super) fn new() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "dates in Retry-After need to know what day it is; read once"
        )]
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let since_1970 = Nanos::from(since_1970.unwrap_or_default());
        Self {
            zero: Instant::now(),
            origin: Origin::from_unix_nanos(since_1970.as_nanos()),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.zero.elapsed())
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }
}
