//! Tests of local times against the database of time zones.

use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;

use super::*;

pub(crate) fn database(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

fn zone(name: &str) -> Zone {
    Zone::new(&database(name), 0)
}

#[test]
fn the_table_agrees_with_the_database() {
    for name in [
        "UTC",
        "Europe/Oslo",
        "America/Sao_Paulo",
        "Africa/Cairo",
        "Africa/Casablanca",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "America/St_Johns",
        "Antarctica/Troll",
        "Asia/Gaza",
    ] {
        let (table, database) = (zone(name), database(name));
        // Every 11 hours and 7 seconds until 2199.
        for instant in (0..HORIZON).step_by(11 * 3_600 + 7) {
            let offset = database.to_offset(Timestamp::from_second(instant).unwrap());
            let expected = instant + i64::from(offset.seconds());
            assert_eq!(table.local(instant), expected, "{name} {instant}");
        }
        assert!(table.transitions().is_sorted(), "{name}");
    }
}

#[test]
fn a_table_may_begin_anywhere() {
    let oslo = database("Europe/Oslo");
    let (whole, late) = (Zone::new(&oslo, 0), Zone::new(&oslo, 1_800_000_000));
    assert!(late.transitions().count() < whole.transitions().count());
    assert_eq!(late.local(1_800_000_000), whole.local(1_800_000_000));
    assert_eq!(late.local(1_820_000_000), whole.local(1_820_000_000));
    assert_eq!(Zone::new(&oslo, i64::MAX).transitions().count(), 0);
}

#[test]
fn skipped_and_repeated_times_are_reached_once() {
    let oslo = zone("Europe/Oslo");
    let at = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
    let local = |text: &str| at(&format!("{text}Z"));
    for (shown, expected) in [
        ("2026-03-29T01:59", "2026-03-29T00:59Z"),
        ("2026-03-29T02:00", "2026-03-29T01:00Z"),
        ("2026-03-29T02:30", "2026-03-29T01:00Z"),
        ("2026-03-29T03:00", "2026-03-29T01:00Z"),
        ("2026-03-29T03:01", "2026-03-29T01:01Z"),
        ("2026-10-25T02:00", "2026-10-25T00:00Z"),
        ("2026-10-25T02:59", "2026-10-25T00:59Z"),
        ("2026-10-25T03:00", "2026-10-25T02:00Z"),
    ] {
        assert_eq!(oslo.first_reach(local(shown)), at(expected), "{shown}");
    }
}

proptest! {
    #[test]
    fn first_reach_returns_the_first_instant(
        name in prop::sample::select(vec!["Europe/Oslo", "Pacific/Apia", "America/St_Johns"]),
        local in 0i64..2_000_000_000,
    ) {
        let zone = zone(name);
        let instant = zone.first_reach(local);
        prop_assert!(zone.local(instant) >= local);
        prop_assert!(zone.local(instant - 1) < local);
    }

    #[test]
    fn multiples_enclose_an_instant(
        name in prop::sample::select(vec!["Europe/Oslo", "Australia/Lord_Howe", "Asia/Kathmandu"]),
        instant in 0i64..2_000_000_000,
    ) {
        let zone = zone(name);
        let (last, next) = (zone.last_multiple(instant, 3_600), zone.next_multiple(instant, 3_600));
        prop_assert!(last <= instant && instant < next);
        prop_assert_eq!(zone.local(last) % 3_600, 0);
        prop_assert_eq!(zone.local(next) % 3_600, 0);
        prop_assert_eq!(zone.next_multiple(last, 3_600), next);
        prop_assert_eq!(zone.last_multiple(next - 1, 3_600), last);
    }
}
