//! Row: the counts of a limit or of a key, as read from an answer.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ratekeeper_core::Nanos;
use serde::Deserialize;

use crate::words;

/// The counts of a limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BoardRow {
    #[serde(rename = "limit")]
    pub(crate) name: String,
    pub(crate) mode: String,
    pub(crate) requests: u64,
    pub(crate) denied: u64,
    /// Different keys refused.
    pub(crate) distinct_denied: u64,
    /// Likely cause of the refusals; empty without one.
    pub(crate) cause: String,
    /// Keys that are banned, of those that the process knows.
    pub(crate) bans: u64,
    /// Highest share of the limit that a key had spent in the last minute, in percent; `None`
    /// without a history of it.
    pub(crate) highest_percent: Option<u64>,
    /// Time that the counts cover.
    pub(crate) covers_ms: u64,
    /// Decisions since the start, by effect.
    pub(crate) decisions: BTreeMap<String, u64>,
}

/// The counts of a key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyRow {
    pub(crate) key: Vec<String>,
    pub(crate) requests: Count,
    pub(crate) denied: Count,
    /// `None` if it is not refused.
    pub(crate) refused: Option<RefusedKey>,
}

/// The refusals of a key in each window.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RefusedKey {
    /// Time of the first one, RFC 3339.
    pub(crate) since: String,
    /// Milliseconds until the key may pass; `None` if it never may.
    pub(crate) next_free_in_ms: Option<u64>,
}

/// A count that is too high by `error` at most.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Count {
    pub(crate) count: u64,
    pub(crate) error: u64,
}

/// The last minute of an upstream.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct UpstreamRow {
    name: String,
    requests: u64,
    failed: u64,
    in_flight: u64,
    most_within_ms: Option<u64>,
    addresses: Vec<UpstreamAddress>,
}

#[derive(Clone, Debug, Deserialize)]
struct UpstreamAddress {
    up: bool,
}

impl BoardRow {
    /// Returns the decisions since the start: all, and those that denied.
    pub(crate) fn decided(&self) -> [u64; 2] {
        let count = |effect| self.decisions.get(effect).copied().unwrap_or_default();
        let denied = count("denied") + count("fail_closed");
        let passed = ["allowed", "queued", "covered", "fail_open", "uncharged"].map(count);
        [denied + passed.iter().sum::<u64>(), denied]
    }

    /// Returns requests a second in the window.
    pub(crate) fn rate(&self) -> f64 {
        ratio(
            self.requests.saturating_mul(1_000),
            self.covers_ms.max(1_000),
        )
    }

    /// Returns the refused part of the requests, in percent.
    pub(crate) fn denied_percent(&self) -> f64 {
        ratio(
            self.denied.saturating_mul(100),
            self.requests.max(self.denied),
        )
    }
}

impl KeyRow {
    /// Returns how long it has been refused at a time in milliseconds since 1970.
    pub(crate) fn refused_for(&self, at_ms: u64) -> Option<Nanos> {
        let since = millis(&self.refused.as_ref()?.since)?;
        Some(Nanos::from_millis(at_ms.saturating_sub(since)))
    }
}

impl Count {
    /// Returns the count of a minute, of one that covers `covers_ms`; a shorter time counts as a
    /// minute, because few requests say little of the next.
    pub(super) fn each_minute(self, covers_ms: u64) -> Self {
        let covers_ms = covers_ms.max(60_000);
        let each = |count: u64| count.saturating_mul(60_000).div_ceil(covers_ms);
        Self {
            count: each(self.count),
            error: each(self.error),
        }
    }
}

impl UpstreamRow {
    /// Returns it on one line.
    pub(super) fn text(&self) -> String {
        let up = self.addresses.iter().filter(|address| address.up);
        let time = self.most_within_ms.map_or_else(
            || "-".into(),
            |millis| format!("{} ms", words::count(millis)),
        );
        format!(
            "{}: {} requests a minute, {} failed, 99 % within {time}, {} in flight, {} of {} up",
            self.name,
            words::count(self.requests),
            words::count(self.failed),
            words::count(self.in_flight),
            up.count(),
            self.addresses.len(),
        )
    }
}

/// Returns `part / whole`; of no whole, 0.
#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Returns a time of an answer, in milliseconds since 1970.
pub(super) fn millis(time: &str) -> Option<u64> {
    let time = time.parse::<Timestamp>().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shown_by_minute() {
        let count = Count {
            count: 150,
            error: 3,
        };
        let each = |covers_ms| {
            let Count { count, error } = count.each_minute(covers_ms);
            (count, error)
        };
        assert_eq!(each(90_000), (100, 2));
        assert_eq!(each(1_000), (150, 3), "of less than a minute");
    }

    #[test]
    fn a_key_writes_no_escapes_to_the_terminal() {
        let row = KeyRow {
            key: vec!["attr:k=\u{1b}[2J\nx".into()],
            ..KeyRow::default()
        };
        assert_eq!(words::key(&row.key), "attr:k=\\u{1b}[2J\\nx");
    }
}
