//! Fields of `active`: the times at which a limit applies.

use crate::config::document::shape::{Moment, TEXT, Texts, fields, pattern};

const HOURS: &str = "^[0-2][0-9]:[0-5][0-9]-[0-2][0-9]:[0-5][0-9]$";

fields! {
    pub(super) ACTIVE = "`active`" {
        optional hours: pattern(HOURS), "\"01:00-06:00\"",
            "Hours of a day by the clocks of the time zone; over midnight if the end is earlier.";
        optional days: Texts(7), "[\"mon-fri\"]",
            "Days of the week: mon to sun, or a range; hours over midnight belong to the day on \
             which they begin.";
        optional timezone: TEXT, "\"UTC\"",
            "IANA time zone of hours, days and dates without an offset (default: that of the \
             policy).";
        optional from: Moment, "2026-01-01T00:00:00Z",
            "First moment: a date, or a date and a time.";
        optional until: Moment, "2100-01-01T00:00:00Z",
            "End: the first moment at which the limit applies no more.";
    }
}
