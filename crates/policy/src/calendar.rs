//! Calendar words: hour, day, week, month, year in a time zone.
//!
//! ```text
//!   day in Europe/Oslo   |  24 h  |  23 h  |  24 h  | ... |  25 h  |
//!   midnight by the clocks        ^ 29 March, forward     ^ 25 October, back
//! ```
//!
//! A window begins when the clocks of the zone first show its first moment, or something
//! later if they skip it. So
//!
//! * a day on which clocks go forward has 23 hours, one on which they go back 25;
//! * where midnight itself is skipped, the day begins with the first moment it has;
//! * a day that a zone skips whole (Apia, 30 December 2011) has no window;
//! * a midnight that is shown twice begins one day, the first time.
//!
//! An hour begins whenever the clocks show a full hour: the hour that is repeated counts
//! twice, and a change by half an hour makes one longer or shorter hour.
//!
//! * A look-up takes some tens of nanoseconds and shares nothing; see module `zone` for
//!   the table behind it, and for its end in 2200.
//! * Windows tile time: one ends where the next begins. The last one ends at, and holds,
//!   [`Time::MAX`].
//! * Source of the day arithmetic: H. Hinnant, "chrono-Compatible Low-Level Date
//!   Algorithms" (2013).

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use ratekeeper_core::{Calendar, CalendarWindow, Nanos, Origin, Time};

use crate::zone::Zone;

/// A word of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// Sixty minutes of a day; the hour that daylight saving repeats counts twice.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday, ISO 8601.
    Week,
    /// From the first.
    Month,
    /// From 1 January.
    Year,
}

/// Returns the windows of `word` in `zone`, on a clock with its zero at `origin`.
///
/// ```
/// use jiff::tz::TimeZone;
/// use ratekeeper_core::{Nanos, Origin, Time};
/// use ratekeeper_policy::calendar::{Word, calendar};
/// let oslo = TimeZone::get("Europe/Oslo").unwrap();
/// let days = calendar(Word::Day, oslo, Origin::UNIX);
/// let noon = Time::from_nanos(1_774_778_400_000_000_000); // 29 March 2026, clocks go forward
/// let day = days.window_at(noon);
/// assert_eq!(day.end.since(day.start), Nanos::from_secs(23 * 3600));
/// assert_eq!(days.name(), "day in Europe/Oslo");
/// ```
#[expect(
    clippy::needless_pass_by_value,
    reason = "a caller that names a zone for a calendar has no further use for it"
)]
pub fn calendar(word: Word, zone: TimeZone, origin: Origin) -> Arc<dyn Calendar> {
    let name = format!("{word} in {}", zone_name(&zone));
    // The window that the origin lies in began before it, maybe on other clocks.
    let table = Zone::new(&zone, seconds(origin.as_unix_nanos()) - LOOK_BACK);
    let shortest = shortest(word, &table);
    Arc::new(Windows {
        word,
        zone: table,
        origin,
        name,
        shortest,
    })
}

/// Windows of a word in a zone.
#[derive(Clone, Debug)]
struct Windows {
    word: Word,
    zone: Zone,
    origin: Origin,
    name: String,
    shortest: Nanos,
}

