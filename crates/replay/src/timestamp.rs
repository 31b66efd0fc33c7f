//! Timestamp: the moment of a line, in nanoseconds since the Unix epoch.
//!
//! ```text
//!   22/Jan/2019:03:56:14 +0330     common log format; with .123 and without offset, HAProxy
//!   2019-01-22T03:56:14.5+03:30    ISO 8601; without offset in the zone of the reader
//!   1548116774.5                   Unix time: s, ms, us or ns, by its size
//! ```
//!
//! Lines of one second often share the text of their time, so the last one is remembered.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// Reads the times of one log.
#[derive(Clone, Debug)]
pub(crate) struct TimeReader {
    /// Zone of times that state none.
    zone: TimeZone,
    last: String,
    last_nanos: u64,
    /// The largest unit that each time was a multiple of, so far: a second, a millisecond or, also for
    /// finer times, a microsecond, in nanoseconds.
    pub(crate) resolution: u64,
    /// True if a time stated no zone, so far.
    pub(crate) lacks_zone: bool,
}

/// Nanoseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub(crate) const MILLI: u64 = 1_000_000;
/// Nanoseconds of a microsecond.
pub(crate) const MICRO: u64 = 1_000;
/// Time by which a line may be late: less than any change of clocks.
const LATE: u64 = 15 * 60 * SECOND;
/// Forms of the common log format, with an offset and without.
const ZONED: &str = "%d/%b/%Y:%H:%M:%S%.f %z";
const LOCAL: &str = "%d/%b/%Y:%H:%M:%S%.f";

impl TimeReader {
    pub(crate) fn new(zone: TimeZone) -> Self {
        Self {
            zone,
            last: String::new(),
            last_nanos: 0,
            resolution: SECOND,
            lacks_zone: false,
        }
    }

    /// Reads a time in any of the forms; `None` if it has none of them, or lies before 1970.
    pub(crate) fn read(&mut self, text: &str) -> Option<u64> {
        if text == self.last {
            return Some(self.last_nanos);
        }
        let nanos = self.read_form(text)?;
        self.last.clear();
        self.last.push_str(text);
        self.last_nanos = nanos;
        while self.resolution > MICRO && !nanos.is_multiple_of(self.resolution) {
            self.resolution /= 1_000;
        }
        Some(nanos)
    }

    fn read_form(&mut self, text: &str) -> Option<u64> {
        let bytes = text.as_bytes();
        let at = match (bytes.get(2), bytes.get(4)) {
            (Some(b'/'), _) if text.contains(' ') => Timestamp::strptime(ZONED, text).ok()?,
            (Some(b'/'), _) => self.in_zone(DateTime::strptime(LOCAL, text).ok()?)?,
            (_, Some(b'-')) => match text.parse() {
                Ok(at) => at,
                Err(_) => self.in_zone(text.parse().ok()?)?,
            },
            _ => return unix(text),
        };
        u64::try_from(at.as_nanosecond()).ok()
    }

    fn in_zone(&mut self, date: DateTime) -> Option<Timestamp> {
        self.lacks_zone = true;
        let found = self.zone.to_ambiguous_timestamp(date);
        let is_before = |at: Timestamp| {
            let nanos = u64::try_from(at.as_nanosecond()).unwrap_or(0);
            nanos.saturating_add(LATE) < self.last_nanos
        };
        match (found.offset(), found.compatible().ok()?) {
            // Clocks that go back show an hour twice.
            (AmbiguousOffset::Fold { .. }, first) if is_before(first) => found.later().ok(),
            (_, at) => Some(at),
        }
    }
}

/// Returns the place of `+0330` in `22/Jan/2019:03:56:14 +0330 ..`, and 0 for another text.
pub(crate) fn start_of_offset(text: &str) -> usize {
    let is_common = text.as_bytes().get(2) == Some(&b'/');
    let start = memchr::memchr(b' ', text.as_bytes()).map_or(0, |space| space + 1);
    match text.as_bytes().get(start..start + 5) {
        Some([b'+' | b'-', digits @ ..]) if is_common && digits.iter().all(u8::is_ascii_digit) => {
            start
        }
        _ => 0,
    }
}

