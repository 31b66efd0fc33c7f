//! Header fields that describe a client's limits.
//!
//! ```text
//!   RateLimit-Policy: "login";q=5;w=60, "per-ip";q=20;w=2    the limits
//!   RateLimit: "login";r=0;t=37, "per-ip";r=12;t=2           remaining, and for how long
//!   Retry-After: 37                                          only where refused
//! ```
//!
//! A limit of concurrency is a level: `;q=50;qu="concurrent-requests"` and `;r=3`, no window.
//!
//! The tightest limit comes first, because some clients read only one item. Limits in shadow mode
//! are not shown: they promise nothing.
//!
//! * Source: R. Polli, A. Martinez, D. Miller, "RateLimit header fields for HTTP",
//!   draft-ietf-httpapi-ratelimit-headers-11 (2026); RFC 9110, section 10.2.3 (Retry-After).
//!   The draft still moves; nothing outside this file knows its syntax.

use std::cmp::Reverse;

use ratekeeper_core::{Mode, Nanos};
use ratekeeper_policy::HeaderStyle;
use smallvec::SmallVec;

use crate::{Answer, Outcome};

/// Names of the fields, lower case as HTTP/2 wants them.
pub mod names {
    /// The promised quota and window.
    pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
    /// The remaining quota.
    pub const RATELIMIT: &str = "ratelimit";
    /// When to try again, in whole seconds, at least 1.
    pub const RETRY_AFTER: &str = "retry-after";
    /// The quota of the tightest limit.
    pub const X_RATELIMIT_LIMIT: &str = "x-ratelimit-limit";
    /// Its remaining quota.
    pub const X_RATELIMIT_REMAINING: &str = "x-ratelimit-remaining";
    /// Its used quota.
    pub const X_RATELIMIT_USED: &str = "x-ratelimit-used";
    /// Seconds until its whole quota is free again.
    pub const X_RATELIMIT_RESET: &str = "x-ratelimit-reset";
}

