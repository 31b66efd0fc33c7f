//! Answer: the decisions of the limits, as JSON. Written by hand because it is most of the output.

use std::borrow::Borrow;
use std::fmt::{self, Write as _};
use std::io::Write as _;

use ratekeeper::{Answer, Outcome, Permit};
use ratekeeper_core::{Mode, Nanos, Permits, Verdict};
use ratekeeper_policy::RuleMode;

/// Room for an answer of two limits.
const USUAL_BYTES: usize = 512;

/// Returns the body of a check or a peek.
pub(super) fn check(answer: &Answer) -> Vec<u8> {
    let mut json = Vec::with_capacity(USUAL_BYTES);
    push_check(&mut json, answer);
    json
}

/// Returns the body of a request for permits.
pub(super) fn acquired(answer: &Answer) -> Vec<u8> {
    let mut json = Vec::with_capacity(USUAL_BYTES);
    push_allowed(&mut json, answer);
    json.push(b',');
    push_permits(&mut json, answer.permits(), |json, expires| {
        push_count(json, ",\"expires_in_ms\":", whole_millis(expires));
    });
    push_limits(&mut json, answer);
    json
}

/// Returns the body after permits were given back.
pub(super) fn released(permits: &[Permit], back: &[Permits]) -> Vec<u8> {
    let mut json = b"{".to_vec();
    push_permits(&mut json, permits.iter().zip(back), |json, back| {
        push_count(json, ",\"released\":", back.get());
    });
    json.push(b'}');
    json
}

/// Returns the body after leases were renewed.
pub(super) fn renewed(permits: &[Permit], ends: &[Option<Nanos>]) -> Vec<u8> {
    let mut json = b"{".to_vec();
    push_permits(&mut json, permits.iter().zip(ends), |json, expires| {
        if let Some(expires) = expires {
            push(json, ",\"renewed\":true");
            push_count(json, ",\"expires_in_ms\":", whole_millis(*expires));
        } else {
            push(json, ",\"renewed\":false");
        }
    });
    json.push(b'}');
    json
}

/// `"permits":[{"limit":..,"id":..}]`; `more` appends the other fields of each permit.
fn push_permits<T>(
    json: &mut Vec<u8>,
    permits: impl Iterator<Item = (impl Borrow<Permit>, T)>,
    more: impl Fn(&mut Vec<u8>, T),
) {
    push(json, "\"permits\":");
    push_list(json, permits, |json, (permit, fields)| {
        push(json, "{\"limit\":");
        push_text(json, permit.borrow().limit());
        push(json, ",\"id\":");
        push_text(json, &permit.borrow().to_string());
        more(json, fields);
        json.push(b'}');
    });
}

/// `[..]`: each of the items as `push_item` appends it.
fn push_list<T>(
    json: &mut Vec<u8>,
    items: impl Iterator<Item = T>,
    mut push_item: impl FnMut(&mut Vec<u8>, T),
) {
    json.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            json.push(b',');
        }
        push_item(json, item);
    }
    json.push(b']');
}

/// Rounded down, so that a lease is never reported longer than it is.
fn whole_millis(lease: Nanos) -> u64 {
    lease.as_nanos() / 1_000_000
}

/// Appends the body of a check or a peek.
pub(super) fn push_check(json: &mut Vec<u8>, answer: &Answer) {
    push_allowed(json, answer);
    if let Some(decision) = answer.decision() {
        push(json, ",\"decision\":");
        push_text(json, &decision.to_string());
        push_count(json, ",\"expires_in_ms\":", whole_millis(decision.within()));
    }
    push_limits(json, answer);
}

/// `{"allowed":..`, and the reason of a refusal.
fn push_allowed(json: &mut Vec<u8>, answer: &Answer) {
    if answer.allowed() {
        push(json, "{\"allowed\":true");
    } else {
        push(json, "{\"allowed\":false");
        if let Some(refused) = answer.refused_by() {
            push(json, ",\"limit\":");
            push_text(json, &refused.rule.limit.name);
            if let Some(wait) = refused.decision.verdict.retry_after() {
                push_count(json, ",\"retry_after_ms\":", wait.as_millis_ceil());
            }
            push_reason(json, &refused);
        }
    }
}

/// `,"banned":true` if the limit denies because the key is banned, and `,"without_store":true` if
/// it decided while its store is away.
fn push_reason(json: &mut Vec<u8>, outcome: &Outcome<'_>) {
    if outcome.decision.verdict.is_ban() {
        push(json, ",\"banned\":true");
    }
    if outcome.outage.is_some() {
        push(json, ",\"without_store\":true");
    }
}

/// `,"limits":[..]}`
fn push_limits(json: &mut Vec<u8>, answer: &Answer) {
    push(json, ",\"limits\":");
    push_list(json, answer.outcomes(), |json, it| push_outcome(json, &it));
    json.push(b'}');
}

