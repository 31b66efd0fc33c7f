//! Tests of the calendar: words, zones, and the days on which clocks turn.

mod anchors;

use jiff::{Timestamp, ToSpan, civil};
use proptest::prelude::*;

use super::*;
use crate::model::rules::zone::tests::database;

const WEEK: Word = Word::Week(Weekday::Monday);
const MONTH: Word = Word::Month(MonthDay::FIRST);
const YEAR: Word = Word::Year(YearDay::FIRST);

const WORDS: [Word; 11] = [
    Word::Hour,
    Word::Day,
    WEEK,
    MONTH,
    YEAR,
    Word::Week(Weekday::Sunday),
    Word::Month(MonthDay(15)),
    Word::Month(MonthDay(29)),
    Word::Month(MonthDay(30)),
    Word::Month(MonthDay(31)),
    Word::Year(YearDay {
        month: 2,
        day: MonthDay(29),
    }),
];

const ZONES: [&str; 14] = [
    "UTC",
    "Europe/Oslo",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "America/St_Johns",
    "America/Havana",
    "Antarctica/Troll",
    "Asia/Gaza",
];

fn windows(word: Word, zone: &str, origin: Origin) -> Arc<dyn Calendar> {
    calendar(word, database(zone), origin)
}

fn time(text: &str) -> Time {
    let at: Timestamp = text.parse().unwrap();
    Time::from_nanos(u64::try_from(at.as_nanosecond()).unwrap())
}

/// Checks that the window of `word` that holds `at` goes from `start` to `end`, all in UTC.
fn check(word: Word, zone: &str, [at, start, end]: [&str; 3]) {
    let calendar = windows(word, zone, Origin::UNIX);
    let window = calendar.window_at(time(at));
    let expected = CalendarWindow {
        start: time(start),
        end: time(end),
    };
    assert_eq!(window, expected, "{word} in {zone} at {at}");
    assert!(calendar.shortest() <= window.end.since(window.start));
}

#[test]
fn each_word_has_its_windows() {
    for (word, start, end) in [
        (Word::Hour, "2026-03-18T13:00Z", "2026-03-18T14:00Z"),
        (Word::Day, "2026-03-18T00:00Z", "2026-03-19T00:00Z"),
        (WEEK, "2026-03-16T00:00Z", "2026-03-23T00:00Z"),
        (MONTH, "2026-03-01T00:00Z", "2026-04-01T00:00Z"),
        (YEAR, "2026-01-01T00:00Z", "2027-01-01T00:00Z"),
    ] {
        check(word, "UTC", ["2026-03-18T13:14:15.5Z", start, end]);
    }
}

#[test]
fn edges_belong_to_the_following_window() {
    for (word, at, start, end) in [
        (
            Word::Day,
            "2026-03-18T00:00Z",
            "2026-03-18T00:00Z",
            "2026-03-19T00:00Z",
        ),
        (
            Word::Day,
            "2026-03-17T23:59:59.999999999Z",
            "2026-03-17T00:00Z",
            "2026-03-18T00:00Z",
        ),
        (
            WEEK,
            "2026-01-01T00:00Z",
            "2025-12-29T00:00Z",
            "2026-01-05T00:00Z",
        ),
        (
            MONTH,
            "2024-02-29T12:00Z",
            "2024-02-01T00:00Z",
            "2024-03-01T00:00Z",
        ),
        (
            MONTH,
            "2100-02-28T12:00Z",
            "2100-02-01T00:00Z",
            "2100-03-01T00:00Z",
        ),
        (
            MONTH,
            "2026-12-31T23:59Z",
            "2026-12-01T00:00Z",
            "2027-01-01T00:00Z",
        ),
        (
            YEAR,
            "2024-12-31T23:59Z",
            "2024-01-01T00:00Z",
            "2025-01-01T00:00Z",
        ),
    ] {
        check(word, "UTC", [at, start, end]);
    }
}

