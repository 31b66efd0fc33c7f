//! Fields: the wait that the header fields of an answer state.

use std::time::SystemTime;

use http::{HeaderMap, HeaderValue};
use ratekeeper_core::{Nanos, Origin};

use crate::retry::clock::now;
use crate::retry_after::{is_zero, span};
use crate::{Hints, RetryAfter, ServerWait};

/// Fields of a remaining quota and of its reset; the first pair with nothing left counts. Those of
/// Discord first: they hold decimals, and no clock is needed.
const RESETS: [(&str, &str); 4] = [
    ("x-ratelimit-remaining", "x-ratelimit-reset-after"),
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
];

/// The same for each kind of quota, of APIs of language models: the longest wait counts.
const KINDS: [(&str, &str); 2] = [
    (
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    ),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
];

impl RetryAfter {
    /// Returns the wait that the header fields of an answer state, by [`parse`](Self::parse) and
    /// the clock of the system. Also read: `Retry-After-Ms`, `X-RateLimit-Reset-After`,
    /// `X-Rate-Limit-Reset`, and `X-RateLimit-Reset-Requests` and `-Tokens`.
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
        let last = |name: &str| {
            let value = headers.get_all(name).iter().next_back()?;
            Some(str::from_utf8(value.as_bytes()).unwrap_or("?"))
        };
        let lines = headers.get_all("ratelimit").iter().map(HeaderValue::to_str);
        let lines: Result<Vec<_>, _> = lines.collect();
        let rate_limit = lines.ok().map(|lines| lines.join(","));
        let in_millis = last("retry-after-ms").or_else(|| last("x-ms-retry-after-ms"));
        let in_millis = in_millis.map(|millis| format!("{}ms", millis.trim()));
        let in_millis = in_millis.as_deref().filter(|millis| span(millis).is_some());
        let spent = |&(left, reset): &(&str, &'static str)| {
            last(left)
                .is_none_or(is_zero)
                .then(|| last(reset))
                .flatten()
        };
        let of_kinds = || {
            KINDS
                .iter()
                .filter_map(spent)
                .max_by_key(|reset| span(reset))
        };
        let hints = Hints {
            retry_after: in_millis.or_else(|| last("retry-after")),
            rate_limit: rate_limit.as_deref(),
            remaining: None, // zero, or not there
            reset: RESETS.iter().find_map(spent).or_else(of_kinds),
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

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn the_fields_of_many_apis_state_a_wait() {
        for (fields, millis) in [
            ("retry-after: 1.5", 1_500),
            ("retry-after: 3000\u{b5}s", 3),
            ("retry-after: bient\u{f4}t", 1_000),
            ("retry-after-ms: 250; retry-after: 9", 250),
            ("retry-after-ms: 250.0; retry-after: 9", 250),
            ("x-ms-retry-after-ms: 20", 20),
            ("retry-after-ms: soon; retry-after: 9", 9_000),
            ("retry-after-ms: 6m", 0),
            ("retry-after: 9; x-ratelimit-reset-after: 2", 9_000),
            ("x-ratelimit-reset-after: 0.25; x-ratelimit-reset: 1", 250),
            (
                "x-ratelimit-remaining: 0; x-ratelimit-reset-after: 0.25",
                250,
            ),
            ("x-ratelimit-remaining: 1; x-ratelimit-reset-after: 0.25", 0),
            ("x-rate-limit-remaining: 0; x-rate-limit-reset: 7", 7_000),
            ("x-rate-limit-remaining: 3; x-rate-limit-reset: 7", 0),
            (
                "ratelimit-remaining: 3; ratelimit-reset: 9; x-ratelimit-reset: 7",
                7_000,
            ),
            ("x-ratelimit-reset-requests: 6m0s", 360_000),
            ("x-ratelimit-reset-tokens: 20ms", 20),
            ("x-ratelimit-reset-tokens: soon", 1_000),
            (
                "x-ratelimit-remaining-requests: 0; x-ratelimit-reset-requests: 6m0s; \
                 x-ratelimit-remaining-tokens: 0; x-ratelimit-reset-tokens: 7m0s",
                420_000,
            ),
            (
                "x-ratelimit-remaining-requests: 3; x-ratelimit-reset-requests: 6m0s; \
                 x-ratelimit-remaining-tokens: 0; x-ratelimit-reset-tokens: 1s",
                1_000,
            ),
        ] {
            let headers: HeaderMap = fields
                .split("; ")
                .map(|field| {
                    let (name, value) = field.split_once(": ").unwrap();
                    let name: HeaderName = name.parse().unwrap();
                    (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
                })
                .collect();
            let wait = RetryAfter::default().of_headers(&headers);
            let expected = match millis {
                0 => ServerWait::Nothing,
                millis => ServerWait::Wait(Nanos::from_millis(millis)),
            };
            assert_eq!(wait, expected, "{fields}");
        }
    }
}
