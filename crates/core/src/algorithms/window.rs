//! Windows: skeleton, to be completed.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::algorithm::{Algorithm, Denials};
use crate::{Decision, Error, Nanos, Permits, Quota, Time};

/// What the window that slides out of sight still counts for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Edge {
    /// Nothing.
    #[default]
    Drop,
    /// Everything, until it is wholly out of sight.
    Full,
    /// The share of it that is still in sight.
    Weighted,
}

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
/// Pure: the same moment always gives the same window.
pub trait Calendar: fmt::Debug + Send + Sync {
    /// The window that holds `now`.
    fn window_at(&self, now: Time) -> CalendarWindow;
    /// Names the calendar: `day in Europe/Oslo`. Equal names mean equal windows.
    fn name(&self) -> &str;
    /// The shortest window there can be.
    fn shortest(&self) -> Nanos;
}

/// Where windows begin.
#[derive(Clone, Debug)]
pub enum Anchor {
    /// At `phase` after the clock's zero and every window length from there.
    Grid {
        /// Less than the window's length.
        phase: Nanos,
    },
    /// At the first request of a key; the next request at or after its end opens the next.
    First,
    /// Where a calendar says.
    Calendar(Arc<dyn Calendar>),
}

/// Counters of one window or two; see the [module](self).
#[derive(Clone, Debug)]
pub struct Window<C = [u32; 2]> {
    _c: core::marker::PhantomData<C>,
}

/// Counters of up to 60 sub-buckets and the one that slides out of sight.
pub type SubBuckets = Window<Vec<u32>>;

/// The counters of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct WindowState<C> {
    /// Which window the newest counter belongs to: its number on the grid, or its start.
    index: u64,
    /// Newest first.
    counts: C,
}

impl Window {
    /// Fixed windows on a grid.
    pub fn fixed(_quota: Quota, _phase: Nanos) -> Result<Self, Error> {
        todo!()
    }
    /// Two-window weighted counter: this window, and the share of the last one in sight.
    pub fn two_window(_quota: Quota, _phase: Nanos) -> Result<Self, Error> {
        todo!()
    }
    /// A window that opens with the first request of a key.
    pub fn quota_reset(_quota: Quota) -> Result<Self, Error> {
        todo!()
    }
    /// Fixed windows of a calendar.
    pub fn calendar(_permits: Permits, _calendar: Arc<dyn Calendar>) -> Result<Self, Error> {
        todo!()
    }
}

impl SubBuckets {
    /// A sliding window cut into `count` sub-buckets (1 to 60).
    pub fn sub_buckets(
        _quota: Quota,
        _count: u32,
        _edge: Edge,
        _phase: Nanos,
    ) -> Result<Self, Error> {
        todo!()
    }
}

impl<C> Window<C> {
    /// The same limit with another price of denials.
    #[must_use]
    pub fn with_denials(self, _denials: Denials) -> Self {
        todo!()
    }
}

impl<C> PartialEq for Window<C> {
    fn eq(&self, _other: &Self) -> bool {
        todo!()
    }
}

impl<C: Clone + Default + PartialEq + fmt::Debug> Algorithm for Window<C> {
    type State = WindowState<C>;
    fn capacity(&self) -> Permits {
        todo!()
    }
    fn decide(&self, _: &mut Self::State, _: Time, _: Permits) -> Decision {
        todo!()
    }
    fn refund(&self, _: &mut Self::State, _: Time, _: Permits) {
        todo!()
    }
    fn expires_at(&self, _: &Self::State) -> Time {
        todo!()
    }
    fn stricter(&self, _: &mut Self::State, _: &Self::State) {
        todo!()
    }
    fn keeps_state_of(&self, _: &Self) -> bool {
        todo!()
    }
    fn bound(&self, _: Nanos) -> u64 {
        todo!()
    }
}