/// Name and value of one header field.
pub type HeaderField = (&'static str, String);

/// Room for the value of two limits.
const USUAL_BYTES: usize = 64;

impl Answer {
    /// Returns the header fields for the client, in the policy's style, with `Retry-After` if the
    /// request is refused and waiting helps.
    pub fn header_fields(&self) -> SmallVec<[HeaderField; 4]> {
        let mut fields = SmallVec::new();
        self.put_header_fields(|name, value| fields.push((name, value.to_owned())));
        fields
    }

    /// Passes name and value of each of the [`header_fields`](Self::header_fields) to `put`; the
    /// values are written one after the other into the same buffer.
    pub fn put_header_fields(&self, mut put: impl FnMut(&'static str, &str)) {
        let mut value = FieldValue::new();
        self.put_fields(self.policy().headers, &mut value, &mut put);
        put_wait(self.retry_after(), &mut value, &mut put);
    }

    /// Passes the fields of `style` to `put`, whatever style the policy has; no `Retry-After`.
    pub fn put_limit_fields(&self, style: HeaderStyle, mut put: impl FnMut(&'static str, &str)) {
        self.put_fields(style, &mut FieldValue::new(), &mut put);
    }

    fn put_fields(
        &self,
        style: HeaderStyle,
        value: &mut FieldValue,
        put: &mut impl FnMut(&'static str, &str),
    ) {
        if style == HeaderStyle::Off {
            return;
        }
        let mut shown: SmallVec<[Outcome<'_>; 4]> = SmallVec::new();
        let enforced = |outcome: &Outcome<'_>| outcome.mode() == Some(Mode::Enforce);
        shown.extend(self.outcomes().filter(enforced));
        if shown.len() > 1 {
            shown.sort_by_key(|outcome| Reverse(tightness(outcome)));
            // A request with two credentials has two counters of one limit: keeps the tighter one.
            let mut named: SmallVec<[&str; 4]> = SmallVec::new();
            shown.retain(|outcome| {
                let name: &str = &outcome.rule.limit.name;
                let is_new = !named.contains(&name);
                named.push(name);
                is_new
            });
        }
        put_promise(&shown, style, value, put);
        put_balance(&shown, style, value, put);
    }
}

/// Passes to `put` the fields that are equal in every answer of these limits, tightest limit first.
pub(crate) fn put_promise(
    shown: &[Outcome<'_>],
    style: HeaderStyle,
    value: &mut FieldValue,
    put: &mut impl FnMut(&'static str, &str),
) {
    if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) && !shown.is_empty() {
        put(names::RATELIMIT_POLICY, value.list(shown, policy_item));
    }
}

/// Passes the state of these limits to `put`, the tightest first.
pub(crate) fn put_balance(
    shown: &[Outcome<'_>],
    style: HeaderStyle,
    value: &mut FieldValue,
    put: &mut impl FnMut(&'static str, &str),
) {
    let Some(tightest) = shown.first() else {
        return;
    };
    if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) {
        put(names::RATELIMIT, value.list(shown, limit_item));
    }
    if matches!(style, HeaderStyle::Legacy | HeaderStyle::Both) {
        for (name, number) in legacy(tightest) {
            put(name, value.number(number));
        }
    }
}

/// Passes the wait to `put`, if it is known.
pub(crate) fn put_wait(
    wait: Option<Nanos>,
    value: &mut FieldValue,
    put: &mut impl FnMut(&'static str, &str),
) {
    if let Some(wait) = wait {
        put(names::RETRY_AFTER, value.number(retry_after_secs(wait)));
    }
}

impl Outcome<'_> {
    /// Returns the quota and its window in whole seconds; `None` for months and years of the
    /// calendar. For a window under a second, returns the quota of one second if a whole number of
    /// windows makes a second, else no window.
    pub fn quota_per_window(&self) -> (u64, Option<u64>) {
        let quota = u64::from(self.quota().get());
        match self.window() {
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

    /// Returns true if this limit matters more to a client than `other`: the client waits longer,
    /// or a smaller share is left.
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        tightness(self) > tightness(other)
    }
}

/// Buffer for the value of one field at a time.
pub(crate) struct FieldValue(String);

impl FieldValue {
    pub(crate) fn new() -> Self {
        Self(String::with_capacity(USUAL_BYTES))
    }

    fn list(&mut self, outcomes: &[Outcome<'_>], item: fn(&Outcome<'_>, &mut Self)) -> &str {
        self.0.clear();
        for (index, outcome) in outcomes.iter().enumerate() {
            // Names are `[a-z0-9-]`: nothing in them needs escaping.
            self.0.push_str(if index > 0 { ", \"" } else { "\"" });
            self.0.push_str(&outcome.rule.limit.name);
            item(outcome, self);
        }
        &self.0
    }

    fn number(&mut self, number: u64) -> &str {
        self.0.clear();
        self.push("", number);
        &self.0
    }

    fn push(&mut self, before: &str, number: u64) {
        self.0.push_str(before);
        self.0.push_str(itoa::Buffer::new().format(number));
    }
}

/// Returns a wait as a `Retry-After` value: whole seconds, rounded up, at least 1 (a client that
/// receives 0 would retry at once, for ever).
pub fn retry_after_secs(wait: Nanos) -> u64 {
    wait.as_secs_ceil().max(1)
}

/// Sort key, the greatest first: longest wait, then the least share left.
fn tightness(outcome: &Outcome<'_>) -> (Nanos, u64) {
    let quota = u64::from(outcome.quota().get()).max(1);
    let left = u64::from(outcome.decision.remaining.get());
    let used_ppm = (quota.saturating_sub(left) * 1_000_000) / quota; // floor: an order, no more
    (outcome.wait(), used_ppm)
}

/// `;q=5;w=60`, or `;q=50;qu="concurrent-requests"` for a level, which has no rate.
fn policy_item(outcome: &Outcome<'_>, list: &mut FieldValue) {
    let (quota, window) = outcome.quota_per_window();
    list.push("\";q=", quota);
    if is_level(outcome) {
        list.0.push_str(";qu=\"concurrent-requests\"");
    }
    if let Some(seconds) = window {
        list.push(";w=", seconds);
    }
}

/// Returns true if permits come back when work is done, not with time.
fn is_level(outcome: &Outcome<'_>) -> bool {
    outcome.limit.algorithm.concurrency().is_some()
}

/// `;r=0;t=37`: after `t` seconds more than `r` may be used, if no other request is charged
/// meanwhile. A level has no `t`.
fn limit_item(outcome: &Outcome<'_>, list: &mut FieldValue) {
    list.push("\";r=", outcome.decision.remaining.get().into());
    if is_level(outcome) {
        return;
    }
    let algorithm = &outcome.limit.algorithm;
    let window = algorithm.effective_window(&outcome.decision);
    if let Some(window) = window.or(outcome.window()) {
        list.push(";t=", window.as_secs_ceil());
    }
}

fn legacy(tightest: &Outcome<'_>) -> [(&'static str, u64); 4] {
    let decision = tightest.decision;
    let quota = tightest.quota();
    let used = quota - decision.remaining;
    [
        (names::X_RATELIMIT_LIMIT, quota.get().into()),
        (
            names::X_RATELIMIT_REMAINING,
            decision.remaining.get().into(),
        ),
        (names::X_RATELIMIT_USED, used.get().into()),
        (
            names::X_RATELIMIT_RESET,
            decision.reset_after.as_secs_ceil(),
        ),
    ]
}
