//! Times at which limits apply, in real zones: hours, nights, days, dates, changes of the clocks.

use jiff::Timestamp;
use jiff::civil::Weekday;
use proptest::prelude::*;

use super::*;
use crate::config::{Context, parse};
use crate::model::rules::zone::tests::database;

const ZONES: [&str; 6] = [
    "UTC",
    "Europe/Oslo",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
];

/// Returns the active times of a limit with these fields.
fn active(fields: &str) -> Active {
    let text = format!(
        "version = 1\ntimezone = \"Europe/Oslo\"\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n\
         limit = \"9/1m\"\nactive = {{ {fields} }}\n"
    );
    let loaded = parse(&text, Context::default()).unwrap();
    *loaded.policy.rules[0].active.clone().unwrap()
}

fn at(text: &str) -> WallTime {
    let timestamp = text.parse::<Timestamp>().unwrap();
    WallTime::from_unix_seconds(timestamp.as_second().unsigned_abs())
}

/// Asserts that the limit is active from each first moment up to each second one, and at no other
/// time in between.
fn check(fields: &str, spans: &[(&str, &str)]) {
    let active = active(fields);
    let before = |wall: WallTime| WallTime(wall.0 - 1);
    let mut changes = spans.iter().flat_map(|(start, end)| [at(start), at(end)]);
    let mut now = before(changes.next().unwrap());
    let mut is_active = false;
    assert!(!active.is_active(now), "{fields}: before {}", spans[0].0);
    for expected in std::iter::once(at(spans[0].0)).chain(changes) {
        assert_eq!(active.next_change(now), Some(expected), "{fields}");
        assert_eq!(active.is_active(before(expected)), is_active, "{fields}");
        is_active = !is_active;
        assert_eq!(active.is_active(expected), is_active, "{fields}");
        now = expected;
    }
}

#[test]
fn hours_are_those_of_the_zone() {
    check(
        "hours = \"01:00-06:00\"",
        &[
            ("2026-01-01T01:00+01", "2026-01-01T06:00+01"),
            ("2026-01-02T01:00+01", "2026-01-02T06:00+01"),
        ],
    );
    check(
        "hours = \"01:00-06:00\", timezone = \"Asia/Kathmandu\"",
        &[("2026-01-01T01:00+05:45", "2026-01-01T06:00+05:45")],
    );
    check(
        "hours = \"18:00-24:00\"",
        &[("2026-01-01T18:00+01", "2026-01-02T00:00+01")],
    );
}

#[test]
fn a_night_belongs_to_the_day_on_which_it_begins() {
    check(
        "hours = \"22:00-06:00\", days = \"fri\"",
        &[
            ("2026-01-02T22:00+01", "2026-01-03T06:00+01"), // 2 January 2026 is a Friday
            ("2026-01-09T22:00+01", "2026-01-10T06:00+01"),
        ],
    );
    check(
        "hours = \"22:00-06:00\"",
        &[
            ("2026-01-02T22:00+01", "2026-01-03T06:00+01"),
            ("2026-01-03T22:00+01", "2026-01-04T06:00+01"),
        ],
    );
}

#[test]
fn ranges_of_days_go_over_sunday() {
    check(
        "days = [\"mon-fri\"]",
        &[
            ("2026-01-05T00:00+01", "2026-01-10T00:00+01"),
            ("2026-01-12T00:00+01", "2026-01-17T00:00+01"),
        ],
    );
    check(
        "days = [\"sat-mon\", \"wed\"]",
        &[
            ("2026-01-03T00:00+01", "2026-01-06T00:00+01"),
            ("2026-01-07T00:00+01", "2026-01-08T00:00+01"),
        ],
    );
}

