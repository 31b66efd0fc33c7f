//! Delivery: one message until the receiver has it, or it is given up.
//!
//! ```text
//!   2xx                        delivered, but for what `partial_success` refuses
//!   429, 502, 503, 504         again, after `Retry-After` or a wait that doubles
//!   no answer                  again
//!   any other status           given up: the receiver will not take it
//! ```

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::Full;
use prost::Message as _;
use ratekeeper_core::{Nanos, Origin, Time};
use ratekeeper_resilience::{Backoff, Hints, Jitter, RetryAfter, ServerWait, SplitMix};
use ratekeeper_wire::otlp::logs_service::ExportLogsServiceResponse;
use ratekeeper_wire::otlp::metrics_service::ExportMetricsServiceResponse;
use strum::{IntoStaticStr, VariantNames};
use tokio::sync::watch;

use super::OtlpCounts;
use crate::serve::http_receiver::{HttpReceiver, pause};

/// Five attempts, up to 1, 2, 4 and 8 s apart.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(8),
    attempts_max: 5,
    jitter: Jitter::Full,
};
/// Maximum wait that a receiver may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Maximum size of the body of an answer that is read.
const MAX_ANSWER_BYTES: usize = 16 << 10;
/// Maximum number of characters of a receiver's text that are logged.
const MAX_LOGGED: usize = 200;

/// A kind of message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum OtlpSignal {
    Metrics,
    Events,
}

impl OtlpSignal {
    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Events => "/v1/logs",
        }
    }

    /// Returns how many points or records an answer refuses, and why.
    fn refused(self, answer: &[u8]) -> Option<(i64, String)> {
        match self {
            Self::Metrics => {
                let answer = ExportMetricsServiceResponse::decode(answer).ok()?;
                let part = answer.partial_success?;
                Some((part.rejected_data_points, part.error_message))
            }
            Self::Events => {
                let answer = ExportLogsServiceResponse::decode(answer).ok()?;
                let part = answer.partial_success?;
                Some((part.rejected_log_records, part.error_message))
            }
        }
    }
}

/// Sends messages to the receiver.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) receiver: HttpReceiver,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) counts: OtlpCounts,
}

/// Why an attempt failed, and what follows.
struct Failure(String, Then);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    GiveUp,
    /// Again, after a wait that doubles.
    Again,
    /// Again, after the wait that the receiver asks for.
    AgainAfter(Nanos),
}

impl Delivery {
    /// Makes attempts until one succeeds; returns the number of points or records that the receiver
    /// refused, or `None` if no attempt succeeded.
    pub(super) async fn send(
        &self,
        signal: OtlpSignal,
        body: Bytes,
        closing: &mut watch::Receiver<bool>,
    ) -> Option<u64> {
        let mut attempts = BACKOFF.attempts();
        let mut random = SplitMix::seeded();
        let name: &str = signal.into();
        let sent = loop {
            let Failure(why, then) = match self.attempt(signal, body.clone()).await {
                Ok(refused) => break Some(refused),
                Err(failure) => failure,
            };
            let made = attempts.made();
            let wait = match then {
                Then::GiveUp => None,
                Then::Again => attempts.next_wait(&mut random),
                Then::AgainAfter(wait) => attempts.next_after(wait),
            };
            let Some(wait) = wait else {
                tracing::error!(
                    event = "otlp.failed",
                    signal = name,
                    attempts = made,
                    "{why}"
                );
                break None;
            };
            tracing::warn!(
                event = "otlp.retried",
                signal = name,
                attempts = made,
                "{why}"
            );
            pause(wait.into(), closing).await;
        };
        self.counts.exports[signal as usize][usize::from(sent.is_none())].add(1);
        sent
    }

    async fn attempt(&self, signal: OtlpSignal, body: Bytes) -> Result<u64, Failure> {
        let mut request = self
            .receiver
            .post(signal.path())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::CONTENT_ENCODING, "gzip");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|why| Failure(why.to_string(), Then::GiveUp))?;
        let answer = self.receiver.send(request, MAX_ANSWER_BYTES).await;
        let answer = answer.map_err(|why| Failure(why, Then::Again))?;
        let status = answer.status();
        if status.is_success() {
            let (refused, why) = signal.refused(answer.body()).unwrap_or_default();
            let refused = u64::try_from(refused).unwrap_or(0);
            if refused > 0 {
                let why: String = why.chars().take(MAX_LOGGED).collect();
                let (signal, why) = (<&str>::from(signal), why.escape_debug());
                tracing::warn!(event = "otlp.refused", signal, refused, "{why}");
            }
            return Ok(refused);
        }
        let then = next(status, answer.headers());
        Err(Failure(format!("answered {status}"), then))
    }
}

/// Returns what follows an answer that is no success.
fn next(status: StatusCode, fields: &HeaderMap) -> Then {
    if !matches!(status.as_u16(), 429 | 502 | 503 | 504) {
        return Then::GiveUp;
    }
    let field = |name| {
        fields
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let hints = Hints {
        retry_after: field(header::RETRY_AFTER),
        date: field(header::DATE),
        ..Hints::default()
    };
    let bound = RetryAfter {
        longest: LONGEST_WAIT,
        ..RetryAfter::default()
    };
    match bound.parse(hints, Time::ZERO, Origin::UNIX) {
        ServerWait::Wait(wait) => Then::AgainAfter(wait),
        ServerWait::Beyond(_) => Then::AgainAfter(LONGEST_WAIT.into()),
        ServerWait::Nothing => Then::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_may_change_are_asked_for_again() {
        let after = |status: u16, fields: &[(HeaderName, &'static str)]| {
            let each = fields.iter();
            let each = each.map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            next(StatusCode::from_u16(status).unwrap(), &each.collect())
        };
        let seconds = |wait| Then::AgainAfter(Nanos::from_secs(wait));
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        for (then, expected) in [
            (after(400, &[]), Then::GiveUp),
            (after(401, &[(header::RETRY_AFTER, "5")]), Then::GiveUp),
            (after(500, &[]), Then::GiveUp),
            (after(429, &[]), Then::Again),
            (after(502, &[]), Then::Again),
            (after(504, &[(header::RETRY_AFTER, "soon")]), seconds(1)),
            (after(503, &[(header::RETRY_AFTER, "7")]), seconds(7)),
            (after(503, &[(header::RETRY_AFTER, "86400")]), seconds(30)),
            (
                after(
                    503,
                    &[
                        (header::RETRY_AFTER, "Wed, 21 Oct 2015 07:28:09 GMT"),
                        (header::DATE, date),
                    ],
                ),
                seconds(9),
            ),
        ] {
            assert_eq!(then, expected);
        }
    }
}
