//! Denial log: lines about refused requests, few enough to be read during an attack.
//!
//! ```text
//!   denial of a key, in the minute:  1st  2nd  3rd  4th  5th .. 8th ..     1 in 2^k
//!   line                              x    x         x          x
//! ```
//!
//! The first denial of a key in a minute has a line, then the second, the fourth, the eighth. A
//! flood of keys is bounded by [`MAX_LINES`], and one of denials by [`MAX_REPEATS`]. Denials
//! without a line are counted in `suppressed` of the next one of their limit. Keys are shown as
//! `reveal_keys` says, and the request with `log_requests`.
//!
//! Events: `decision.denied`, `decision.shadow_denied`, `decision.soft`, `decision.covered`,
//! `ban.began`.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{Nanos, Time, Verdict};
use ratekeeper_policy::LogDenials;

use super::top_keys::KeyReveal;
use crate::counter::{Counter, LogGate};
use crate::doors::answer::shown_mode;
use crate::serve::log_writer::cut;

/// Maximum number of lines a second, of all limits.
const MAX_LINES: u64 = 50;
/// Maximum number of these lines when one is about a key that had a line in this minute, so that
/// the first denial of a key finds room.
const MAX_REPEATS: u64 = 25;
/// Maximum number of bytes of a path in a line.
const MAX_PATH_BYTES: usize = 256;
/// Maximum number of bytes of a method or an id in a line; longer ones are left out.
const MAX_WORD_BYTES: usize = 128;
/// The header field of the id of a request.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// The request of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoggedRequest<'a> {
    /// Empty if unknown, as the path is.
    pub(crate) method: &'a str,
    /// Without the query.
    pub(crate) path: &'a str,
    /// Names in lower case.
    pub(crate) headers: &'a [(&'a str, &'a [u8])],
}

/// The fields of a line about a request; `None` if unknown, or if the policy does not show them.
#[derive(Default)]
struct RequestFields<'a> {
    method: Option<&'a str>,
    path: Option<&'a str>,
    id: Option<&'a str>,
}

/// Bounds the lines of all limits.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    /// The second of the last line, and the number of lines in it: `second * 2^16 + lines`.
    written: AtomicU64,
}

/// The denials of one limit that have no line.
#[derive(Debug, Default)]
pub(crate) struct LimitLog {
    suppressed: Counter,
    /// Denials whose key is not counted are logged once a second.
    uncounted: LogGate,
    bans: LogGate,
}

/// A denial to be logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedDenial<'a> {
    pub(crate) outcome: &'a Outcome<'a>,
    /// Number of denials of the key in this minute, with this one; `None` if they are not counted.
    pub(crate) count: Option<u64>,
}

impl<'a> LoggedRequest<'a> {
    fn fields(&self) -> RequestFields<'a> {
        let id = self.headers.iter().find(|(name, _)| *name == REQUEST_ID);
        let id = id.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let is_word = |text: &&str| (1..=MAX_WORD_BYTES).contains(&text.len());
        RequestFields {
            method: Some(self.method).filter(is_word),
            path: Some(cut(self.path, MAX_PATH_BYTES)).filter(|path| !path.is_empty()),
            id: id.filter(is_word),
        }
    }
}

