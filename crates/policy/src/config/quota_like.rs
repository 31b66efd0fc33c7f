//! Quota-like: the quota or the span that was probably meant by a text that is none.
//!
//! ```text
//!   5 per minute   5/min   5r/s   100 / 1m   0.5/1s   -5/1m   5/1mo   five/1m   -> a quota
//!   minute   10 seconds   1 m                                                    -> a span
//! ```

use ratekeeper_core::Gcra;

use super::numbers::{rate, rolling};

/// Numbers that are written as words.
const NUMBER_WORDS: [(&str, &str); 14] = [
    ("once", "1"),
    ("twice", "2"),
    ("one", "1"),
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("ten", "10"),
    ("hundred", "100"),
    ("thousand", "1000"),
];

/// Returns the text with digits in place of a number that is a word at its start.
fn in_digits(text: String) -> String {
    let word = text.split(|c: char| !c.is_alphabetic()).next();
    let digits = NUMBER_WORDS.iter().find(|(name, _)| word == Some(name));
    match digits {
        Some((name, digits)) => format!("{digits}{}", &text[name.len()..]),
        None => text,
    }
}

/// Returns the quota probably meant: `5 per minute`, `5/min`, `5r/s`, `100 / 1m`, `0.5/1s`, `-5/1m`,
/// `5/1mo`, `5/3mo`, `five/1m`.
pub(super) fn quota_like(text: &str) -> Option<String> {
    let text = text.trim().trim_start_matches(['-', '+']).to_lowercase();
    let text = in_digits(text);
    let number = |c: char| c.is_ascii_digit() || matches!(c, '_' | ',' | '.');
    let rest = text.trim_start_matches(number);
    let digits = text[..text.len() - rest.len()].replace(['_', ','], "");
    let rest = rest.trim_start();
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
    let span = span_like(rest)?;
    let quota = match digits.split_once('.') {
        None => format!("{digits}/{span}"),
        Some((whole, part)) => fraction_like(whole, part, &span)?,
    };
    let (number, period) = quota.split_once('/')?;
    let rolling = format!("{number}/{}", rolling(period).unwrap_or(period));
    // Only a quota that the default algorithm can count is proposed.
    let counts = rate(&rolling).and_then(Gcra::token_bucket);
    counts.is_ok().then_some(quota)
}

/// Returns help for a number in years, `5/1000y`: the longest period of the calendar is one year.
pub(super) fn in_years(text: &str) -> Option<String> {
    let (number, period) = text.split_once('/')?;
    let number: u32 = number.trim().parse().ok().filter(|number| *number > 0)?;
    let years = period
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit());
    matches!(years.trim(), "y" | "yr" | "year" | "years").then(|| {
        format!(
            "write limit = \"{number}/year\", or balance = {{ start = {number}, max = {number} }} \
             for {number} that do not come back"
        )
    })
}

/// Turns half a request a second into one in two seconds.
fn fraction_like(whole: &str, part: &str, span: &str) -> Option<String> {
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let number: u64 = format!("{whole}{part}")
        .parse()
        .ok()
        .filter(|number| *number > 0)?;
    let unit = span.trim_start_matches(|c: char| c.is_ascii_digit());
    let length: u64 = span[..span.len() - unit.len()].parse().ok()?;
    let length = length.checked_mul(scale)?;
    let common = common_divisor(number, length);
    Some(format!("{}/{}{unit}", number / common, length / common))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Returns the span that was probably meant: `minute`, `10 seconds`, `1 m`.
pub(super) fn span_like(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "hour" | "day" | "week" | "month" | "year" if number.is_empty() => {
            return Some(unit.trim().to_owned());
        }
        "mo" | "mon" | "month" if matches!(number, "" | "1") => return Some("month".into()),
        "y" | "yr" | "year" if matches!(number, "" | "1") => return Some("year".into()),
        "mo" | "mon" | "month" | "months" => {
            return Some(format!("{}d", u32::from(number.parse::<u16>().ok()?) * 30)); // about as long
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
