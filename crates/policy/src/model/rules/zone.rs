//! Zone: local time in a time zone, as a short table.
//!
//! ```text
//!   local      |  offset 1h  |    offset 2h    |  offset 1h      clocks go forward at A,
//!   -----------+-------------+-----------------+------------>    back at B
//!   instant                  A                 B
//! ```
//!
//! The transitions are read once, when a limit is made; a look-up is then a binary search
//! and a few additions. All numbers are seconds since 1970.
//!
//! * The table ends in 2200; from then on the last offset stays.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Where the table ends: 2200-01-01, beyond the life of any process.
const HORIZON: i64 = 7_258_118_400;

/// No zone is further from UTC than this; RFC 9636 says 26 hours.
const MAX_OFFSET: i64 = 26 * 3_600;

/// The offsets of a time zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Zone {
    /// Spans in order; the first begins before all instants.
    pieces: Box<[ZoneSpan]>,
}

/// A span of one offset; it ends where the next begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ZoneSpan {
    start: i64,
    /// Local minus UTC.
    offset: i64,
}

impl Zone {
    /// Reads the offsets of `zone` from `origin` on; before it, the one at `origin` holds.
    pub(crate) fn new(zone: &TimeZone, origin: i64) -> Self {
        let offset_at = |at: Timestamp| i64::from(zone.to_offset(at).seconds());
        let origin = Timestamp::from_second(origin.min(HORIZON)).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut pieces = vec![ZoneSpan {
            start: i64::MIN,
            offset: offset_at(origin),
        }];
        for transition in zone.following(origin) {
            let start = transition.timestamp().as_second();
            if start >= HORIZON {
                break;
            }
            let offset = i64::from(transition.offset().seconds());
            // Names change without the clocks.
            if pieces.last().is_none_or(|piece| piece.offset != offset) {
                pieces.push(ZoneSpan { start, offset });
            }
        }
        Self {
            pieces: pieces.into(),
        }
    }

    /// Returns the local time.
    pub(crate) fn local(&self, instant: i64) -> i64 {
        instant + self.pieces[self.piece_at(instant)].offset
    }

    /// Returns the local time, and the instant at which the clocks change next; `i64::MAX` if they
    /// do not.
    pub(crate) fn local_until(&self, instant: i64) -> (i64, i64) {
        let index = self.piece_at(instant);
        let next = self.pieces.get(index + 1);
        let change = next.map_or(i64::MAX, |next| next.start);
        (instant + self.pieces[index].offset, change)
    }

    /// Returns the first instant at which the clocks show `local` or later.
    pub(crate) fn first_reach(&self, local: i64) -> i64 {
        let mut index = self.piece_at(local - MAX_OFFSET);
        loop {
            let piece = self.pieces[index];
            let instant = (local - piece.offset).max(piece.start);
            match self.pieces.get(index + 1) {
                Some(next) if instant >= next.start => index += 1,
                _ => return instant,
            }
        }
    }

    /// Returns the last instant, up to and including this one, at which the clocks show a whole
    /// multiple of `step`.
    pub(crate) fn last_multiple(&self, instant: i64, step: i64) -> i64 {
        let mut index = self.piece_at(instant);
        let mut latest = instant;
        loop {
            let piece = self.pieces[index];
            let multiple = latest - (latest + piece.offset).rem_euclid(step);
            if multiple >= piece.start || index == 0 {
                return multiple;
            }
            latest = piece.start - 1;
            index -= 1;
        }
    }

    /// Returns the first later instant at which the clocks show a whole multiple of `step`.
    pub(crate) fn next_multiple(&self, instant: i64, step: i64) -> i64 {
        let mut index = self.piece_at(instant);
        let mut earliest = instant + 1;
        loop {
            let piece = self.pieces[index];
            let multiple = earliest + (-(earliest + piece.offset)).rem_euclid(step);
            match self.pieces.get(index + 1) {
                Some(next) if multiple >= next.start => {
                    earliest = next.start;
                    index += 1;
                }
                _ => return multiple,
            }
        }
    }

    /// Returns the instants at which the clocks change.
    pub(crate) fn transitions(&self) -> impl Iterator<Item = i64> {
        self.pieces.iter().skip(1).map(|piece| piece.start)
    }

    fn piece_at(&self, instant: i64) -> usize {
        let after = self.pieces.partition_point(|piece| piece.start <= instant);
        after.saturating_sub(1)
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
}