impl DenialLog {
    /// Writes a line about a denial, or counts it.
    pub(crate) fn log(
        &self,
        answer: &Answer,
        request: LoggedRequest<'_>,
        denial: LoggedDenial<'_>,
        limit: &LimitLog,
        reveal: KeyReveal<'_>,
    ) {
        let LoggedDenial { outcome, count } = denial;
        let (rule, now) = (outcome.rule, answer.decided_at());
        let retry_after_ms = outcome.decision.verdict.retry_after();
        let retry_after_ms = retry_after_ms.map(Nanos::as_millis_ceil);
        let settings = &answer.policy().settings;
        let shown = || settings.log_requests.then(|| request.fields());
        if matches!(outcome.decision.verdict, Verdict::Ban { .. }) {
            let Some(suppressed) = limit.bans.opens(now) else {
                return;
            };
            let shown = shown().unwrap_or_default();
            tracing::warn!(
                event = "ban.began",
                limit = &*rule.limit.name,
                mode = shown_mode(outcome).as_ref(),
                key = reveal.text(rule, outcome.key),
                retry_after_ms,
                suppressed,
                method = shown.method,
                path = shown.path,
                request_id = shown.id,
            );
            return;
        }
        if settings.log_denials == LogDenials::Off {
            return;
        }
        let opens = match count {
            Some(count) => count.is_power_of_two(),
            None => limit.uncounted.opens(now).is_some(),
        };
        let most = if count == Some(1) {
            MAX_LINES
        } else {
            MAX_REPEATS
        };
        if !opens || !self.has_room(now, most) {
            limit.suppressed.add(1);
            return;
        }
        let suppressed = limit.suppressed.take();
        let key = reveal.text(rule, outcome.key);
        let mode = shown_mode(outcome);
        let (limit, mode) = (&*rule.limit.name, mode.as_ref());
        let shown = shown().unwrap_or_default();
        if let Some(by) = outcome.covered_by {
            let mut outcomes = answer.outcomes();
            let covering = outcomes.find(|other| other.rule.limit.id == by.limit.id);
            let event = if outcome.is_soft() {
                "decision.soft"
            } else {
                "decision.covered"
            };
            tracing::info!(
                event,
                limit,
                mode,
                key,
                covered_by = &*by.limit.name,
                remaining = covering.map(|other| other.decision.remaining.get()),
                retry_after_ms,
                suppressed,
                method = shown.method,
                path = shown.path,
                request_id = shown.id,
            );
            return;
        }
        let event = if outcome.refuses() {
            "decision.denied"
        } else {
            "decision.shadow_denied"
        };
        tracing::info!(
            event,
            limit,
            mode,
            key,
            retry_after_ms,
            count,
            suppressed,
            method = shown.method,
            path = shown.path,
            request_id = shown.id,
        );
    }

    /// Takes one of the lines of this second, if it has fewer than `most`.
    fn has_room(&self, now: Time, most: u64) -> bool {
        let second = (now.as_nanos() / 1_000_000_000) << 16;
        let one_more = |written: u64| {
            let in_second = written.max(second); // the clock never steps back here
            ((in_second & 0xffff) < most).then_some(in_second + 1)
        };
        let written = &self.written;
        written
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_within_bounds() {
        let long = format!("/{}", "\u{e9}".repeat(200));
        let id = [(REQUEST_ID, &b"id-1"[..])];
        let too_long = "x".repeat(MAX_WORD_BYTES + 1);
        let bytes = [(REQUEST_ID, too_long.as_bytes())];
        let fields = |method, path, headers| {
            let shown = LoggedRequest {
                method,
                path,
                headers,
            }
            .fields();
            (shown.method, shown.path, shown.id)
        };
        assert_eq!(
            fields("GET", "/a", &id[..]),
            (Some("GET"), Some("/a"), Some("id-1"))
        );
        assert_eq!(fields("", "", &[]), (None, None, None));
        let (method, path, none) = fields(&too_long, &long, &bytes[..]);
        assert_eq!((method, none), (None, None));
        assert_eq!(path, Some(&long[..255]), "whole characters only");
        assert_eq!(fields("", "", &[(REQUEST_ID, b"\xff")]).2, None);
    }

    #[test]
    fn lines_of_all_limits_are_bounded_in_each_second() {
        let log = DenialLog::default();
        let at = |millis| Time::ZERO + Nanos::from_millis(millis);
        let repeats = |millis| log.has_room(at(millis), MAX_REPEATS);
        let written = |millis| {
            let firsts = (0..1_000).filter(|_| log.has_room(at(millis), MAX_LINES));
            firsts.count()
        };
        assert_eq!((0..1_000).filter(|_| repeats(0)).count(), 25);
        assert_eq!(written(0), 25, "the rest is for first denials");
        assert!(!repeats(999));
        assert_eq!(written(999), 0);
        assert_eq!(written(1_000), 50);
        assert_eq!(written(0), 0, "an answer that was held back");
        assert_eq!(written(5_000), 50);
    }
}
