//! Window counters: at most N permits a window, and the window before may still count.
//!
//! Time is cut into windows of width `w`. A request adds its cost to the counter of the window it
//! falls in. The newest `m` counters count in full; the one just behind them is sliding out of
//! sight, and the *edge* sets how much of it still counts:
//!
//! ```text
//!            sliding out      the newest m, here 3
//!          |<---- w ---->|<---- w ---->|<---- w ---->|<---- w ---->|
//!   -------+------o------+-----n2------+-----n1------+-----n0--*---+----> time
//!                 |  |   |                                     now
//!                 |  +---+ still in sight of now: left / w     |<->| left
//!                 |
//!                 +- edge(o): drop 0; full o; weighted o x left / w
//! ```
//!
//! `used = n0 + .. + n(m-1) + edge(o)`, rounded down; allow iff `used + cost <= N`; then
//! `n0 += cost`. For a cost of 1: refuse when `used`, before this request, has reached N.
//!
//! The named algorithms, each a constructor:
//!
//! ```text
//!   name           m     edge      windows begin        most in one span P   in the long run
//!   fixed          1     drop      on a grid            2N                   N per P
//!   calendar       1     drop      where days do        2N                   N per window
//!   two-window     1     weighted  on a grid            2N                   N per P
//!   sub-buckets    1-60  drop      on a grid            2N (N in P - w)      N per P
//!                        weighted  on a grid            2N                   N per P
//!                        full      on a grid            N, the promise       N per P + w
//! ```
//!
//! * State: 24 bytes for one window and the last; for sub-buckets 32, which hold the sum of
//!   the newest `m`, and `m + 1` counters of 8 bytes, allocated by the first charge.
//! * Error: none. `w = ceil(P / m)`, up: where m does not divide P, sub-buckets leave the clock's
//!   grid of P. The weighted share is rounded down, as its source has it, so that a caller at the
//!   rate is never refused a permit for a part of one; the bound accounts for it.
//! * Choose `fixed` or `calendar` when the contract names the window, `full` when it says
//!   "never more than N in any span"; two-window to soften the edge at the price of two
//!   counters. Where each key should have windows of its own, choose
//!   [quota reset](super::quota_reset); else [GCRA](super::gcra).
//! * A clock that steps back finds the newest window it had reached: it is denied longer by
//!   the step, and never gains.
//! * Laws: keeps all of them; [`Denials::Counted`] gives up "denial is free" by request.
//! * Twin: `window.lua`, but for calendars; `window/short.lua` for requests of one charge.
//! * Source: Figma, "An alternative approach to rate limiting" (2017), for sub-buckets;
//!   Cloudflare, "How we built rate limiting capable of scaling to millions of domains"
//!   (2017), for the two-window counter.

mod anchor;
mod bound;
mod counters;
mod judge;
mod reconfigure;
mod refund;
mod stored_form;

use alloc::sync::Arc;
use core::marker::PhantomData;

pub use anchor::{Anchor, Calendar, CalendarWindow};
pub use counters::{Buckets, Counters};

use crate::algorithm::{Algorithm, Denials};
use crate::{Decision, Error, Nanos, Permits, Quota, Share, Time};
use anchor::Sight;
use counters::VisibleCounts;

/// Maximum number of sub-buckets in a window: bounds the work of a decision.
const MAX_BUCKETS: u32 = 60;
/// Maximum time that counts may stay in sight, 146 years: no sum of spans overflows.
const MAX_SIGHT: u64 = 1 << 62;

/// The remaining count of the window that slides out of sight.
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

/// Counts permits by window; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Nanos, Permits, Time, Verdict, Window};
///
/// let limit = Window::fixed("10/1s".parse().unwrap(), Nanos::ZERO).unwrap();
/// let mut state = Default::default();
/// let t = Time::from_nanos(900_000_000);
/// assert_eq!(limit.decide(&mut state, t, Permits::new(10)).verdict, Verdict::Allow);
/// let retry_after = Nanos::from_millis(100);
/// assert_eq!(limit.decide(&mut state, t, Permits::ONE).verdict, Verdict::Deny { retry_after });
/// assert_eq!(limit.decide(&mut state, t + retry_after, Permits::ONE).verdict, Verdict::Allow);
/// ```
#[doc(alias("fixed window", "sliding window counter", "calendar window"))]
#[derive(Clone, PartialEq, Debug)]
pub struct Window<C = [u64; 2]> {
    /// N: at least 1.
    permits: u64,
    /// m: 1 to 60.
    buckets: u32,
    /// w: of a calendar, the shortest window.
    width: u64,
    edge: Edge,
    anchor: Anchor,
    denials: Denials,
    counters: PhantomData<fn() -> C>,
}

