//! Problem: the answer of a door to a call that it cannot serve (RFC 9457).
//!
//! A refusal by a limit is no problem in this sense: it is an answer.

use std::fmt;

use http::{HeaderValue, Response, StatusCode, header};
use ratekeeper::problem::PROBLEM_JSON;

use super::answer::push_text;
use super::{Reply, json, put_field};
use crate::notices::page_of;

/// One kind of problem, as the documentation lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProblemKind {
    /// `RK0501`; never reused for another meaning.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    /// The error, the same for every case of it.
    pub title: &'static str,
}

macro_rules! problems {
    ($($name:ident = $code:literal $status:literal $title:literal;)*) => {
        $(pub(crate) const $name: ProblemKind = ProblemKind {
            code: $code,
            status: $status,
            title: $title,
        };)*

        /// All problems that the doors answer with.
        pub const PROBLEMS: &[ProblemKind] = &[$($name),*];
    };
}

problems! {
    NOT_JSON = "RK0501" 400 "the body is not JSON";
    UNKNOWN_FIELD = "RK0502" 400 "a field is not known";
    WRONG_VALUE = "RK0503" 400 "a field has a wrong value";
    UNKNOWN_LIMIT = "RK0504" 400 "a limit is not in the policy";
    TOO_LARGE = "RK0505" 413 "the body is too large";
    TOO_SLOW = "RK0506" 408 "the body did not arrive in time";
    BROKEN_BODY = "RK0507" 400 "the body broke off";
    WRONG_QUERY = "RK0508" 400 "a query parameter is not understood";
    UNKNOWN_PATH = "RK0509" 404 "there is nothing at this path";
    WRONG_METHOD = "RK0510" 405 "the method does not fit the path";
    NOT_LOCAL = "RK0511" 403 "only for the operator";
    NO_TOKEN = "RK0512" 401 "the admin token is needed";
    AMBIGUOUS = "RK0513" 400 "the original request is ambiguous";
    RELOAD_REFUSED = "RK0514" 422 "the policy was refused";
    STORE_DOWN = "RK0515" 503 "the store cannot answer";
    NO_SUCH_LIMIT = "RK0516" 404 "there is no such limit";
    NO_SUCH_KEY = "RK0517" 404 "the limit does not remember this key";
    NOT_LISTED = "RK0518" 501 "the keys of a shared store are not listed";
    NO_REFUND = "RK0519" 409 "a limit does not support refunds";
    FROM_A_PAGE = "RK0520" 403 "web pages may not call this";
    TOO_BUSY = "RK0521" 503 "too many bodies are held at once";
    NO_SUCH_SIGNAL = "RK0522" 404 "there is no such signal";
    MALFORMED = "RK0523" 400 "the request is malformed";
    BAD_GATEWAY = "RK0524" 502 "the upstream did not answer";
    GATEWAY_TIMEOUT = "RK0525" 504 "the upstream did not answer in time";
    UPSTREAM_BUSY = "RK0526" 503 "the upstream is busy";
    TOO_MANY_STREAMS = "RK0527" 503 "no further dashboard can be open";
    TOO_MANY_PREFLIGHTS = "RK0528" 429 "too many preflights";
    NO_OVERRIDES_FILE = "RK0530" 409 "the policy names no file of overrides";
    OVERRIDE_REFUSED = "RK0531" 422 "the override was refused";
    OVERRIDES_UNWRITTEN = "RK0532" 503 "the file of overrides cannot be read or written";
    NOT_EDITED = "RK0533" 409 "the file of overrides is not edited";
    NO_ROOM_BY_HAND = "RK0534" 409 "too many keys are banned or allowed by hand";
    FOREIGN_VALUE = "RK0535" 409 "the store holds another program's value";
    NOT_OPEN = "RK0590" 410 "the decision is not open";
}

/// Explains each problem, and how to correct the call.
const PAGES: &str = include_str!("problems.md");

/// Returns the explanation of a code, as `ratekeeper help RK0513` shows it; `None` for a code that
/// no door answers with.
pub fn explain_problem(code: &str) -> Option<&'static str> {
    let mut known = PROBLEMS.iter();
    let problem = known.find(|problem| problem.code == code)?;
    page_of(PAGES, problem.code)
}

