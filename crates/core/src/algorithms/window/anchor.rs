//! Anchors: windows begin on a grid, or as a calendar defines.
//!
//! ```text
//!   grid      |--- w ---|--- w ---|--- w ---|     index: 0, 1, 2, ... from `phase - w`
//!             phase
//!   calendar  |-- 23 h --|--- 24 h ---|           index: the window's first moment
//! ```
//!
//! A state remembers the index of its newest window. The clock is never trusted to run
//! forward: a moment before that window counts as its first moment, so a clock that steps
//! back finds the counters as they were, and its waits are longer by the step.

use alloc::sync::Arc;
use core::fmt;

use crate::{Nanos, Origin, Time};

/// A window of a calendar: from `start`, up to but not including `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CalendarWindow {
    /// First moment of the window.
    pub start: Time,
    /// First moment of the next one.
    pub end: Time,
}

/// Cuts time into windows of unequal length: days with daylight saving, months.
///
/// Pure: the same moment always gives the same window, and windows follow one another
/// without gap. A window that began before the clock's zero starts at zero.
pub trait Calendar: fmt::Debug + Send + Sync {
    /// The window that holds `now`.
    fn window_at(&self, now: Time) -> CalendarWindow;
    /// Names the calendar: `day in Europe/Oslo`. Equal names and origins mean equal windows.
    fn name(&self) -> &str;
    /// The origin of its clock: 1970 by default.
    fn origin(&self) -> Origin {
        Origin::UNIX
    }
    /// The shortest possible window.
    fn shortest(&self) -> Nanos;
    /// The same calendar on a clock of this origin.
    fn on_clock(&self, origin: Origin) -> Arc<dyn Calendar>;
}

/// The beginning of windows.
#[derive(Clone, Debug)]
pub enum Anchor {
    /// At `phase` after the clock's zero and every window length from there.
    Grid {
        /// The end of the first window: from 1 ns to the windows' length.
        phase: Nanos,
    },
    /// As a calendar defines.
    Calendar(Arc<dyn Calendar>),
}

/// Calendars are equal if their names and origins are.
impl PartialEq for Anchor {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Grid { phase: a }, Self::Grid { phase: b }) => a == b,
            (Self::Calendar(a), Self::Calendar(b)) => {
                a.name() == b.name() && a.origin() == b.origin()
            }
            _ => false,
        }
    }
}

/// A state as seen at `now`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sight {
    /// The window that contains `now`; written by a charge.
    pub(super) index: u64,
    /// By how many windows the state's newest counter is older than that.
    pub(super) shift: u64,
    /// Nanoseconds by which the clock is behind the window's first moment: it stepped back.
    pub(super) ahead: u64,
    /// Nanoseconds to the window's end, from its first moment if the clock is behind that.
    pub(super) left: u64,
}

/// Shift of a state that is so old that nothing of it counts.
const GONE: u64 = u64::MAX;

impl Anchor {
    /// A grid with a first window that ends `phase` after zero, which is 1 ns to `width`.
    pub(super) fn on_grid(phase: Nanos, width: Nanos) -> Self {
        let width = width.as_nanos();
        let inside = phase.as_nanos() % width;
        let phase = if inside == 0 { width } else { inside };
        Self::Grid {
            phase: Nanos::from_nanos(phase),
        }
    }

    /// The view at `now` of a state with its newest counter in window `index`; those of a grid are
    /// `width` nanoseconds long.
    #[inline]
    pub(super) fn sight(&self, index: u64, now: Time, width: u64) -> Sight {
        match self {
            Self::Grid { phase } => {
                // Mostly still in the newest window: that is seen without a division.
                // (A damaged index may be beyond all time: no such window ends.)
                let end = index.checked_mul(width);
                let end = end.and_then(|end| end.checked_add(phase.as_nanos()));
                let left = end.and_then(|end| end.checked_sub(now.as_nanos()));
                match left {
                    Some(left @ 1..) if left <= width => Sight {
                        index,
                        shift: 0,
                        ahead: 0,
                        left,
                    },
                    _ => self.other_window(phase.as_nanos(), index, now, width),
                }
            }
            Self::Calendar(calendar) => {
                let newest = now.max(Time::from_nanos(index));
                let window = calendar.window_at(newest);
                let current = window.start.as_nanos();
                let shift = if current == index { 0 } else { GONE };
                let ahead = newest.since(now).as_nanos();
                Sight {
                    index: current,
                    shift,
                    ahead,
                    left: window.end.since(newest).as_nanos(),
                }
            }
        }
    }

    /// The view at `now`, on a grid, of a state with another newest window.
    #[inline]
    fn other_window(&self, phase: u64, index: u64, now: Time, width: u64) -> Sight {
        let (current, left) = grid(phase, now.as_nanos(), width);
        if let Some(shift) = current.checked_sub(index) {
            return Sight {
                index: current,
                shift,
                ahead: 0,
                left,
            };
        }
        let start = self.end_of(index, width) - Nanos::from_nanos(width);
        Sight {
            index,
            shift: 0,
            ahead: start.since(now).as_nanos(),
            left: width,
        }
    }

    /// The first moment after window `index`.
    pub(super) fn end_of(&self, index: u64, width: u64) -> Time {
        match self {
            Self::Grid { phase } => {
                Time::ZERO + *phase + Nanos::from_nanos(width.saturating_mul(index))
            }
            Self::Calendar(calendar) => calendar.window_at(Time::from_nanos(index)).end,
        }
    }

    /// Number of windows from `older` to `newer`, as far as `older` still counts.
    pub(super) fn windows_between(&self, older: u64, newer: u64) -> u64 {
        match self {
            Self::Grid { .. } => newer.saturating_sub(older),
            Self::Calendar(_) if newer == older => 0,
            Self::Calendar(_) => GONE,
        }
    }
}

/// The number of the window that holds `now`, and the nanoseconds to its end.
///
/// Window 0 ends at `phase`, which is 1 to `width`: so the numbers stay below 2^64.
fn grid(phase: u64, now: u64, width: u64) -> (u64, u64) {
    match now.checked_sub(phase) {
        Some(age) => (age / width + 1, width - age % width),
        None => (0, phase - now),
    }
}