/// Counters of up to 60 sub-buckets and the one that slides out of sight.
///
/// ```
/// use ratekeeper_core::{Algorithm, Edge, Nanos, Permits, SubBuckets, Time, Verdict};
///
/// let quota = "6/60s".parse().unwrap();
/// let limit = SubBuckets::sub_buckets(quota, 6, Edge::Full, Nanos::ZERO).unwrap();
/// let mut state = Default::default();
/// assert!(limit.decide(&mut state, Time::ZERO, Permits::new(6)).verdict.allows());
/// let retry_after = Nanos::from_secs(70); // six buckets and the one behind them
/// let denied = limit.decide(&mut state, Time::ZERO, Permits::ONE);
/// assert_eq!(denied.verdict, Verdict::Deny { retry_after });
/// ```
#[doc(alias("sliding window", "sub-buckets"))]
pub type SubBuckets = Window<Buckets>;

/// The counters of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct WindowState<C> {
    /// The window of the newest counter: its number on the grid, or its start.
    index: u64,
    /// Newest first.
    counts: C,
}

impl Window {
    /// Fixed windows on a grid: `quota.permits()` in each, whatever came before.
    ///
    /// The windows begin at `phase` after the clock's zero, and every span from there.
    ///
    /// # Errors
    /// [`Error::WindowTooLong`] for a span of more than 73 years.
    pub fn fixed(quota: Quota, phase: Nanos) -> Result<Self, Error> {
        Self::new(quota, 1, Edge::Drop, phase)
    }

    /// Two-window weighted counter: this window, and the share of the last one in sight.
    ///
    /// # Errors
    /// As [`Window::fixed`].
    pub fn two_window(quota: Quota, phase: Nanos) -> Result<Self, Error> {
        Self::new(quota, 1, Edge::Weighted, phase)
    }

    /// Fixed windows of a calendar.
    ///
    /// # Errors
    /// [`Error::NoPermits`] for zero permits, [`Error::NoSpan`] for a calendar of empty windows,
    /// [`Error::WindowTooLong`] as [`Window::fixed`].
    pub fn calendar(permits: Permits, calendar: Arc<dyn Calendar>) -> Result<Self, Error> {
        let quota = Quota::new(permits, calendar.shortest())?;
        let window = Self::fixed(quota, Nanos::ZERO)?;
        Ok(Self {
            anchor: Anchor::Calendar(calendar),
            ..window
        })
    }
}

impl SubBuckets {
    /// A sliding window cut into `count` sub-buckets (1 to 60).
    ///
    /// # Errors
    /// [`Error::SubBuckets`] for another count, or one above the span in nanoseconds;
    /// [`Error::WindowTooLong`] as [`Window::fixed`].
    pub fn sub_buckets(quota: Quota, count: u32, edge: Edge, phase: Nanos) -> Result<Self, Error> {
        let fits = u64::from(count) <= quota.per().as_nanos();
        if count == 0 || count > MAX_BUCKETS || !fits {
            return Err(Error::SubBuckets);
        }
        Self::new(quota, count, edge, phase)
    }
}

impl<C> Window<C> {
    fn new(quota: Quota, buckets: u32, edge: Edge, phase: Nanos) -> Result<Self, Error> {
        let width = quota.per().as_nanos().div_ceil(u64::from(buckets)); // up: never more in P
        if width > MAX_SIGHT / u64::from(buckets + 1) {
            return Err(Error::WindowTooLong);
        }
        Ok(Self {
            permits: quota.permits().get(),
            buckets,
            width,
            edge,
            anchor: Anchor::on_grid(phase, Nanos::from_nanos(width)),
            denials: Denials::Free,
            counters: PhantomData,
        })
    }

    /// The same limit with another cost of denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    /// m, as a number of counters.
    fn whole(&self) -> usize {
        self.buckets as usize
    }

    /// Number of counters in sight.
    fn in_sight(&self) -> usize {
        match self.edge {
            Edge::Drop => self.whole(),
            Edge::Full | Edge::Weighted => self.whole() + 1,
        }
    }
}

