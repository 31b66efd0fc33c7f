//! Notices: those that a running service gave in the last hour.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Finding, Judgement};
use crate::Failure;
use crate::client::Client;

/// Start of a notice with a code, among the changes of the service.
const CODED: &str = "notice: RK-W";
/// Age of a notice that still counts: the service repeats it each hour.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// Asks the admin listener at `server` for its changes; returns a finding for each notice with a
/// code.
pub(crate) fn ask(server: &str) -> Result<Vec<Finding>, Failure> {
    let answer = Client::of_admin_at(server)?.get("/v1/dashboard", &[])?;
    Ok(recent(&answer))
}

fn recent(answer: &Value) -> Vec<Finding> {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let now = time(&answer["at"]);
    let is_recent = |change: &Value| {
        let age = now
            .zip(time(&change["at"]))
            .map(|(now, at)| now.duration_since(at));
        age.is_some_and(|age| age < RECENT)
    };
    let mut notices = BTreeSet::new();
    for change in answer["changes"].as_array().into_iter().flatten() {
        let text = change["text"].as_str().unwrap_or_default();
        if text.starts_with(CODED)
            && is_recent(change)
            && let Some(notice) = text["notice: ".len()..].split_once(": ")
        {
            notices.insert(notice);
        }
    }
    if notices.is_empty() {
        return vec![Finding::new(
            "notices",
            Judgement::ok("none in the last hour"),
        )];
    }
    let finding = |(code, text): (&str, &str)| {
        let hint = format!("ratekeeper help {code}");
        let judged = Judgement::warning(format!("{code}: {text}"), hint);
        Finding::new("notices", judged).with("code", code)
    };
    notices.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_notice_with_a_code_within_an_hour_is_a_finding() {
        let change = |at: &str, text: &str| json!({ "at": at, "kind": "warning", "text": text });
        let answer =
            |changes: &[Value]| json!({ "at": "2026-01-01T02:00:00Z", "changes": changes });
        let of_texts = |changes: &[Value]| {
            let found = recent(&answer(changes)).into_iter();
            found.map(|found| found.judged.message).collect::<Vec<_>>()
        };
        assert_eq!(of_texts(&[]), ["none in the last hour"]);
        let changes = [
            change("2026-01-01T01:59:00Z", "notice: RK-W104: a limit"),
            change("2026-01-01T01:58:00Z", "store down"),
            change("2026-01-01T01:30:00Z", "notice: RK-W104: another"),
            change("2026-01-01T01:20:00Z", "notice: RK-W104: a limit"),
            change("2026-01-01T01:00:01Z", "notice: RK-W101: a peer"),
            change("2026-01-01T01:00:00Z", "notice: RK-W102: an hour ago"),
            change("2026-01-01T01:59:00Z", "notice: the wall clock was set"),
        ];
        let expected = ["RK-W101: a peer", "RK-W104: a limit", "RK-W104: another"];
        assert_eq!(of_texts(&changes), expected);
    }
}
