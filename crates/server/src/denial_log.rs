//! Denial log: lines about refused requests, few enough to be read during an attack.
//!
//! ```text
//!   denial of a key, in the minute:  1st  2nd  3rd  4th  5th .. 8th ..     1 in 2^k
//!   line                              x    x         x          x
//! ```
//!
//! The first denial of a key in a minute has a line, then the second, the fourth, the eighth. A flood
//! of keys is bounded by [`MAX_LINES`]. Denials without a line are counted in `suppressed` of the next
//! one of their limit. Keys are shown as `reveal_keys` says.
//!
//! Events: `decision.denied`, `decision.shadow_denied`, `decision.soft`, `ban.began`.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper::{Answer, Outcome};
use ratekeeper_core::{Nanos, Time, Verdict};
use ratekeeper_policy::LogDenials;

use crate::doors::answer::{mode, shown_mode};
use crate::metrics::{Counter, LogGate};
use crate::top_keys::KeyReveal;

/// Maximum number of lines a second, of all limits.
const MAX_LINES: u64 = 50;

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
    /// Of denials whose key is not counted: one line a second.
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

impl DenialLog {
    /// Writes a line about a denial, or counts it.
    pub(crate) fn log(
        &self,
        answer: &Answer,
        (denial, limit): (LoggedDenial<'_>, &LimitLog),
        reveal: KeyReveal<'_>,
    ) {
        let LoggedDenial { outcome, count } = denial;
        let (rule, now) = (outcome.rule, answer.decided_at());
        let retry_after_ms = outcome.decision.verdict.retry_after();
        let retry_after_ms = retry_after_ms.map(Nanos::as_millis_ceil);
        if matches!(outcome.decision.verdict, Verdict::Ban { .. }) {
            let Some(suppressed) = limit.bans.opens(now) else {
                return;
            };
            tracing::warn!(
                event = "ban.began",
                limit = &*rule.limit.name,
                mode = mode(shown_mode(outcome)),
                key = reveal.text(rule, outcome.key),
                retry_after_ms,
                suppressed,
            );
            return;
        }
        if answer.policy().settings.log_denials == LogDenials::Off {
            return;
        }
        let opens = match count {
            Some(count) => count.is_power_of_two(),
            None => limit.uncounted.opens(now).is_some(),
        };
        if !opens || !self.has_room(now) {
            limit.suppressed.add(1);
            return;
        }
        let suppressed = limit.suppressed.take();
        let key = reveal.text(rule, outcome.key);
        let (limit, mode) = (&*rule.limit.name, mode(shown_mode(outcome)));
        macro_rules! line {
            (event = $event:literal) => {
                tracing::info!(
                    event = $event,
                    limit,
                    mode,
                    key,
                    retry_after_ms,
                    count,
                    suppressed
                )
            };
        }
        if outcome.is_soft() {
            line!(event = "decision.soft");
        } else if outcome.shadow_denies() {
            line!(event = "decision.shadow_denied");
        } else {
            line!(event = "decision.denied");
        }
    }

    /// Takes one of the lines of this second.
    fn has_room(&self, now: Time) -> bool {
        let second = (now.as_nanos() / 1_000_000_000) << 16;
        let one_more = |written: u64| {
            let in_second = written.max(second); // the clock never steps back here
            ((in_second & 0xffff) < MAX_LINES).then_some(in_second + 1)
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
    fn lines_of_all_limits_are_bounded_in_each_second() {
        let log = DenialLog::default();
        let at = |millis| Time::ZERO + Nanos::from_millis(millis);
        let written = |millis| (0..1_000).filter(|_| log.has_room(at(millis))).count();
        assert_eq!(written(0), 50);
        assert_eq!(written(999), 0);
        assert_eq!(written(1_000), 50);
        assert_eq!(written(0), 0, "an answer that was held back");
        assert_eq!(written(5_000), 50);
    }
}
