//! Judges a request against its windows: the verdict, the wait, and the remaining permits.
//!
//! ```text
//!         n(m)   n(m-1) ...  n1      n0    +1      +2
//!   ----+------+------+----+------+--*---+------+------+--> time
//!                                   now  |      |
//!                                        |      n(m-2) slides out, n(m-1) is gone
//!                                        n(m-1) slides out, n(m) is gone
//! ```
//!
//! The wait is found by adding up counts from now backwards, window by window, until they leave no
//! room for the cost. The first window that does not fit must slide out of sight; with a weighted
//! edge, only so far that its share fits, which is one division.

use super::anchor::Sight;
use super::counters::VisibleCounts;
use super::{Counters, Edge, Window, WindowState};
use crate::algorithm::Denials;
use crate::{Decision, Nanos, Permits, Time, Verdict};

/// The decision on a request, and its charge.
pub(super) struct Judged {
    pub(super) decision: Decision,
    pub(super) sight: Sight,
    /// Added to the newest counter; 0 writes nothing.
    pub(super) charge: u64,
}

impl<C: Counters> Window<C> {
    /// The answer of `decide`, and its changes to the state.
    #[inline]
    pub(super) fn judge(&self, state: &WindowState<C>, now: Time, cost: Permits) -> Judged {
        let sight = self.sight(state, now);
        let mut seen = VisibleCounts::new(state.counts.as_slice(), sight.shift);
        let (limit, price) = (self.permits, cost.get());
        let sum = match sight.shift {
            0 => state.counts.whole(),
            _ => seen.sum(self.whole()),
        };
        let used = sum + self.share(seen, sight.left);

        let (verdict, charge) = if used + price <= limit {
            seen.newest += price;
            (Verdict::Allow, price)
        } else {
            let charge = match self.denials {
                Denials::Free => 0,
                Denials::Counted => self.penalty(sum, cost),
            };
            seen.newest += charge;
            let verdict = if price > limit {
                Verdict::DenyForever
            } else {
                let retry_after = self.retry_after(seen, sight, price);
                Verdict::Deny { retry_after }
            };
            (verdict, charge)
        };
        let left = limit.saturating_sub(used + charge);
        let more_after = match verdict {
            _ if left == limit => Nanos::ZERO,
            Verdict::Deny { retry_after } if price == left + 1 => retry_after,
            _ => self.retry_after(seen, sight, left + 1),
        };
        let decision = Decision {
            verdict,
            remaining: Permits::new(left),
            reset_after: self.reset_after(seen, sight),
            more_after,
        };
        Judged {
            decision,
            sight,
            charge,
        }
    }
}

impl<C> Window<C> {
    /// The remaining count of the oldest window, of which `left` nanoseconds are in sight.
    #[inline]
    fn share(&self, seen: VisibleCounts<'_>, left: u64) -> u64 {
        match (self.edge, seen.at(self.whole())) {
            (Edge::Drop, _) | (Edge::Weighted, 0) => 0,
            (Edge::Full, oldest) => oldest,
            // Down: a part of a permit counts for nothing. This is the rule of the source, so
            // that a steady caller gets N a span.
            (Edge::Weighted, oldest) => scale(oldest, left, self.width, Rounding::Down),
        }
    }

    /// The amount that a counted denial adds to the `sum`: up to one further quota, or as many as
    /// can be counted.
    fn penalty(&self, sum: u64, cost: Permits) -> u64 {
        let quota = Permits::new(self.permits);
        let most = (quota + quota).get().saturating_sub(sum);
        most.min(cost.get())
    }

    /// The wait after which `cost` fits, given that it does not now. At most `m` steps.
    #[inline]
    fn retry_after(&self, seen: VisibleCounts<'_>, sight: Sight, cost: u64) -> Nanos {
        // The number of newest windows that leave room for the cost, and that room.
        let (whole, mut stay) = (self.whole(), 0);
        let mut room = self.permits.saturating_sub(cost);
        while stay < whole {
            let Some(rest) = room.checked_sub(seen.at(stay)) else {
                break;
            };
            (room, stay) = (rest, stay + 1);
        }
        // The one behind them is too much as a whole: it must be out of full sight,
        let ahead = whole - stay;
        let visible = match self.edge {
            Edge::Drop => self.width,
            // out of sight,
            Edge::Full => 0,
            // or in sight by less than one permit more than there is room.
            Edge::Weighted => self.visible(room, seen.at(stay)),
        };
        self.wait(sight, ahead, visible)
    }

    /// The time until only `visible` nanoseconds are left of the window `ahead` of this one.
    #[inline]
    fn wait(&self, sight: Sight, ahead: usize, visible: u64) -> Nanos {
        // Below 2^63: all windows in sight are.
        let whole = sight.left + ahead as u64 * self.width;
        Nanos::from_nanos(sight.ahead.saturating_add(whole.saturating_sub(visible)))
    }

    /// The time until nothing in sight counts.
    #[inline]
    fn reset_after(&self, seen: VisibleCounts<'_>, sight: Sight) -> Nanos {
        match seen.newest_of(self.in_sight()) {
            None => Nanos::ZERO,
            Some(back) => {
                let visible = match self.edge {
                    Edge::Drop | Edge::Full => 0,
                    Edge::Weighted => self.visible(0, seen.at(back)),
                };
                self.wait(sight, self.in_sight() - back - 1, visible)
            }
        }
    }

    /// Maximum number of nanoseconds of a window of `count`, which is above `room`, that may be
    /// in sight so that no more than `room` of it count.
    #[inline]
    fn visible(&self, room: u64, count: u64) -> u64 {
        // count x visible / w < room + 1, so count x visible <= (room + 1) x w - 1. Down.
        let count = count.max(1);
        match (room + 1).checked_mul(self.width) {
            Some(product) => (product - 1) / count,
            None => wide_visible(room, self.width, count),
        }
    }
}

/// The direction of rounding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Up,
    Down,
}

/// `count x part / whole`, exact up to the rounding asked for; saturating.
#[inline]
pub(super) fn scale(count: u64, part: u64, whole: u64, rounding: Rounding) -> u64 {
    // Products that fit a word, which is nearly all of them, divide ten times faster.
    match (count.checked_mul(part), rounding) {
        (Some(product), Rounding::Up) => product.div_ceil(whole),
        (Some(product), Rounding::Down) => product / whole,
        (None, _) => scale_wide(count, part, whole, rounding),
    }
}

#[cold]
fn wide_visible(room: u64, width: u64, count: u64) -> u64 {
    let below = (u128::from(room) + 1) * u128::from(width) - 1;
    u64::try_from(below / u128::from(count)).unwrap_or(u64::MAX)
}

#[cold]
fn scale_wide(count: u64, part: u64, whole: u64, rounding: Rounding) -> u64 {
    let (product, whole) = (u128::from(count) * u128::from(part), u128::from(whole));
    let quotient = match rounding {
        Rounding::Up => product.div_ceil(whole),
        Rounding::Down => product / whole,
    };
    u64::try_from(quotient).unwrap_or(u64::MAX)
}
