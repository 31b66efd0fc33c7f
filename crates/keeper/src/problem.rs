//! The body of a refusal: a problem document with the limit, and the time to wait.
//!
//! * Source: RFC 9457, "Problem Details for HTTP APIs" (2023); the type is registered by
//!   draft-ietf-httpapi-ratelimit-headers-11 (2026).

use std::fmt::Write as _;

use ratekeeper_core::{Permits, Verdict};
use ratekeeper_policy::Body;

use crate::LimitReport;
use crate::headers::retry_after_secs;

/// Content type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The problem type for used quotas.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The problem type for self-protection of the service: for limits that answer 503, and for
/// refusals without the store.
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The problem type for a banned client.
const ABNORMAL_USAGE: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// Room for a problem document.
const USUAL_BYTES: usize = 384;

/// Content type and content of a refusal.
///
/// ```
/// use ratekeeper::policy::Facts;
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
/// let ask = || at_once(keeper.check(&Facts::default(), Scope::All)).unwrap();
/// let answer = [ask(), ask(), ask()][2].clone();
/// let body = answer.body().expect("the third is refused");
/// assert_eq!(body.content_type, "application/problem+json");
/// assert!(body.content.contains(r#""violated-policies":["api"]"#));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusalBody<'a> {
    /// Value of the `Content-Type` header.
    pub content_type: &'a str,
    /// The bytes, as text.
    pub content: String,
}

/// Returns the body of a refusal by this limit, sent with `status`; `None` if it is empty.
/// `violated` holds the names of all limits that refuse.
///
/// ```
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Keeper, Scope, at_once, problem};
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
/// let ask = || at_once(keeper.check(&Facts::default(), Scope::All)).unwrap();
/// let answer = [ask(), ask(), ask()][2].clone();
/// let report = answer.refused_by().expect("the third is refused").report();
/// let body = problem::body(&report, [report.name].into_iter(), 503).unwrap();
/// assert!(body.content.contains("\"status\":503"));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
pub fn body<'a>(
    refused_by: &LimitReport<'a>,
    violated: impl Iterator<Item = &'a str>,
    status: u16,
) -> Option<RefusalBody<'a>> {
    let (content_type, content) = match &refused_by.refusal.body {
        Body::Empty => return None,
        Body::Text {
            content,
            content_type,
        } => (&**content_type, fill(content, refused_by)),
        Body::ProblemJson => (PROBLEM_JSON, problem(refused_by, violated, status)),
    };
    Some(RefusalBody {
        content_type,
        content,
    })
}

