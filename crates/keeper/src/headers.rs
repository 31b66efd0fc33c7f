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
//! are not shown: they promise nothing. A quota that is not counted, because its store is away,
//! has no `RateLimit` item.
//!
//! * Source: R. Polli, A. Martinez, D. Miller, "RateLimit header fields for HTTP",
//!   draft-ietf-httpapi-ratelimit-headers-11 (2026); RFC 9110, section 10.2.3 (Retry-After).
//!   The draft still moves; nothing outside this file knows its syntax.

use ratekeeper_core::Nanos;
use ratekeeper_policy::HeaderStyle;

use crate::LimitReport;

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
    /// The soft limits that an allowed request exceeds.
    pub const SOFT: &str = "x-ratekeeper-soft";
}

/// Name and value of one header field.
///
/// ```
/// use ratekeeper::headers::{HeaderField, names};
/// let wait: HeaderField = (names::RETRY_AFTER, "20".into());
/// assert_eq!(wait.0, "retry-after");
/// ```
pub type HeaderField = (&'static str, String);

/// Room for the value of two limits.
const USUAL_BYTES: usize = 64;

/// Passes the fields of `style` that describe these limits to `put`, the tightest limit first; no
/// `Retry-After`.
///
/// ```
/// use ratekeeper::headers::put_fields;
/// use ratekeeper::policy::{Facts, HeaderStyle};
/// use ratekeeper::{Keeper, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "2/1h"
///     "#,
/// )?;
/// let answer = at_once(keeper.check(&Facts::default(), Scope::All)).unwrap();
/// let mut names = Vec::new();
/// put_fields(&answer.reports(), HeaderStyle::Ietf, |name, _value| names.push(name));
/// assert_eq!(names, ["ratelimit-policy", "ratelimit"]);
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
pub fn put_fields(
    reports: &[LimitReport<'_>],
    style: HeaderStyle,
    mut put: impl FnMut(&'static str, &str),
) {
    let mut value = FieldText::new();
    put_promise(reports, style, &mut value, &mut put);
    put_balance(reports, style, &mut value, &mut put);
}

/// Passes to `put` the fields that are equal in every answer of these limits.
pub(crate) fn put_promise(
    shown: &[LimitReport<'_>],
    style: HeaderStyle,
    value: &mut FieldText,
    put: &mut impl FnMut(&'static str, &str),
) {
    if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) && !shown.is_empty() {
        put(
            names::RATELIMIT_POLICY,
            value.list(shown.iter(), policy_item),
        );
    }
}

/// Passes the state of these limits to `put`; of those that are counted.
pub(crate) fn put_balance(
    shown: &[LimitReport<'_>],
    style: HeaderStyle,
    value: &mut FieldText,
    put: &mut impl FnMut(&'static str, &str),
) {
    let counted = shown.iter().filter(|report| report.is_counted());
    let Some(tightest) = counted.clone().next() else {
        return;
    };
    if matches!(style, HeaderStyle::Ietf | HeaderStyle::Both) {
        put(names::RATELIMIT, value.list(counted, limit_item));
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
    value: &mut FieldText,
    put: &mut impl FnMut(&'static str, &str),
) {
    if let Some(wait) = wait {
        put(names::RETRY_AFTER, value.number(retry_after_secs(wait)));
    }
}

/// Buffer for the value of one field at a time.
pub(crate) struct FieldText(String);

impl FieldText {
    pub(crate) fn new() -> Self {
        Self(String::with_capacity(USUAL_BYTES))
    }

    fn list<'r>(
        &mut self,
        reports: impl Iterator<Item = &'r LimitReport<'r>>,
        item: fn(&LimitReport<'_>, &mut Self),
    ) -> &str {
        self.0.clear();
        for (index, report) in reports.enumerate() {
            self.0.push_str(if index > 0 { ", \"" } else { "\"" });
            self.push_escaped(report.name);
            item(report, self);
        }
        &self.0
    }

    /// Adds a text as a string of RFC 9651 (2024), section 3.3.3; characters that are not printable
    /// ASCII become `?`. Names in policies are `[a-z0-9-]`; those in Envoy's files are any text.
    fn push_escaped(&mut self, text: &str) {
        let plain = |byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        if text.bytes().all(plain) {
            self.0.push_str(text);
            return;
        }
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.0.extend(['\\', letter]),
                ' '..='~' => self.0.push(letter),
                _ => self.0.push('?'),
            }
        }
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
///
/// ```
/// use ratekeeper::core::Nanos;
/// use ratekeeper::headers::retry_after_secs;
/// assert_eq!(retry_after_secs(Nanos::from_millis(1_001)), 2);
/// ```
pub fn retry_after_secs(wait: Nanos) -> u64 {
    wait.as_secs_ceil().max(1)
}

/// The largest integer of a structured field (RFC 9651, section 3.3.1): larger numbers are cut to it.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// `;q=5;w=60`, or `;q=50;qu="concurrent-requests"` for a level, which has no rate.
fn policy_item(report: &LimitReport<'_>, list: &mut FieldText) {
    let (quota, window) = report.quota_per_window();
    list.push("\";q=", quota.min(MAX_INTEGER));
    if report.is_level {
        list.0.push_str(";qu=\"concurrent-requests\"");
    }
    if let Some(seconds) = window {
        list.push(";w=", seconds);
    }
}

/// `;r=0;t=37`: after `t` seconds more than `r` may be used, if no other request is charged
/// meanwhile. A level has no `t`.
fn limit_item(report: &LimitReport<'_>, list: &mut FieldText) {
    list.push("\";r=", report.decision.remaining.get().min(MAX_INTEGER));
    if let Some(span) = report.more_after {
        list.push(";t=", span.as_secs_ceil());
    }
}

fn legacy(tightest: &LimitReport<'_>) -> [(&'static str, u64); 4] {
    let decision = tightest.decision;
    let used = tightest.quota - decision.remaining;
    [
        (names::X_RATELIMIT_LIMIT, tightest.quota.get()),
        (names::X_RATELIMIT_REMAINING, decision.remaining.get()),
        (names::X_RATELIMIT_USED, used.get()),
        (
            names::X_RATELIMIT_RESET,
            decision.reset_after.as_secs_ceil(),
        ),
    ]
}
