//! Fields: the wait that the header fields of an answer state.

use std::time::SystemTime;

use http::{HeaderMap, HeaderValue};
use ratekeeper_core::{Nanos, Origin};

use crate::retry::clock::now;
use crate::{Hints, RetryAfter, ServerWait};

impl RetryAfter {
    /// Returns the wait that the header fields of an answer state, by [`parse`](Self::parse) and
    /// the clock of the system.
    ///
    /// ```
    /// use http::Response;
    /// use ratekeeper_resilience::{Nanos, RetryAfter, ServerWait};
    ///
    /// let answer = Response::builder().status(429).header("retry-after", "20").body(())?;
    /// let wait = RetryAfter::default().of_headers(answer.headers());
    /// assert_eq!(wait, ServerWait::Wait(Nanos::from_secs(20)));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn of_headers(&self, headers: &HeaderMap) -> ServerWait {
        let last = |name: &str| headers.get_all(name).iter().next_back()?.to_str().ok();
        let lines = headers.get_all("ratelimit").iter().map(HeaderValue::to_str);
        let lines: Result<Vec<_>, _> = lines.collect();
        let rate_limit = lines.ok().map(|lines| lines.join(","));
        let hints = Hints {
            retry_after: last("retry-after"),
            rate_limit: rate_limit.as_deref(),
            remaining: last("ratelimit-remaining").or_else(|| last("x-ratelimit-remaining")),
            reset: last("ratelimit-reset").or_else(|| last("x-ratelimit-reset")),
            date: last("date"),
        };
        self.parse(hints, now(), origin())
    }
}

/// Returns the date of the zero from which calls count time. It is read when a date is parsed, and
/// not before, because the system date is set anew now and then, and a machine that slept has lost
/// hours.
fn origin() -> Origin {
    #[expect(
        clippy::disallowed_methods,
        reason = "dates in Retry-After need the current date"
    )]
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_1970 = Nanos::from(since_1970.unwrap_or_default());
    Origin::from_unix_nanos(since_1970.as_nanos().saturating_sub(now().as_nanos()))
}
