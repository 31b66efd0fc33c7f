//! Active: the hours, days and dates at which a limit applies.
//!
//! ```text
//!   hours = "22:00-06:00", days = ["fri"]
//!
//!   clocks   Fri 00:00        22:00  Sat 00:00  06:00         22:00
//!            |------------------|########|########|-------------|---->
//!                               the night belongs to its beginning
//! ```
//!
//! A limit applies while the clocks of its zone show a time within its hours. So
//!
//! * where clocks go forward, the hours that they skip never come;
//! * where clocks go back, the hours that they show twice apply twice;
//! * hours of two limits that meet ("01:00-06:00", "06:00-01:00") leave no gap and do not
//!   overlap, on any day.
//!
//! Where the wall clock is unknown the limit applies, because a missed limit costs more than
//! an early refusal.
//!
//! * The answer is kept with the time for which it holds, at most a day, in one word. A
//!   request compares its second with that word; the zone is read a few times a day.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Origin, Time};

use crate::model::rules::zone::Zone;

const DAY: i64 = 86_400;

/// Time of the wall clock in milliseconds since 1970, or unknown.
///
/// ```
/// use ratekeeper_core::{Origin, Time};
/// use ratekeeper_policy::WallTime;
/// let origin = Origin::from_unix_nanos(1_767_225_600_000_000_000); // 2026-01-01T00:00:00Z
/// let minute = Time::from_nanos(60_000_000_000);
/// assert_eq!(WallTime::new(origin, minute).unix_seconds(), Some(1_767_225_660));
/// assert_eq!(WallTime::new(Origin::UNIX, minute), WallTime::UNKNOWN);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WallTime(u64);

impl WallTime {
    /// The wall clock is not known, so that every limit applies.
    pub const UNKNOWN: Self = Self(0);

    /// A clock without a battery starts in 1970; a time in that year is unknown.
    const KNOWN_FROM: u64 = 365 * DAY.unsigned_abs();

    /// Returns the time `now` of a clock with its zero at `origin`; unknown in 1970.
    #[inline]
    pub const fn new(origin: Origin, now: Time) -> Self {
        Self::from_unix_millis(origin.unix_nanos(now) / 1_000_000)
    }

    const fn from_unix_seconds(seconds: u64) -> Self {
        Self::from_unix_millis(seconds * 1_000)
    }

    const fn from_unix_millis(millis: u64) -> Self {
        if millis < Self::KNOWN_FROM * 1_000 {
            Self::UNKNOWN
        } else {
            Self(millis)
        }
    }

    /// Returns the milliseconds since 1970; `None` if they are unknown.
    pub(crate) const fn unix_millis(self) -> Option<u64> {
        if self.0 == Self::UNKNOWN.0 {
            None
        } else {
            Some(self.0)
        }
    }

    /// Returns the seconds since 1970; `None` if they are unknown.
    pub const fn unix_seconds(self) -> Option<u64> {
        match self.unix_millis() {
            Some(millis) => Some(millis / 1_000), // the second that has begun
            None => None,
        }
    }
}

/// The times at which a limit applies: `active` of a `[[limit]]`.
///
/// ```
/// use ratekeeper_core::{Origin, Time};
/// use ratekeeper_policy::WallTime;
/// use ratekeeper_policy::config::{Context, parse};
///
/// let text = r#"
/// version = 1
/// [[limit]]
/// name   = "night"
/// key    = ["ip"]
/// limit  = "10/1m"
/// active = { hours = "01:00-06:00", timezone = "Europe/Oslo" }
/// "#;
/// let policy = parse(text, Context::default()).unwrap().policy;
/// let active = policy.rules[0].active.as_deref().unwrap();
/// let at = |seconds: u64| WallTime::new(Origin::UNIX, Time::from_nanos(seconds * 1_000_000_000));
/// let midnight = at(1_767_222_000); // 2026-01-01T00:00+01:00
/// assert!(!active.is_active(midnight));
/// assert_eq!(active.next_change(midnight), Some(at(1_767_225_600)));
/// assert!(active.is_active(at(1_767_225_600)));
/// ```
#[derive(Clone, Debug)]
pub struct Active {
    schedule: Schedule,
    known: KnownSpan,
}

/// The times as the policy states them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Schedule {
    pub(crate) hours: Hours,
    pub(crate) days: Days,
    /// First second, since 1970.
    pub(crate) from: i64,
    /// The second after the last, since 1970.
    pub(crate) until: i64,
    pub(crate) zone: Arc<Zone>,
    /// Name of the zone in the IANA database.
    pub(crate) timezone: String,
}

/// Hours of a day: seconds after midnight by the clocks. An `end` up to `start` is on the next day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hours {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

impl Hours {
    pub(crate) const ALL: Self = Self { start: 0, end: DAY };

    /// Returns true if the clocks may show `second` of a day within them, on any day.
    pub(crate) const fn contain(self, second: i64) -> bool {
        if self.start < self.end {
            self.start <= second && second < self.end
        } else {
            self.start <= second || second < self.end
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [start, end] = [self.start, self.end].map(|second| (second / 3_600, second / 60 % 60));
        write!(f, "{:02}:{:02}-{:02}:{:02}", start.0, start.1, end.0, end.1)
    }
}

/// Days of the week, one bit each from Monday.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Days(u8);

impl Days {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(0b111_1111);
    /// As the policy writes them, from Monday.
    pub(crate) const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

    /// Adds the days from `first` up to and including `last`, 0 to 6 from Monday; over Sunday if
    /// `last` is before `first`.
    pub(crate) fn add(&mut self, first: usize, last: usize) {
        let mut day = first;
        loop {
            self.0 |= 1 << day;
            if day == last {
                return;
            }
            day = (day + 1) % Self::NAMES.len();
        }
    }

