//! HTTP dates: the three forms in which a server may write a moment.
//!
//! ```text
//!   Sun, 06 Nov 1994 08:49:37 GMT      as all write today
//!   Sunday, 06-Nov-94 08:49:37 GMT     RFC 850: two digits of the year
//!   Sun Nov  6 08:49:37 1994           C's asctime()
//! ```
//!
//! Names of days are read, not believed: only the date counts. A year of two digits is the one
//! nearest to today that lies at most 50 years ahead.
//!
//! Own code, since the crates that read these dates refuse leap seconds and take two digits
//! for 1970 to 2069, whatever the year is.
//!
//! Source: RFC 9110 (2022), section 5.6.7; H. Hinnant, "chrono-compatible low-level date
//! algorithms" (2013), for days since 1970.

use ratekeeper_core::Nanos;

/// Returns the date in `text` in nanoseconds since 1970, at most `u64::MAX` (2554); `None` if it
/// is no HTTP date, or before 1970. `now` (since 1970 too) decides on centuries only.
pub(crate) fn parse(text: &str, now: u64) -> Option<u64> {
    parse_secs(text, now / SECOND).map(|secs| secs.saturating_mul(SECOND))
}

const SECOND: u64 = Nanos::SECOND.as_nanos();

fn parse_secs(text: &str, now_secs: u64) -> Option<u64> {
    if !text.is_ascii() {
        return None;
    }
    let (name, rest) = text.split_once(' ')?;
    match name.strip_suffix(',') {
        Some(name) if is_day(name, 3) => imf(rest),
        Some(name) if is_day(name, usize::MAX) => rfc850(rest, now_secs),
        None if is_day(name, 3) => asctime(rest),
        _ => None,
    }
}

const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Returns true if `name` is a day, cut to `length` letters.
fn is_day(name: &str, length: usize) -> bool {
    DAYS.iter()
        .any(|day| day.get(..length).unwrap_or(day) == name)
}

/// `06 Nov 1994 08:49:37 GMT`
fn imf(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix(" GMT")?.split_at_checked(12)?;
    let [day, month, year] = parts(date.trim_end_matches(' '), ' ')?;
    moment(digits(year, 4)?, month, digits(day, 2)?, time)
}

/// `06-Nov-94 08:49:37 GMT`
fn rfc850(text: &str, now_secs: u64) -> Option<u64> {
    let (date, time) = text.strip_suffix(" GMT")?.split_once(' ')?;
    let [day, month, year] = parts(date, '-')?;
    let this_year = 1970 + now_secs / 31_556_952; // a mean year: right to a day
    let newest = this_year + 50;
    let year = newest - (newest + 100 - digits(year, 2)?) % 100;
    moment(year, month, digits(day, 2)?, time)
}

/// `Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<u64> {
    let (month, rest) = text.split_at_checked(4)?;
    let (day, rest) = rest.split_at_checked(3)?;
    let (time, year) = rest.split_at_checked(9)?;
    let day = day.strip_suffix(' ')?;
    let day = match day.strip_prefix(' ') {
        Some(digit) => digits(digit, 1)?,
        None => digits(day, 2)?,
    };
    let time = time.strip_suffix(' ')?;
    moment(digits(year, 4)?, month.strip_suffix(' ')?, day, time)
}

fn moment(year: u64, month: &str, day: u64, time: &str) -> Option<u64> {
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let [hour, minute, second] = parts(time, ':')?;
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    // 60: a leap second.
    if year < 1970 || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn days_in(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Gregorian calendar; the year begins in March, so that leap days come last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn parts(text: &str, separator: char) -> Option<[&str; 3]> {
    let mut parts = text.split(separator);
    let three = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(three)
}

/// Parses a number of exactly `length` digits.
fn digits(text: &str, length: usize) -> Option<u64> {
    let all = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok())?
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-21.
    const NOW: u64 = 1_795_219_200;

    #[test]
    fn all_three_forms_are_read() {
        for (text, secs) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 23:59:60 GMT", 951_868_800),
            ("Sat, 21 Nov 2026 00:00:00 GMT", NOW),
            ("Saturday, 21-Nov-26 00:00:00 GMT", NOW),
            ("Tue Nov 21 00:00:00 2034", 2_047_680_000),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ] {
            assert_eq!(parse_secs(text, NOW), Some(secs), "{text}");
        }
    }

    #[test]
    fn two_digits_lie_at_most_fifty_years_ahead() {
        for (year, then) in [("76", 2_076), ("77", 1_977), ("26", 2_026), ("00", 2_000)] {
            let text = format!("Monday, 01-Jan-{year} 00:00:00 GMT");
            let expected = days_since_1970(then, 1, 1) * 86_400;
            assert_eq!(parse_secs(&text, NOW), Some(expected), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_a_date_returns_none() {
        for text in [
            "",
            " ",
            "Sun,",
            "Sun, ",
            "Foo, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 29 Feb 2100 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
            "S\u{fc}n, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_secs(text, NOW), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_be_sent(text: String, now: u64) {
            let _ = parse(&text, now);
        }

        #[test]
        fn anything_near_a_date_may_be_sent(
            text in "(Sun|Sunday|Mon),? [0-9 -]{1,3}(Nov|Feb)?[ -][0-9: ]{1,14}( GMT)?", now: u64,
        ) {
            let _ = parse_secs(&text, now);
        }
    }
}