fn push_outcome(json: &mut Vec<u8>, outcome: &Outcome<'_>) {
    push_name(json, outcome);
    let (verdict, retry_after, delay) = match outcome.decision.verdict {
        Verdict::Allow => ("allow", Some(0), None),
        Verdict::AllowAfter(delay) => ("allow_after", Some(0), Some(delay.as_millis_ceil())),
        Verdict::DenyForever => ("deny_forever", None, None),
        denied => (
            "deny",
            denied.retry_after().map(Nanos::as_millis_ceil),
            None,
        ),
    };
    push(json, ",\"verdict\":\"");
    push(
        json,
        if outcome.is_asked {
            verdict
        } else {
            "not_asked"
        },
    );
    if let Some(covering) = outcome.covered_by {
        push(json, "\",\"covered_by\":\"");
        push_escaped(json, &covering.limit.name);
    }
    json.push(b'"');
    push_count(json, ",\"quota\":", outcome.quota().get());
    push_count(json, ",\"remaining\":", outcome.remaining().get());
    if let Some(retry_after) = retry_after {
        push_count(json, ",\"retry_after_ms\":", retry_after);
    }
    push_reason(json, outcome);
    if outcome.decision.verdict == Verdict::DenyForever && outcome.report().key_missing {
        push(json, ",\"key_missing\":true");
    }
    if let Some(delay) = delay {
        push_count(json, ",\"delay_ms\":", delay);
    }
    push_reset_and_key(json, outcome);
}

/// `{"name":..,"mode":..`
fn push_name(json: &mut Vec<u8>, outcome: &Outcome<'_>) {
    push(json, "{\"name\":");
    push_text(json, &outcome.rule.limit.name);
    push(json, ",\"mode\":\"");
    push(json, shown_mode(outcome).as_ref());
    json.push(b'"');
}

/// `,"reset_after_ms":..,"key":[..]}`
fn push_reset_and_key(json: &mut Vec<u8>, outcome: &Outcome<'_>) {
    push(json, ",\"reset_after_ms\":");
    match outcome.decision.reset_after {
        Nanos::MAX => push(json, "null"), // a balance
        reset => push_number(json, reset.as_millis_ceil()),
    }
    push(json, ",\"key\":");
    push_key(json, outcome);
    json.push(b'}');
}

/// The values of the key, each with the part it belongs to: `["ip=192.0.2.1"]`.
fn push_key(json: &mut Vec<u8>, outcome: &Outcome<'_>) {
    let mut parts = outcome.rule.key_parts();
    push_list(json, outcome.key.parts(), |json, value| {
        json.push(b'"');
        if let Some(part) = parts.next() {
            let _ = write!(Escaping(json), "{part}"); // a vector takes everything
            json.push(b'=');
        }
        push_escaped(json, &String::from_utf8_lossy(value));
        json.push(b'"');
    });
}

/// Escapes text that ends up in a JSON string.
struct Escaping<'a>(&'a mut Vec<u8>);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        push_escaped(self.0, text);
        Ok(())
    }
}

/// `[..]`: the limits of an answer after balances were changed; `extra` adds the change.
pub(crate) fn push_limits_after(
    json: &mut Vec<u8>,
    answer: &Answer,
    extra: impl Fn(&mut Vec<u8>, &Outcome<'_>),
) {
    push_list(json, answer.outcomes(), |json, outcome| {
        push_name(json, &outcome);
        extra(json, &outcome);
        push_count(json, ",\"quota\":", outcome.quota().get());
        push_count(json, ",\"remaining\":", outcome.remaining().get());
        push_reset_and_key(json, &outcome);
    });
}

/// Returns the mode of an outcome: that of the rule, unless the key is outside of its share.
pub(crate) fn shown_mode(outcome: &Outcome<'_>) -> RuleMode {
    match outcome.mode() {
        Some(Mode::Shadow) => RuleMode::Shadow,
        _ => outcome.rule.mode,
    }
}

fn push(json: &mut Vec<u8>, text: &str) {
    json.extend_from_slice(text.as_bytes());
}

fn push_number(json: &mut Vec<u8>, number: u64) {
    push(json, itoa::Buffer::new().format(number));
}

/// Appends a field with a number; `field` has the comma and the colon.
pub(super) fn push_count(json: &mut Vec<u8>, field: &str, number: u64) {
    push(json, field);
    push_number(json, number);
}

/// Appends a JSON string.
pub(crate) fn push_text(json: &mut Vec<u8>, text: &str) {
    json.push(b'"');
    push_escaped(json, text);
    json.push(b'"');
}

fn push_escaped(json: &mut Vec<u8>, text: &str) {
    let plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    let mut rest = text.as_bytes();
    loop {
        let run = rest.iter().take_while(|byte| plain(byte)).count();
        let (clean, tail) = rest.split_at(run);
        json.extend_from_slice(clean);
        let Some((special, tail)) = tail.split_first() else {
            return;
        };
        match special {
            b'"' | b'\\' => json.extend_from_slice(&[b'\\', *special]),
            control => {
                let _ = write!(json, "\\u{control:04x}"); // a vector takes everything
            }
        }
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back() {
        for text in [
            "",
            "plain",
            "a\"b\\c",
            "\n\t\u{0}\u{1f}",
            "caf\u{e9} \u{1f600}",
        ] {
            let mut json = Vec::new();
            push_text(&mut json, text);
            let back: String = serde_json::from_slice(&json).unwrap();
            assert_eq!(back, text);
        }
    }
}
