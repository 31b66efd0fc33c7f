//! Limit text: the quantity of one limit, without a policy around it.
//!
//! ```text
//!   100/1m                                       limit = "100/1m"
//!   { limit = "100/1m", algorithm = "sliding-window-log" }      the same words on one line
//!   limit = "100/1m"                             or as they stand in a [[limit]]
//!   algorithm = "sliding-window-log"
//! ```
//!
//! The parser of policies reads them, so the words, the default algorithm and the errors are the
//! same.

use std::fmt;

use ratekeeper_core::AnyAlgorithm;
use toml::de::DeTable;

use super::forms::quantity;
use super::{Surroundings, denials};
use crate::config::fields::{LIMIT, QUANTITY};
use crate::config::render::{Colour, render};
use crate::config::settings;
use crate::config::{Context, Diagnostic, Findings, Table, check, codes, error, syntax};

/// File name in messages that point at the text.
const FILE: &str = "limit";

/// Reads how much a limit allows in the policy's words: the fields `limit`, `bucket`,
/// `spacing`, `concurrency`, `algorithm`, `anchor`, `queue`, `warmup`, `count_denied` and `timezone` of a
/// `[[limit]]`, or only the number, `100/1m`.
///
/// ```
/// use ratekeeper_core::Algorithm;
/// use ratekeeper_policy::config::{Context, parse_limit};
/// let name = |text| parse_limit(text, Context::default()).map(|limit| limit.name());
/// assert_eq!(name("100/1m")?, "token bucket", "as in a policy");
/// assert_eq!(name("{ limit = \"100/1m\", algorithm = \"fixed-window\" }")?, "fixed window");
/// assert_eq!(name("bucket = { size = 20, refill = \"10/1s\" }")?, "token bucket");
/// assert_eq!(name("concurrency = 10")?, "concurrency");
///
/// let error = name("limit = \"100/1m\"\nalgorithm = \"fixde\"").unwrap_err();
/// assert_eq!((error.findings()[0].code, error.findings()[0].line), ("RK0106", 2));
/// # Ok::<(), ratekeeper_policy::config::LimitTextError>(())
/// ```
///
/// # Errors
/// All errors in the text.
pub fn parse_limit(text: &str, context: Context) -> Result<AnyAlgorithm, LimitTextError> {
    let text = spelled_out(text);
    let out = Findings::new(&text);
    let read = syntax::document(&text, &out).and_then(|document| {
        let root = document.get_ref();
        let one_line = root
            .get(ONE_LINE)
            .and_then(|node| node.get_ref().as_table());
        algorithm(one_line.unwrap_or(root), context, &out)
    });
    match read {
        Some(algorithm) if !out.has_errors() => Ok(algorithm),
        _ => {
            let findings = out.finish();
            Err(LimitTextError { text, findings })
        }
    }
}

/// Field under which text on one line is read.
const ONE_LINE: &str = "limiter";

/// Rewrites the text as TOML: a number alone becomes `limit`, and an inline table gets a name.
fn spelled_out(text: &str) -> String {
    let text = text.trim();
    if text.starts_with('{') {
        return format!("{ONE_LINE} = {text}");
    }
    if text.contains(['=', '\n']) {
        return text.to_owned();
    }
    format!("limit = \"{}\"", text.trim_matches('"'))
}

fn algorithm(written: &DeTable<'_>, context: Context, out: &Findings<'_>) -> Option<AnyAlgorithm> {
    let root = Table::root(written, &QUANTITY, out);
    check(root, "the limiter");
    let zone = settings::zone(root);
    let table = Table::root(written, &LIMIT, out); // whose reader asks for more fields
    let around = Surroundings {
        zone: &zone,
        origin: context.origin,
        denials: denials(table).unwrap_or_default(),
    };
    let quantity = quantity(table, around)?;
    if quantity.by_day.is_some() {
        let at = table.place("anchor");
        let label = "a limit by itself has no requests with attributes";
        error(codes::ANCHOR, at, "this `anchor` names an attribute", label)
            .help("write a day, such as anchor = 15, or a policy with this limit");
        return None;
    }
    Some(quantity.algorithm)
}