impl Calendar for Windows {
    fn window_at(&self, now: Time) -> CalendarWindow {
        let (start, end) = self
            .word
            .window(&self.zone, seconds(self.origin.unix_nanos(now)));
        CalendarWindow {
            start: self.origin.time_at(nanos(start).unwrap_or(u64::MAX)),
            end: nanos(end).map_or(Time::MAX, |end| self.origin.time_at(end)),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn origin(&self) -> Origin {
        self.origin
    }

    fn shortest(&self) -> Nanos {
        self.shortest
    }

    fn on_clock(&self, origin: Origin) -> Arc<dyn Calendar> {
        Arc::new(Self {
            origin,
            ..self.clone()
        })
    }
}

/// Longer than any window.
const LOOK_BACK: i64 = 400 * DAY;

/// Whole seconds since 1970; windows begin and end at such.
fn seconds(unix_nanos: u64) -> i64 {
    const { assert!(u64::MAX / NANOS <= i64::MAX as u64) };
    (unix_nanos / NANOS).cast_signed()
}

/// Converts to nanoseconds since 1970, from 1970 on; `None` past the end of time.
fn nanos(seconds: i64) -> Option<u64> {
    u64::try_from(seconds).unwrap_or(0).checked_mul(NANOS)
}

const NANOS: u64 = Nanos::SECOND.as_nanos();
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7;

impl Word {
    /// Returns the first second of the window that holds an instant, and of the next window.
    fn window(self, zone: &Zone, instant: i64) -> (i64, i64) {
        if self == Self::Hour {
            let start = zone.last_multiple(instant, HOUR);
            return (start, zone.next_multiple(instant, HOUR));
        }
        let begin = |period: i64| zone.first_reach(self.first_day(period) * DAY);
        let mut period = self.period(zone.local(instant).div_euclid(DAY));
        // Clocks that went back over a midnight show a period that is past already.
        let mut end = begin(period + 1);
        while end <= instant {
            period += 1;
            end = begin(period + 1);
        }
        (begin(period), end)
    }

    /// Returns the number of the day, week, month or year that holds a day.
    fn period(self, day: i64) -> i64 {
        match self {
            Self::Hour | Self::Day => day,
            // 1970 began on a Thursday.
            Self::Week => (day + 3).div_euclid(WEEK),
            Self::Month => month_of(day),
            Self::Year => month_of(day).div_euclid(12),
        }
    }

    /// Returns the first day of a period.
    fn first_day(self, period: i64) -> i64 {
        match self {
            Self::Hour | Self::Day => period,
            Self::Week => period * WEEK - 3,
            Self::Month => first_of_month(period),
            Self::Year => first_of_month(period * 12),
        }
    }

    /// The shortest window where clocks never change.
    const fn nominal(self) -> i64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Week => WEEK * DAY,
            Self::Month => 28 * DAY,
            Self::Year => 365 * DAY,
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        })
    }
}

/// Days from 1 March of the year 0 to 1 January 1970.
const TO_1970: i64 = 719_468;
/// Days in 400 years.
const ERA: i64 = 146_097;

/// Returns the months from the year 0 to the month that holds a day since 1970.
fn month_of(day: i64) -> i64 {
    let day = day + TO_1970;
    let (era, of_era) = (day.div_euclid(ERA), day.rem_euclid(ERA));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Years that begin in March end with the leap day.
    let month = (5 * of_year + 2) / 153;
    (era * 400 + year) * 12 + month + 2
}

/// Returns the first day, since 1970, of a month counted from the year 0.
fn first_of_month(month: i64) -> i64 {
    let (year, month) = ((month - 2).div_euclid(12), (month - 2).rem_euclid(12));
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5;
    era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_1970
}

/// Returns the length of the shortest window: those with clock changes are examined one by one,
/// because a change between two windows may shorten the one before or the one after.
fn shortest(word: Word, zone: &Zone) -> Nanos {
    let lengths = zone.transitions().flat_map(|at| {
        let (start, end) = word.window(zone, at);
        let (before, _) = word.window(zone, start - 1);
        let (_, after) = word.window(zone, end);
        [start - before, end - start, after - end]
    });
    let shortest = lengths.fold(word.nominal(), i64::min);
    Nanos::from_secs(shortest.unsigned_abs())
}

pub(crate) fn zone_name(zone: &TimeZone) -> String {
    match (zone.iana_name(), zone.to_fixed_offset()) {
        (Some(name), _) => name.into(),
        (None, Ok(offset)) => offset.to_string(),
        (None, Err(_)) => format!("{zone:?}"),
    }
}

#[cfg(test)]
mod tests;