    /// Returns true if it holds a day, counted since 1970, which began on a Thursday.
    const fn hold(self, day: i64) -> bool {
        self.0 >> (day + 3).rem_euclid(7) & 1 == 1
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = Self::NAMES.iter().enumerate();
        let held = days.filter(|(day, _)| self.0 >> day & 1 == 1);
        let names: Vec<_> = held.map(|(_, name)| *name).collect();
        f.write_str(&names.join(" "))
    }
}

impl Schedule {
    /// Returns the answer at an instant, and the second at which it must be asked again.
    fn answer(&self, instant: i64) -> (bool, i64) {
        if instant < self.from {
            return (false, self.from);
        }
        if instant >= self.until {
            return (false, i64::MAX);
        }
        let (local, change) = self.zone.local_until(instant);
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let Hours { start, end } = self.hours;
        let bounds = [start, end].into_iter().filter(|bound| *bound > second);
        let again = instant + bounds.fold(DAY, i64::min) - second;
        (self.shows(day, second), again.min(change).min(self.until))
    }

    /// Returns true if a day and a second of it, as the clocks show them, are within the hours.
    fn shows(&self, day: i64, second: i64) -> bool {
        let of_yesterday = self.hours.start >= self.hours.end && second < self.hours.end;
        self.hours.contain(second) && self.days.hold(day - i64::from(of_yesterday))
    }

    /// Returns the first second after `instant` at which the answer is another; `None` if it
    /// stays.
    fn next_change(&self, instant: i64) -> Option<i64> {
        let (answer, mut end) = self.answer(instant);
        for _ in 0..MAX_ANSWERS {
            if end == i64::MAX {
                return None;
            }
            let (next, again) = self.answer(end);
            if next != answer {
                return Some(end);
            }
            end = again;
        }
        // A week was the same in whole, so every week is, up to the last.
        (answer && self.until < i64::MAX).then_some(self.until)
    }

    /// Returns true if there is a second at which the limit applies.
    pub(crate) fn ever(&self) -> bool {
        let first = self.from.max(0);
        self.answer(first).0 || self.next_change(first).is_some()
    }

    /// Returns true if the limit applies at all times.
    pub(crate) fn always(&self) -> bool {
        let unbounded = self.from <= 0 && self.until == i64::MAX;
        unbounded && self.hours == Hours::ALL && self.days == Days::ALL
    }
}

/// Answers of more than two weeks, since a change of the clocks may skip the hours of one: up to
/// three a day, and one more where clocks change.
const MAX_ANSWERS: usize = 64;

impl Active {
    pub(crate) fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            known: KnownSpan::default(),
        }
    }

    /// Returns true if the limit applies; always if the time is unknown.
    #[inline]
    pub fn is_active(&self, now: WallTime) -> bool {
        let Some(second) = now.unix_seconds() else {
            return true;
        };
        let known = self.known.answer(second);
        known.unwrap_or_else(|| self.ask(second))
    }

    /// Asks the schedule, and keeps the answer.
    #[cold]
    fn ask(&self, second: u64) -> bool {
        let instant = second.cast_signed();
        let (active, again) = self.schedule.answer(instant);
        let length = again.saturating_sub(instant).clamp(1, DAY);
        self.known.keep(second, length.unsigned_abs(), active);
        active
    }

    /// Returns the next time at which the answer of [`is_active`](Self::is_active) changes; `None`
    /// if it stays, or if `now` is unknown.
    pub fn next_change(&self, now: WallTime) -> Option<WallTime> {
        let change = self.schedule.next_change(now.unix_seconds()?.cast_signed());
        Some(WallTime::from_unix_seconds(change?.unsigned_abs()))
    }

    /// Returns the name of its time zone in the IANA database.
    pub fn timezone(&self) -> &str {
        &self.schedule.timezone
    }

    pub(crate) const fn schedule(&self) -> &Schedule {
        &self.schedule
    }
}

/// Two are equal if they state the same times.
impl PartialEq for Active {
    fn eq(&self, other: &Self) -> bool {
        self.schedule == other.schedule
    }
}

/// Formats hours, days and zone: `01:00-06:00 mon tue in Europe/Oslo`. Dates are left out, because
/// [`next_change`](Active::next_change) shows them.
impl fmt::Display for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule { hours, days, .. } = self.schedule;
        if hours == Hours::ALL && days == Days::ALL {
            return f.write_str("all hours");
        }
        write!(f, "{hours}")?;
        if days != Days::ALL {
            write!(f, " {days}")?;
        }
        write!(f, " in {}", self.schedule.timezone)
    }
}

/// The last answer and the span for which it holds, in one word, so that no reader sees parts of
/// two: 46 bits for the first second, 17 for the length, 1 for the answer.
#[derive(Default, Debug)]
struct KnownSpan(AtomicU64);

const LENGTH_BITS: u32 = 17;
const _: () = assert!(DAY < 1 << LENGTH_BITS);

impl KnownSpan {
    /// Returns the answer at a second; `None` outside of the span.
    #[inline]
    fn answer(&self, second: u64) -> Option<bool> {
        let word = self.0.load(Ordering::Relaxed);
        let first = word >> (LENGTH_BITS + 1);
        let length = word >> 1 & ((1 << LENGTH_BITS) - 1);
        (second.wrapping_sub(first) < length).then_some(word & 1 == 1)
    }

    /// Keeps an answer. The second is below 2^46, because nanoseconds since 1970 fit 64 bits.
    fn keep(&self, second: u64, length: u64, active: bool) {
        let word = second << (LENGTH_BITS + 1) | length << 1 | u64::from(active);
        self.0.store(word, Ordering::Relaxed);
    }
}

/// A copy begins with the same answer.
impl Clone for KnownSpan {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests;
