//! Words: spans, counts and names as text for people.

use std::borrow::Borrow;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use ratekeeper_core::{Nanos, Permits};

/// Units of spans, largest first, with their nanoseconds.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Returns the time zone of this name in the database that is compiled in, which policies use too.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

/// Formats date, time and offset, without the name of the zone.
pub(crate) fn clock_time(moment: &Zoned) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// Formats the day of a moment, in UTC: `2026-11-01`.
pub(crate) fn day(unix_seconds: u64) -> String {
    let second = i64::try_from(unix_seconds).unwrap_or(i64::MAX);
    let day = Timestamp::from_second(second);
    day.map_or_else(
        |_| "an unknown day".into(),
        |day| day.strftime("%Y-%m-%d").to_string(),
    )
}

/// Formats a span in its two largest units: `50 ms`, `1 min 30 s`, `10 h 54 min`. Rounded up,
/// because most spans are waits. Below a minute in one unit, with two digits after the point.
pub(crate) fn span(span: Nanos) -> String {
    let nanos = span.as_nanos();
    let Some(largest) = UNITS.iter().position(|(_, unit)| nanos >= *unit) else {
        return "0 s".into();
    };
    let (unit, size) = UNITS[largest];
    let step = step(largest);
    let rounded = nanos.div_ceil(step).saturating_mul(step); // up: this long is always enough
    if largest > 0 && rounded >= UNITS[largest - 1].1 {
        return self::span(Nanos::from_nanos(rounded)); // 59 min 60 s is 1 h
    }
    let (major, rest) = (rounded / size, rounded % size);
    match rest / step {
        0 => format!("{major} {unit}"),
        minor if size > 1_000_000_000 => format!("{major} {unit} {minor} {}", UNITS[largest + 1].0),
        hundredths => {
            let text = format!("{major}.{hundredths:02}");
            format!("{} {unit}", text.trim_end_matches('0'))
        }
    }
}

/// Formats a span as [`span`] does, but rounded down, for bounds: a shorter span admits no more.
pub(crate) fn bounded_span(span: Nanos) -> String {
    let nanos = span.as_nanos();
    let largest = UNITS.iter().position(|(_, unit)| nanos >= *unit);
    let rest = largest.map_or(0, |largest| nanos % step(largest));
    self::span(Nanos::from_nanos(nanos - rest))
}

/// Returns the smallest part of a span that is shown, by the place of its unit.
fn step(unit: usize) -> u64 {
    match UNITS[unit].1 {
        size if size > 1_000_000_000 => UNITS[unit + 1].1,
        size => (size / 100).max(1),
    }
}

/// Formats a count with thousands separated: `10,000`.
pub(crate) fn count(number: impl TryInto<u64>) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        few @ 0..1_000 => few.to_string(),
        many => format!("{},{:03}", count(many / 1_000), many % 1_000),
    }
}

/// Formats a number of things: `1 limit`, `2 limits`.
pub(crate) fn counted(number: impl TryInto<u64>, thing: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// Returns a key on one line. It is a stranger's text: line breaks and escapes of a terminal are
/// written out.
pub(crate) fn key<S: Borrow<str>>(parts: &[S]) -> String {
    match parts {
        [] => "all requests".into(),
        parts => parts.join(", ").escape_debug().to_string(),
    }
}

/// Formats the cost of each of some requests: ` of cost 3`; empty if it is 1.
pub(crate) fn of_cost(cost: Permits) -> String {
    match cost {
        Permits::ONE => String::new(),
        cost => format!(" of cost {cost}"),
    }
}

/// Formats a size in its largest binary unit: `900 B`, `1.5 GiB`. Rounded down.
pub(crate) fn size(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size {
            let (whole, tenth) = (bytes / size, bytes % size * 10 / size); // down
            return match tenth {
                0 => format!("{} {unit}", count(whole)),
                tenth => format!("{}.{tenth} {unit}", count(whole)),
            };
        }
    }
    format!("{bytes} B")
}

/// Reads a size: `67108864`, `64MiB`, `1GiB`.
///
/// # Errors
/// Returns a sentence for the user.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let scale: usize = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err("expected a unit of B, KiB, MiB or GiB, for example 64MiB".into()),
    };
    let number: usize = number
        .parse()
        .map_err(|_| "expected a whole number, for example 64MiB".to_owned())?;
    number
        .checked_mul(scale)
        .ok_or_else(|| "more bytes than this machine can address".into())
}

/// Returns the name among `known` with the spelling nearest to `wanted`, if any is near.
pub(crate) fn near<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min()
        .map(|(_, name)| name)
}

/// Returns `third`, `10th`, `21st`.
pub(crate) fn ordinal(number: u64) -> String {
    const FIRST: [&str; 9] = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
    ];
    if let Some((word, _)) = FIRST.iter().zip(1..).find(|(_, place)| *place == number) {
        return (*word).to_owned();
    }
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_of_a_bound_is_rounded_down() {
        for (millis, text) in [
            (129_601_000, "1 d 12 h"),
            (23_334, "23.33 s"),
            (86_400_000, "1 d"),
            (59_999, "59.99 s"),
            (0, "0 s"),
        ] {
            assert_eq!(bounded_span(Nanos::from_millis(millis)), text);
        }
    }

    #[test]
    fn spans_read_well() {
        let rows = [
            (0, "0 s"),
            (1, "1 ns"),
            (1_500, "1.5 us"),
            (50_000_000, "50 ms"),
            (33_333_334, "33.34 ms"),
            (1_000_000_000, "1 s"),
            (1_200_000_000, "1.2 s"),
            (59_000_000_000, "59 s"),
            (60_000_000_000, "1 min"),
            (89_000_000_001, "1 min 30 s"),
            (3_599_000_000_001, "1 h"),
            (59_999_999_999, "1 min"),
            (u64::MAX, "213503 d 23 h"),
            (999_999_999, "1 s"),
            (39_240_000_000_000, "10 h 54 min"),
            (86_400_000_000_000, "1 d"),
            (90_000_000_000_000, "1 d 1 h"),
        ];
        for (nanos, text) in rows {
            assert_eq!(span(Nanos::from_nanos(nanos)), text, "{nanos}");
        }
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        let rows = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ];
        for (number, text) in rows {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn sizes_are_formatted_in_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1 KiB"),
            (1_600, "1.5 KiB"),
            (104_857_600, "100 MiB"),
            (2_000 << 30, "2,000 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn sizes_read_in_binary_units() {
        let rows = [
            ("1", Ok(1)),
            ("64MiB", Ok(64 << 20)),
            ("2 GiB", Ok(2 << 30)),
            ("3KiB", Ok(3072)),
        ];
        for (text, size) in rows {
            assert_eq!(bytes(text), size, "{text}");
        }
        for text in ["", "MiB", "64MB", "-1", "99999999999GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        let known = ["per-ip", "login", "signup"];
        let rows = [
            ("per-pi", Some("per-ip")),
            ("logn", Some("login")),
            ("zebra", None),
        ];
        for (wanted, found) in rows {
            assert_eq!(near(wanted, known.into_iter()), found, "{wanted}");
        }
    }
}