#[test]
fn hours_that_the_clocks_skip_never_come() {
    // On 29 March 2026, 02:00 is followed by 03:00.
    check(
        "hours = \"01:00-06:00\"",
        &[("2026-03-29T01:00+01", "2026-03-29T06:00+02")], // four hours
    );
    check(
        "hours = \"02:15-02:45\"",
        &[
            ("2026-03-28T02:15+01", "2026-03-28T02:45+01"),
            ("2026-03-30T02:15+02", "2026-03-30T02:45+02"),
        ],
    );
    check(
        "hours = \"02:30-04:00\"",
        &[("2026-03-29T03:00+02", "2026-03-29T04:00+02")],
    );
    // A weekly span that one Sunday does not have: two weeks between two changes.
    check(
        "hours = \"02:15-02:45\", days = \"sun\"",
        &[
            ("2026-03-22T02:15+01", "2026-03-22T02:45+01"),
            ("2026-04-05T02:15+02", "2026-04-05T02:45+02"),
        ],
    );
}

#[test]
fn hours_that_the_clocks_show_twice_apply_twice() {
    // On 25 October 2026, 03:00 is followed by 02:00.
    check(
        "hours = \"01:00-06:00\"",
        &[("2026-10-25T01:00+02", "2026-10-25T06:00+01")], // six hours
    );
    check(
        "hours = \"02:15-02:45\"",
        &[
            ("2026-10-25T02:15+02", "2026-10-25T02:45+02"),
            ("2026-10-25T02:15+01", "2026-10-25T02:45+01"),
            ("2026-10-26T02:15+01", "2026-10-26T02:45+01"),
        ],
    );
    check(
        "hours = \"02:30-06:00\"",
        &[
            ("2026-10-25T02:30+02", "2026-10-25T02:00+01"),
            ("2026-10-25T02:30+01", "2026-10-25T06:00+01"),
        ],
    );
}

#[test]
fn dates_bound_the_hours() {
    check(
        "hours = \"01:00-06:00\", from = 2026-01-01T02:00:00+01:00, until = 2026-01-02T03:00:00",
        &[
            ("2026-01-01T02:00+01", "2026-01-01T06:00+01"),
            ("2026-01-02T01:00+01", "2026-01-02T03:00+01"),
        ],
    );
    // Dates without an offset are those of the zone; the 30th of December 2011 has no moment.
    check(
        "from = 2011-12-30, until = 2012-01-01T00:00:00Z, timezone = \"Pacific/Apia\"",
        &[("2011-12-31T00:00+14", "2012-01-01T00:00Z")],
    );
    let ended = active("from = 2026-01-01T00:00:00Z, until = 2036-01-01T00:00:00Z");
    assert_eq!(
        ended.next_change(at("2026-06-01T00:00Z")),
        Some(at("2036-01-01T00:00Z")),
        "ten years on"
    );
    assert_eq!(ended.next_change(at("2036-01-01T00:00Z")), None);
    let begun = active("from = 2026-01-01T00:00:00Z");
    assert_eq!(begun.next_change(at("2026-01-01T00:00Z")), None);
    assert!(begun.is_active(at("2199-01-01T00:00Z")));
}

#[test]
fn an_unknown_time_is_active() {
    let active = active("hours = \"01:00-06:00\"");
    assert!(active.is_active(WallTime::UNKNOWN));
    assert_eq!(active.next_change(WallTime::UNKNOWN), None);
    let in_1970 = WallTime::new(Origin::UNIX, Time::from_nanos(12 * 3_600_000_000_000));
    assert!(active.is_active(in_1970), "noon of 1 January 1970");
    assert!(!active.is_active(at("1971-01-01T12:00Z")));
    let last = WallTime::new(Origin::from_unix_nanos(u64::MAX), Time::MAX);
    let _ = active.is_active(last); // in 2554, without an overflow
}

#[test]
fn a_clock_that_is_set_back_or_forward_is_followed() {
    let active = active("hours = \"01:00-06:00\"");
    for (now, expected) in [
        ("2026-01-01T02:00+01", true),
        ("2026-01-01T12:00+01", false),
        ("2026-01-01T03:00+01", true),
        ("2025-06-01T12:00+02", false),
        ("2031-06-01T05:59:59+02", true),
        ("2026-01-01T00:59:59+01", false),
    ] {
        assert_eq!(active.is_active(at(now)), expected, "{now}");
    }
}

