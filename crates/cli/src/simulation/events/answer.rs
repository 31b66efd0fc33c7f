//! Answer: the line that answers an event.
//!
//! ```text
//!   {"allowed":true,"at_us":5,"cost":1,"key":"ada","line":2,"op":"check","remaining":8, ..}
//! ```
//!
//! Written by hand, because a serializer takes longer for these fourteen fields than reading and
//! deciding the event take together.

use ratekeeper_core::{Decision, Nanos, Time, Verdict};

use super::InputEvent;

/// Appends the answer to `event`. Times are in nanoseconds, and in microseconds rounded up, so
/// that sleeping this long is always enough.
pub(super) fn write(event: &InputEvent<'_>, decision: &Decision, line: usize, out: &mut Vec<u8>) {
    let verdict = match decision.verdict {
        Verdict::Allow => "allow",
        Verdict::AllowAfter(_) => "allow_after",
        Verdict::Deny { .. } | Verdict::Ban { .. } | Verdict::Banned { .. } => "deny",
        Verdict::DenyForever => "deny_forever",
    };
    let waited = decision.verdict.wait().unwrap_or(Nanos::ZERO);
    let allowed = decision.verdict.allows();
    text(
        r#"{"allowed":"#,
        if allowed { "true" } else { "false" },
        out,
    );
    number(r#","at_us":"#, micros(event.at.since(Time::ZERO)), out);
    number(r#","cost":"#, event.cost.get(), out);
    string(r#","key":"#, &event.key, out);
    number(r#","line":"#, line as u64, out);
    text(r#","op":""#, event.op, out);
    number(r#"","remaining":"#, decision.remaining.get(), out);
    span(r#","reset_after"#, Some(decision.reset_after), out);
    span(r#","retry_after"#, decision.verdict.retry_after(), out);
    text(r#","verdict":""#, verdict, out);
    out.push(b'"');
    span(r#","waited"#, Some(waited), out);
    out.push(b'}');
}

/// Appends the answer to a line that cannot be answered.
pub(super) fn write_error(error: &str, line: usize, out: &mut Vec<u8>) {
    string(r#"{"error":"#, error, out);
    number(r#","line":"#, line as u64, out);
    out.push(b'}');
}

fn text(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

fn number(name: &str, value: u64, out: &mut Vec<u8>) {
    text(name, itoa::Buffer::new().format(value), out);
}

/// Appends a field in both units; `null` if there is no span.
fn span(name: &str, span: Option<Nanos>, out: &mut Vec<u8>) {
    let mut unit = |unit, value: Option<u64>| {
        text(name, unit, out);
        match value {
            Some(value) => number("", value, out),
            None => text("", "null", out),
        }
    };
    unit(r#"_ns":"#, span.map(Nanos::as_nanos));
    unit(r#"_us":"#, span.map(micros));
}

/// Appends a string with its quotes.
fn string(name: &str, value: &str, out: &mut Vec<u8>) {
    text(name, "", out);
    let _ = serde_json::to_writer(out, value); // a string into memory: this cannot fail
}

const fn micros(span: Nanos) -> u64 {
    span.as_nanos().div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use ratekeeper_core::Permits;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_verdict_is_a_line_of_json() {
        let wait = Nanos::from_nanos(1_500);
        let rows = [
            (Verdict::Allow, "allow", Value::Null, 0),
            (Verdict::AllowAfter(wait), "allow_after", Value::Null, 1_500),
            (Verdict::Deny { retry_after: wait }, "deny", json!(1_500), 0),
            (Verdict::DenyForever, "deny_forever", Value::Null, 0),
        ];
        for (verdict, name, retry_after_ns, waited_ns) in rows {
            let event = InputEvent {
                at: Time::from_nanos(7_000),
                op: "reserve",
                cost: Permits::new(3),
                max_wait: Nanos::ZERO,
                key: Cow::Borrowed("a\"\n\u{1F980}"),
                limit: None,
            };
            let decision = Decision {
                verdict,
                remaining: Permits::new(u64::MAX),
                reset_after: Nanos::MAX,
                more_after: Nanos::ZERO,
            };
            let mut line = Vec::new();
            write(&event, &decision, 9, &mut line);
            let written: Value = serde_json::from_slice(&line).expect("a line of JSON");
            let micros = |nanos: &Value| nanos.as_u64().map(|nanos| nanos.div_ceil(1_000));
            let expected = json!({
                "allowed": matches!(name, "allow" | "allow_after"),
                "at_us": 7,
                "cost": 3,
                "key": event.key,
                "line": 9,
                "op": "reserve",
                "remaining": Permits::MAX.get(),
                "reset_after_ns": u64::MAX,
                "reset_after_us": u64::MAX.div_ceil(1_000),
                "retry_after_us": micros(&retry_after_ns),
                "retry_after_ns": retry_after_ns,
                "verdict": name,
                "waited_ns": waited_ns,
                "waited_us": u64::div_ceil(waited_ns, 1_000),
            });
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn an_error_is_a_line_of_json() {
        let mut line = Vec::new();
        write_error("there is no op \"sit\"", 3, &mut line);
        let written: Value = serde_json::from_slice(&line).expect("a line of JSON");
        assert_eq!(
            written,
            json!({"error": "there is no op \"sit\"", "line": 3})
        );
    }
}
