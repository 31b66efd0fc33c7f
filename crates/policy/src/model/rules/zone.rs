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
pub(crate) mod tests;
