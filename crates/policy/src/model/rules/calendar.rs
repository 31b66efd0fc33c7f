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
//! A week, month or year may begin on another day than its first. In a month without that day it
//! begins on the last one:
//!
//! ```text
//!   from day 31   31 January    28 February    31 March    30 April    31 May
//!                 |-- 28 days --|-- 31 days ---|- 30 days -|- 31 days -|
//! ```
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

use jiff::civil::{self, Weekday};
use jiff::tz::TimeZone;
use ratekeeper_core::{Calendar, CalendarWindow, Nanos, Origin, Time};

use crate::model::rules::zone::Zone;

/// A word of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// Sixty minutes of a day; the hour that daylight saving repeats counts twice.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From a day of the week; ISO 8601 says Monday.
    Week(Weekday),
    /// From a day of the month.
    Month(MonthDay),
    /// From a day of the year.
    Year(YearDay),
}

/// A day of each month: 1 to 31. In a month without that day it is the last one.
///
/// ```
/// use ratekeeper_policy::calendar::MonthDay;
/// assert_eq!(MonthDay::new(1), Some(MonthDay::FIRST));
/// assert_eq!(MonthDay::new(32), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MonthDay(u8);

/// A day of each year. 29 February is 28 February in other years than leap years.
///
/// ```
/// use jiff::civil::date;
/// use ratekeeper_policy::calendar::YearDay;
/// assert_eq!(YearDay::from(date(2026, 4, 6)), YearDay::from(date(1999, 4, 6)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct YearDay {
    /// 1 to 12.
    month: u8,
    day: MonthDay,
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
    Arc::new(Windows::new(word, &zone, table(&zone, origin), origin))
}

/// Returns the windows of months from each day of the month, the first to the 31st, which share
/// the table of the zone.
pub(crate) fn months(zone: &TimeZone, origin: Origin) -> Vec<Arc<dyn Calendar>> {
    let table = table(zone, origin);
    let windows = |day| Windows::new(Word::Month(day), zone, Arc::clone(&table), origin);
    let each = MonthDay::all().map(windows);
    each.map(|windows| Arc::new(windows) as Arc<dyn Calendar>)
        .collect()
}

/// Returns the offsets of a zone for windows on a clock with its zero at `origin`.
fn table(zone: &TimeZone, origin: Origin) -> Arc<Zone> {
    // The window that the origin lies in began before it, maybe on other clocks.
    let start = seconds(origin.as_unix_nanos()) - LOOK_BACK;
    Arc::new(Zone::new(zone, start))
}

/// Windows of a word in a zone.
#[derive(Clone, Debug)]
struct Windows {
    word: Word,
    zone: Arc<Zone>,
    origin: Origin,
    name: String,
    shortest: Nanos,
}

impl Windows {
    fn new(word: Word, zone: &TimeZone, table: Arc<Zone>, origin: Origin) -> Self {
        Self {
            word,
            shortest: shortest(word, &table),
            zone: table,
            origin,
            name: format!("{word} in {}", zone_name(zone)),
        }
    }
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
        let begun = match self {
            Self::Hour | Self::Day => day,
            // 1970 began on a Thursday.
            Self::Week(_) => (day + 3).div_euclid(WEEK),
            Self::Month(_) => month_of(day),
            Self::Year(_) => month_of(day).div_euclid(12),
        };
        if day < self.first_day(begun) {
            begun - 1
        } else {
            begun
        }
    }

    /// Returns the first day of a period.
    fn first_day(self, period: i64) -> i64 {
        match self {
            Self::Hour | Self::Day => period,
            Self::Week(from) => period * WEEK - 3 + i64::from(from.to_monday_zero_offset()),
            Self::Month(from) => from.in_month(period),
            Self::Year(from) => from.day.in_month(period * 12 + i64::from(from.month) - 1),
        }
    }

    /// The shortest window where clocks never change.
    const fn nominal(self) -> i64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Week(_) => WEEK * DAY,
            Self::Month(_) => 28 * DAY, // 29 from day 29 or 30
            Self::Year(_) => 365 * DAY,
        }
    }
}

impl MonthDay {
    /// The first of the month.
    pub const FIRST: Self = Self(1);
    /// Largest number of a day.
    const MAX: u8 = 31;

    /// Returns the day with that number; `None` if no month has it.
    pub const fn new(number: u8) -> Option<Self> {
        match number {
            1..=Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// Returns its number, from 1.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns each day, from the first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (1..=Self::MAX).map(Self)
    }

    /// Returns the day, since 1970, in a month counted from the year 0.
    fn in_month(self, month: i64) -> i64 {
        let last = first_of_month(month + 1) - 1;
        last.min(first_of_month(month) + i64::from(self.0) - 1)
    }
}

impl YearDay {
    /// 1 January.
    pub const FIRST: Self = Self {
        month: 1,
        day: MonthDay::FIRST,
    };
}

/// Keeps the day of the month.
impl From<civil::Date> for MonthDay {
    fn from(date: civil::Date) -> Self {
        Self(date.day().unsigned_abs())
    }
}

/// Leaves out the year.
impl From<civil::Date> for YearDay {
    fn from(date: civil::Date) -> Self {
        Self {
            month: date.month().unsigned_abs(),
            day: date.into(),
        }
    }
}

/// `month`, `month from day 15`, `week from Sunday`, `year from 04-06`
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hour => f.write_str("hour"),
            Self::Day => f.write_str("day"),
            Self::Week(Weekday::Monday) => f.write_str("week"),
            Self::Week(from) => write!(f, "week from {from:?}"),
            Self::Month(MonthDay::FIRST) => f.write_str("month"),
            Self::Month(from) => write!(f, "month from day {}", from.0),
            Self::Year(YearDay::FIRST) => f.write_str("year"),
            Self::Year(from) => write!(f, "year from {:02}-{:02}", from.month, from.day.0),
        }
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
