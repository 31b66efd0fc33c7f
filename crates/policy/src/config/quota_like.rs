//! Quota-like: the quota or the duration that was probably meant by a text that is none.
//!
//! ```text
//!   5 per minute   5/min   5r/s   100 / 1m   0.5/1s   -5/1m   5/1mo   five/1m   -> a quota
//!   1k/1m   1M/day   1e3/1m   1m/5                                               -> a quota
//!   minute   10 seconds   1 m   daily   1m30s   PT1M                             -> a duration
//! ```

use ratekeeper_core::{Gcra, Nanos};

use super::lookalikes::in_ascii;
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
    let text = in_ascii(text).unwrap_or_else(|| text.to_owned());
    let text = text.trim().trim_start_matches(['-', '+']).to_lowercase();
    let text = in_order(&in_digits(text));
    let number = |c: char| c.is_ascii_digit() || matches!(c, '_' | ',' | '.');
    let rest = text.trim_start_matches(number);
    let digits = text[..text.len() - rest.len()].replace(['_', ','], "");
    let (digits, rest) = scaled(digits, rest);
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
    let duration = duration_like(rest)?;
    let quota = match digits.split_once('.') {
        None => format!("{digits}/{duration}"),
        Some((whole, part)) => fraction_like(whole, part, &duration)?,
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

/// Returns `5/1m` for `1m/5`: a period and a number in the order of some other programs.
fn in_order(text: &str) -> String {
    let turned = text.split_once('/').filter(|(period, number)| {
        let is_number = number.trim().parse::<u64>().is_ok();
        is_number && period.trim().parse::<u64>().is_err() && duration_like(period).is_some()
    });
    turned.map_or_else(
        || text.to_owned(),
        |(period, number)| format!("{}/{}", number.trim(), period.trim()),
    )
}

/// Returns the number with the zeros of a `k`, `m`, `gb` or an exponent behind it, and the rest.
fn scaled(digits: String, rest: &str) -> (String, &str) {
    const MOST_ZEROS: usize = 15;
    let exponent = rest.strip_prefix('e').and_then(|power| {
        let rest = power.trim_start_matches(|c: char| c.is_ascii_digit());
        let zeros: usize = power[..power.len() - rest.len()].parse().ok()?;
        Some((zeros, rest))
    });
    let letter = || {
        let zeros = match rest.chars().next()? {
            'k' => 3,
            'm' => 6,
            'g' => 9,
            _ => return None,
        };
        let rest = rest[1..].trim_start_matches('b');
        (!rest.starts_with(char::is_alphanumeric)).then_some((zeros, rest))
    };
    match exponent.or_else(letter) {
        Some((zeros, rest))
            if zeros <= MOST_ZEROS && !digits.is_empty() && !digits.contains('.') =>
        {
            (digits + &"0".repeat(zeros), rest)
        }
        _ => (digits, rest),
    }
}

/// Turns half a request a second into one in two seconds.
fn fraction_like(whole: &str, part: &str, duration: &str) -> Option<String> {
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let number: u64 = format!("{whole}{part}")
        .parse()
        .ok()
        .filter(|number| *number > 0)?;
    let unit = duration.trim_start_matches(|c: char| c.is_ascii_digit());
    let length: u64 = duration[..duration.len() - unit.len()].parse().ok()?;
    let length = length.checked_mul(scale)?;
    let common = common_divisor(number, length);
    Some(format!("{}/{}{unit}", number / common, length / common))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Returns the duration that was probably meant: `minute`, `10 seconds`, `1 m`.
pub(super) fn duration_like(text: &str) -> Option<String> {
    let text = in_ascii(text).unwrap_or_else(|| text.to_owned());
    let text = text.trim().to_lowercase();
    // ISO 8601: `PT1M` is a minute.
    let text = text.strip_prefix("pt").unwrap_or(&text);
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "hour" | "day" | "week" | "month" | "year" if number.is_empty() => {
            return Some(unit.trim().to_owned());
        }
        "secondly" if number.is_empty() => "s",
        "minutely" if number.is_empty() => "m",
        "hourly" if number.is_empty() => return Some("hour".into()),
        "daily" if number.is_empty() => return Some("day".into()),
        "weekly" if number.is_empty() => return Some("week".into()),
        "monthly" if number.is_empty() => return Some("month".into()),
        "yearly" | "annually" if number.is_empty() => return Some("year".into()),
        "quarter" if matches!(number, "" | "1") => return Some("90d".into()), // about as long
        "fortnight" if matches!(number, "" | "1") => return Some("14d".into()),
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
        _ => return in_seconds(text),
    };
    let number = if number.is_empty() { "1" } else { number };
    number.parse::<u32>().ok().filter(|number| *number > 0)?;
    Some(format!("{number}{unit}"))
}

/// Returns `90s` for `1m30s`: a duration has one unit.
fn in_seconds(text: &str) -> Option<String> {
    let parts = text.split_inclusive(|c: char| c.is_ascii_alphabetic());
    let mut seconds = 0_u64;
    let mut count = 0;
    for part in parts {
        let part: Nanos = part.parse().ok()?;
        seconds = seconds.checked_add(part.as_nanos() / Nanos::SECOND.as_nanos())?;
        count += 1;
    }
    (count > 1 && seconds > 0).then(|| format!("{seconds}s"))
}

/// Returns the quotas of a text with several, such as `5/1s, 100/1m`.
pub(super) fn quotas_like(text: &str) -> Option<Vec<String>> {
    let parts: Vec<_> = text.split([',', ';', '&']).take(5).collect();
    if !(2..=4).contains(&parts.len()) {
        return None;
    }
    parts.into_iter().map(quota_like).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_other_programs_are_understood() {
        for (text, expected) in [
            ("5 per minute", Some("5/1m")),
            ("1k/1m", Some("1000/1m")),
            ("1M/day", Some("1000000/day")),
            ("1GB/day", Some("1000000000/day")),
            ("1e3/1m", Some("1000/1m")),
            ("1e400/1m", None),
            ("1m/5", Some("5/1m")),
            ("5/daily", Some("5/day")),
            ("5/1m30s", Some("5/90s")),
            ("5/PT1M", Some("5/1m")),
            ("5/2month", Some("5/60d")),
            ("5/quarter", Some("5/90d")),
            ("\u{ff15}/1m", Some("5/1m")),
            ("5\u{2044}1m", Some("5/1m")),
            ("NaN/1m", None),
            ("unlimited", None),
        ] {
            assert_eq!(quota_like(text).as_deref(), expected, "{text}");
        }
        let two = quotas_like("5/1s, 100/1m").unwrap();
        assert_eq!(two, ["5/1s", "100/1m"]);
        assert_eq!(quotas_like("10,000/1h"), None);
    }
}
