//! Clock: where a limiter takes the time from. Nothing else in this crate reads one.

use alloc::sync::Arc;

use crate::{Origin, Time};

/// Source of the time.
///
/// Its zero may be any moment, also in 1970, because limits go by distances between readings. Its
/// last reading is 584 years after the zero, [`Time::MAX`]; there time stops. A reading that
/// is earlier than one before gives no permits away.
///
/// ```
/// use ratekeeper_core::{Clock, Nanos, Origin, Time};
///
/// /// A clock for programs that count seconds themselves.
/// struct Seconds(u64);
///
/// impl Clock for Seconds {
///     fn now(&self) -> Time {
///         Time::ZERO + Nanos::from_secs(self.0)
///     }
///
///     fn origin(&self) -> Origin {
///         Origin::from_unix_nanos(0)
///     }
/// }
/// assert_eq!(Seconds(60).wall(), 60_000_000_000);
/// let any: std::sync::Arc<dyn Clock> = std::sync::Arc::new(Seconds(60));
/// assert_eq!(any.clone().wall(), 60_000_000_000);
/// ```
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Time;
    /// Returns the position of the clock's zero in Unix time; [`Origin::UNIX`] if it is not known,
    /// which only limits that follow the wall clock need.
    fn origin(&self) -> Origin;
    /// Returns the wall clock's time, in nanoseconds since 1970: equal to this clock's, unless the
    /// wall clock has been set since [`origin`](Self::origin) was read.
    fn wall(&self) -> u64 {
        self.origin().unix_nanos(self.now())
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn origin(&self) -> Origin {
        (**self).origin()
    }

    fn wall(&self) -> u64 {
        (**self).wall()
    }
}
