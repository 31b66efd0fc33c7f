//! Share: the part of its requests that a client within its limit is served.
//!
//! [`Algorithm::bound`] is the maximum that a limit admits to any callers; the share is the
//! minimum that it serves to a client that sends at most N requests in any span P and has the
//! limit to itself:
//!
//! ```text
//!   algorithm               at least    where the least is reached
//!   ----------------------+-----------+--------------------------------------------------
//!   token bucket (B >= N)   all
//!   fixed, calendar, reset  all
//!   sliding log             all
//!   interval bucket         all         N per the time that refills all of it
//!   leaky bucket, queue Q   (1 + Q)/N   N at once each P
//!   log with a gap G        1/(N g)     N at once each P; g = G / P, rounded up
//!   warm-up                 1/(N g)     the same from cold; G is the first permit's price
//!   smooth bursty           (S + 1)/N   N at once each P; S are saved up
//!   two-window              1/2         N at once each P, at the very start of a window
//!   sub-buckets: full       1/2         the same, at the start of a sub-bucket
//!     weighted              1/2         the same
//!     drop                  all         1/2 where m does not divide P
//!   hybrid                  (N + 1)/2N  N at once each P
//!   exponential             1 - 1/e     N at once each P; of N permits, rounded down
//! ```
//!
//! The reason is the same for all. A request is refused at `t` because of the permits admitted in
//! the span that the algorithm looks back on from `t`; in this span the client sent no more than
//! its limit. So each refusal lies in a span with a known served share, and such spans cover all
//! refusals without overlapping. `tests/algorithms/least_served.rs` searches for worse.

use crate::{Algorithm, Denials, Nanos, Permits, Quota, Time};

/// A share of requests in the long run: `served` of each `of`.
///
/// ```
/// use ratekeeper_core::{Algorithm, Gcra, Nanos, Share, Window};
/// let quota = "10/1m".parse().unwrap();
/// let bucket = Gcra::token_bucket(quota).unwrap();
/// assert_eq!(bucket.least_served(quota), Share::ALL);
/// let counter = Window::two_window(quota, Nanos::ZERO).unwrap();
/// assert_eq!(counter.least_served(quota), Share::new(1, 2), "in the worst case");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Share {
    served: u64,
    of: u64,
}

impl Share {
    /// Every request.
    pub const ALL: Self = Self { served: 1, of: 1 };
    /// No request is certain to be served.
    pub const NONE: Self = Self { served: 0, of: 1 };

    /// `served` of each `of` requests, in lowest terms; all of them if `served >= of`.
    pub const fn new(served: u64, of: u64) -> Self {
        if served >= of {
            return Self::ALL;
        }
        let divisor = common_divisor(served, of);
        Self {
            served: served / divisor,
            of: of / divisor,
        }
    }

    /// The requests served of each [`of`](Self::of).
    pub const fn served(self) -> u64 {
        self.served
    }

    /// The requests that [`served`](Self::served) is a part of; at least 1.
    pub const fn of(self) -> u64 {
        self.of
    }
}

/// The greatest common divisor; `b` is above zero.
const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while a > 0 {
        (a, b) = (b % a, a);
    }
    b
}

impl Share {
    /// One of the requests that come in `gap` passes, and N may come in each P that it touches.
    pub(crate) fn one_in(gap: Nanos, kept: Quota) -> Self {
        match gap.as_nanos().div_ceil(kept.per().as_nanos()) {
            0 => Self::ALL,
            spans => Self::new(1, kept.permits().get().saturating_mul(spans)),
        }
    }

    /// No share is certain where refused requests are counted and not all are served.
    pub(crate) fn counting(self, denials: Denials) -> Self {
        match denials {
            Denials::Counted if self != Self::ALL => Self::NONE,
            Denials::Free | Denials::Counted => self,
        }
    }
}

/// The minimum time between the first permit of a key and the second.
pub(crate) fn gap<A: Algorithm>(algorithm: &A) -> Nanos {
    let mut state = A::State::default();
    let _first = algorithm.decide(&mut state, Time::ZERO, Permits::ONE);
    let second = algorithm.look(&state, Time::ZERO, Permits::ONE);
    second.verdict.retry_after().unwrap_or(Nanos::ZERO)
}