#[test]
fn daylight_saving_makes_days_longer_and_shorter() {
    for (zone, at, start, end) in [
        // 23 hours, 25 hours.
        (
            "Europe/Oslo",
            "2026-03-29T12:00Z",
            "2026-03-28T23:00Z",
            "2026-03-29T22:00Z",
        ),
        (
            "Europe/Oslo",
            "2026-10-25T12:00Z",
            "2026-10-24T22:00Z",
            "2026-10-25T23:00Z",
        ),
        // Midnight is skipped: the day begins at 01:00.
        (
            "America/Sao_Paulo",
            "2018-11-04T12:00Z",
            "2018-11-04T03:00Z",
            "2018-11-05T02:00Z",
        ),
        (
            "Africa/Cairo",
            "2026-04-24T12:00Z",
            "2026-04-23T22:00Z",
            "2026-04-24T21:00Z",
        ),
        // Clocks go back at midnight, to 23:00 of the day before: 25 hours.
        (
            "America/Sao_Paulo",
            "2018-02-17T12:00Z",
            "2018-02-17T02:00Z",
            "2018-02-18T03:00Z",
        ),
        (
            "Africa/Cairo",
            "2026-10-29T21:30Z",
            "2026-10-28T21:00Z",
            "2026-10-29T22:00Z",
        ),
        // Midnight is shown twice, the first time begins the day.
        (
            "America/Havana",
            "2026-11-01T12:00Z",
            "2026-11-01T04:00Z",
            "2026-11-02T05:00Z",
        ),
        (
            "America/Havana",
            "2026-11-01T05:30Z",
            "2026-11-01T04:00Z",
            "2026-11-02T05:00Z",
        ),
        // At 00:01 clocks went back to 23:01; the day had begun, and goes on.
        (
            "America/St_Johns",
            "2010-11-07T03:00Z",
            "2010-11-07T02:30Z",
            "2010-11-08T03:30Z",
        ),
        // Half-hour offsets.
        (
            "Asia/Kolkata",
            "2026-03-18T00:00Z",
            "2026-03-17T18:30Z",
            "2026-03-18T18:30Z",
        ),
        (
            "Asia/Kathmandu",
            "2026-03-18T00:00Z",
            "2026-03-17T18:15Z",
            "2026-03-18T18:15Z",
        ),
        (
            "Australia/Lord_Howe",
            "2026-04-04T14:00Z",
            "2026-04-04T13:00Z",
            "2026-04-05T13:30Z",
        ),
        (
            "Australia/Lord_Howe",
            "2026-10-03T14:00Z",
            "2026-10-03T13:30Z",
            "2026-10-04T13:00Z",
        ),
        // Two hours at once.
        (
            "Antarctica/Troll",
            "2026-03-29T12:00Z",
            "2026-03-29T00:00Z",
            "2026-03-29T22:00Z",
        ),
    ] {
        check(Word::Day, zone, [at, start, end]);
    }
}

#[test]
fn a_skipped_day_has_no_window() {
    let [before, day, after] = [
        "2011-12-29T10:00Z",
        "2011-12-30T10:00Z",
        "2011-12-31T10:00Z",
    ];
    check(
        Word::Day,
        "Pacific/Apia",
        ["2011-12-30T09:59:59Z", before, day],
    );
    check(Word::Day, "Pacific/Apia", [day, day, after]);
    let (monday, next) = ("2011-12-26T10:00Z", "2012-01-01T10:00Z");
    check(WEEK, "Pacific/Apia", [day, monday, next]);
    let (first, next) = ("2011-12-01T10:00Z", "2011-12-31T10:00Z");
    check(MONTH, "Pacific/Apia", [day, first, next]);
    let [day, next] = ["1993-08-20T12:00Z", "1993-08-21T12:00Z"];
    check(Word::Day, "Pacific/Kwajalein", [day, day, next]);
}