/// A call that cannot be served, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) kind: ProblemKind,
    /// One sentence, which shows the value and the limit.
    pub(crate) detail: String,
    /// Further members, as JSON: `,"name":value`.
    pub(crate) members: String,
    /// `Allow`, for a wrong method.
    pub(crate) allow: Option<String>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            members: String::new(),
            allow: None,
        }
    }

    pub(crate) fn wrong_method(allow: impl Into<String>) -> Self {
        let allow = allow.into();
        Self {
            detail: format!("use {allow}"),
            allow: Some(allow),
            ..Self::new(WRONG_METHOD, "")
        }
    }

    pub(crate) fn response(&self) -> Response<Reply> {
        let status = StatusCode::from_u16(self.kind.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, self.body());
        put_field(&mut response, header::CONTENT_TYPE, PROBLEM_JSON);
        if let Some(Ok(allow)) = self.allow.as_deref().map(HeaderValue::from_str) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        if self.kind == NO_TOKEN {
            let scheme = "Bearer realm=\"ratekeeper\"";
            put_field(&mut response, header::WWW_AUTHENTICATE, scheme);
        }
        if [TOO_BUSY, UPSTREAM_BUSY, TOO_MANY_PREFLIGHTS].contains(&self.kind) {
            put_field(&mut response, header::RETRY_AFTER, "1");
        }
        response
    }

    fn body(&self) -> Vec<u8> {
        let ProblemKind {
            code,
            status,
            title,
        } = self.kind;
        let mut body = format!(
            r#"{{"type":"urn:ratekeeper:problem:{code}","title":"{title}","status":{status},"detail":"#
        )
        .into_bytes();
        push_text(&mut body, &self.detail);
        body.extend_from_slice(format!(r#","code":"{code}""#).as_bytes());
        body.extend_from_slice(self.members.as_bytes());
        body.push(b'}');
        body
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code, self.detail)
    }
}

/// Returns `did you mean ...?` for a misspelt name; empty if no known name is near.
pub(crate) fn near_spelling<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    /// Longer names are not compared, because the work grows with the square of the length.
    const MAX_COMPARED: usize = 64;
    /// Minimum similarity of two names.
    const ALIKE: f64 = 0.7;
    if name.len() > MAX_COMPARED {
        return String::new();
    }
    let alike = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let best = known.map(alike).max_by(|(a, _), (b, _)| a.total_cmp(b));
    match best {
        Some((score, known)) if score >= ALIKE => format!("; did you mean `{known}`?"),
        _ => String::new(),
    }
}

/// Returns text from a client as part of a message: bounded.
pub(crate) fn shown(text: &str) -> String {
    /// Maximum number of characters shown.
    const MAX_SHOWN: usize = 80;
    let mut shown: String = text.chars().take(MAX_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        for pair in PROBLEMS.windows(2) {
            assert!(pair[0].code < pair[1].code, "{pair:?}");
        }
        assert!(
            PROBLEMS
                .iter()
                .all(|kind| (400..600).contains(&kind.status))
        );
    }

    #[test]
    fn every_problem_is_explained_under_its_title() {
        for ProblemKind {
            code,
            status,
            title,
        } in PROBLEMS
        {
            let page = explain_problem(code).unwrap_or_else(|| panic!("{code} has no page"));
            let (heading, text) = page.split_once("\n\n").expect("a heading and a text");
            assert_eq!(heading, format!("{code}: {title} (HTTP {status})"));
            let (reason, calls) = text
                .split_once("\n\n```\n")
                .expect("every page shows a wrong and a right call");
            assert!(reason.len() > 80, "{code}: {reason}");
            let calls = calls
                .strip_suffix("\n```")
                .expect("no text follows the calls");
            assert!(calls.lines().count() >= 2, "{code}: {calls}");
            assert!(
                calls.lines().all(|line| line.len() <= 100),
                "{code}: {calls}"
            );
        }
        assert_eq!(explain_problem("RK0103"), None);
    }

    #[test]
    fn near_spellings() {
        let known = || ["request", "attributes", "cost", "limits"].into_iter();
        assert_eq!(
            near_spelling("reqest", known()),
            "; did you mean `request`?"
        );
        assert_eq!(near_spelling("limit", known()), "; did you mean `limits`?");
        assert_eq!(near_spelling("zzz", known()), "");
        assert_eq!(near_spelling(&"x".repeat(70_000), known()), "");
    }

    #[test]
    fn strangers_text_is_cut() {
        assert_eq!(shown("short"), "short");
        assert_eq!(shown(&"\u{e9}".repeat(200)).chars().count(), 83);
    }
}