#[test]
fn the_words_of_the_times_are_shown() {
    for (fields, expected) in [
        ("hours = \"01:00-06:00\"", "01:00-06:00 in Europe/Oslo"),
        (
            "hours = \"22:30-24:00\", days = [\"sat-sun\"], timezone = \"UTC\"",
            "22:30-24:00 sat sun in UTC",
        ),
        ("from = 2026-01-01", "all hours"),
    ] {
        assert_eq!(active(fields).to_string(), expected);
    }
}

fn hours() -> impl Strategy<Value = Hours> {
    let minutes = 0..24 * 60i64;
    let hours = (minutes.clone(), minutes).prop_filter("a length", |(start, end)| start != end);
    hours.prop_map(|(start, end)| Hours {
        start: start * 60,
        end: end * 60,
    })
}

proptest! {
    /// The oracle is the calendar of jiff: the day and time that it shows.
    #[test]
    fn a_limit_is_active_while_the_clocks_show_its_hours(
        name in prop::sample::select(&ZONES[..]),
        hours in hours(),
        days in 1u8..128,
        instants in prop::collection::vec(WallTime::KNOWN_FROM.cast_signed()..4_000_000_000, 1..20),
        near in prop::collection::vec((0usize..200, -90_000i64..90_000), 1..20),
    ) {
        let zone = database(name);
        let table = Zone::new(&zone, 0);
        let changes: Vec<_> = table.transitions().collect();
        let near = near.into_iter().filter_map(|(index, distance)| {
            changes.get(index).map(|change| (change + distance).max(WallTime::KNOWN_FROM.cast_signed()))
        });
        let instants: Vec<_> = instants.into_iter().chain(near).collect();
        let schedule = Schedule {
            hours,
            days: Days(days),
            from: i64::MIN,
            until: i64::MAX,
            zone: Arc::new(table),
            timezone: name.into(),
        };
        let active = Active::new(schedule);
        for instant in instants {
            let shown = Timestamp::from_second(instant).unwrap().to_zoned(zone.clone());
            let second = i64::from(shown.hour()) * 3_600
                + i64::from(shown.minute()) * 60
                + i64::from(shown.second());
            let number = |day: Weekday| day.to_monday_zero_offset();
            let is_on = |day: Weekday| days >> number(day) & 1 == 1;
            let (today, yesterday) = (shown.weekday(), shown.weekday().previous());
            let expected = if hours.start < hours.end {
                is_on(today) && hours.start <= second && second < hours.end
            } else {
                second >= hours.start && is_on(today) || second < hours.end && is_on(yesterday)
            };
            let wall = WallTime::from_unix_seconds(instant.unsigned_abs());
            prop_assert_eq!(active.is_active(wall), expected, "{} {}", name, shown);
            if let Some(change) = active.next_change(wall) {
                prop_assert_eq!(active.is_active(change), !expected);
                prop_assert_eq!(active.is_active(WallTime(change.0 - 1)), expected);
            }
        }
    }

    /// Hours that meet leave no gap and do not overlap, also where clocks change.
    #[test]
    fn limits_that_meet_take_turns(
        name in prop::sample::select(&ZONES[..]),
        hours in hours(),
        instant in WallTime::KNOWN_FROM.cast_signed()..4_000_000_000,
    ) {
        let zone = Arc::new(Zone::new(&database(name), 0));
        let of = |hours| Schedule {
            hours,
            days: Days::ALL,
            from: i64::MIN,
            until: i64::MAX,
            zone: Arc::clone(&zone),
            timezone: name.into(),
        };
        let other = Hours { start: hours.end, end: hours.start };
        prop_assert_ne!(of(hours).answer(instant).0, of(other).answer(instant).0);
    }
}