#[test]
fn hours_begin_when_the_clocks_show_one() {
    for (zone, at, start, end) in [
        // Forward at 02:00: the hour from 01:00 is followed by that from 03:00.
        (
            "Europe/Oslo",
            "2026-03-29T00:30Z",
            "2026-03-29T00:00Z",
            "2026-03-29T01:00Z",
        ),
        (
            "Europe/Oslo",
            "2026-03-29T01:30Z",
            "2026-03-29T01:00Z",
            "2026-03-29T02:00Z",
        ),
        // Back at 03:00: the hour from 02:00 counts twice.
        (
            "Europe/Oslo",
            "2026-10-25T00:30Z",
            "2026-10-25T00:00Z",
            "2026-10-25T01:00Z",
        ),
        (
            "Europe/Oslo",
            "2026-10-25T01:30Z",
            "2026-10-25T01:00Z",
            "2026-10-25T02:00Z",
        ),
        (
            "Asia/Kolkata",
            "2026-03-18T00:00Z",
            "2026-03-17T23:30Z",
            "2026-03-18T00:30Z",
        ),
        (
            "Asia/Kathmandu",
            "2026-03-18T00:00Z",
            "2026-03-17T23:15Z",
            "2026-03-18T00:15Z",
        ),
        // Half an hour forward at 02:00, to 02:30: the next full hour is 03:00.
        (
            "Australia/Lord_Howe",
            "2026-10-03T15:00Z",
            "2026-10-03T14:30Z",
            "2026-10-03T16:00Z",
        ),
        (
            "Australia/Lord_Howe",
            "2026-10-03T15:45Z",
            "2026-10-03T14:30Z",
            "2026-10-03T16:00Z",
        ),
        // Half an hour back at 02:00, to 01:30.
        (
            "Australia/Lord_Howe",
            "2026-04-04T15:15Z",
            "2026-04-04T14:00Z",
            "2026-04-04T15:30Z",
        ),
    ] {
        check(Word::Hour, zone, [at, start, end]);
    }
}

#[test]
fn the_shortest_window_is_known() {
    for (word, zone, expected) in [
        (Word::Hour, "UTC", "1h"),
        (Word::Day, "UTC", "24h"),
        (WEEK, "UTC", "7d"),
        (MONTH, "UTC", "28d"),
        (YEAR, "UTC", "365d"),
        (Word::Hour, "Europe/Oslo", "1h"),
        (Word::Hour, "Australia/Lord_Howe", "1h"),
        (Word::Day, "Europe/Oslo", "23h"),
        (WEEK, "Europe/Oslo", "167h"),
        (MONTH, "Europe/Oslo", "28d"),
        (YEAR, "Europe/Oslo", "365d"),
        (Word::Day, "Antarctica/Troll", "22h"),
        // Since 1985 it moves by half an hour, in 1981 it was a whole one.
        (Word::Day, "Australia/Lord_Howe", "23h"),
        (WEEK, "Pacific/Apia", "6d"),
    ] {
        let calendar = windows(word, zone, Origin::UNIX);
        let expected: Nanos = expected.parse().unwrap();
        assert_eq!(calendar.shortest(), expected, "{word} in {zone}");
    }
}

#[test]
fn the_shortest_window_is_a_lower_bound() {
    for zone in ZONES {
        for word in WORDS.into_iter().filter(|word| *word != Word::Hour) {
            let calendar = windows(word, zone, Origin::UNIX);
            let mut now = Time::ZERO;
            // The first window begins before 1970.
            now = calendar.window_at(now).end;
            while now < time("2110-01-01T00:00Z") {
                let window = calendar.window_at(now);
                let length = window.end.since(window.start);
                assert!(length >= calendar.shortest(), "{word} in {zone} at {now:?}");
                now = window.end;
            }
        }
    }
}

#[test]
fn days_and_months_agree_with_the_calendar() {
    let mut date = civil::date(1969, 1, 1);
    for day in -365..200_000 {
        let months = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
        assert_eq!(month_of(day), months, "{date}");
        if date.day() == 1 {
            assert_eq!(first_of_month(months), day, "{date}");
        }
        date = date.checked_add(1.day()).unwrap();
    }
}

