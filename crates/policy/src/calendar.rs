//! Calendar words: hour, day, week, month, year in a time zone. Skeleton.

use std::sync::Arc;

use jiff::tz::TimeZone;
use ratekeeper_core::{Calendar, Origin};

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

/// The windows of `word` in `zone`, on a clock whose zero is `origin`.
pub fn calendar(_word: Word, _zone: TimeZone, _origin: Origin) -> Arc<dyn Calendar> {
    todo!()
}