/// Reads decimal digits, perhaps with a fraction, as a whole number and billionths. Further digits
/// are dropped.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, "0"));
    let mut bytes = whole.bytes().chain(digits.bytes());
    if !bytes.all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &digits[..digits.len().min(9)];
    let scale = 10_u64.pow(9 - u32::try_from(kept.len()).ok()?);
    Some((whole.parse().ok()?, kept.parse::<u64>().ok()? * scale))
}

/// Reads a Unix time. Its size tells its unit, because a log in seconds ends in the year 5138.
fn unix(text: &str) -> Option<u64> {
    let (whole, nanos) = decimal(text)?;
    match whole {
        0..100_000_000_000 => whole.checked_mul(SECOND)?.checked_add(nanos),
        100_000_000_000..100_000_000_000_000 => Some(whole * 1_000_000 + nanos / 1_000),
        100_000_000_000_000..100_000_000_000_000_000 => Some(whole * 1_000 + nanos / 1_000_000),
        _ => Some(whole),
    }
}

/// Reads a decimal number of a unit as nanoseconds, such as the `0.012` of a request's duration.
pub(crate) fn span_of(text: &str, unit_nanos: u64) -> Option<u64> {
    let (whole, billionths) = decimal(text)?;
    let whole = whole.checked_mul(unit_nanos)?;
    whole.checked_add(billionths / (SECOND / unit_nanos).max(1))
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;

    use super::*;

    #[test]
    fn each_form_of_a_time_is_read() {
        let mut reader = TimeReader::new(TimeZone::fixed(Offset::constant(1)));
        let second = 1_548_116_774;
        for (text, expected) in [
            ("22/Jan/2019:03:56:14 +0330", Some((second, 0))),
            ("22/Jan/2019:00:26:14 +0000", Some((second, 0))),
            ("21/Jan/2019:20:26:14 -0400", Some((second, 0))),
            ("22/Jan/2019:01:26:14.655", Some((second, 655_000_000))),
            ("2019-01-22T00:26:14Z", Some((second, 0))),
            ("2019-01-22T03:56:14.25+03:30", Some((second, 250_000_000))),
            ("2019-01-22 01:26:14", Some((second, 0))),
            ("1548116774", Some((second, 0))),
            ("1548116774.5", Some((second, 500_000_000))),
            ("1548116774500", Some((second, 500_000_000))),
            ("1548116774500000", Some((second, 500_000_000))),
            ("1548116774500000001", Some((second, 500_000_001))),
            ("31/Dec/1969:23:59:59 +0000", None),
            ("31/Feb/2019:03:56:14 +0330", None),
            ("22/Jan/2019:03:56:14 0330", None),
            ("22/Jan/2019", None),
            ("yesterday", None),
            ("", None),
        ] {
            let expected = expected.map(|(seconds, nanos)| seconds * SECOND + nanos);
            assert_eq!(reader.read(text), expected, "{text}");
        }
        assert_eq!(reader.resolution, MICRO);
    }

    /// In Oslo clocks go back from 3 to 2 on 25 October 2026.
    #[test]
    fn an_hour_that_is_shown_twice_is_read_twice() {
        let mut reader = TimeReader::new(TimeZone::get("Europe/Oslo").unwrap());
        for (text, minute) in [
            ("25/Oct/2026:02:00:00.000", 0),
            ("25/Oct/2026:02:59:00.000", 59),
            ("25/Oct/2026:02:58:00.000", 58), // late
            ("25/Oct/2026:02:59:00.000", 59),
            ("25/Oct/2026:02:00:00.000", 60),
            ("25/Oct/2026:02:30:00.000", 90),
            ("25/Oct/2026:03:00:00.000", 120),
        ] {
            let expected = (1_792_886_400 + minute * 60) * SECOND;
            assert_eq!(reader.read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_span_has_the_unit_of_its_field() {
        for (text, unit, expected) in [
            ("0.012", SECOND, Some(12_000_000)),
            ("7", 1_000_000, Some(7_000_000)),
            ("1.5", 1_000, Some(1_500)),
            ("-", SECOND, None),
        ] {
            assert_eq!(span_of(text, unit), expected, "{text}");
        }
    }
}
