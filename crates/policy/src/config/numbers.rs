//! Numbers: what is said about a number in a period that cannot be read or kept, and the
//! one that was probably meant.

use ratekeeper_core::Error;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::read::At;

/// How a `limit` is written.
pub(super) const GRAMMAR: &str =
    "write a number and a duration, as in \"100/1m\", or a word of the calendar, as in \"100/day\"";

/// Reports why core refuses a number.
pub(super) fn refuse(error: Error, text: &At<&str>, grammar: &str, out: &mut Findings<'_>) {
    let value = shown(text.value);
    let (code, help) = match error {
        Error::Quota | Error::Span => {
            let help = match quota_like(text.value) {
                Some(meant) => format!("write \"{meant}\""),
                None => grammar.to_owned(),
            };
            (codes::QUOTA, help)
        }
        Error::NoPermits => (
            codes::NOT_COUNTABLE,
            "write at least 1; to refuse everything, let the application or the proxy do it".into(),
        ),
        Error::NoSpan => (codes::NOT_COUNTABLE, "write for example \"100/1m\"".into()),
        Error::TooFast => (
            codes::NOT_COUNTABLE,
            "write a lower number; a limit this fast is never reached".into(),
        ),
        Error::TooLong | Error::SpanTooLong | Error::WindowTooLong => (
            codes::NOT_COUNTABLE,
            "write a shorter period, or a smaller bucket that refills faster".into(),
        ),
        Error::TooManyPermits => (
            codes::NOT_COUNTABLE,
            "count in larger units: 4,294,967,295 is the most".into(),
        ),
        Error::SubBuckets => (
            codes::NOT_COUNTABLE,
            "write fewer sub-buckets, or a longer period".into(),
        ),
        _ => (codes::NOT_COUNTABLE, grammar.to_owned()),
    };
    let message = match code {
        codes::QUOTA => format!("\"{value}\" is no number in a period"),
        _ => format!("\"{value}\" cannot be kept"),
    };
    out.error(code, text.at.clone(), message, label(error))
        .help(help);
}

/// Why, in a few words; core says it for those who have no file to point at.
fn label(error: Error) -> String {
    match error {
        Error::Quota | Error::Span => "not NUMBER/PERIOD".into(),
        other => other.to_string(),
    }
}

/// The quota that was probably meant: `5 per minute`, `5/min`, `5r/s`, `100 / 1m`.
fn quota_like(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits: String = text
        .chars()
        .filter(|c| *c != '_' && *c != ',')
        .take_while(char::is_ascii_digit)
        .collect();
    let number: u32 = digits.parse().ok().filter(|number| *number > 0)?;
    let rest = text
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '_' || c == ',')
        .trim_start();
    let rest = ["requests", "reqs", "req", "r"]
        .iter()
        .find_map(|word| {
            rest.strip_prefix(word)
                .filter(|rest| !rest.starts_with(char::is_alphabetic))
        })
        .unwrap_or(rest)
        .trim_start();
    let rest = ["/", "per ", "every ", "in ", "a ", "an "]
        .iter()
        .find_map(|word| rest.strip_prefix(word))?;
    Some(format!("{number}/{}", span_like(rest)?))
}

/// The span that was probably meant: `minute`, `10 seconds`, `1 m`.
pub(super) fn span_like(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "hour" | "day" | "week" | "month" | "year" if number.is_empty() => {
            return Some(unit.trim().to_owned());
        }
        "ns" | "nanosecond" | "nanoseconds" => "ns",
        "us" | "microsecond" | "microseconds" => "us",
        "ms" | "msec" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        _ => return None,
    };
    let number = if number.is_empty() { "1" } else { number };
    number.parse::<u32>().ok().filter(|number| *number > 0)?;
    Some(format!("{number}{unit}"))
}
