//! Why waiting does not help: a cost that never fits, or a full queue.

use std::fmt;

use ratekeeper_core::Permits;

/// Why waiting does not help.
///
/// ```
/// use ratekeeper::{Limiter, WaitError};
/// let limiter = Limiter::per("2/1m")?;
/// let too_large = WaitError::TooLarge { cost: 3, capacity: 2 };
/// assert_eq!(limiter.acquire_n_blocking(3), Err(too_large));
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// The cost is above the capacity of the limit, or above the credits left of a balance, which
    /// no wait refills.
    TooLarge {
        /// The requested cost.
        cost: u64,
        /// The maximum that can ever be granted at once.
        capacity: u64,
    },
    /// The maximum number of callers is waiting.
    TooManyWaiting {
        /// See [`Limiter::with_most_waiting`](crate::Limiter::with_most_waiting).
        most: usize,
    },
}

impl WaitError {
    pub(super) fn too_large(cost: u64, capacity: Permits) -> Self {
        let capacity = capacity.get();
        Self::TooLarge { cost, capacity }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { cost, capacity } if cost <= capacity => write!(
                f,
                "`{cost}` permits exceed the credits left, which no wait refills; \
                 hint: grant credits, at most {capacity}"
            ),
            Self::TooLarge { cost, capacity } => write!(
                f,
                "`{cost}` permits exceed the capacity of {capacity}; \
                 hint: acquire them in parts, or raise the burst"
            ),
            Self::TooManyWaiting { most } => write!(
                f,
                "{most} callers already wait; hint: refuse work before it waits, or raise the \
                 maximum with `with_most_waiting`"
            ),
        }
    }
}

impl std::error::Error for WaitError {}
