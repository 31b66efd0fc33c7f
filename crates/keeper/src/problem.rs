//! The body of a refusal: a problem document that says which limit, and when to try again.
//!
//! * Source: RFC 9457, "Problem Details for HTTP APIs" (2023); the type is registered by
//!   draft-ietf-httpapi-ratelimit-headers-11 (2026).

use ratekeeper_core::{Nanos, Verdict};
use ratekeeper_policy::Body;
use serde::Serialize;

use crate::headers::retry_after_secs;
use crate::{Answer, Outcome};

/// Content type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The type of "you have used what you may".
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The type of "the service protects itself", for limits that answer 503.
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// Content type and content of a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusalBody {
    /// Value of the `Content-Type` header.
    pub content_type: String,
    /// The bytes, as text.
    pub content: String,
}

impl Answer {
    /// The body of the refusal, as the policy wants it; none if the request is allowed or
    /// the policy wants none.
    pub fn body(&self) -> Option<RefusalBody> {
        self.body_sent_with(self.status())
    }

    /// The [`body`](Self::body) of a refusal that is sent with another status than the
    /// limit's own: a problem document names the status it comes with (RFC 9457, section
    /// 3.1.2).
    pub fn body_sent_with(&self, status: u16) -> Option<RefusalBody> {
        let refused_by = self.refused_by()?;
        match &refused_by.rule.refusal.body {
            Body::Empty => None,
            Body::Text {
                content,
                content_type,
            } => Some(RefusalBody {
                content_type: content_type.clone(),
                content: fill(content, &refused_by),
            }),
            Body::ProblemJson => Some(RefusalBody {
                content_type: PROBLEM_JSON.to_owned(),
                content: self.problem(&refused_by, status),
            }),
        }
    }

    fn problem(&self, refused_by: &Outcome<'_>, status: u16) -> String {
        let (r#type, title) = match refused_by.rule.refusal.status {
            503 => (REDUCED_CAPACITY, "Temporarily reduced capacity"),
            _ => (QUOTA_EXCEEDED, "Too many requests"),
        };
        let problem = Problem {
            r#type,
            title,
            status,
            detail: detail(refused_by),
            violated_policies: self
                .outcomes()
                .filter(Outcome::refuses)
                .map(|outcome| &*outcome.rule.limit.name)
                .collect(),
            retry_after: self.retry_after().map(retry_after_secs),
        };
        serde_json::to_string(&problem).unwrap_or_default() // strings and numbers only: cannot fail
    }
}

/// What the policy says, or else the standard sentence.
pub(crate) fn detail(refused_by: &Outcome<'_>) -> String {
    match &refused_by.rule.refusal.detail {
        Some(detail) => fill(detail, refused_by),
        None => standard_detail(refused_by),
    }
}

/// One or two sentences for the person who reads the response.
fn standard_detail(outcome: &Outcome<'_>) -> String {
    let rule = outcome.rule;
    let name = &rule.limit.name;
    match outcome.decision.verdict {
        Verdict::DenyForever if outcome.key_missing => {
            format!("Limit {name} needs a value for its key, and the request has none.")
        }
        Verdict::DenyForever => format!(
            "The request costs {}, more than limit {name} can ever allow ({}).",
            outcome.cost, rule.quota
        ),
        Verdict::Deny { retry_after } => {
            format!(
                "Limit {name} allows {}. Try again in {}.",
                rule.text,
                seconds(retry_after)
            )
        }
        Verdict::Allow | Verdict::AllowAfter(_) => String::new(),
    }
}

/// Fills `{retry_after}` and `{limit}` into a text of the policy.
fn fill(template: &str, outcome: &Outcome<'_>) -> String {
    let wait = outcome
        .decision
        .verdict
        .retry_after()
        .map_or_else(|| "no time".into(), seconds);
    template
        .replace("{retry_after}", &wait)
        .replace("{limit}", &outcome.rule.limit.name)
}

fn seconds(wait: Nanos) -> String {
    format!("{} s", retry_after_secs(wait))
}