impl<C: Counters> Window<C> {
    #[inline]
    fn sight(&self, state: &WindowState<C>, now: Time) -> Sight {
        self.anchor.sight(state.index, now, self.width)
    }

    /// Moves the counters of `state` on by `shift` windows, to window `index`.
    fn advance(&self, state: &mut WindowState<C>, index: u64, shift: u64) {
        state.index = index;
        state.counts.change(self.whole() + 1, |slots| {
            let gone = usize::try_from(shift).map_or(slots.len(), |shift| shift.min(slots.len()));
            slots.copy_within(..slots.len() - gone, gone);
            slots[..gone].fill(0);
        });
    }
}

impl<C: Counters> Algorithm for Window<C> {
    type State = WindowState<C>;

    fn name(&self) -> &'static str {
        match (&self.anchor, self.edge, self.buckets) {
            (Anchor::Calendar(_), ..) => "calendar window",
            (_, Edge::Drop, 1) => "fixed window",
            (_, Edge::Weighted, 1) => "sliding window counter",
            _ => "sub-buckets",
        }
    }

    fn denials(&self) -> Denials {
        self.denials
    }

    /// All windows in sight together; `None` for a calendar's.
    fn window(&self) -> Option<Nanos> {
        let whole = self.width.saturating_mul(self.buckets.into());
        match self.anchor {
            Anchor::Calendar(_) => None,
            Anchor::Grid { .. } => Some(Nanos::from_nanos(whole)),
        }
    }

    fn window_end(&self, now: Time) -> Option<Time> {
        let sight = self.anchor.sight(0, now, self.width);
        Some(now + Nanos::from_nanos(sight.left))
    }

    fn refills_one_by_one(&self) -> bool {
        self.edge == Edge::Weighted
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.permits)
    }

    #[inline]
    fn look(&self, state: &WindowState<C>, now: Time, cost: Permits) -> Decision {
        self.judge(state, now, cost).decision
    }

    #[inline]
    fn decide(&self, state: &mut WindowState<C>, now: Time, cost: Permits) -> Decision {
        let judged = self.judge(state, now, cost);
        if judged.charge > 0 {
            let Sight { index, shift, .. } = judged.sight;
            if shift > 0 || state.counts.as_slice().is_empty() {
                self.advance(state, index, shift);
            }
            state.index = index;
            state.counts.charge(judged.charge);
        }
        judged.decision
    }

    fn expires_at(&self, state: &WindowState<C>, _now: Time) -> Time {
        let seen = VisibleCounts::new(state.counts.as_slice(), 0);
        match seen.newest_of(self.in_sight()) {
            None => Time::ZERO,
            Some(back) => {
                let more = u64::try_from(self.in_sight() - back - 1).unwrap_or(u64::MAX);
                self.anchor.end_of(state.index, self.width)
                    + Nanos::from_nanos(self.width.saturating_mul(more))
            }
        }
    }

    /// Keeps the larger of each counter, in the newer of the two windows: from that window on,
    /// either would have allowed every cost that it allows.
    fn stricter(&self, state: &mut WindowState<C>, other: &WindowState<C>) {
        if other.counts.as_slice().iter().all(|&count| count == 0) {
            return;
        }
        if state.counts.as_slice().iter().all(|&count| count == 0) {
            state.clone_from(other);
            return;
        }
        let newer = state.index.max(other.index);
        let behind = |index| self.anchor.windows_between(index, newer);
        let seen = VisibleCounts::new(other.counts.as_slice(), behind(other.index));
        let shift = behind(state.index);
        self.advance(state, newer, shift);
        state.counts.change(self.whole() + 1, |slots| {
            for (back, count) in slots.iter_mut().enumerate() {
                *count = (*count).max(seen.at(back));
            }
        });
    }

    /// Counts mean the same while the windows are the same; N and the edge may change.
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.width == old.width && self.buckets == old.buckets && self.anchor == old.anchor
    }

    fn least_served(&self, kept: Quota) -> Share {
        self.share_within(kept.per()).counting(self.denials)
    }

    fn bound(&self, window: Nanos) -> u64 {
        bound::bound(self, window)
    }

    fn heap_bytes(&self) -> usize {
        C::heap_bytes(self.whole() + 1)
    }
}

#[cfg(test)]
mod tests;
