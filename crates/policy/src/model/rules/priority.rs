//! Priority: the last part of a limit, reserved for some of its requests.
//!
//! ```text
//!   limit = "100/1m", priority = { last = "20%", match = { path = "/health" } }
//!
//!   remaining   100 .................... 20 .......... 0
//!   /health     |--------- passes -------------------|
//!   others      |--------- passes -------|-- refused -|
//! ```
//!
//! Requests without priority carry a headroom
//! ([`Mode::Headroom`](ratekeeper_core::Mode::Headroom)): they are allowed only if the last part
//! stays free, and are charged their cost.

use ratekeeper_core::Permits;

use crate::{Matcher, RequestFacts};

/// `priority` of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Part of the limit that is for requests with priority, from 1 to 99.
    pub last_percent: u8,
    /// Requests with priority.
    pub matcher: Matcher,
}

impl Priority {
    /// Returns the permits of a limit with this capacity that are for requests with priority:
    /// rounded up, to let no other request take a part of them.
    pub fn headroom(&self, capacity: Permits) -> Permits {
        let part = capacity.get() * u64::from(self.last_percent);
        Permits::new(part.div_ceil(100))
    }

    /// Returns true if the request has priority: in every reading of its path, because in doubt it
    /// has none.
    pub(crate) fn holds(&self, request: &RequestFacts<'_>) -> bool {
        self.matcher.exempts(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headroom_is_rounded_up() {
        for (capacity, percent, expected) in [
            (100, 20, 20),
            (101, 20, 21),
            (1, 1, 1),
            (0, 50, 0),
            (10_000_000_000, 99, 9_900_000_000),
        ] {
            let priority = Priority {
                last_percent: percent,
                matcher: Matcher::default(),
            };
            let headroom = priority.headroom(Permits::new(capacity));
            assert_eq!(headroom, Permits::new(expected), "{percent}% of {capacity}");
        }
    }
}