/// A text that is no valid limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitTextError {
    /// The text that the findings point at.
    text: String,
    findings: Vec<Diagnostic>,
}

impl LimitTextError {
    /// Returns the findings in the order of the text; at least one.
    pub fn findings(&self) -> &[Diagnostic] {
        &self.findings
    }
}

/// Formats the findings with their places, as for a policy.
impl fmt::Display for LimitTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = render(FILE, &self.text, &self.findings, Colour::Never);
        f.write_str(page.trim_end())
    }
}

impl std::error::Error for LimitTextError {}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Algorithm as _;

    use super::*;

    fn name(text: &str) -> Result<&'static str, String> {
        let limit = parse_limit(text, Context::default());
        limit
            .map(|limit| limit.name())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_algorithm_can_be_written() {
        let rows = [
            ("10/1m", "token bucket"),
            ("  10/1m\n", "token bucket"),
            ("\"10/1m\"", "token bucket"),
            ("spacing = \"200ms\"", "leaky bucket"),
            ("timezone = \"UTC\"\nlimit = \"10/day\"", "calendar window"),
            (
                "{ timezone = \"UTC\", limit = \"10/month\", anchor = 15 }",
                "calendar window",
            ),
            (
                "bucket = { size = 5, refill = \"1/1s\", step = true }",
                "interval bucket",
            ),
            (
                "{ bucket = { size = 5, refill = \"1/1s\" }, queue = { max = 3, max_wait = \"2s\" } }",
                "leaky bucket",
            ),
            (
                "limit = \"10/1s\"\nwarmup = { period = \"10s\" }",
                "warm-up",
            ),
            ("concurrency = { max = 5, lease = \"60s\" }", "concurrency"),
        ];
        for (text, algorithm) in rows {
            assert_eq!(name(text).as_deref(), Ok(algorithm), "{text}");
        }
        for (word, algorithm) in [
            ("sliding-window-counter", "sliding window counter"),
            ("fixed-window", "fixed window"),
            ("quota-reset", "quota reset"),
            ("token-bucket", "token bucket"),
            ("leaky-bucket", "leaky bucket"),
            ("sub-buckets", "sub-buckets"),
            ("sliding-window-log", "sliding window log"),
            ("hybrid", "hybrid"),
            ("exponential", "exponential"),
            ("smooth-bursty", "smooth bursty"),
        ] {
            let text = format!("{{ limit = \"10/1m\", algorithm = \"{word}\" }}");
            assert_eq!(name(&text).as_deref(), Ok(algorithm), "{text}");
        }
        let counted = "limit = \"10/1m\"\nalgorithm = \"sliding-window-log\"\ncount_denied = true";
        assert_eq!(name(counted).as_deref(), Ok("strict sliding window log"));
    }

    #[test]
    fn an_invalid_limit_is_refused_with_its_place() {
        for (text, code, line, column) in [
            ("", "RK0205", 1, 9),
            ("100 per minute", "RK0205", 1, 9),
            ("10/day", "RK0211", 1, 9),
            ("limit = \"10/1m\"\nkey = [\"ip\"]", "RK0103", 2, 1),
            ("limit = \"10/1m\"\nspacing = \"1s\"", "RK0204", 2, 1),
            ("{ limit = \"10/1m\"", "RK0101", 1, 28),
            (
                "timezone = \"UTC\"\nlimit = \"10/month\"\nanchor = \"attr:day\"",
                "RK0241",
                3,
                10,
            ),
            ("algorithm = \"sliding-window-log\"", "RK0203", 1, 1),
        ] {
            let error = parse_limit(text, Context::default()).unwrap_err();
            let first = &error.findings()[0];
            let found = (first.code, first.line, first.column);
            assert_eq!(found, (code, line, column), "{text}\n{error}");
        }
    }
}
