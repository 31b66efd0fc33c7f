//! Idempotency: which failed calls may be made again at all.
//!
//! A call that failed may have been carried out. Making it again is safe if doing it twice
//! is doing it once, or if the server certainly did nothing.
//!
//! ```text
//!                       the server    it may have     it will always
//!                       did nothing   done it         say so
//!   repeatable          again         again           never
//!   with a key          again         again           never
//!   effectful           again         never           never
//! ```
//!
//! * Repeatable: GET, HEAD, OPTIONS, TRACE, PUT, DELETE. Methods that are unknown are
//!   effectful.
//! * The server certainly did nothing: it never got the request, or it answered 429 or 503
//!   with the problem type of a limiter. A bare 503 may come from a proxy that gave up on a
//!   server which did not.
//! * 500 is not retried: a request that failed so will mostly fail again.
//! * Source: RFC 9110 (2022), section 9.2.2; RFC 9457 (2023) for problem types;
//!   draft-ietf-httpapi-idempotency-key-header (2025); gRPC, "Status codes and their use"
//!   (2023).

use ratekeeper_core::Nanos;

/// Effect of making a call twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// The same as doing it once.
    Repeatable,
    /// The same as doing it once, because the server knows it by its `Idempotency-Key`.
    Keyed,
    /// Perhaps something else.
    Effectful,
}

impl Effect {
    /// Returns the effect of an HTTP method, as it is written in the request, with its
    /// `Idempotency-Key` if it has one.
    pub fn of_http(method: &str, idempotency_key: Option<&str>) -> Self {
        match method {
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" => Self::Repeatable,
            _ if idempotency_key.is_some_and(|key| !key.is_empty()) => Self::Keyed,
            _ => Self::Effectful,
        }
    }
}

/// Meaning of a failure for another attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The server did nothing: refused by a limiter, or never reached.
    Refused,
    /// The server may have done it: no answer, or one from an intermediary.
    Unknown,
    /// The same, after a time-out, which lowers an adaptive limit.
    TimedOut,
    /// Another attempt would end the same.
    Final,
}

impl Failure {
    /// Classifies an HTTP status of 400 or more, with the `type` of its problem document if it
    /// has one.
    ///
    /// ```
    /// use ratekeeper_resilience::{Effect, Failure};
    /// let post = Effect::of_http("POST", None);
    /// let problem = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    /// assert!(Failure::of_http(429, Some(problem)).permits(post));
    /// assert!(!Failure::of_http(503, None).permits(post));
    /// assert!(Failure::of_http(503, None).permits(Effect::Repeatable));
    /// assert!(!Failure::of_http(404, None).permits(Effect::Repeatable));
    /// ```
    pub fn of_http(status: u16, problem_type: Option<&str>) -> Self {
        match status {
            429 | 503 if problem_type.is_some_and(is_limiter) => Self::Refused,
            408 | 429 | 502 | 503 | 504 => Self::Unknown,
            _ => Self::Final,
        }
    }

    /// Classifies a gRPC status code, with the delay of its `RetryInfo` if it has one.
    ///
    /// Only `UNAVAILABLE` (14) asks for the same call again, and `RESOURCE_EXHAUSTED` (8) if a
    /// limiter sent it, because others send it for a full disk.
    pub fn of_grpc(code: u32, retry_delay: Option<Nanos>) -> Self {
        match code {
            8 | 14 if retry_delay.is_some() => Self::Refused,
            14 => Self::Unknown,
            _ => Self::Final,
        }
    }

    /// Returns true if a call of this effect may be made again.
    pub fn permits(self, effect: Effect) -> bool {
        match self {
            Self::Refused => true,
            Self::Unknown | Self::TimedOut => effect != Effect::Effectful,
            Self::Final => false,
        }
    }
}

/// Returns true if a problem type is one of those that limiters use.
fn is_limiter(problem_type: &str) -> bool {
    let Some((registry, name)) = problem_type.split_once('#') else {
        return false;
    };
    registry.ends_with("/assignments/http-problem-types")
        && ["quota-exceeded", "temporary-reduced-capacity"].contains(&name)
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

    #[test]
    fn methods_have_their_effects() {
        for (method, key, effect) in [
            ("GET", None, Effect::Repeatable),
            ("PUT", Some("k"), Effect::Repeatable),
            ("DELETE", None, Effect::Repeatable),
            ("POST", None, Effect::Effectful),
            ("POST", Some(""), Effect::Effectful),
            ("POST", Some("k"), Effect::Keyed),
            ("PATCH", None, Effect::Effectful),
            ("get", None, Effect::Effectful),
            ("", None, Effect::Effectful),
        ] {
            assert_eq!(Effect::of_http(method, key), effect, "{method}");
        }
    }

    #[test]
    fn grpc_codes_distinguish_fewer_failures() {
        let delay = Some(Nanos::SECOND);
        for (code, retry_delay, failure) in [
            (8, delay, Failure::Refused),
            (8, None, Failure::Final),
            (14, delay, Failure::Refused),
            (14, None, Failure::Unknown),
            (4, delay, Failure::Final),
            (13, None, Failure::Final),
        ] {
            assert_eq!(Failure::of_grpc(code, retry_delay), failure, "{code}");
        }
    }

    #[test]
    fn the_table_holds() {
        for (status, problem, [repeatable, keyed, effectful]) in [
            (429, Some(QUOTA), [true, true, true]),
            (429, None, [true, true, false]),
            (
                429,
                Some("https://example.org/#quota-exceeded"),
                [true, true, false],
            ),
            (
                503,
                Some("https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"),
                [true, true, true],
            ),
            (503, None, [true, true, false]),
            (408, None, [true, true, false]),
            (502, Some(QUOTA), [true, true, false]),
            (504, None, [true, true, false]),
            (500, None, [false, false, false]),
            (400, Some(QUOTA), [false, false, false]),
            (403, None, [false, false, false]),
        ] {
            let failure = Failure::of_http(status, problem);
            assert_eq!(failure.permits(Effect::Repeatable), repeatable, "{status}");
            assert_eq!(failure.permits(Effect::Keyed), keyed, "{status}");
            assert_eq!(failure.permits(Effect::Effectful), effectful, "{status}");
        }
    }
}
