//! Header fields that tell a client about its limits.
//!
//! ```text
//!   RateLimit-Policy: "login";q=5;w=60, "per-ip";q=20;w=2    what is promised
//!   RateLimit: "login";r=0;t=37, "per-ip";r=12;t=2           what is left, for how long
//!   Retry-After: 37                                          only where refused
//! ```
//!
//! The tightest limit comes first: clients that read one item read the one that matters.
//! Limits in shadow mode are not shown: they promise nothing.
//!
//! * Source: R. Polli, A. Martinez, D. Miller, "RateLimit header fields for HTTP",
//!   draft-ietf-httpapi-ratelimit-headers-11 (2026); RFC 9110, section 10.2.3 (Retry-After).
//!   The draft still moves; nothing outside this file knows its syntax.

use std::cmp::Reverse;
use std::fmt::Write;

use ratekeeper_core::{Mode, Nanos};
use ratekeeper_policy::HeaderStyle;
use smallvec::SmallVec;

use crate::{Answer, Outcome};

/// Names of the fields, lower case as HTTP/2 wants them.
pub mod names {
    /// What is promised.
    pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
    /// What is left.
    pub const RATELIMIT: &str = "ratelimit";
    /// When to try again, in whole seconds, at least 1.
    pub const RETRY_AFTER: &str = "retry-after";
    /// The limit of the tightest limit.
    pub const X_RATELIMIT_LIMIT: &str = "x-ratelimit-limit";
    /// What is left of it.
    pub const X_RATELIMIT_REMAINING: &str = "x-ratelimit-remaining";
    /// What is used of it.
    pub const X_RATELIMIT_USED: &str = "x-ratelimit-used";
    /// Seconds until all of it is free again.
    pub const X_RATELIMIT_RESET: &str = "x-ratelimit-reset";
}

/// Name and value of one header field.
pub type HeaderField = (&'static str, String);

impl Answer {
    /// The header fields for the client, in the policy's style, with `Retry-After` where
    /// the request is refused and waiting helps.
    pub fn header_fields(&self) -> SmallVec<[HeaderField; 4]> {
        let mut fields = SmallVec::new();
        let style = self.policy().headers;
        if style != HeaderStyle::Off {
            let mut shown: SmallVec<[Outcome<'_>; 4]> = self
                .outcomes()
                .filter(|outcome| outcome.mode() == Some(Mode::Enforce))
                .collect();
            shown.sort_by_key(|outcome| Reverse(tightness(outcome)));
            if let Some(tightest) = shown.first() {
                if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) {
                    fields.push((names::RATELIMIT_POLICY, join(&shown, policy_item)));
                    fields.push((names::RATELIMIT, join(&shown, limit_item)));
                }
                if matches!(style, HeaderStyle::Legacy | HeaderStyle::Both) {
                    legacy(tightest, &mut fields);
                }
            }
        }
        if let Some(wait) = self.retry_after() {
            fields.push((names::RETRY_AFTER, retry_after_secs(wait).to_string()));
        }
        fields
    }
}

/// A wait as `Retry-After` says it: whole seconds, rounded up, at least 1 (a client told 0
/// would try again at once, for ever).
pub fn retry_after_secs(wait: Nanos) -> u64 {
    wait.as_secs_ceil().max(1)
}

/// The greater, the earlier in the list: longest wait first, then the least share left.
fn tightness(outcome: &Outcome<'_>) -> (Nanos, u64) {
    let quota = u64::from(outcome.quota().get()).max(1);
    let left = u64::from(outcome.decision.remaining.get());
    let used_ppm = (quota.saturating_sub(left) * 1_000_000) / quota; // floor: an order, no more
    (outcome.wait(), used_ppm)
}

fn join(outcomes: &[Outcome<'_>], item: fn(&Outcome<'_>, &mut String)) -> String {
    let mut list = String::with_capacity(outcomes.len() * 32);
    for (index, outcome) in outcomes.iter().enumerate() {
        if index > 0 {
            list.push_str(", ");
        }
        // Names are `[a-z0-9-]`: nothing in them needs escaping.
        let _ = write!(list, "\"{}\"", outcome.rule.limit.name);
        item(outcome, &mut list);
    }
    list
}

/// `;q=5;w=60`
fn policy_item(outcome: &Outcome<'_>, list: &mut String) {
    let (quota, window) = quota_per_window(outcome);
    let _ = write!(list, ";q={quota}");
    if let Some(seconds) = window {
        let _ = write!(list, ";w={seconds}");
    }
}

/// The quota and its window in whole seconds. A window under a second is not expressible:
/// where a whole number of them makes a second, the quota of one second is shown.
fn quota_per_window(outcome: &Outcome<'_>) -> (u64, Option<u64>) {
    let quota = u64::from(outcome.quota().get());
    match outcome.window() {
        None => (quota, None),
        Some(window) if window >= Nanos::SECOND => (quota, Some(window.as_secs_ceil())),
        Some(window) => {
            let second = Nanos::SECOND.as_nanos();
            if window > Nanos::ZERO && second.is_multiple_of(window.as_nanos()) {
                (quota.saturating_mul(second / window.as_nanos()), Some(1))
            } else {
                (quota, None)
            }
        }
    }
}

/// `;r=0;t=37`: within `t` seconds the client may use no more than `r`.
fn limit_item(outcome: &Outcome<'_>, list: &mut String) {
    let _ = write!(list, ";r={}", outcome.decision.remaining);
    let window = match outcome.decision.verdict.retry_after() {
        Some(wait) => Some(retry_after_secs(wait)),
        None => outcome
            .limit
            .algorithm
            .effective_window(&outcome.decision)
            .or(outcome.window())
            .map(Nanos::as_secs_ceil),
    };
    if let Some(seconds) = window {
        let _ = write!(list, ";t={seconds}");
    }
}

fn legacy(tightest: &Outcome<'_>, fields: &mut SmallVec<[HeaderField; 4]>) {
    let decision = tightest.decision;
    let quota = tightest.quota();
    fields.push((names::X_RATELIMIT_LIMIT, quota.to_string()));
    fields.push((names::X_RATELIMIT_REMAINING, decision.remaining.to_string()));
    fields.push((
        names::X_RATELIMIT_USED,
        (quota - decision.remaining).to_string(),
    ));
    fields.push((
        names::X_RATELIMIT_RESET,
        decision.reset_after.as_secs_ceil().to_string(),
    ));
}