fn problem<'a>(
    refused_by: &LimitReport<'a>,
    violated: impl Iterator<Item = &'a str>,
    status: u16,
) -> String {
    let (r#type, title) = match refused_by.refusal.status {
        _ if refused_by.decision.verdict.is_ban() => (ABNORMAL_USAGE, "Banned for abnormal usage"),
        status if status == 503 || refused_by.outage.is_some() => {
            (REDUCED_CAPACITY, "Temporarily reduced capacity")
        }
        _ => (QUOTA_EXCEEDED, "Too many requests"),
    };
    let mut number = itoa::Buffer::new();
    let mut document = String::with_capacity(USUAL_BYTES);
    document.extend(["{\"type\":\"", r#type, "\",\"title\":\"", title]);
    document.extend(["\",\"status\":", number.format(status), ",\"detail\":\""]);
    let start = document.len();
    push_detail(&mut document, refused_by);
    escape_from(start, &mut document);
    document.push_str("\",\"violated-policies\":[");
    for (index, name) in violated.enumerate() {
        document.push_str(if index > 0 { ",\"" } else { "\"" });
        let start = document.len();
        document.push_str(name);
        escape_from(start, &mut document);
        document.push('"');
    }
    document.push(']');
    if let Some(wait) = refused_by.decision.verdict.retry_after() {
        let seconds = number.format(retry_after_secs(wait));
        document.extend([",\"retry_after\":", seconds]);
    }
    document.push('}');
    document
}

/// Escapes the text from `start` on for a string of JSON; most texts need no change.
pub(crate) fn escape_from(start: usize, document: &mut String) {
    let escaped = |byte: &&u8| **byte < b' ' || matches!(**byte, b'"' | b'\\');
    let text = document.as_bytes().iter().skip(start);
    // Counting all is faster than finding the first.
    if text.filter(escaped).count() > 0 {
        for letter in document.split_off(start).chars() {
            match letter {
                '"' | '\\' => document.extend(['\\', letter]),
                '\n' => document.push_str("\\n"),
                '\0'..' ' => {
                    let _ = write!(document, "\\u{:04x}", u32::from(letter)); // a string takes all
                }
                _ => document.push(letter),
            }
        }
    }
}

/// Returns the policy's detail, or the standard sentence.
#[cfg(feature = "tower")]
pub(crate) fn detail(refused_by: &LimitReport<'_>) -> String {
    let mut text = String::new();
    push_detail(&mut text, refused_by);
    text
}

/// Appends the policy's detail, or one or two sentences for the person who reads the response.
fn push_detail(text: &mut String, report: &LimitReport<'_>) {
    let name = report.name;
    let mut number = itoa::Buffer::new();
    if let Some(detail) = &report.refusal.detail {
        text.push_str(&fill(detail, report));
        return;
    }
    match report.decision.verdict {
        Verdict::DenyForever if report.key_missing => text.extend([
            "Limit ",
            name,
            " cannot count the request, because a value that it needs is missing, ambiguous or invalid.",
        ]),
        // Only a blocked key costs nothing.
        Verdict::DenyForever if report.cost == Permits::ZERO => {
            text.extend(["Limit ", name, " refuses this client."]);
        }
        Verdict::DenyForever => {
            text.push_str("The request costs ");
            push_amount(text, report.cost, report);
            if report.cost > report.quota {
                text.extend([", more than limit ", name, " can ever allow ("]);
                push_amount(text, report.quota, report);
                text.push_str(").");
            } else if report.window.is_none() {
                text.extend([", and limit ", name, " has "]);
                push_amount(text, report.decision.remaining, report);
                text.push_str(" left, which is not refilled.");
            } else {
                text.extend([", more than limit ", name]);
                text.push_str(" allows for requests without priority.");
            }
        }
        Verdict::Ban { retry_after } | Verdict::Banned { retry_after } => {
            let seconds = number.format(retry_after_secs(retry_after));
            text.extend(["Limit ", name, " bans this client. Try again in "]);
            text.extend([seconds, " s."]);
        }
        Verdict::Deny { retry_after } => {
            let seconds = number.format(retry_after_secs(retry_after));
            match (report.outage, report.window) {
                (Some(_), _) => text.extend(["Limit ", name, " is at reduced capacity"]),
                (None, Some(window)) if report.text.is_empty() => {
                    let _ = write!(text, "Limit {name} allows {}/{window}", report.quota); // a string takes all
                }
                (None, _) => text.extend(["Limit ", name, " allows ", report.text]),
            }
            text.extend([". Try again in ", seconds, " s."]);
        }
        Verdict::Allow | Verdict::AllowAfter(_) => {}
    }
}

/// Appends permits, in the unit of the limit if it has one: `12.50 USD`.
fn push_amount(text: &mut String, permits: Permits, report: &LimitReport<'_>) {
    match report.unit {
        Some(unit) => {
            let _ = write!(text, "{}", unit.show(permits.get())); // a string takes all
        }
        None => text.push_str(itoa::Buffer::new().format(permits.get())),
    }
}

/// Replaces `{retry_after}` and `{limit}` in a text of the policy.
fn fill(template: &str, report: &LimitReport<'_>) -> String {
    let wait = report.decision.verdict.retry_after().map_or_else(
        || "no time".into(),
        |wait| format!("{} s", retry_after_secs(wait)),
    );
    template
        .replace("{retry_after}", &wait)
        .replace("{limit}", report.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_why() {
        use ratekeeper_policy::Facts;
        let text = "version = 1\n[[limit]]\nname = \"c\"\nkey = [\"query:q\"]\nlimit = \"2/1h\"\n\
            [[override]]\nlimit = \"c\"\nkey = { \"query:q\" = \"bad\" }\nset = \"blocked\"\nreason = \"r\"\n";
        let keeper = crate::Keeper::open(text).unwrap();
        for (query, cost, detail) in [
            ("q=bad", 1, "Limit c refuses this client."),
            (
                "q=1&q=2&q=3&q=4&q=5",
                1,
                "Limit c cannot count the request, because a value that it needs is missing, \
                 ambiguous or invalid.",
            ),
            (
                "q=1",
                3,
                "The request costs 3, more than limit c can ever allow (2).",
            ),
        ] {
            let facts = Facts {
                query,
                cost: Some(Permits::new(cost)),
                ..Facts::default()
            };
            let answer = crate::at_once(keeper.check(&facts, crate::Scope::All)).unwrap();
            let content = answer.body().unwrap().content;
            assert!(content.contains(detail), "{content}");
        }
    }

    #[test]
    fn a_refusal_names_the_numbers_of_the_caller() {
        use ratekeeper_policy::{Descriptor, Facts, Numbers};
        let text = "version = 1\n[[limit]]\nname = \"user\"\nmatch = { domain = \"edge\" }\n\
            key = [\"descriptor:user\"]\nlimit = \"25/2000h\"\n";
        let keeper = crate::Keeper::open(text).unwrap();
        let year = ratekeeper_core::Nanos::from_secs(365 * 86_400);
        let facts = Facts {
            descriptor: Some(Descriptor {
                domain: "edge",
                entries: &[("user", "ada")],
                instead: Some(Numbers::new(Permits::ONE, year).unwrap()),
            }),
            ..Facts::default()
        };
        let check = || crate::at_once(keeper.check(&facts, crate::Scope::All)).unwrap();
        assert!(check().allowed());
        let content = check().body().unwrap().content;
        assert!(
            content.contains("Limit user allows 1/365d. Try again in"),
            "{content}"
        );
    }

    #[test]
    fn texts_of_the_policy_are_escaped() {
        let control: String = ('\0'..='\x7f').collect();
        for text in [
            "",
            "Come back in 60 s.",
            "say \"when\"",
            "\"",
            "a\\b",
            "two\nlines\u{1}",
            "\u{e9}\u{2028}",
            &control,
        ] {
            let mut document = format!("\"{text}");
            escape_from(1, &mut document);
            document.push('"');
            assert_eq!(serde_json::from_str::<String>(&document).unwrap(), text);
        }
    }
}
