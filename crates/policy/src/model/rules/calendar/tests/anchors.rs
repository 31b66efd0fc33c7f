//! Weeks, months and years that begin on another day.

use super::*;

/// Returns true if a period of `word` begins on `date`: by the date alone, without the arithmetic
/// of the module.
fn begins(word: Word, date: civil::Date) -> bool {
    let on = |wanted: MonthDay| {
        let last = date.tomorrow().map_or(true, |next| next.day() == 1);
        let number = date.day().unsigned_abs();
        number == wanted.0 || last && number < wanted.0
    };
    match word {
        Word::Hour | Word::Day => true,
        Word::Week(from) => date.weekday() == from,
        Word::Month(from) => on(from),
        Word::Year(from) => date.month().unsigned_abs() == from.month && on(from.day),
    }
}

/// Every day of the week and of the month, and days of the year around the leap day.
fn anchored() -> Vec<Word> {
    let weekdays = Weekday::Monday.cycle_forward().take(7).map(Word::Week);
    let months = MonthDay::all().map(Word::Month);
    let dates = [(1, 1), (2, 28), (2, 29), (3, 1), (4, 6), (12, 31)];
    let years = dates.map(|(month, day)| Word::Year(civil::date(2028, month, day).into()));
    weekdays.chain(months).chain(years).collect()
}

#[test]
fn periods_begin_on_their_days_for_400_years() {
    for word in anchored() {
        let mut date = civil::date(1968, 1, 1);
        let mut start = None;
        for day in -731..146_097 {
            if begins(word, date) {
                start = Some(day);
            }
            if let Some(start) = start {
                assert_eq!(word.first_day(word.period(day)), start, "{word} on {date}");
            }
            date = date.tomorrow().unwrap();
        }
    }
}

#[test]
fn periods_begin_where_the_clocks_first_show_their_days() {
    for zone in [
        "Europe/Oslo",
        "America/New_York",
        "Africa/Cairo",
        "America/Havana",
        "Australia/Lord_Howe",
    ] {
        let tz = database(zone);
        for word in anchored() {
            let calendar = windows(word, zone, Origin::UNIX);
            let mut date = civil::date(1971, 1, 1);
            let mut starts = Vec::new();
            while date.year() < 2199 {
                if begins(word, date) {
                    let first = date.to_zoned(tz.clone()).unwrap().start_of_day().unwrap();
                    starts.push(Time::from_nanos(
                        first.timestamp().as_nanosecond().try_into().unwrap(),
                    ));
                }
                date = date.tomorrow().unwrap();
            }
            for pair in starts.windows(2) {
                let window = CalendarWindow {
                    start: pair[0],
                    end: pair[1],
                };
                let last = Time::from_nanos(window.end.as_nanos() - 1);
                assert_eq!(calendar.window_at(window.start), window, "{word} in {zone}");
                assert_eq!(calendar.window_at(last), window, "{word} in {zone}");
            }
        }
    }
}

#[test]
fn a_month_without_the_day_begins_on_its_last() {
    let from = |day| Word::Month(MonthDay(day));
    for (word, at, start, end) in [
        (
            from(31),
            "2026-02-10T00:00Z",
            "2026-01-31T00:00Z",
            "2026-02-28T00:00Z",
        ),
        (
            from(31),
            "2026-02-28T00:00Z",
            "2026-02-28T00:00Z",
            "2026-03-31T00:00Z",
        ),
        (
            from(31),
            "2024-03-01T00:00Z",
            "2024-02-29T00:00Z",
            "2024-03-31T00:00Z",
        ),
        (
            from(31),
            "2100-03-01T00:00Z",
            "2100-02-28T00:00Z",
            "2100-03-31T00:00Z",
        ),
        (
            from(30),
            "2026-04-29T00:00Z",
            "2026-03-30T00:00Z",
            "2026-04-30T00:00Z",
        ),
        (
            from(15),
            "2026-01-14T23:59:59Z",
            "2025-12-15T00:00Z",
            "2026-01-15T00:00Z",
        ),
    ] {
        check(word, "UTC", [at, start, end]);
    }
    // Midnight in Oslo, before and after clocks go forward.
    check(
        from(29),
        "Europe/Oslo",
        [
            "2026-03-29T12:00Z",
            "2026-03-28T23:00Z",
            "2026-04-28T22:00Z",
        ],
    );
}

#[test]
fn months_from_each_day_share_a_zone() {
    let oslo = database("Europe/Oslo");
    let each = months(&oslo, Origin::UNIX);
    assert_eq!(each.len(), 31);
    let noon = time("2026-03-18T12:00Z");
    for (day, months) in MonthDay::all().zip(&each) {
        let alone = calendar(Word::Month(day), oslo.clone(), Origin::UNIX);
        assert_eq!(months.window_at(noon), alone.window_at(noon), "{day:?}");
        assert_eq!(
            (months.name(), months.shortest()),
            (alone.name(), alone.shortest())
        );
    }
}