#[test]
fn a_clock_may_begin_anywhere() {
    let origin = Origin::from_unix_nanos(time("2026-03-18T13:14:15Z").as_nanos());
    let days = windows(Word::Day, "UTC", origin);
    let first = days.window_at(Time::ZERO);
    assert_eq!(first.start, Time::ZERO, "time begins with the clock");
    let to_midnight = Nanos::from_secs(24 * 3_600 - (13 * 3_600 + 14 * 60 + 15));
    assert_eq!(first.end.since(Time::ZERO), to_midnight);
    let second = days.window_at(first.end);
    assert_eq!(second.start, first.end);
    assert_eq!(second.end.since(second.start), Nanos::from_secs(24 * 3_600));
}

#[test]
fn the_end_of_time_has_a_window() {
    for origin in [0, 1, time("2026-03-18T13:14:15Z").as_nanos(), u64::MAX] {
        let origin = Origin::from_unix_nanos(origin);
        for zone in ZONES {
            for word in WORDS {
                let calendar = windows(word, zone, origin);
                let last = calendar.window_at(Time::MAX);
                assert_eq!(last.end, Time::MAX, "{word} in {zone}");
                assert_eq!(calendar.window_at(last.start), last);
                if let Some(before) = last.start.as_nanos().checked_sub(1) {
                    let before = calendar.window_at(Time::from_nanos(before));
                    assert_eq!(before.end, last.start, "{word} in {zone}");
                }
            }
        }
    }
}

#[test]
fn names_distinguish_calendars() {
    let offset = jiff::tz::offset(2);
    assert_eq!(
        calendar(Word::Day, TimeZone::fixed(offset), Origin::UNIX).name(),
        "day in +02"
    );
    assert_eq!(
        windows(Word::Hour, "UTC", Origin::UNIX).name(),
        "hour in UTC"
    );
    let date = |month, day| civil::date(2026, month, day);
    for (word, name) in [
        (Word::Week(Weekday::Sunday), "week from Sunday in UTC"),
        (Word::Week(Weekday::Monday), "week in UTC"),
        (Word::Month(date(1, 31).into()), "month from day 31 in UTC"),
        (Word::Month(date(1, 1).into()), "month in UTC"),
        (Word::Year(date(4, 6).into()), "year from 04-06 in UTC"),
        (Word::Year(date(1, 1).into()), "year in UTC"),
    ] {
        assert_eq!(windows(word, "UTC", Origin::UNIX).name(), name);
    }
    let posix = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
    let name = calendar(WEEK, posix, Origin::UNIX).name().to_owned();
    assert!(name.contains("EST5EDT"), "{name}");
}

fn check_tiling(calendar: &dyn Calendar, now: Time) -> Result<(), TestCaseError> {
    let window = calendar.window_at(now);
    prop_assert!(window.start <= now && now <= window.end);
    prop_assert!(now < window.end || now == Time::MAX);
    prop_assert_eq!(calendar.window_at(window.start), window);
    let last = Time::from_nanos(window.end.as_nanos() - 1);
    prop_assert_eq!(calendar.window_at(last), window);
    if window.end < Time::MAX {
        let next = calendar.window_at(window.end);
        prop_assert_eq!(next.start, window.end);
        prop_assert!(
            window.start == Time::ZERO || window.end.since(window.start) >= calendar.shortest()
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn windows_tile_time(
        word in prop::sample::select(&WORDS[..]),
        zone in prop::sample::select(&ZONES[..]),
        origin in prop_oneof![Just(0), 0..2_000_000_000_000_000_000u64],
        now in prop_oneof![0..4_000_000_000_000_000_000u64, any::<u64>()],
    ) {
        let calendar = windows(word, zone, Origin::from_unix_nanos(origin));
        check_tiling(&*calendar, Time::from_nanos(now))?;
    }
}

#[test]
fn windows_tile_time_around_every_change_of_clocks() {
    for zone in ZONES {
        let table = Zone::new(&database(zone), 0);
        for word in WORDS {
            let calendar = windows(word, zone, Origin::UNIX);
            for at in table.transitions() {
                for minutes in [-1500, -90, -30, -1, 0, 1, 30, 59, 60, 90, 1500] {
                    let Some(nanos) = nanos(at + minutes * 60) else {
                        continue;
                    };
                    check_tiling(&*calendar, Time::from_nanos(nanos)).unwrap();
                }
            }
        }
    }
}
